"""Qwen Code against the fake Chat Completions API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.live.agents import backend
from tests.live.agents.programs import QWEN, Package
from tests.live.agents.rig import Rig
from tests.live.agents.suite import AgentSuite
from tests.live.running import Running

pytestmark = pytest.mark.live

#: What a user of the program with an API key has; no request but those of the turns.
SETTINGS: dict[str, Any] = {
    "security": {"auth": {"selectedType": "openai"}},
    "privacy": {"usageStatisticsEnabled": False},
    "memory": {"enableManagedAutoMemory": False, "enableManagedAutoDream": False},
}


class QwenRig(Rig):
    """An API key for an OpenAI compatible endpoint."""

    agent = "qwen"
    package = QWEN
    start_backend = staticmethod(backend.openai_gemini)
    #: It tries seven times before it gives up, whatever one sets.
    turn_s = 240.0

    def prepare(self) -> None:
        self.settings(SETTINGS)

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Write the user's own settings."""
        path = self.home / ".qwen" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings))

    def env(self) -> Mapping[str, str]:
        return {"OPENAI_API_KEY": "sk-dummy", "OPENAI_BASE_URL": f"{self.backend.url}/v1", "OPENAI_MODEL": "fake-model"}

    def argv(self, *, asks: bool = False) -> list[str]:
        return [str(self.program), "--approval-mode", "default" if asks else "yolo"]

    def lead_argv(self, bridge: list[str]) -> list[str]:
        server = {"command": bridge[0], "args": bridge[1:], "trust": True}
        self.settings({**SETTINGS, "mcpServers": {"fleetd": server}, "general": {"enableAutoUpdate": False}})
        return self.argv()

    async def answers(self, text: str) -> None:
        await self._behave(mode="ok", text=text)

    async def fails(self) -> None:
        await self._behave(mode="503")

    async def exhausts(self) -> None:
        await self._behave(mode="429quota")

    async def wants_permission(self) -> None:
        await self._tool(
            "run_shell_command", {"command": "touch it", "description": "Touch it", "is_background": False}
        )

    async def calls(self, tools: list[tuple[str, dict[str, object]]], then: str) -> None:
        calls = [{"mode": "tool", "tool_name": f"mcp__fleetd__{name}", "tool_args": args} for name, args in tools]
        await self._behave(mode="ok", text=then, script=calls)

    async def prompts(self) -> list[str]:
        return [
            text
            for message in await self._messages()
            if message["role"] == "user"
            for text in _texts(message)
            if not text.startswith("<system-reminder>")
        ]

    async def tool_results(self) -> str:
        return "\n".join(
            text for message in await self._messages() if message["role"] == "tool" for text in _texts(message)
        )

    async def _messages(self) -> list[dict[str, Any]]:
        return list((await self.backend.get("/last")).get("main", {}).get("messages", []))

    async def _tool(self, name: str, arguments: Mapping[str, object], text: str = "It ran.") -> None:
        await self._behave(mode="tool", tool_name=name, tool_args=arguments, text=text)

    async def behaves(self, mode: str, **how: object) -> None:
        """A mode of the fake's own."""
        await self._behave(mode=mode, **how)

    async def _behave(self, **how: object) -> None:
        await self.backend.post("/ctl", how)


def _texts(message: Mapping[str, Any]) -> list[str]:
    content = message["content"]
    return [content] if isinstance(content, str) else [part.get("text", "") for part in content]


#: What a prompt may hold, beside letters.
LINES = "\n".join(f"{n}.\tA line with a tab, `back ticks`, $HOME, naïve 漢字 and 🙂" for n in range(10))


class OlderQwenRig(QwenRig):
    """The version before the alternate screen; its hooks give turns no identifier."""

    package = Package(QWEN.name, "0.15.10", QWEN.command)


class TestOlderQwen(AgentSuite):
    rig_type = OlderQwenRig


