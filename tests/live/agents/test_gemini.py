"""Gemini CLI against the fake Gemini API."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.live.agents import backend
from tests.live.agents.programs import GEMINI
from tests.live.agents.rig import Rig
from tests.live.agents.suite import AgentSuite, started
from tests.live.running import Running

pytestmark = pytest.mark.live

#: What a user of the program with an API key has.
SETTINGS: dict[str, Any] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "privacy": {"usageStatisticsEnabled": False},
}


class GeminiRig(Rig):
    """An API key."""

    agent = "gemini"
    package = GEMINI
    start_backend = staticmethod(backend.openai_gemini)

    def prepare(self) -> None:
        self.settings(SETTINGS)

    def settings(self, settings: Mapping[str, Any]) -> None:
        """Write the user's own settings."""
        path = self.home / ".gemini" / "settings.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(settings))

    def env(self) -> Mapping[str, str]:
        return {"GEMINI_API_KEY": "dummy-key", "GOOGLE_GEMINI_BASE_URL": self.backend.url}

    def argv(self, *, asks: bool = False) -> list[str]:
        return [str(self.program), "-m", "gemini-2.5-pro", "--approval-mode", "default" if asks else "yolo"]

    def lead_argv(self, bridge: list[str]) -> list[str]:
        server = {"command": bridge[0], "args": bridge[1:], "trust": True}
        self.settings({**SETTINGS, "mcpServers": {"fleetd": server}, "general": {"enableAutoUpdate": False}})
        return self.argv()

    async def answers(self, text: str) -> None:
        await self.behave(mode="ok", text=text)

    async def fails(self) -> None:
        await self.behave(mode="503")

    async def exhausts(self) -> None:
        await self.behave(mode="429quota")

    async def wants_permission(self) -> None:
        await self._tool("run_shell_command", {"command": "touch it", "description": "Touch it"})

    async def calls(self, tools: list[tuple[str, dict[str, object]]], then: str) -> None:
        (name, arguments), *others = tools
        assert not others, "this fake answers in text once it has had a tool's result"
        await self._tool(f"mcp_fleetd_{name}", arguments, text=then)

    async def prompts(self) -> list[str]:
        return [text for text in (_text(message, "text") for message in await self._messages()) if text]

    async def tool_results(self) -> str:
        return "\n".join(_text(message, "functionResponse") for message in await self._messages())

    async def requests(self) -> list[dict[str, Any]]:
        """What the fake has seen, oldest first."""
        return list(await self.backend.get("/log"))

    async def behave(self, **how: object) -> None:
        """Tell the fake how to answer from now on."""
        await self.backend.post("/ctl", how)

    async def _messages(self) -> list[dict[str, Any]]:
        main = (await self.backend.get("/last")).get("main", {})
        return [message for message in main.get("contents", []) if message.get("role") == "user"]

    async def _tool(self, name: str, arguments: Mapping[str, object], text: str = "It ran.") -> None:
        await self.behave(mode="tool", tool_name=name, tool_args=arguments, text=text)


def _text(message: Mapping[str, Any], key: str) -> str:
    found = [part[key] for part in message["parts"] if key in part]
    return "".join(each if isinstance(each, str) else json.dumps(each) for each in found)


