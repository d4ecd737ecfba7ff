"""Claude Code against the fake Anthropic API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from actors.screen import State
from fleetd.agents import ADAPTERS
from tests.live.agents import backend
from tests.live.agents.programs import CLAUDE, Package
from tests.live.agents.rig import Rig
from tests.live.agents.suite import AgentSuite
from tests.live.running import Running

pytestmark = pytest.mark.live


class ClaudeRig(Rig):
    """A subscription's login by token, so that quotas are announced as such."""

    agent = "claude"
    package = CLAUDE
    start_backend = staticmethod(backend.anthropic)
    names_reset = True

    def prepare(self) -> None:
        projects = {str(self.work): {"hasTrustDialogAccepted": True}}
        settings = {"hasCompletedOnboarding": True, "hasSeenAutoDefaultNotice": True, "projects": projects}
        (self.home / ".claude.json").write_text(json.dumps(settings))

    def env(self) -> Mapping[str, str]:
        return {
            "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-" + "fleetd-test-" * 4,
            "ANTHROPIC_BASE_URL": self.backend.url,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        }

    def argv(self, *, asks: bool = False) -> list[str]:
        return [str(self.program), "--permission-mode", "manual" if asks else "acceptEdits"]

    def lead_argv(self, bridge: list[str]) -> list[str]:
        servers = {"fleetd": {"command": bridge[0], "args": bridge[1:], "alwaysLoad": True}}
        path = self.home / "mcp.json"
        path.write_text(json.dumps({"mcpServers": servers}))
        return [*self.argv(), f"--mcp-config={path}", "--allowedTools=mcp__fleetd"]

    async def answers(self, text: str) -> None:
        await self.behave({"mode": "ok", "text": text})

    async def fails(self) -> None:
        await self.behave("529")

    async def exhausts(self) -> None:
        await self.behave("429-5h")

    async def wants_permission(self) -> None:
        call = {"name": "Bash", "input": {"command": "touch it; rm it", "description": "Touch it"}}
        await self.behave({"mode": "tool_use", **call})

    async def calls(self, tools: list[tuple[str, dict[str, object]]], then: str) -> None:
        script: list[Any] = [
            {"mode": "tool_use", "always": True, "name": f"mcp__fleetd__{name}", "input": arguments}
            for name, arguments in tools
        ]
        await self.backend.post("/set", {"script": script, "default": {"mode": "ok", "text": then}})

    async def prompts(self) -> list[str]:
        return [
            text
            for message in self._newest().get("messages", [])
            if message["role"] == "user"
            for text in _texts(message["content"])
        ]

    async def tool_results(self) -> str:
        return "\n".join(json.dumps(each["content"], ensure_ascii=False) for each in await self.structured_results())

    async def structured_results(self) -> list[dict[str, Any]]:
        """The results of tool calls in the newest request, in order."""
        return [
            part
            for message in self._newest().get("messages", [])
            if isinstance(message["content"], list)
            for part in message["content"]
            if part["type"] == "tool_result"
        ]

    async def behave(self, behaviour: object) -> None:
        """What every request gets from now on; see the fake's own head."""
        await self.backend.post("/set", {"script": [], "default": behaviour})

    def _newest(self) -> dict[str, Any]:
        """The newest request of a turn: helper requests have no tools."""
        return next((body for body in reversed(self.backend.requests()) if len(body.get("tools") or ()) > 3), {})


def _texts(content: str | list[dict[str, Any]]) -> list[str]:
    if isinstance(content, str):
        return [content]
    return [part["text"] for part in content if part["type"] == "text" and "<system-reminder>" not in part["text"]]


class OlderClaudeRig(ClaudeRig):
    """The newest version that npm gives to Node 20; it draws and reports otherwise in places."""

    package = Package(CLAUDE.name, "2.1.197", CLAUDE.command)

    def argv(self, *, asks: bool = False) -> list[str]:
        return [str(self.program), "--permission-mode", "default" if asks else "acceptEdits"]


