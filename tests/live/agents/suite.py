"""What every agent program must show, run against each of them with its own rig."""

from __future__ import annotations

import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, ClassVar

import pytest
import trio

from actors.leads import Join
from actors.screen import State
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.hosts.tmux import TmuxHost
from tests.live.agents.programs import NotInstalled, install
from tests.live.agents.rig import REPORT, Rig
from tests.live.persons import UserTmux
from tests.live.running import Running, private_run, serving

#: Ten thousand characters with newlines, emoji, and characters of two columns.
LONG = "\n".join(f"{n:04d} Please keep every line; naïve café, 漢字, 🙂 and a tab\there." for n in range(1, 180))[
    :10_000
]


class AgentSuite:
    """Subclass it with a :attr:`rig_type`."""

    rig_type: ClassVar[type[Rig]]

    @pytest.fixture
    async def rig(self, tmp_path: Path) -> AsyncIterator[Rig]:
        """The members' program, with a fake backend of its own."""
        async with started(self.rig_type, tmp_path / "member") as rig:
            yield rig

    @pytest.fixture
    async def lead_rig(self, tmp_path: Path) -> AsyncIterator[Rig]:
        """The lead's program, whose backend works while that of its members fails."""
        async with started(self.rig_type, tmp_path / "lead") as rig:
            yield rig

    @pytest.fixture
    async def running(self, rig: Rig, tmp_path: Path) -> AsyncIterator[Running]:
        host = TmuxHost(private_run(tmp_path))
        async with serving(tmp_path, rig.profiles(), host) as running:
            running.lead = Caller(Role.LEAD, await running.daemon.fleet.leads.ask(Join("suite")), str(rig.work))
            yield running

    async def member(self, rig: Rig, running: Running, profile: str = "one") -> str:
        """A member whose input line is live."""
        target = await running.spawn(profile, cwd=str(rig.work))
        await running.until_state(target, "idle", within_s=rig.turn_s)
        return target

    async def turn(
        self, rig: Rig, running: Running, target: str, prompt: str = "Please look into it."
    ) -> dict[str, Any]:
        """One turn, from the prompt to its end."""
        return await running.result(await running.send(target, prompt), within_s=rig.turn_s)

    async def test_a_completed_turn_returns_the_answer(self, rig: Rig, running: Running) -> None:
        target = await self.member(rig, running)
        for text in ("The parser has two bugs.\n\nBoth are in line 7.", "The second answer."):
            await rig.answers(text)
            result = await self.turn(rig, running, target)
            assert result["status"] == "completed", result
            assert " ".join(result["text"].split()) == " ".join(text.split())
        assert await running.state(target) == "done"

    async def test_a_backend_failure_is_one(self, rig: Rig, running: Running) -> None:
        target = await self.member(rig, running)
        await rig.fails()
        result = await self.turn(rig, running, target)
        assert result["status"] == "backend_error", result
        assert await running.state(target) == "backend_error"

    async def test_a_used_up_quota_shuts_the_credential(self, rig: Rig, running: Running) -> None:
        target = await self.member(rig, running)
        await rig.exhausts()
        result = await self.turn(rig, running, target)
        assert result["status"] == "backend_exhausted", result
        refused = await running.call("fleet_spawn", profile="two", cwd=str(rig.work))
        assert refused["error"] == "credential_exhausted"
        assert ("resetsInSeconds" in result) == rig.names_reset

    async def test_a_report_that_quotes_errors_is_completed(self, rig: Rig, running: Running) -> None:
        target = await self.member(rig, running)
        await rig.answers(REPORT)
        result = await self.turn(rig, running, target)
        assert result["status"] == "completed", result
        assert "Nothing of the kind happened in this run." in result["text"]

    async def test_a_permission_prompt_blocks_until_a_person_answers_it(self, rig: Rig, running: Running) -> None:
        target = await self.member(rig, running, "asks")
        await rig.wants_permission()
        ticket = await running.send(target, "Please run it.")
        await running.until_state(target, "blocked", within_s=rig.turn_s)

        async def asks() -> bool:
            """A hook tells of a dialog before it is on the screen."""
            frame = await running.screen(await running.pane(target))
            return ADAPTERS[rig.agent].grammar.read(frame).state is State.BLOCKED

        async def answered() -> bool:
            return not await asks()

        await running.until(asks, "the dialog is drawn", within_s=rig.turn_s)
        behind = await running.send(target, "This must wait and never answer the dialog.")
        await rig.answers("It ran.")
        # Claude Code takes no key for a moment after it has drawn a dialog; a person presses again.
        while await asks():
            await running.press(target, *rig.approve_keys)
            with suppress(AssertionError):
                await running.until(answered, "the dialog is answered", within_s=5)
        result = await running.result(ticket, within_s=rig.turn_s)
        assert result["status"] == "completed", result
        assert (await running.result(behind, within_s=rig.turn_s))["status"] == "completed"

    async def test_a_prompt_of_ten_thousand_characters_arrives_whole(self, rig: Rig, running: Running) -> None:
        target = await self.member(rig, running)
        await rig.answers("Read.")
        result = await self.turn(rig, running, target, LONG)
        assert result["status"] == "completed", result
        assert _plain(LONG) in _plain((await rig.prompts())[-1])

    async def test_two_members_that_fail_together_make_one_incident(self, rig: Rig, running: Running) -> None:
        members = [await self.member(rig, running, profile) for profile in ("one", "two")]
        await rig.fails()
        tickets = [await running.send(target, "Please look into it.") for target in members]
        results = [await running.result(ticket, within_s=rig.turn_s) for ticket in tickets]
        assert [result["status"] for result in results] == ["backend_error", "backend_error"], results
        refused = await running.call("fleet_spawn", profile="one", cwd=str(rig.work))
        assert refused["error"] == "credential_cooling_off", refused
        assert len([notice for notice in running.notices if "Outage" in notice]) == 1

    async def test_a_lead_of_this_program_is_nudged_once(
        self, rig: Rig, lead_rig: Rig, running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        await lead_rig.answers("Noted.")
        async with self.leading(lead_rig, running, tmp_path, caplog):
            members = [await self.member(rig, running, profile) for profile in ("one", "two")]
            await rig.fails()
            for target in members:
                await running.send(target, "Please look into it.")
            for target in members:
                await running.until_state(target, "backend_error", within_s=rig.turn_s)

            async def nudged() -> bool:
                return any("Outage" in prompt for prompt in await lead_rig.prompts())

            await running.until(nudged, "the lead was nudged", within_s=rig.turn_s)
            await trio.sleep(5)  # a second nudge would come within it, and must not
            assert len([prompt for prompt in await lead_rig.prompts() if "Outage" in prompt]) == 1

    @asynccontextmanager
    async def leading(
        self, lead_rig: Rig, running: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> AsyncIterator[UserTmux]:
        """A lead's program in its person's own tmux; ``running`` acts as that lead."""
        caplog.set_level(logging.INFO, logger="fleetd.leadpanes")
        user = UserTmux(tmp_path)
        bridge = [sys.executable, "-m", "fleetd", "--runtime-dir", str(running.daemon.directory), "mcp"]

        async def known() -> bool:
            return bool(_leads(caplog))

        await user.start(*lead_rig.lead_argv(bridge), env=lead_rig.lead_env(), cwd=str(lead_rig.work))
        try:
            await running.until(known, "the lead's pane is known", within_s=lead_rig.turn_s)
            running.lead = Caller(Role.LEAD, _leads(caplog)[-1], str(lead_rig.work))
            yield user
        except BaseException:
            print(await user.text())
            raise
        finally:
            await user.end()


@asynccontextmanager
async def started(rig_type: type[Rig], directory: Path) -> AsyncIterator[Rig]:
    """A program's rig with its backend; skipped where the program could not be installed."""
    try:
        program = await trio.to_thread.run_sync(install, rig_type.package)
    except NotInstalled as missing:
        pytest.skip(str(missing))
    await trio.Path(directory).mkdir()
    async with rig_type.start_backend(directory) as backend:
        yield rig_type(directory, program, backend)


def _leads(caplog: pytest.LogCaptureFixture) -> list[str]:
    records = [record for record in caplog.records if record.message == "lead reads in a pane"]
    return [str(record.__dict__["fleet_lead"]) for record in records]


def _plain(text: str) -> str:
    """Text without white space: programs turn tabs into blanks and wrap."""
    return "".join(text.split())
