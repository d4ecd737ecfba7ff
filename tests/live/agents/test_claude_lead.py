"""Claude Code as the lead: its model's own tool calls start a member, send it a prompt and collect the answer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.live.agents.suite import AgentSuite
from tests.live.agents.test_claude import ClaudeRig, OlderClaudeRig
from tests.live.persons import UserTmux
from tests.live.running import Running

pytestmark = pytest.mark.live

FINDING = "The parser has two bugs: line 7 and line 12."


class TestClaudeLead:
    """The members are Claude Code too, with a backend of their own."""

    rig_type: type[ClaudeRig] = ClaudeRig
    rig, lead_rig, running = AgentSuite.rig, AgentSuite.lead_rig, AgentSuite.running
    leading = AgentSuite.leading

    async def leads(
        self,
        rig: ClaudeRig,
        lead_rig: ClaudeRig,
        running: Running,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
        then: str,
    ) -> list[dict[str, Any]]:
        """Have it run the story of one member; return the results of its calls."""
        await lead_rig.calls(
            [
                ("fleet_profiles", {}),
                ("fleet_spawn", {"profile": "two", "cwd": str(rig.work)}),
                ("fleet_send", {"target": "m-1", "prompt": "Find the bugs in the parser."}),
                ("fleet_wait", {"tickets": ["t-1"], "waitSeconds": 50}),
                ("fleet_collect", {"ticket": "t-1"}),
                ("fleet_release", {"target": "m-1"}),
            ],
            then=then,
        )
        async with self.leading(lead_rig, running, tmp_path, caplog) as user:
            await ask(user, lead_rig, running, "Have a member find the bugs in the parser.")

            async def told() -> bool:
                return f"● {then}" in await user.text()

            await running.until(told, "the lead has its answer", within_s=lead_rig.turn_s)
            assert not (await running.call("fleet_list"))["members"]
            return await lead_rig.structured_results()

    async def test_its_calls_start_a_member_send_it_a_prompt_and_collect_the_answer(
        self,
        rig: ClaudeRig,
        lead_rig: ClaudeRig,
        running: Running,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await rig.answers(FINDING)
        results = await self.leads(rig, lead_rig, running, tmp_path, caplog, "Two bugs, it says.")
        assert len(results) == 6
        assert FINDING in json.dumps(results[4]), results
        assert (await rig.prompts())[-1] == "Find the bugs in the parser."

    async def test_it_is_told_that_a_members_turn_failed(
        self,
        rig: ClaudeRig,
        lead_rig: ClaudeRig,
        running: Running,
        tmp_path: Path,
        caplog: pytest.LogCaptureFixture,
    ) -> None:
        await rig.fails()
        results = await self.leads(rig, lead_rig, running, tmp_path, caplog, "It came to nothing.")
        assert "backend_error" in json.dumps(results[4])
        assert "completed" not in json.dumps(results)
        assert results[4]["is_error"]


class TestOlderClaudeLead(TestClaudeLead):
    rig_type = OlderClaudeRig


async def ask(user: UserTmux, lead_rig: ClaudeRig, running: Running, text: str) -> None:
    """Type into the lead's pane as its person does, and see the turn begin."""

    async def typed() -> bool:
        return f"❯ {text}" in (await user.text()).replace("\xa0", " ")

    async def begun() -> bool:
        if not await lead_rig.prompts():
            await user.run("send-keys", "Enter")  # older versions lose one that comes right after start-up
        return bool(await lead_rig.prompts())

    await running.until(lambda: shows(user, "❯"), "the lead's input line is there", within_s=lead_rig.turn_s)
    await user.run("send-keys", "-l", text)
    await running.until(typed, "the prompt stands in the lead's input line", within_s=lead_rig.turn_s)
    await running.until(begun, "the lead's turn has begun", within_s=lead_rig.turn_s)


async def shows(user: UserTmux, mark: str) -> bool:
    return mark in await user.text()