class ClaudeSuite(AgentSuite):
    """What is Claude Code's own, in each version."""

    async def test_the_hooks_are_what_settles_a_turn(self, rig: ClaudeRig, running: Running) -> None:
        """The whole answer, which is longer than the screen, and two that the screen alone may take for failures."""
        target = await self.member(rig, running)
        long = "\n".join(f"{n}. line of many" for n in range(1, 400))
        for text in (long, "API Error: 500 Internal server error", "You've hit your session limit · resets 5pm"):
            await rig.answers(text)
            result = await self.turn(rig, running, target)
            assert (result["status"], result["source"], result["text"]) == ("completed", "hook", text)
        await rig.fails()
        result = await self.turn(rig, running, target)
        assert (result["status"], result["source"]) == ("backend_error", "hook"), result
        assert result["reason"].startswith("API Error: 529 Overloaded")

    @pytest.mark.parametrize(("behaviour", "kind"), [("401", "auth"), ("404", "request"), ("400", "request")])
    async def test_a_refusal_fails_and_says_of_what(
        self, rig: ClaudeRig, running: Running, behaviour: str, kind: str
    ) -> None:
        target = await self.member(rig, running)
        await rig.behave(behaviour)
        result = await self.turn(rig, running, target)
        assert (result["status"], result.get("failureKind"), result["source"]) == ("failed", kind, "hook"), result

    async def test_without_hooks_the_screen_decides(self, rig: ClaudeRig, running: Running) -> None:
        path = running.daemon.config_path
        assert path is not None
        settings = "'--settings={\"disableAllHooks\": true}'"
        path.write_text(path.read_text().replace("'acceptEdits'", f"'acceptEdits', {settings}"))
        await running.daemon.reload()
        target = await self.member(rig, running)
        await rig.behave({"mode": "ok", "text": "Seen on the screen.", "ttfb": 4})  # a faster turn is not believed
        result = await self.turn(rig, running, target)
        assert (result["status"], result["source"]) == ("completed", "block"), result
        assert result["text"] == "Seen on the screen."
        await rig.fails()
        result = await self.turn(rig, running, target)
        assert (result["status"], result["source"]) == ("backend_error", "block"), result

    async def test_a_retry_is_shown_while_the_turn_goes_on(self, rig: ClaudeRig, running: Running) -> None:
        target = await self.member(rig, running)
        await rig.fails()
        ticket = await running.send(target, "Please look into it.")

        async def retries() -> bool:
            members = (await running.call("fleet_list"))["members"]
            return any(row.get("retrying", {}).get("attempt", 0) >= 2 for row in members)

        await running.until(retries, "the second retry is shown", within_s=rig.turn_s)
        assert (await running.result(ticket, within_s=rig.turn_s))["status"] == "backend_error"

    @pytest.mark.parametrize("first_word", [False, True], ids=["before-its-first-word", "in-its-answer"])
    @pytest.mark.parametrize("long", [False, True], ids=["short", "long"])
    async def test_a_turn_that_somebody_stops_is_interrupted_and_the_next_prompt_is_alone(
        self, rig: ClaudeRig, running: Running, first_word: bool, long: bool
    ) -> None:
        """Before its first word the program gives the prompt back into its input line."""
        target = await self.member(rig, running)
        slow = {"chunks": 3, "chunk_delay": 20} if first_word else {"ttfb": 60}
        await rig.behave({"mode": "ok", "text": "This comes now.\n\n" * 3, **slow})
        prompt = "\n".join(f"{n}. Please look into it." for n in range(12)) if long else "Please look into it."
        ticket = await running.send(target, prompt)

        async def runs() -> bool:
            frame = await running.screen(await running.pane(target))
            reading = ADAPTERS["claude"].grammar.read(frame)
            return reading.state is State.BUSY and ("This comes" in "\n".join(frame.lines) or not first_word)

        await running.until(runs, "the turn runs", within_s=rig.turn_s)
        await running.press(target, "Escape")
        result = await running.result(ticket, within_s=rig.turn_s)
        assert result["status"] == "interrupted", result
        await rig.answers("The next one.")
        result = await self.turn(rig, running, target, "What is next?")
        assert (result["status"], result["text"]) == ("completed", "The next one."), result
        assert (await rig.prompts())[-1] == "What is next?"

    @pytest.mark.parametrize("lines", [1, 10])
    async def test_a_prompt_right_after_start_up_arrives_whole_and_once(
        self, rig: ClaudeRig, running: Running, lines: int
    ) -> None:
        prompt = "\n".join(f"{n} Keep\tthis; naïve café, 漢字 and 🙂." for n in range(lines))
        await rig.answers("Read.")
        spawned = await running.call("fleet_spawn", profile="one", cwd=str(rig.work), prompt=prompt)
        result = await running.result(spawned["ticket"], within_s=rig.turn_s)
        assert (result["status"], result["source"]) == ("completed", "hook"), result
        seen, whole = ("".join(text.split()) for text in ("".join(await rig.prompts()), prompt))
        assert (seen.count(whole), seen.count("Keep")) == (1, lines), seen

    async def test_a_member_answers_by_fleet_reply(self, rig: ClaudeRig, running: Running) -> None:
        target = await self.member(rig, running, "asks")
        await rig.calls([("fleet_reply", {"text": "By the member itself."})], "Replied.")
        result = await self.turn(rig, running, target)
        assert (result["status"], result["source"]) == ("completed", "reply"), result
        assert result["text"] == "By the member itself."

    async def test_a_persons_own_turn_in_the_pane_is_not_ours(self, rig: ClaudeRig, running: Running) -> None:
        target = await self.member(rig, running)
        pane = await running.pane(target)
        await rig.fails()
        await running.daemon.host.paste(pane, "A person asks this.")

        async def failed() -> bool:
            frame = await running.screen(pane)
            if "A person asks this." in ADAPTERS["claude"].grammar.read(frame).draft:
                await running.press(target, "Enter")
            return "529 Overloaded" in "\n".join(frame.lines)

        await running.until(failed, "the person's turn has failed", within_s=rig.turn_s)
        assert await running.state(target) == "idle"
        await rig.behave({"mode": "ok", "text": "Ours.", "ttfb": 4})
        ticket = await running.send(target, "Please look into it.")

        async def runs() -> bool:
            reading = ADAPTERS["claude"].grammar.read(await running.screen(pane))
            return reading.state is State.BUSY

        await running.until(runs, "our turn runs", within_s=rig.turn_s)
        await running.daemon.host.paste(pane, "A person asks this in between.")
        await running.press(target, "Enter")
        result = await running.result(ticket, within_s=rig.turn_s)
        assert (result["status"], result["text"]) == ("completed", "Ours."), result

    async def test_a_sub_agent_that_dies_is_not_its_turns_end(self, rig: ClaudeRig, running: Running) -> None:
        target = await self.member(rig, running)
        helper = {"description": "Help", "prompt": "Help with it. @@529@@", "subagent_type": "general-purpose"}
        call = {"mode": "tool_use", "name": "Agent", "input": helper}
        then = {"mode": "ok", "text": "It died, and I did it myself.", "ttfb": 8}
        await rig.backend.post("/set", {"script": [call], "default": then})
        result = await self.turn(rig, running, target, "Use a helper.")
        assert (result["status"], result["source"]) == ("completed", "hook"), result
        assert result["text"] == "It died, and I did it myself."


class TestClaude(ClaudeSuite):
    rig_type = ClaudeRig

    async def test_a_member_does_not_go_on_by_itself_when_its_quota_comes_back(
        self, rig: ClaudeRig, running: Running
    ) -> None:
        target = await self.member(rig, running)
        await rig.exhausts()
        assert (await self.turn(rig, running, target))["status"] == "backend_exhausted"
        pane = await running.pane(target)

        async def asks() -> bool:
            shown = "\n".join((await running.screen(pane)).lines)
            assert "set to continue" not in shown, shown
            return "1. Stop and wait for limit to reset" in shown

        await running.until(asks, "it asks what to do", within_s=rig.turn_s)


class TestOlderClaude(ClaudeSuite):
    rig_type = OlderClaudeRig
