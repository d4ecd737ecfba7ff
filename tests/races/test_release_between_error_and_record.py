"""A member that is released while its error is on the road: resolver, roster, policy, leads, mail.

The sentences: what the resolver handles first decides how the send ends, and it ends once; the error is evidence if the
roster takes it before the release, and never after; and its result reaches the ticket in any case.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio

from actors.leads import Incident
from actors.mail import Collect
from actors.outage import BackendErrorSeen, Evidence
from actors.panes import Observed
from actors.resolver import Resolver
from actors.roster import Members, ReleaseMember, Roster
from actors.sends import Deliver, Release
from actors.turn import Status, TurnEnded
from fleetd.callers import Caller, Role
from fleetd.testing import Fleet
from tests.races.drawn import Race, about_to_fail, at_work, drawn_fleet, next_look
from tests.races.interleavings import World, interleavings
from tests.races.road import AT_REST, Road, evidence, seen
from tests.races.twins import twin


class ForgetsTheDead(Roster):
    """Nobody is interested in the result of a member that is gone."""

    def _not_evidence(self, turn):  # type: ignore[no-untyped-def]
        if turn.target not in self._tombs:
            super()._not_evidence(turn)


class ChargesTheDead(Roster):
    """An error is an error, also of a member that is gone."""

    def _not_evidence(self, turn):  # type: ignore[no-untyped-def]
        if turn.target not in self._tombs:
            return super()._not_evidence(turn)
        gone = self._tombs[turn.target].identity
        charged = Evidence(gone.credential, gone.target, turn.ticket, gone.profile, gone.lead, turn.at_ns)
        return self._policy.tell(BackendErrorSeen(charged, turn))


class TellsTwice(Resolver):
    """Ends what it has at its release, whether it has ended or not."""

    def _release(self):  # type: ignore[no-untyped-def]
        if self._turn is not None:
            self._turn.settled = False
        elif self._queue.closed:
            self._queue.end(Deliver("t-1", "", 0), Status.INTERRUPTED, "the member was released")
        super()._release()


@pytest.mark.criterion("U4.4")
@pytest.mark.parametrize("broken", [None, twin(ForgetsTheDead), twin(ChargesTheDead), twin(TellsTwice)])
def test_a_release_anywhere_on_the_road_of_an_error_loses_no_result_and_charges_nobody_after_it(broken: Any) -> None:
    """Another member's error is on record, so this one would be the second."""
    resolver = broken if broken is TellsTwice else Resolver
    roster = broken if broken and broken is not TellsTwice else Roster

    def scene(world: World) -> Road:
        road = Road(world, "roster policy leads mail", roster=roster)
        member = road.member("m-1", resolver=resolver)
        road.policy.handle(seen(evidence("m-9", 0)))
        road.runs(member, road.ticket("m-1"))
        world.handled.clear()

        world.tells(member, Observed(AT_REST))
        world.tells(road.roster, ReleaseMember("m-1"))
        world.run()
        return road

    outcomes = set()
    for road in interleavings(scene):
        world = road.world
        first = type(world.order("resolver:m-1", Observed, Release)[0])
        at_roster = [type(message) for message in world.order("roster", TurnEnded, ReleaseMember)]
        ends = [turn for turn in world.order("mail", TurnEnded) if turn.ticket == "t-1"]
        status = Status.BACKEND_ERROR if first is Observed else Status.INTERRUPTED
        assert [turn.outcome.status for turn in ends] == [status]
        assert road.mail.handle(Collect("t-1")).outcome.status is status
        charged = first is Observed and at_roster[0] is TurnEnded
        assert len(world.order("outage", BackendErrorSeen)) == charged
        assert len(world.order("leads", Incident)) == charged
        assert road.roster.handle(Members()) == ()
        outcomes.add((status, charged))
    assert len(outcomes) == 3


class LeavesItsSends(Resolver):
    """Ends, and leaves its sends to somebody else."""

    def _release(self):  # type: ignore[no-untyped-def]
        self.stop()


@pytest.mark.parametrize("make", [Resolver, twin(LeavesItsSends)])
def test_through_a_whole_fleet_a_release_at_the_instant_of_the_error_ends_the_ticket_once(make: type[Resolver]) -> None:
    async def story(fleet: Fleet, race: Race) -> tuple[str, bool, bool]:
        fleet.actors.outage.tell(seen(evidence("m-9", fleet.actors.outage.now(), "shared")))
        (member,), (ticket,) = await at_work(fleet, "demo-a")
        await about_to_fail(member)
        race.begins()
        await next_look()
        for _ in range(3):
            await race.dawdle()
        await fleet.lead().call("fleet_release", target="a")
        await fleet.advance(2)
        cooling = bool((await fleet.lead().call("fleet_profiles"))["coolingOff"])
        nudged = any("inc-1" in nudge for nudge in fleet.lead().nudges)
        return await ticket.status(), cooling, nudged

    def judge(came: tuple[str, bool, bool]) -> None:
        assert came in (
            ("interrupted", False, False),
            ("backend_error", False, False),
            ("backend_error", True, True),
        )

    drawn_fleet(story, judge, swap={"actors.launcher.Resolver": make}, examples=12)


def test_a_call_that_loses_to_the_release_is_told_that_the_member_is_gone() -> None:
    async def story(fleet: Fleet, race: Race) -> list[str]:
        (member,), _ = await at_work(fleet, "demo-a")
        errors: list[str] = []

        async def call(caller: Caller, tool: str, **arguments: str) -> None:
            await race.dawdle()
            data = (await fleet.tools.call(caller, tool, arguments)).structured
            errors.extend([str(data["error"])] if "error" in data else [])

        race.begins()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(call, Caller(Role.MEMBER, member.target, "/"), "fleet_reply", text="the answer"))
            nursery.start_soon(partial(call, fleet.lead().caller, "fleet_interrupt", target="a"))
            nursery.start_soon(partial(call, fleet.lead().caller, "fleet_release", target="a"))
        return errors

    def judge(errors: list[str]) -> None:
        assert set(errors) <= {"unknown_member", "no_open_turn"}

    drawn_fleet(story, judge, examples=20)
