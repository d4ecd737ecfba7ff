"""Three errors of one credential at once: one incident, whatever the order.

Counting and the deadline change in one step of the policy. The twins decide in one step and shut in another, or let an
error that comes into a cool-off extend it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import aclosing
from functools import partial
from itertools import permutations
from typing import NamedTuple

import msgspec
import pytest
import trio
from trio_util import periodic

from actors.actor import Actor, ActorDead, Message
from actors.host import PaneHost, PaneRef
from actors.leads import Incident
from actors.outage import Cooling, CoolOffs, Crossing, Evidence, OutagePolicy
from actors.panes import Observed, Panes, Watched
from actors.push import Put
from actors.turn import TurnEnded
from actors.watching import POLL_S
from fleetd.testing import Fleet
from tests.races.drawn import Race, about_to_fail, at_work, drawn_fleet
from tests.races.interleavings import World, interleavings
from tests.races.road import Road, S
from tests.races.twins import twin


class _Shut(Message, frozen=True):
    evidence: Evidence
    turn: TurnEnded


class DecidesThenShuts(OutagePolicy):
    """Decides in one step that this is an incident, and opens it in the next."""

    _errors = 0

    def _record(self, evidence, turn):  # type: ignore[no-untyped-def]
        self._errors += 1
        if self._errors == 1 or self._rule.until(evidence.credential, evidence.at_ns):
            self._mail.tell(turn)
        else:
            self.tell(_Shut(evidence, turn))

    def handle(self, message):  # type: ignore[no-untyped-def]
        if not isinstance(message, _Shut):
            return super().handle(message)
        self._rule.settings = msgspec.structs.replace(self._rule.settings, threshold=1)
        return super()._record(message.evidence, message.turn)


class _Extending(CoolOffs):
    def record(self, new):  # type: ignore[no-untyped-def]
        state = self._credentials.get(new.credential)
        if state is None or new.at_ns >= state.until_ns:
            return super().record(new)
        state.until_ns += S
        return Crossing((new,), state.until_ns)


class Extends(OutagePolicy):
    """An error that comes into a cool-off is one more incident, and makes it longer."""

    def __init__(self, settings, **more):  # type: ignore[no-untyped-def]
        super().__init__(settings, **more)
        self._rule = _Extending(settings)


MEMBERS = ("m-1", "m-2", "m-3")


@pytest.mark.criterion("U2.7")
@pytest.mark.criterion("U2.10")
@pytest.mark.parametrize("make", [OutagePolicy, twin(DecidesThenShuts), twin(Extends)])
def test_three_results_in_any_order_are_one_incident_in_every_interleaving(make: type[OutagePolicy]) -> None:
    def scene(world: World, order: tuple[int, ...]) -> Road:
        road = Road(world, "roster policy leads", policy=make)
        for target in MEMBERS:
            road.member(target)
        for index in order:
            world.ns = 7 + index  # each verdict is made at its own nanosecond, and they come in this order
            road.roster.tell(road.fails(MEMBERS[index], f"t-{index}"))
        world.run()
        return road

    for order in permutations(range(3)):
        for road in interleavings(partial(scene, order=order)):
            incidents = road.world.order("leads", Incident)
            assert len(incidents) == 1, order
            first, second = sorted(order[:2])
            assert [each.targets for each in incidents] == [(MEMBERS[first], MEMBERS[second])]
            assert road.policy.handle(Cooling()) == {"c": 7 + second + 60 * S}
            assert len(road.world.order(road.loop.name, Put)) == 1
            assert sorted(turn.ticket for turn in road.mail.only(TurnEnded)) == ["t-0", "t-1", "t-2"]


# -- real tasks -----------------------------------------------------------------------------------------------------


async def watch_apart(panes: Panes, hosts: Mapping[str, PaneHost]) -> None:
    """As :func:`actors.watching.watch`, but each frame is handed over by a task of its own."""

    async def hand_over(pane: PaneRef, observer: Actor) -> None:
        for frame in (await hosts[pane.host].capture([pane])).values():
            try:
                await observer.ask(Observed(frame))
            except ActorDead:
                return

    async with aclosing(periodic(POLL_S)) as ticks:
        async for _ in ticks:
            watched = await panes.ask(Watched())
            async with trio.open_nursery() as nursery:
                for pane, observer in watched.items():
                    nursery.start_soon(hand_over, pane, observer, name=f"look at {pane.id}")


class Came(NamedTuple):
    statuses: list[str]
    cooling: dict[str, int]
    nudges: list[list[str]]
    leads: list[set[str]]


@pytest.mark.criterion("U2.10")
@pytest.mark.criterion("U3.2")
@pytest.mark.parametrize("make", [OutagePolicy, twin(DecidesThenShuts), twin(Extends)])
def test_three_members_that_fail_in_the_same_instant_are_one_incident_told_once(make: type[OutagePolicy]) -> None:
    async def story(fleet: Fleet, race: Race) -> Came:
        leads = [fleet.lead(), await fleet.add_lead("second")]
        members, tickets = await at_work(fleet, "demo-a", "demo-b")
        others, more = await at_work(fleet, "demo-a", lead="second", first="c")
        members, tickets = [*members, *others], [*tickets, *more]
        await about_to_fail(*members)
        race.begins()
        await fleet.advance(0.4)
        cooling = (await leads[0].call("fleet_profiles"))["coolingOff"]
        await fleet.advance(2)
        return Came(
            [await ticket.status() for ticket in tickets],
            cooling,
            [lead.nudges for lead in leads],
            [{member.target for member in members[:2]}, {members[2].target}],
        )

    def judge(came: Came) -> None:
        assert came.statuses == ["backend_error"] * 3
        assert came.cooling == {"shared": 60}
        hit: set[str] = set()
        for nudges, owned in zip(came.nudges, came.leads, strict=True):
            about = [nudge for nudge in nudges if "Outage" in nudge]
            assert len(about) <= 1
            if about:
                named = about[0].partition("members hit: ")[2].partition(".")[0].split(", ")
                assert len(named) == 2
                assert owned & set(named)
                hit.update(named)
        assert len(hit) == 2
        assert not any("inc-2" in nudge for nudges in came.nudges for nudge in nudges)

    drawn_fleet(story, judge, swap={"fleetd.fleet.OutagePolicy": make, "fleetd.fleet.watch": watch_apart})