class TestGemini(AgentSuite):
    rig_type = GeminiRig

    @pytest.fixture
    def gemini(self, rig: Rig) -> GeminiRig:
        assert isinstance(rig, GeminiRig)
        return rig

    @pytest.fixture
    async def lead_rig(self, tmp_path: Path) -> AsyncIterator[Rig]:
        """The lead's program outlives its terminal, so it is ended here."""
        async with started(self.rig_type, tmp_path / "lead") as rig:
            yield rig
            for process in _below(rig.work):
                os.kill(process, signal.SIGTERM)

    async def test_how_a_turn_ended_is_what_the_hooks_and_the_record_say(
        self, gemini: GeminiRig, running: Running
    ) -> None:
        target = await self.member(gemini, running)
        await gemini.answers("✕ [API Error: terminated]")
        result = await self.turn(gemini, running, target)
        assert (result["status"], result["source"], result["text"]) == (
            "completed",
            "hook",
            "✕ [API Error: terminated]",
        )
        await gemini.behave(mode="drop", text="Half an answer. " * 8)
        result = await self.turn(gemini, running, target)
        assert (result["status"], result["source"]) == ("backend_error", "hook"), result

    async def test_a_person_who_presses_escape_stops_the_turn(self, gemini: GeminiRig, running: Running) -> None:
        target = await self.member(gemini, running)
        await gemini.behave(mode="ok-slow", text="word " * 200)
        ticket = await running.send(target, "Please count.")
        await self.until_shown(gemini, running, target, "✦ word")
        await running.press(target, "Escape")
        result = await running.result(ticket, within_s=gemini.turn_s)
        assert result["status"] == "interrupted", result
        await gemini.answers("Fine.")
        assert (await self.turn(gemini, running, target))["text"] == "Fine."

    async def test_a_lead_can_stop_a_turn_and_send_another(self, gemini: GeminiRig, running: Running) -> None:
        target = await self.member(gemini, running)
        await gemini.behave(mode="ok-slow", text="word " * 200)
        ticket = await running.send(target, "Please count.")
        await self.until_shown(gemini, running, target, "✦ word")
        await running.call("fleet_interrupt", target=target)
        assert (await running.result(ticket))["status"] == "interrupted"
        await gemini.answers("Fine.")
        assert (await self.turn(gemini, running, target))["text"] == "Fine."

    async def test_a_member_answers_with_fleet_reply(self, gemini: GeminiRig, running: Running) -> None:
        target = await self.member(gemini, running)
        await gemini.calls([("fleet_reply", {"text": "From inside."})], "Said.")
        result = await self.turn(gemini, running, target)
        assert (result["status"], result["source"], result["text"]) == ("completed", "reply", "From inside.")

    @pytest.mark.parametrize(("mode", "kind"), [("401", "auth"), ("400", "request"), ("404", "request")])
    async def test_a_refused_key_or_request_is_a_failure_of_its_own_kind(
        self, mode: str, kind: str, gemini: GeminiRig, running: Running
    ) -> None:
        target = await self.member(gemini, running)
        await gemini.behave(mode=mode)
        result = await self.turn(gemini, running, target)
        assert (result["status"], result.get("failureKind")) == ("failed", kind), str(result)

    async def test_a_persons_own_turn_is_not_ours(self, gemini: GeminiRig, running: Running) -> None:
        target = await self.member(gemini, running)
        await gemini.answers("An answer for a person.")
        pane = await running.pane(target)
        await running.daemon.host.paste(pane, "A person asks.")
        await self.until_shown(gemini, running, target, "A person asks.")
        # An Enter that comes too soon after a paste is lost, and a person presses it again.
        while not any("✦ An answer" in line for line in (await running.screen(pane)).lines):
            await running.press(target, "Enter")
            await trio.sleep(1)
        await gemini.answers("An answer for the lead.")
        result = await self.turn(gemini, running, target, "The lead asks.")
        assert (result["status"], result["text"]) == ("completed", "An answer for the lead.")

    async def test_a_used_up_quotas_dialog_is_answered_by_nobody(self, gemini: GeminiRig, running: Running) -> None:
        target = await self.member(gemini, running)
        await gemini.exhausts()
        ticket = await running.send(target, "Please look into it.")
        behind = await running.send(target, "This must never choose in the dialog.")
        result = await running.result(ticket, within_s=gemini.turn_s)
        assert result["status"] == "backend_exhausted", result
        assert (await running.result(behind, within_s=gemini.turn_s))["status"] == "refused"
        assert any("1. Keep trying" in line for line in (await running.screen(await running.pane(target))).lines)

    async def test_the_users_own_settings_stay_as_they_are(self, gemini: GeminiRig, running: Running) -> None:
        target = await self.member(gemini, running)
        await gemini.answers("Fine.")
        assert (await self.turn(gemini, running, target))["status"] == "completed"
        assert json.loads((gemini.home / ".gemini" / "settings.json").read_text()) == SETTINGS

    async def until_shown(self, rig: Rig, running: Running, target: str, text: str) -> None:
        """Wait until the member's pane shows a text."""
        pane = await running.pane(target)

        async def shown() -> bool:
            return any(text in line for line in (await running.screen(pane)).lines)

        await running.until(shown, f"{target} shows {text}", within_s=rig.turn_s)


def _below(directory: Path) -> list[int]:
    """The processes that run in a directory."""
    found = []
    for process in Path("/proc").iterdir():
        with suppress(OSError):
            if process.name.isdigit() and os.readlink(process / "cwd").startswith(str(directory)):
                found.append(int(process.name))
    return found
