"""Who sees that a send has failed also sees what it led to.

A result travels resolver, roster, then policy or quarantine, then the leads, then mail, and each acts before it passes
it on. The sentence: whoever reads the failed ticket, however early, finds the roster's state, the gate shut, and the
lead's notice waiting. And whoever is told of a ticket finds its result.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from actors.actor import Ask, Message
from actors.clock import NS_PER_MS
from actors.gate import GateCheck, GateRead
from actors.leads import Notify
from actors.mail import Await, Collect, Mail
from actors.member import MemberState
from actors.nudge import EndedTicket
from actors.outage import BackendErrorSeen, OutagePolicy
from actors.push import TakeNotices
from actors.quarantine import ExhaustionSeen, Quarantine
from actors.roster import Find, Roster
from actors.turn import Status, TurnEnded
from fleetd.testing import Fleet
from tests.actors.recorders import Recorder
from tests.races.drawn import Race, about_to_fail, at_work, drawn_fleet, next_look
from tests.races.interleavings import Script, World, interleavings, result, told
from tests.races.road import Road, evidence, seen
from tests.races.twins import twin


class TellsMailFirst(Roster):
    """Passes the result on and then sees to the rest."""

    def _turn_ended(self, turn):  # type: ignore[no-untyped-def]
        self._mail.tell(turn)
        super()._turn_ended(turn)


class PassesItOnFirst(OutagePolicy):
    """Passes the result on and then opens the incident."""

    def _record(self, evidence, turn):  # type: ignore[no-untyped-def]
        self._mail.tell(turn)
        super()._record(evidence, turn)


class _Later(Message, frozen=True):
    message: Message


class ShutsLater(Quarantine):
    """Passes the result on, and shuts the gate a moment later."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        match message:
            case ExhaustionSeen(turn=turn):
                self._mail.tell(turn)
                self.after(0, _Later(message))
                return None
            case _Later(message=later):
                return super().handle(later)
        return super().handle(message)


class OpensLater(OutagePolicy):
    """Passes the result on, and opens the incident a moment later."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        match message:
            case BackendErrorSeen(turn=turn):
                self._mail.tell(turn)
                self.after(NS_PER_MS, _Later(message))
                return None
            case _Later(message=later):
                return super().handle(later)
        return super().handle(message)


def looks(road: Road, found: dict[str, Any], how: str) -> Script:
    """A client that waits for ticket t-1, or asks for it at some moment; if it has failed, it looks around at once."""
    ask: Ask[Any] = Await(("t-1",)) if how == "waits" else Collect("t-1")
    road.mail.tell(ask)
    yield lambda: ask.reply.settled
    view = result(ask)[0] if how == "waits" else result(ask)
    if view.outcome is None:
        return
    back = Recorder("back")
    member = told(road.roster, Find("m-1"))
    road.quarantine.tell(GateCheck("client", ("c",), back))
    notices = told(road.loop, TakeNotices())
    yield lambda: member.reply.settled and bool(back.told) and notices.reply.settled
    found["status"], found["state"] = view.outcome.status, result(member).state
    found["gate"] = back.only(GateRead)[0]
    found["notices"] = " ".join(result(notices))


def found_in_every_interleaving(how: str, status: Status, **twins: Any) -> Iterator[dict[str, Any]]:
    """What the client found, wherever it saw that the send had failed."""

    def scene(world: World) -> dict[str, Any]:
        road = Road(world, "roster policy quarantine leads mail", **twins)
        road.member("m-1")
        road.policy.handle(seen(evidence("m-9", 0)))
        ticket = road.ticket("m-1")
        world.settle()
        found: dict[str, Any] = {}
        world.client(looks(road, found, how))
        road.roster.tell(road.fails("m-1", ticket, status))
        world.run()
        return found

    nobody = True
    for found in interleavings(scene):
        if found:
            nobody = False
            yield found
    assert not nobody, "nobody saw that the send had failed"


@pytest.mark.parametrize("how", ["waits", "asks"])
@pytest.mark.parametrize("broken", [None, twin(TellsMailFirst), twin(PassesItOnFirst)])
def test_who_reads_the_ticket_that_opened_an_incident_finds_state_gate_and_notice(broken: Any, how: str) -> None:
    twins = {{TellsMailFirst: "roster", PassesItOnFirst: "policy"}[broken]: broken} if broken else {}
    for found in found_in_every_interleaving(how, Status.BACKEND_ERROR, **twins):
        assert (found["status"], found["state"]) == (Status.BACKEND_ERROR, MemberState.BACKEND_ERROR)
        assert set(found["gate"].cooling_until) == {"c"}
        assert "inc-1" in found["notices"]


@pytest.mark.parametrize("how", ["waits", "asks"])
@pytest.mark.parametrize("make", [Quarantine, twin(ShutsLater)])
def test_who_reads_an_exhausted_ticket_finds_state_and_gate(make: type[Quarantine], how: str) -> None:
    for found in found_in_every_interleaving(how, Status.EXHAUSTED, quarantine=make):
        assert (found["status"], found["state"]) == (Status.EXHAUSTED, MemberState.EXHAUSTED)
        assert set(found["gate"].exhausted_until) == {"c"}


# -- who is told ----------------------------------------------------------------------------------------------------


class TellsBeforeItStores(Mail):
    """Tells the lead, and stores the result a moment later."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        match message:
            case TurnEnded(ticket=name, outcome=outcome):
                ticket = self._tickets[name]
                self._leads.tell(Notify(ticket.lead, EndedTicket(name, ticket.target, outcome.status)))
                self.after(0, _Later(message))
                return None
            case _Later(message=later):
                return super().handle(later)
        return super().handle(message)


