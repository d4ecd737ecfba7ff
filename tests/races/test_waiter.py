"""Reply, scrape, the program's own report, time-out, interrupt, release and death for one waiter.

The sentence: the first message that reaches an open waiter settles it and publishes once; later ones publish nothing.
:func:`settled_by` says it once more, in the words of the senders and not in those of the resolver.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pytest
import trio

from actors.actor import ActorDead, Ask, Message, observer
from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.gate import GateCheck, GateRead
from actors.host import PaneEnded, PaneRef
from actors.inject import Typed
from actors.panes import Observed, PaneDied, PromptTyped, TypePrompt
from actors.resolver import Resolver
from actors.screen import Sent
from actors.sends import Deliver, Entering, Interrupt, MemberReply, NoOpenTurn, Release, TimedOut
from actors.setup import Setup
from actors.signal import Signal, What
from actors.turn import LateReply, Status, TurnEnded
from fleetd.callers import Caller, Role
from fleetd.testing import Fleet, settle
from fleetd.testing.merges import merges
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven, frame
from tests.races.drawn import CONFIG, Race, about_to_fail, at_work, drawn, drawn_fleet, next_look
from tests.races.twins import twin

S = NS_PER_S
PANE = PaneRef("memory", "%1")
BEFORE = frame("idle", "* an older answer")
FAILED = ("idle", "> prompt", "* API Error: 529 Overloaded")
TYPED = PromptTyped("t-1", Typed(Sent("prompt", BEFORE), 0))

#: What reaches the resolver, by who sends it. The program is at rest from its fifth second on.
SENT: Final[dict[str, Message]] = {
    "gate": GateRead("t-1", {}, {}, True, 0),
    "enter": Entering("t-1"),
    "typed": TYPED,
    "rest": Observed(frame(*FAILED, at_s=5)),
    "still at rest": Observed(frame(*FAILED, at_s=5.5)),
    "reply": MemberReply("the answer"),
    "time-out": TimedOut("t-1"),
    "interrupt": Interrupt(),
    "release": Release(),
    "report": Signal(What.FAILED, text="the limit is reached", kind=Kind.EXHAUSTED),
    "death": PaneDied(PaneEnded(PANE, status=3)),
}


def settled_by(order: Sequence[str], at: str) -> Status:
    """How the send ends, from the order of its senders and where it is at first: gate, typing, entered or running."""
    rested = False
    for sender in order:
        match sender:
            case "gate" if at == "gate":
                at = "typing"
            case "enter" if at == "typing":
                at = "entered"
            case "typed" if at == "entered":
                at = "running"
            case "rest" if at == "running":
                rested = True
            case "still at rest" if at == "running":
                if rested:
                    return Status.BACKEND_ERROR
                rested = True
            case "reply" if at in ("entered", "running"):
                return Status.COMPLETED
            case "time-out" if at == "running":
                return Status.TIMED_OUT
            case "report" if at == "running":
                return Status.EXHAUSTED
            case "interrupt" | "release":
                return Status.INTERRUPTED
            case "death":
                return Status.REFUSED if at == "gate" else Status.FAILED
    raise AssertionError(f"nobody ends the send: {order}")


class PublishesFirst(Resolver):
    """Publishes, and looks afterwards whether the waiter was open."""

    def _settle(self, turn, outcome):  # type: ignore[no-untyped-def]
        turn.settled = False
        super()._settle(turn, outcome)


class BelievesItsEyes(Resolver):
    """What stands on the screen counts, whoever has settled the turn before."""

    def _scraped(self, turn, outcome):  # type: ignore[no-untyped-def]
        turn.settled = False
        super()._scraped(turn, outcome)


class Bench:
    """A resolver between recorders, with one send on its way and another behind it."""

    def __init__(self, make: type[Resolver]) -> None:
        self.outlet, self.panes = Recorder("outlet"), Recorder("panes")
        self.resolver = make(
            "m-1", Setup(TableGrammar()), pane=PANE, credential="c", outlet=self.outlet, panes=self.panes
        )
        driven(self.resolver, Clock(6 * S))
        for message in (Observed(frame("idle")), Deliver("t-1", "prompt", 60 * S), Deliver("t-2", "next", 60 * S)):
            self.resolver.handle(message)

    def take(self, senders: Sequence[str]) -> None:
        """What reaches a mailbox after the release is never read."""
        for sender in senders:
            if not self.resolver._stopped:
                try:
                    self.resolver.handle(SENT[sender])
                except NoOpenTurn:
                    assert sender in ("reply", "interrupt")

    def ends(self, ticket: str) -> list[Status]:
        return [ended.outcome.status for ended in self.outlet.only(TurnEnded) if ended.ticket == ticket]


RESOLVERS = [Resolver, twin(PublishesFirst), twin(BelievesItsEyes)]


@pytest.mark.criterion("U1.2")
@pytest.mark.criterion("U1.3")
@pytest.mark.parametrize("sixth", ["release", "report"])
@pytest.mark.parametrize("make", RESOLVERS)
def test_in_every_order_the_first_to_reach_a_running_turn_settles_it_and_publishes_once(
    make: type[Resolver], sixth: str
) -> None:
    for order in merges(("rest", "still at rest"), ("reply",), ("time-out",), ("interrupt",), ("death",), (sixth,)):
        bench = Bench(make)
        bench.take(("gate", "typed"))
        bench.take(order)
        expected = settled_by(order, "running")
        assert bench.ends("t-1") == [expected], order
        assert len(bench.ends("t-2")) == 1, order
        late = bench.outlet.only(LateReply)
        assert len(late) <= (expected is Status.TIMED_OUT), order


@pytest.mark.parametrize("make", [Resolver, twin(PublishesFirst)])
def test_in_every_order_a_send_that_is_still_on_its_way_ends_once_too(make: type[Resolver]) -> None:
    for order in merges(
        ("gate", "enter", "typed", "rest", "still at rest"), ("reply",), ("interrupt",), ("release",), ("death",)
    ):
        bench = Bench(make)
        bench.take(order)
        assert bench.ends("t-1") == [settled_by(order, "gate")], order
        assert len(bench.ends("t-2")) == 1, order


# -- real tasks -----------------------------------------------------------------------------------------------------

NAMES: Final = {MemberReply: "reply", TimedOut: "time-out", Interrupt: "interrupt", Release: "release"}


class OpenGate:
    """A gate that is open, and panes that type at once."""

    def tell(self, message: Message) -> None:
        if isinstance(message, GateCheck):
            message.back.tell(GateRead(message.id, {}, {}, True, 0))
        elif isinstance(message, TypePrompt):
            message.back.tell(PromptTyped(message.job, TYPED.typed))


@pytest.mark.parametrize("make", RESOLVERS)
def test_senders_that_wake_at_the_same_instant_settle_a_turn_once(make: type[Resolver]) -> None:
    """Six tasks and the resolver's own timer, all due in the tenth second."""

    async def story(race: Race, nursery: trio.Nursery) -> tuple[list[str], list[Status]]:
        outlet, handled = Recorder("outlet"), list[str]()

        def note(_: object, message: Message) -> None:
            match message:
                case Observed(frame=seen):
                    handled.append("rest" if seen.at_ns == 5 * S else "still at rest")
                case PaneDied():
                    handled.append("death")
                case _ if type(message) in NAMES:
                    handled.append(NAMES[type(message)])

        async def send(message: Message) -> None:
            await trio.sleep_until(10)
            try:
                if isinstance(message, Ask):
                    await resolver.ask(message)
                else:
                    resolver.tell(message)
            except (NoOpenTurn, ActorDead):
                return

        opened = OpenGate()
        resolver = make(
            "m-1", Setup(TableGrammar()), pane=PANE, credential="c", outlet=outlet, gate=opened, panes=opened
        )
        observer.set(note)
        nursery.start_soon(resolver.run, name="resolver")
        await resolver.ask(Observed(frame("idle")))
        resolver.tell(Deliver("t-1", "prompt", 10 * S))
        await settle()
        await resolver.ask(Observed(frame(*FAILED, at_s=5)))
        handled.clear()
        for message in (
            MemberReply("the answer"),
            Observed(frame(*FAILED, at_s=5.5)),
            Interrupt(),
            PaneDied(PaneEnded(PANE, status=3)),
            Release(),
        ):
            nursery.start_soon(send, message, name=type(message).__name__)
        race.begins()
        await trio.sleep(11)
        return ["rest", *handled], [ended.outcome.status for ended in outlet.only(TurnEnded)]

    def judge(came: tuple[list[str], list[Status]]) -> None:
        handled, ended = came
        assert ended == [settled_by(handled, "running")]

    drawn(story, judge, shrink=make is Resolver)


