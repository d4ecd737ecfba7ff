"""Held sends against the end of the cool-off that holds them, another incident at that instant, interrupt and release.

The sentences: at the end of a cool-off a held send reads the gate again, and what the gate says then decides; nothing
is typed that was taken back; and every send is either typed once or ends once untyped.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
import trio

from actors.clock import to_seconds
from actors.gate import GateCheck, GateRead
from actors.outage import BackendErrorSeen, Cooling
from actors.panes import Observed, TypePrompt
from actors.resolver import Resolver
from actors.roster import ReleaseMember
from actors.sends import Deliver, HoldOver, Interrupt, Release
from actors.turn import Phase, Progress, Status, TurnEnded
from fleetd.testing import Fleet
from tests.actors.recorders import frame
from tests.races.drawn import CONFIG, Race, drawn_fleet
from tests.races.interleavings import World, interleavings
from tests.races.road import Road, S, evidence, seen
from tests.races.twins import twin

#: When the first cool-off ends, and one that begins at that instant.
FIRST, SECOND = 60 * S, 120 * S


class TrustsItsTimer(Resolver):
    """Types when its time is up, without another look at the gate."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        if isinstance(message, HoldOver) and self._turn is not None:
            self._turn.phase = None
            self._gate_read(GateRead(message.ticket, {}, {}, True, self.now()))
            return None
        return super().handle(message)


class KeepsWhatItHolds(Resolver):
    """Ends a send that is taken back, and types it nevertheless."""

    def _interrupt(self):  # type: ignore[no-untyped-def]
        turn = self._turn
        ended = super()._interrupt()
        self._turn = turn
        return ended


def held(world: World, make: type[Resolver]) -> tuple[Road, Resolver]:
    """A member with two sends: the first is held by a cool-off that ends at this very nanosecond.

    One fresh error has come already, so the next one is another incident.
    """
    road = Road(world, "roster policy quarantine")
    for target in ("m-8", "m-9"):
        road.policy.handle(seen(evidence(target, 0)))
    member = road.member("m-1", resolver=make)
    member.handle(Observed(frame("idle")))
    for ticket in ("t-1", "t-2"):
        member.handle(Deliver(ticket, f"prompt of {ticket}", 600 * S))
    world.settle()
    assert road.mail.only(Progress)[-1] == Progress("t-1", Phase.HELD, FIRST)
    world.ns = FIRST
    road.policy.handle(seen(evidence("m-6", FIRST)))
    world.handled.clear()
    return road, member


def typed(road: Road) -> list[str]:
    return [prompt.job for prompt in road.panes.only(TypePrompt)]


def ended(road: Road) -> list[tuple[str, Status]]:
    return [(turn.ticket, turn.outcome.status) for turn in road.mail.only(TurnEnded) if turn.target == "m-1"]


def should_be_typed(road: Road) -> list[str]:
    """The sends whose gate was open when it was read, and that nobody had taken back by then."""
    cooling, was_open = False, dict[str, list[bool]]()
    for message in road.world.order("outage", BackendErrorSeen, GateCheck):
        if isinstance(message, GateCheck):
            was_open.setdefault(message.id, []).append(not cooling)
        else:
            cooling = True
    expected, taken_back = [], set[str]()
    for message in road.world.order("resolver:m-1", GateRead, Interrupt, Release):
        match message:
            case GateRead(id=ticket):
                expected += [ticket] if was_open[ticket].pop(0) and ticket not in taken_back else []
            case Interrupt():
                taken_back.add("t-1")
            case Release():
                taken_back |= {"t-1", "t-2"}
    return expected


