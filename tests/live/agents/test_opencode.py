"""OpenCode against the fake Chat Completions API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.leads import Join
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.config import load
from fleetd.daemon import Daemon
from fleetd.hosts.tmux import TmuxHost
from tests.live.agents import backend
from tests.live.agents.programs import OPENCODE
from tests.live.agents.rig import Rig
from tests.live.agents.suite import LONG, AgentSuite
from tests.live.running import Running, private_run, serving

pytestmark = pytest.mark.live

#: What the profile ``asks`` adds to the user's own configuration.
ASKS = {"permission": {"bash": "ask"}}


class OpenCodeRig(Rig):
    """An API key for an OpenAI compatible endpoint, in the user's own configuration."""

    agent = "opencode"
    package = OPENCODE
    start_backend = staticmethod(backend.openai_gemini)
    #: It tries five times more, for a minute and a half, whatever one sets.
    turn_s = 240.0
    names_reset = True

    def prepare(self) -> None:
        self.settings({})

    def settings(self, more: Mapping[str, Any]) -> None:
        """Write the user's own configuration."""
        path = self.home / ".config" / "opencode" / "opencode.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({**self._settings(), **more}))

    def _settings(self) -> dict[str, Any]:
        model = {"name": "Fake Model", "limit": {"context": 128_000, "output": 8_000}}
        options = {"baseURL": f"{self.backend.url}/v1", "apiKey": "sk-dummy"}
        fake = {"npm": "@ai-sdk/openai-compatible", "name": "Fake", "options": options, "models": {"fake-model": model}}
        model_name = "fake/fake-model"
        schema = "https://opencode.ai/config.json"  # the program adds it where it is missing
        return {"$schema": schema, "provider": {"fake": fake}, "model": model_name, "small_model": model_name}

    def env(self) -> Mapping[str, str]:
        return {"OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_LSP_DOWNLOAD": "1"}

    def argv(self, *, asks: bool = False) -> list[str]:
        if not asks:
            return super().argv()
        path = self.directory / "asks.json"
        path.write_text(json.dumps(ASKS))
        return ["env", f"OPENCODE_CONFIG={path}", str(self.program)]

    def lead_argv(self, bridge: list[str]) -> list[str]:
        self.settings({"mcp": {"fleetd": {"type": "local", "command": bridge, "enabled": True, "timeout": 60_000}}})
        return self.argv()

    async def answers(self, text: str) -> None:
        await self.behave("ok", text=text)

    async def fails(self) -> None:
        await self.behave("503")

    async def exhausts(self) -> None:
        await self.behave("429usage")

    async def wants_permission(self) -> None:
        await self.behave("tool", text="It ran.", tool_cmd="touch it")

    async def calls(self, tools: list[tuple[str, dict[str, object]]], then: str) -> None:
        script = [{"mode": "tool", "tool_name": f"fleetd_{name}", "tool_args": given} for name, given in tools]
        await self.behave("ok", text=then, script=script)

    async def prompts(self) -> list[str]:
        return [_text(message) for message in await self._messages() if message["role"] == "user"]

    async def tool_results(self) -> str:
        return "\n".join(_text(message) for message in await self._messages() if message["role"] == "tool")

    async def behave(self, mode: str, **more: object) -> None:
        """What the backend does from now on, by its own words."""
        await self.backend.post("/ctl", {"mode": mode, "script": [], "tool_name": None, "tool_args": None, **more})

    async def _messages(self) -> list[dict[str, Any]]:
        return list((await self.backend.get("/last")).get("main", {}).get("messages", []))