@pytest.mark.parametrize(("make", "released"), [(Resolver, False), (Resolver, True), twin(BelievesItsEyes, False)])
def test_through_a_whole_fleet_a_send_ends_once_and_is_evidence_only_if_its_ticket_says_so(
    make: type[Resolver], released: bool
) -> None:
    """One error makes an incident here, so that evidence can be seen from outside."""

    async def story(fleet: Fleet, race: Race) -> tuple[str, dict[str, int]]:
        async def call(caller: Caller, tool: str, arguments: dict[str, str]) -> None:
            await next_look()
            await race.dawdle()
            await fleet.tools.call(caller, tool, arguments)

        lead = fleet.lead()
        (member,), (ticket,) = await at_work(fleet, "demo-a")
        await about_to_fail(member)
        calls = [
            (Caller(Role.MEMBER, member.target, "/"), "fleet_reply", {"text": "the answer"}),
            (lead.caller, "fleet_interrupt", {"target": "a"}),
            *([(lead.caller, "fleet_release", {"target": "a"})] if released else []),
        ]
        race.begins()
        async with trio.open_nursery() as nursery:
            for caller, tool, arguments in calls:
                nursery.start_soon(call, caller, tool, arguments, name=tool)
        await fleet.advance(1)
        return await ticket.status(), (await lead.call("fleet_profiles"))["coolingOff"]

    def judge(came: tuple[str, dict[str, int]]) -> None:
        status, cooling = came
        assert status in ("completed", "interrupted", "backend_error")
        if cooling:
            assert status == "backend_error"
        elif not released:
            assert status != "backend_error"

    drawn_fleet(story, judge, config=CONFIG + "outage: {threshold: 1}", swap={"actors.launcher.Resolver": make})