@pytest.mark.parametrize(
    ("make", "also"),
    [
        (Resolver, "nothing"),
        (Resolver, "interrupt"),
        (Resolver, "release"),
        twin(TrustsItsTimer, "nothing"),
        twin(KeepsWhatItHolds, "interrupt"),
    ],
)
def test_at_the_end_of_a_cool_off_the_gate_decides_in_every_interleaving(make: type[Resolver], also: str) -> None:
    """A second fresh error comes at the instant of the end, and the lead may take the send or the member back."""

    def scene(world: World) -> Road:
        road, member = held(world, make)

        if also == "interrupt":
            world.tells(member, Interrupt())
        elif also == "release":
            world.tells(road.roster, ReleaseMember("m-1"))
        world.tells(road.policy, seen(evidence("m-7", FIRST)))
        world.run()
        return road

    outcomes = set()
    for road in interleavings(scene):
        assert typed(road) == should_be_typed(road)
        assert len(set(typed(road))) == len(typed(road))
        assert (
            ended(road)
            == {
                "nothing": [],
                "interrupt": [("t-1", Status.INTERRUPTED)],
                "release": [("t-1", Status.INTERRUPTED), ("t-2", Status.INTERRUPTED)],
            }[also]
        )
        outcomes.add(tuple(typed(road)))
        if also == "nothing":
            assert road.mail.only(Progress)[-1] in (Progress("t-1", Phase.TYPING), Progress("t-1", Phase.HELD, SECOND))
            road.world.ns = SECOND
            road.world.settle()
            assert typed(road) == ["t-1"]
    # Typed or held; taken back in time or not, and then the next one typed or held; taken back in time or not.
    assert (
        outcomes
        == {
            "nothing": {(), ("t-1",)},
            "interrupt": {(), ("t-1",), ("t-2",)},
            "release": {(), ("t-1",)},
        }[also]
    )


# -- a whole fleet --------------------------------------------------------------------------------------------------

QUICK: Final = CONFIG + "outage: {coolOffSeconds: 5}"


@pytest.mark.parametrize("make", [Resolver, twin(TrustsItsTimer)])
def test_through_a_whole_fleet_no_held_prompt_is_typed_into_another_cool_off(make: type[Resolver]) -> None:
    """Three members hold a prompt each; at the instant of the end two errors come, and one send is taken back."""

    async def story(fleet: Fleet, race: Race) -> dict[str, Any]:
        for name in ("a", "b", "c"):
            await fleet.lead().call("fleet_spawn", name=name, profile="demo-a")
        await fleet.advance(0.3)
        for target in ("m-8", "m-9"):
            fleet.actors.outage.tell(seen(evidence(target, fleet.actors.outage.now(), "shared")))
        until = (await fleet.actors.outage.ask(Cooling()))["shared"]
        for name in ("a", "b", "c"):
            await fleet.lead().call("fleet_send", target=name, prompt=f"prompt of {name}")

        async def errors() -> None:
            await trio.sleep_until(to_seconds(until))
            await race.dawdle()
            for target in ("m-6", "m-7"):
                fleet.actors.outage.tell(seen(evidence(target, until, "shared")))

        async def lead() -> None:
            await trio.sleep_until(to_seconds(until))
            await race.dawdle()
            await fleet.lead().call("fleet_interrupt", target="c")

        race.begins()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(errors, name="errors")
            nursery.start_soon(lead, name="lead")
        await fleet.advance(0.1)
        order = [
            message.id if isinstance(message, GateCheck) else "error"
            for at, name, message in fleet.timeline._rows
            if name == "outage" and at >= to_seconds(until) and isinstance(message, GateCheck | BackendErrorSeen)
        ]
        listed = (await fleet.lead().call("fleet_list"))["tickets"]
        await fleet.advance(6)
        programs: list[Any] = [fleet.host.of(f"m-{number}").program for number in (1, 2, 3)]
        return {
            "order": order,
            "soon": [row["state"] for row in listed],
            "prompts": [program.prompts for program in programs],
        }

    def judge(came: dict[str, Any]) -> None:
        order = came["order"]
        second = [index for index, each in enumerate(order) if each == "error"][1]
        for ticket, soon in zip(("t-1", "t-2"), came["soon"], strict=False):
            assert ticket in order
            assert soon == ("typing" if order.index(ticket) < second else "held")
        assert came["soon"][2] == "ended"
        assert came["prompts"][:2] == [["prompt of a"], ["prompt of b"]]
        assert len(came["prompts"][2]) <= 1

    drawn_fleet(story, judge, config=QUICK, swap={"actors.launcher.Resolver": make})