class TestQwen(AgentSuite):
    rig_type = QwenRig

    @pytest.fixture
    def qwen(self, rig: Rig) -> QwenRig:
        assert isinstance(rig, QwenRig)
        return rig

    async def test_a_program_that_starts_waits_at_no_dialog(self, qwen: QwenRig, running: Running) -> None:
        target = await self.member(qwen, running)
        await running.state(target)
        assert running.notices == []

    async def test_its_own_hooks_say_how_a_turn_ended(self, qwen: QwenRig, running: Running) -> None:
        target = await self.member(qwen, running)
        await qwen.answers("A fine answer.\n\n```\n  ✕ [API Error: 503 quoted]\n```")
        result = await self.turn(qwen, running, target)
        assert (result["status"], result["source"]) == ("completed", "hook"), result
        assert result["text"] == "A fine answer.\n\n```\n  ✕ [API Error: 503 quoted]\n```"

    @pytest.mark.parametrize(("mode", "kind"), [("401", "auth"), ("400ctx", "request"), ("404", "request")])
    async def test_a_refused_request_is_a_failure_of_its_kind(
        self, qwen: QwenRig, running: Running, mode: str, kind: str
    ) -> None:
        target = await self.member(qwen, running)
        await qwen.behaves(mode)
        result = await self.turn(qwen, running, target)
        assert (result["status"], result["failureKind"], result["source"]) == ("failed", kind, "hook"), result

    async def test_an_answer_without_text_is_a_failure(self, qwen: QwenRig, running: Running) -> None:
        target = await self.member(qwen, running)
        await qwen.behaves("empty")
        result = await self.turn(qwen, running, target)
        assert (result["status"], "failureKind" in result) == ("failed", False), result

    async def test_a_stream_that_breaks_off_is_a_backend_error(self, qwen: QwenRig, running: Running) -> None:
        target = await self.member(qwen, running)
        await qwen.behaves("drop", text="The parser has two bugs, and I will tell you all about them. " * 3)
        result = await self.turn(qwen, running, target)
        assert result["status"] == "backend_error", result

    async def test_attempts_that_fail_show_as_retrying_and_its_turn_may_still_end_well(
        self, qwen: QwenRig, running: Running
    ) -> None:
        target = await self.member(qwen, running)
        await qwen.fails()
        ticket = await running.send(target, "Please look into it.")

        async def retrying() -> bool:
            (row,) = (await running.call("fleet_list"))["members"]
            return row["state"] == "busy" and row.get("retrying", {}).get("attempt", 0) >= 2

        await running.until(retrying, "the second attempt is seen", within_s=qwen.turn_s)
        await qwen.answers("It works again.")
        result = await running.result(ticket, within_s=qwen.turn_s)
        assert (result["status"], result["text"]) == ("completed", "It works again."), result

    async def test_a_turn_that_a_person_stops_is_interrupted_and_the_next_prompt_arrives_alone(
        self, qwen: QwenRig, running: Running
    ) -> None:
        target = await self.member(qwen, running)
        for mode in ("hang", "ok-slow"):
            await qwen.behaves(mode, text="I look at the parser now, and it will take a long time. " * 20)
            ticket = await running.send(target, "Please look into it.\nAnd be quick.")
            await self._asked(qwen, running, "Please look into it.\nAnd be quick.")
            await running.press(target, "Escape")
            result = await running.result(ticket, within_s=qwen.turn_s)
            assert result["status"] == "interrupted", json.dumps(await running.call("fleet_explain", ticket=ticket))
            await qwen.answers("Done.")
            result = await self.turn(qwen, running, target, "Something else.")
            assert (result["status"], result["text"]) == ("completed", "Done."), result
            assert (await qwen.prompts())[-1] == "Something else."

    async def test_its_lead_stops_a_turn_and_the_next_prompt_arrives_alone(
        self, qwen: QwenRig, running: Running
    ) -> None:
        target = await self.member(qwen, running)
        await qwen.behaves("hang")
        ticket = await running.send(target, "Please look into it.")
        await self._asked(qwen, running, "Please look into it.")
        await running.call("fleet_interrupt", target=target)
        assert (await running.result(ticket, within_s=qwen.turn_s))["status"] == "interrupted"
        await qwen.answers("Done.")
        result = await self.turn(qwen, running, target, "Something else.")
        assert (result["status"], (await qwen.prompts())[-1]) == ("completed", "Something else."), result

    async def test_a_member_answers_with_fleets_own_tool(self, qwen: QwenRig, running: Running) -> None:
        target = await self.member(qwen, running, "asks")
        await qwen.calls([("fleet_reply", {"text": "From inside."})], then="I have replied.")
        result = await self.turn(qwen, running, target)
        assert (result["status"], result["text"], result["source"]) == ("completed", "From inside.", "reply"), result
        await running.until_state(target, "done", within_s=60)
        assert "your answer is with your lead" in await qwen.tool_results()

    async def test_a_turn_that_a_person_types_into_its_pane_is_none_of_ours(
        self, qwen: QwenRig, running: Running
    ) -> None:
        target = await self.member(qwen, running)
        await qwen.behaves("401")
        await running.daemon.host.paste(await running.pane(target), "What a person wants.")
        await running.until(lambda: self._shows(running, target, "What a person wants."), "it arrived", within_s=60)
        await running.press(target, "Enter")
        await running.until(lambda: self._shows(running, target, "Incorrect API key"), "it failed", within_s=60)
        assert await running.state(target) == "idle"
        await qwen.answers("Ours.")
        result = await self.turn(qwen, running, target)
        assert (result["status"], result["text"]) == ("completed", "Ours."), result

    async def test_prompts_arrive_exactly_once_also_right_after_its_start(
        self, qwen: QwenRig, running: Running
    ) -> None:
        await qwen.answers("Read.")
        spawned = await running.call("fleet_spawn", profile="one", cwd=str(qwen.work), prompt=LINES)
        assert (await running.result(spawned["ticket"], within_s=qwen.turn_s))["status"] == "completed"
        for prompt in ("One line.", LINES, "/help is no command here"):
            assert (await self.turn(qwen, running, spawned["target"], prompt))["status"] == "completed"
        texts = await qwen.prompts()
        assert _same(texts, [LINES, "One line.", LINES, "Task: /help is no command here"]), texts

    async def _asked(self, qwen: QwenRig, running: Running, prompt: str) -> None:
        """The backend has the prompt. Before, the program may take no notice of a key that stops it."""

        async def so() -> bool:
            return (await qwen.prompts())[-1:] == [prompt]

        await running.until(so, "the prompt is with the backend", within_s=60)

    async def _shows(self, running: Running, target: str, text: str) -> bool:
        shown = " ".join((await running.screen(await running.pane(target))).lines)
        return "".join(text.split()) in "".join(shown.split())


def _same(texts: list[str], prompts: list[str]) -> bool:
    """Whether these are the prompts, but for a tab, which the program may turn into blanks."""
    return [text.expandtabs(4) for text in texts] == [prompt.expandtabs(4) for prompt in prompts]