def _text(message: Mapping[str, Any]) -> str:
    content = message["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


class TestOpenCode(AgentSuite):
    rig_type = OpenCodeRig

    @pytest.fixture
    def opencode(self, rig: Rig) -> OpenCodeRig:
        assert isinstance(rig, OpenCodeRig)
        return rig

    async def test_its_events_say_how_each_turn_ended(self, opencode: OpenCodeRig, running: Running) -> None:
        """The screen agrees, but it is not asked."""
        ends = [
            ("ok", "completed", None),
            ("401", "failed", "auth"),
            ("403", "failed", "auth"),
            ("400", "failed", "request"),
            ("404", "failed", "request"),
            ("refusal", "failed", "request"),
            ("empty", "failed", None),
            ("stream-quota", "backend_exhausted", None),
        ]
        for mode, status, failure in ends:
            target = await self.member(opencode, running)
            await opencode.behave(mode, text="It is done.")
            result = await self.turn(opencode, running, target)
            found = (result["status"], result.get("failureKind"), result.get("source"))
            assert found == (status, failure, "hook"), f"{mode} {result}"
            await running.call("fleet_release", target=target)

    async def test_a_conversation_that_stays_too_long_ends(self, opencode: OpenCodeRig, running: Running) -> None:
        """Left alone, the program would sum it up and try again for ever."""
        target = await self.member(opencode, running)
        await opencode.behave("400ctx", side="ok")
        result = await self.turn(opencode, running, target)
        assert (result["status"], result.get("failureKind"), result["source"]) == ("failed", "request", "hook"), result

    async def test_an_answer_that_looks_like_a_failure_is_the_answer(
        self, opencode: OpenCodeRig, running: Running
    ) -> None:
        target = await self.member(opencode, running)
        text = "The engine is currently overloaded, please try again later"
        await opencode.answers(text)
        result = await self.turn(opencode, running, target, text)
        assert (result["status"], result["text"]) == ("completed", text), result

    async def test_escape_in_the_pane_interrupts_the_turn(self, opencode: OpenCodeRig, running: Running) -> None:
        target = await self.member(opencode, running)
        await opencode.behave("ok-slow", text="A long answer. " * 60)
        ticket = await running.send(target, "Please take your time.")
        await self.streams(opencode, running, target)
        await running.press(target, "Escape")
        pane = await running.pane(target)

        async def asked() -> bool:
            return any("esc again to interrupt" in line for line in (await running.screen(pane)).lines)

        await running.until(asked, "the program asks whether it was meant", within_s=opencode.turn_s)
        await running.press(target, "Escape")
        result = await running.result(ticket, within_s=opencode.turn_s)
        assert (result["status"], result["source"]) == ("interrupted", "hook"), result
        await opencode.answers("Here I am.")
        assert (await self.turn(opencode, running, target, "Are you there?"))["text"] == "Here I am."

    async def test_a_lead_interrupts_the_turn(self, opencode: OpenCodeRig, running: Running) -> None:
        """The program asks whether it was meant, so the key is pressed twice."""
        target = await self.member(opencode, running)
        await opencode.behave("ok-slow", text="A long answer. " * 60)
        ticket = await running.send(target, "Please take your time.")
        await self.streams(opencode, running, target)
        await running.call("fleet_interrupt", target=target)
        assert (await running.result(ticket, within_s=opencode.turn_s))["status"] == "interrupted"
        pane = await running.pane(target)

        async def stopped() -> bool:
            return any(line.endswith("· interrupted") for line in (await running.screen(pane)).lines)

        await running.until(stopped, "the program has stopped", within_s=opencode.turn_s)

    async def test_a_member_answers_with_fleet_reply(self, opencode: OpenCodeRig, running: Running) -> None:
        target = await self.member(opencode, running)
        await opencode.calls([("fleet_reply", {"text": "By tool."})], then="I have replied.")
        result = await self.turn(opencode, running, target)
        assert (result["status"], result["source"], result["text"]) == ("completed", "reply", "By tool."), result
        await running.until_state(target, "done", within_s=opencode.turn_s)

    async def test_its_retries_are_shown_while_the_turn_runs(self, opencode: OpenCodeRig, running: Running) -> None:
        target = await self.member(opencode, running)
        await opencode.fails()
        ticket = await running.send(target, "Please look into it.")

        async def retries() -> bool:
            return any("retrying" in row for row in (await running.call("fleet_list"))["members"])

        await running.until(retries, "the member retries", within_s=opencode.turn_s)
        assert (await running.result(ticket, within_s=opencode.turn_s))["status"] == "backend_error"

    async def test_a_wait_of_hours_ends_the_turn_at_once(self, opencode: OpenCodeRig, running: Running) -> None:
        target = await self.member(opencode, running)
        await opencode.behave("429rate", retry_after=7200)
        result = await self.turn(opencode, running, target)
        assert result["status"] == "backend_exhausted", result
        assert 7000 < result["resetsInSeconds"] <= 7200

    async def test_a_persons_own_turns_are_not_ours(self, opencode: OpenCodeRig, running: Running) -> None:
        target = await self.member(opencode, running)
        pane = await running.pane(target)
        await opencode.behave("401")
        await self.types(opencode, running, target, "What a person asks, and what fails.")

        async def failed() -> bool:
            return any("Incorrect API key" in line for line in (await running.screen(pane)).lines)

        await running.until(failed, "the person's turn has failed", within_s=opencode.turn_s)
        assert await running.state(target) == "idle"
        await opencode.behave("ok-slow", text="What only the person asked for, a long text. " * 3)
        await self.types(opencode, running, target, "What a person asks, and what takes long.")
        ticket = await running.send(target, "What the lead asks.")
        await opencode.answers("What the lead asked for.")
        result = await running.result(ticket, within_s=opencode.turn_s)
        assert (result["status"], result["text"]) == ("completed", "What the lead asked for."), result
        assert (await opencode.prompts())[-1] == "What the lead asks."

    async def test_prompts_arrive_whole_and_once_and_right_after_the_start(
        self, opencode: OpenCodeRig, running: Running
    ) -> None:
        target = await running.spawn("one", cwd=str(opencode.work))
        await opencode.answers("Read.")
        ten = "\n".join(f"{n}\tline of ten, naïve 漢字 🙂  with two blanks" for n in range(10))
        for prompt in ("One line.", ten, LONG):
            assert (await self.turn(opencode, running, target, prompt))["status"] == "completed"
            # It puts a blank behind what it shows as a placeholder.
            assert [text.rstrip() for text in await opencode.prompts() if prompt in text] == [prompt]
        await self.turn(opencode, running, target, "/exit is no command here")
        assert (await opencode.prompts())[-1] == "Task: /exit is no command here"

    async def test_nothing_of_the_users_own_is_changed(self, opencode: OpenCodeRig, running: Running) -> None:
        before = _files(opencode.home / ".config")
        target = await self.member(opencode, running)
        await opencode.answers("It is done.")
        assert (await self.turn(opencode, running, target))["status"] == "completed"
        after = _files(opencode.home / ".config")
        assert {path: after.get(path) for path in before} == before
        assert not [path for path in after if "fleetd" in path or b"fleetd" in after[path]]

    async def test_without_the_plugin_the_screen_decides(self, opencode: OpenCodeRig, tmp_path: Path) -> None:
        text = opencode.profiles().replace("    env:\n", "    env:\n      OPENCODE_PURE: '1'\n")
        async with serving(tmp_path, text, TmuxHost(private_run(tmp_path))) as running:
            await led(running, opencode)
            target = await self.member(opencode, running)
            await opencode.answers("The first answer.")
            result = await self.turn(opencode, running, target)
            assert (result["status"], result["text"], result["source"]) == ("completed", "The first answer.", "block")
            await opencode.behave("401")
            result = await self.turn(opencode, running, target, "And the next.")
            assert (result["status"], result["failureKind"]) == ("failed", "auth"), result

    async def test_a_turn_across_a_restart_of_the_daemon_is_settled_by_its_events(
        self, opencode: OpenCodeRig, tmp_path: Path
    ) -> None:
        run = private_run(tmp_path)
        path = tmp_path / "fleetd.yaml"
        path.write_text(opencode.profiles())
        host = TmuxHost(run)
        daemon = Daemon(run, load(path.read_text(), shipped=ADAPTERS), path, host)
        async with trio.open_nursery() as nursery:
            await nursery.start(daemon.run)
            try:
                running = await led(Running(daemon), opencode)
                target = await self.member(opencode, running)
                await opencode.behave("ok-slow", text="A long answer. " * 20)
                ticket = await running.send(target, "Please take your time.")
                await self.streams(opencode, running, target)
            except BaseException:
                with trio.CancelScope(shield=True):
                    await host.kill_server()
                raise
            daemon.end()
        async with serving(tmp_path, opencode.profiles(), TmuxHost(run)) as after:
            await led(after, opencode)
            result = await after.result(ticket, within_s=opencode.turn_s)
            assert (result["status"], result["source"]) == ("completed", "hook"), result
            assert result["text"].count("A long answer.") == 20
            await opencode.behave("401")
            result = await self.turn(opencode, after, target, "And the next.")
            assert (result["status"], result["failureKind"], result["source"]) == ("failed", "auth", "hook"), result

    async def streams(self, opencode: OpenCodeRig, running: Running, target: str) -> None:
        """Wait until an answer is being drawn."""
        pane = await running.pane(target)

        async def drawn() -> bool:
            frame = await running.screen(pane)
            return any("A long answer." in line for line in frame.lines)

        await running.until(drawn, "the answer is being drawn", within_s=opencode.turn_s)

    async def types(self, opencode: OpenCodeRig, running: Running, target: str, text: str) -> None:
        """What a person does in the member's pane."""
        pane = await running.pane(target)

        async def free() -> bool:
            reading = ADAPTERS["opencode"].grammar.read(await running.screen(pane))
            return reading.input_open and not reading.draft

        async def typed() -> bool:
            frame = await running.screen(pane)
            return text in ADAPTERS["opencode"].grammar.read(frame).draft

        async def sent() -> bool:
            frame = await running.screen(pane)
            return any(text in line for line in frame.lines) and not ADAPTERS["opencode"].grammar.read(frame).draft

        await running.until(free, "the input line is free", within_s=opencode.turn_s)
        await running.daemon.host.paste(pane, text)
        await running.until(typed, "the person's prompt stands in the box", within_s=opencode.turn_s)
        await running.press(target, "Enter")
        await running.until(sent, "the person's prompt was submitted", within_s=opencode.turn_s)


async def led(running: Running, rig: Rig) -> Running:
    """The daemon, with a lead that it knows."""
    running.lead = Caller(Role.LEAD, await running.daemon.fleet.leads.ask(Join("suite")), str(rig.work))
    return running


def _files(folder: Path) -> dict[str, bytes]:
    """What stands in a folder, without packages."""
    found = (path for path in folder.rglob("*") if path.is_file() and "node_modules" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() for path in found}
