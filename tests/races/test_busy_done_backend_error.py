"""The end of a turn, and how it failed, in every order.

The sentence: a failure absorbs a normal end, whichever comes first; the first failure stands; a release absorbs both.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import pytest
import trio

from actors.actor import Message
from actors.host import PaneRef
from actors.member import BackendFailed, Delivered, Identity, MemberState, ProcessGone, Ready, TurnDone
from actors.outage import BackendErrorSeen
from actors.quarantine import ExhaustionSeen
from actors.resolver import Resolver
from actors.roster import Members, MemberUp, ReleaseMember, Roster, UnknownMember
from actors.setup import Setup
from actors.turn import Outcome, Status, TurnEnded
from fleetd.testing import Fleet
from fleetd.testing.merges import merges
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven
from tests.races.drawn import Race, about_to_fail, at_work, drawn_fleet, next_look
from tests.races.twins import twin


def ended(ticket: str, status: Status) -> TurnEnded:
    return TurnEnded("m-1", ticket, Outcome(status, reason=f"why {ticket} failed"), 5)


EVENTS: Final[dict[str, Message]] = {
    "ready": Ready("m-1"),
    "delivered": Delivered("m-1"),
    "done": TurnDone("m-1"),
    "backend error": ended("t-1", Status.BACKEND_ERROR),
    "exhausted": ended("t-2", Status.EXHAUSTED),
    "failed": ended("t-3", Status.FAILED),
    "gone": ProcessGone("m-1", "its process exited with status 0"),
    "release": ReleaseMember("m-1"),
}
NORMAL: Final = {"ready": "idle", "delivered": "busy", "done": "done"}
FAILURES: Final = {
    "backend error": "backend_error",
    "exhausted": "exhausted",
    "failed": "failed",
    "gone": "lost",
}


def state_after(order: Sequence[str]) -> str:
    """The member's state, told from the sentence."""
    if "release" in order:
        return "released"
    failures = [FAILURES[event] for event in order if event in FAILURES]
    return failures[0] if failures else next(NORMAL[event] for event in reversed(order) if event in NORMAL)


class DoneOverwrites(Roster):
    """The end of a turn is the end of it, whatever has been said before."""

    def apply(self, event):  # type: ignore[no-untyped-def]
        if isinstance(event, TurnDone) and event.target in self._members:
            self._members[event.target].state = MemberState.DONE
            return True
        return super().apply(event)


class OnlyBusyFails(Roster):
    """A turn that is over cannot fail any more."""

    def apply(self, event):  # type: ignore[no-untyped-def]
        done = event.target in self._members and self._members[event.target].state is MemberState.DONE
        return False if done and isinstance(event, BackendFailed) else super().apply(event)


class Bench:
    """A roster between recorders, with one member."""

    def __init__(self, make: type[Roster]) -> None:
        names = ("policy", "quarantine", "leads", "mail", "questions", "launcher", "panes")
        self.out = {name: Recorder(name) for name in names}
        self.roster = make(**self.out)
        driven(self.roster, Clock())
        identity = Identity("m-1", "parser", "p", "c", "lead-1", PaneRef("memory", "%1"))
        self.roster.handle(MemberUp(identity, Resolver("m-1", Setup(TableGrammar()))))

    def take(self, order: Sequence[str]) -> None:
        for event in order:
            try:
                self.roster.handle(EVENTS[event])
            except UnknownMember:
                assert event == "release"

    @property
    def state(self) -> str:
        rows: Any = self.roster.handle(Members(released=True))
        return str(rows[0].state)

    def passed_on(self) -> list[str]:
        """The tickets whose result has been passed on, by whichever road."""
        roads = [
            *self.out["mail"].only(TurnEnded),
            *(seen.turn for seen in self.out["policy"].only(BackendErrorSeen)),
            *(seen.turn for seen in self.out["quarantine"].only(ExhaustionSeen)),
        ]
        return sorted(turn.ticket for turn in roads)


ROSTERS = [Roster, twin(DoneOverwrites), twin(OnlyBusyFails)]


@pytest.mark.criterion("U4.2")
@pytest.mark.criterion("U4.3")
@pytest.mark.parametrize("make", ROSTERS)
def test_a_failure_and_the_end_of_its_turn_lead_to_the_failure_in_every_order(make: type[Roster]) -> None:
    for failure in ("backend error", "exhausted", "failed"):
        for order in merges(("ready", "delivered", "done"), (failure,)):
            bench = Bench(make)
            bench.take(order)
            assert bench.state == state_after(order) == FAILURES[failure], order
            assert len(bench.passed_on()) == 1, order


@pytest.mark.parametrize("make", ROSTERS)
def test_the_first_of_several_failures_stands_in_every_order_and_only_it_is_evidence(make: type[Roster]) -> None:
    for order in merges(("delivered", "done"), ("backend error",), ("exhausted",), ("failed",), ("gone",)):
        bench = Bench(make)
        bench.take(order)
        expected = state_after(order)
        assert bench.state == expected, order
        assert len(bench.out["policy"].only(BackendErrorSeen)) == (expected == "backend_error"), order
        assert len(bench.out["quarantine"].only(ExhaustionSeen)) == (expected == "exhausted"), order
        assert bench.passed_on() == ["t-1", "t-2", "t-3"], order


@pytest.mark.criterion("U4.4")
@pytest.mark.parametrize("make", [Roster, twin(DoneOverwrites)])
def test_a_release_among_them_is_never_taken_back_and_no_result_is_lost(make: type[Roster]) -> None:
    for order in merges(("delivered", "done"), ("backend error",), ("failed",), ("release",)):
        bench = Bench(make)
        bench.take(order)
        assert bench.state == "released", order
        assert bench.passed_on() == ["t-1", "t-3"], order
        failed_first = next(event for event in order if event in ("backend error", "failed", "release"))
        assert len(bench.out["policy"].only(BackendErrorSeen)) == (failed_first == "backend error"), order


# -- a whole fleet --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [Roster, twin(DoneOverwrites)])
def test_nobody_ever_sees_a_failed_member_as_done_again(make: type[Roster]) -> None:
    """An agent's own hook says that the turn is over, at the instant at which its screen shows how it failed."""

    async def story(fleet: Fleet, race: Race) -> tuple[list[str], str]:
        seen: list[str] = []

        async def hook() -> None:
            """It says so from before the result is known until after."""
            await next_look()
            for _ in range(14):
                fleet.actors.roster.tell(TurnDone(member.target))
                await trio.lowlevel.checkpoint()

        async def lead() -> None:
            await next_look()
            for _ in range(14):
                seen.append(await member.state())

        (member,), (ticket,) = await at_work(fleet, "demo-a")
        await about_to_fail(member)
        race.begins()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hook, name="hook")
            nursery.start_soon(lead, name="lead")
        await fleet.advance(1)
        seen.append(await member.state())
        return seen, await ticket.status()

    def judge(came: tuple[list[str], str]) -> None:
        seen, status = came
        assert status == "backend_error"
        assert sorted(seen, key=["busy", "done", "backend_error"].index) == seen
        assert seen[-1] == "backend_error"

    drawn_fleet(story, judge, swap={"fleetd.fleet.Roster": make})