@pytest.mark.parametrize("make", [Mail, twin(TellsBeforeItStores)])
def test_who_is_told_of_a_ticket_finds_its_result(make: type[Mail]) -> None:
    def scene(world: World) -> tuple[bool, Any]:
        road = Road(world, "roster leads mail", mail=make)
        road.member("m-1")
        ticket = road.ticket("m-1")
        world.settle()
        came: list[Any] = [False, None]

        def lead() -> Script:
            notices = told(road.loop, TakeNotices())
            yield lambda: notices.reply.settled
            if ticket in " ".join(result(notices)):
                collect = told(road.mail, Collect(ticket))
                yield lambda: collect.reply.settled
                came[:] = [True, result(collect).outcome]

        world.client(lead())
        road.roster.tell(road.fails("m-1", ticket, Status.COMPLETED))
        world.run()
        return came[0], came[1]

    told_of = [outcome for was_told, outcome in interleavings(scene) if was_told]
    assert told_of
    assert None not in told_of


# -- a whole fleet --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [OutagePolicy, twin(OpensLater)])
def test_a_lead_that_waits_for_the_ticket_sees_all_of_it_with_its_next_calls(make: type[OutagePolicy]) -> None:
    """Nothing but the lead's own calls lies between the result and what it sees."""

    async def story(fleet: Fleet, race: Race) -> tuple[Any, ...]:
        lead = await fleet.add_lead("headless", pane=False)
        first = evidence("m-9", fleet.actors.outage.now(), "shared")
        fleet.actors.outage.tell(seen(msgspec.structs.replace(first, lead=lead.caller.id)))
        (member,), (ticket,) = await at_work(fleet, "demo-a", lead="headless")
        await about_to_fail(member)
        race.begins()
        await next_look()
        waited = await lead.call("fleet_wait", tickets=[ticket.id])
        refusal = await lead.call("fleet_spawn", profile="demo-a")
        listing = await lead.call("fleet_list")
        return waited["ended"][0]["status"], waited.get("notices", []), refusal.get("error"), listing["members"]

    def judge(came: tuple[Any, ...]) -> None:
        status, notices, refusal, members = came
        assert status == "backend_error"
        assert "inc-1" in " ".join(notices)
        assert refusal == "credential_cooling_off"
        assert [row["state"] for row in members] == ["backend_error"]

    drawn_fleet(story, judge, swap={"fleetd.fleet.OutagePolicy": make})
