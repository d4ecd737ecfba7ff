"""Codex as the lead: its model's own tool calls start a member, send it a prompt and collect the answer."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from tests.live.agents.suite import AgentSuite
from tests.live.agents.test_codex import CodexRig
from tests.live.persons import UserTmux
from tests.live.running import Running

pytestmark = pytest.mark.live

FINDING = "The parser has two bugs: line 7 and line 12."


class TestCodexLead:
    """The members are Codex too, with a backend of their own."""

    rig_type = CodexRig
    rig, lead_rig, running = AgentSuite.rig, AgentSuite.lead_rig, AgentSuite.running
    leading = AgentSuite.leading

    async def leads(
        self,
        rig: CodexRig,
        lead_rig: CodexRig,
        running: Running,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        then: str,
    ) -> str:
        """Have it run the story of one member; return the results of its calls."""
        story: list[tuple[str, dict[str, object]]] = [
            ("fleet_profiles", {}),
            ("fleet_spawn", {"profile": "two", "cwd": str(rig.work)}),
            ("fleet_send", {"target": "m-1", "prompt": "Find the bugs in the parser."}),
            ("fleet_wait", {"tickets": ["t-1"], "waitSeconds": 50}),
            ("fleet_collect", {"ticket": "t-1"}),
            ("fleet_release", {"target": "m-1"}),
        ]
        await lead_rig.answers("Here.")
        async with self.leading(lead_rig, running, tmp_path, caplog) as user:
            with trio.fail_after(lead_rig.turn_s):
                while not await lead_rig.has_tools():
                    await ask(user, lead_rig, running, "Are you there?")
            await lead_rig.calls(story, then=then)
            await ask(user, lead_rig, running, "Have a member find the bugs in the parser.")

            async def told() -> bool:
                return f"• {then}" in await user.text()

            await running.until(told, "the lead has its answer", within_s=lead_rig.turn_s)
            assert not (await running.call("fleet_list"))["members"]
            return await lead_rig.tool_results()

    async def test_its_calls_start_a_member_send_it_a_prompt_and_collect_the_answer(
        self,
        rig: CodexRig,
        lead_rig: CodexRig,
        running: Running,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await rig.answers(FINDING)
        results = await self.leads(rig, lead_rig, running, tmp_path, caplog, "Two bugs, it says.")
        assert results.count(FINDING) == 2  # waited for and collected
        assert "Find the bugs in the parser." in (await rig.prompts())[-1]

    async def test_it_is_told_that_a_members_turn_failed(
        self,
        rig: CodexRig,
        lead_rig: CodexRig,
        running: Running,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await rig.fails()
        results = await self.leads(rig, lead_rig, running, tmp_path, caplog, "It came to nothing.")
        assert "backend_error" in results
        assert "completed" not in results


async def ask(user: UserTmux, lead_rig: CodexRig, running: Running, text: str) -> None:
    """Type into the lead's pane as its person does, and see the turn begin."""

    seen = len(await lead_rig.requests())

    async def begun() -> bool:
        return len(await lead_rig.requests()) > seen

    await user.run("send-keys", "-l", text)
    await trio.sleep(1)  # it swallows an Enter that comes at once
    await user.run("send-keys", "Enter")
    await running.until(begun, "the lead's turn has begun", within_s=lead_rig.turn_s)
