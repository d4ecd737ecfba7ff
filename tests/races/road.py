"""The actors of a daemon, connected as it connects them, for :mod:`tests.races.interleavings`.

A scene names its cast. Who is not in it is there as a recorder: it takes what it is told, and no step of its own.
"""

from __future__ import annotations

from typing import Any

from actors.actor import Address, Message, Tells
from actors.clock import NS_PER_S
from actors.gate import GateCheck, GateRead
from actors.host import PaneRef
from actors.inject import Typed
from actors.launcher import Configure, Launcher
from actors.leads import Join, Leads, Owns
from actors.mail import Mail, OpenTicket
from actors.member import Identity
from actors.outage import DEFAULT, BackendErrorSeen, Evidence, OutagePolicy
from actors.panes import Observed, PromptTyped
from actors.placement import PolicyName
from actors.push import PushLoop, PushSettings
from actors.quarantine import Quarantine
from actors.questions import Questions
from actors.resolver import Resolver
from actors.roster import MemberUp, Roster
from actors.screen import Sent
from actors.sends import Deliver
from actors.setup import Setup
from actors.spawning import Launched, Order, ProfileRoom
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Recorder, TableGrammar, frame
from tests.races.interleavings import World

S = NS_PER_S
ERROR = "API Error: 529 Overloaded"


#: The frame that ends a turn which :meth:`Road.runs`, in a backend error.
AT_REST = frame("idle", "> prompt", f"* {ERROR}", at_s=5.5)


class Starts:
    """Starts nothing, at once; keeps the orders."""

    def __init__(self) -> None:
        self.orders: list[Order] = []

    async def launch(self, order: Order) -> Launched:
        self.orders.append(order)
        return Launched(pane_of(order.target), Setup(TableGrammar()), "/")


class OpenGate:
    """A gate with nothing shut, which answers at once."""

    def tell(self, message: Message) -> None:
        assert isinstance(message, GateCheck)
        message.back.tell(GateRead(message.id, {}, {}, True, 0))


def pane_of(target: str) -> PaneRef:
    return PaneRef("memory", f"%{target}")


class Road:
    """A cast, with one lead.

    Args:
        cast: names of those that take part: roster, policy, quarantine, launcher, leads, mail, questions.
        rooms: the launcher's profiles.
        twins: classes to take instead of the real ones, by the same names; for one that is not in the cast, what makes
            its stand-in.
    """

    def __init__(
        self, world: World, cast: str, *, rooms: tuple[ProfileRoom, ...] = (ProfileRoom("p", "c", 9),), **twins: Any
    ) -> None:
        self.world, self._cast, self._twins = world, cast.split(), twins
        to_roster, to_leads, to_launcher = Address(), Address(), Address()
        self.panes, self.starts, self.lead = Recorder("panes"), Starts(), "lead-1"
        self.mail = self._play("mail", Mail, roster=to_roster, leads=to_leads)
        self.questions = self._play("questions", Questions, leads=to_leads)
        self.leads = self._play("leads", Leads, PushSettings(), panes=self.panes, mail=self.mail)
        self.policy = self._play("policy", OutagePolicy, DEFAULT, leads=self.leads, mail=self.mail)
        self.quarantine = self._play("quarantine", Quarantine, 1800 * S, policy=self.policy, mail=self.mail)
        self.roster = self._play(
            "roster",
            Roster,
            policy=self.policy,
            quarantine=self.quarantine,
            leads=self.leads,
            mail=self.mail,
            questions=self.questions,
            launcher=to_launcher,
            panes=self.panes,
        )
        self.launcher = self._play(
            "launcher",
            Launcher,
            self.starts,
            gate=self.quarantine,
            roster=self.roster,
            leads=self.leads,
            panes=self.panes,
        )
        to_roster.bind(self.roster)
        to_leads.bind(self.leads)
        to_launcher.bind(self.launcher)
        if "launcher" in self._cast:
            self.launcher.handle(Configure(rooms, PolicyName.LEAST_LOADED))
        if "leads" in self._cast:
            assert self.leads.handle(Join("lead")) == self.lead

    def _play(self, name: str, real: Any, *args: object, **more: Tells) -> Any:
        if name not in self._cast:
            return self._twins[name]() if name in self._twins else Recorder(name)
        return self.world.add(self._twins.get(name, real)(*args, **more))

    @property
    def loop(self) -> PushLoop:
        """The lead's push loop."""
        loop: PushLoop = self.leads._find(self.lead).loop
        return loop

    def member(self, target: str, credential: str = "c", *, resolver: Any = None) -> Any:
        """A member that is up. Its resolver takes part if it is given one."""
        made = (resolver or Resolver)(
            target,
            Setup(TableGrammar()),
            pane=pane_of(target),
            credential=credential,
            outlet=self.roster,
            gate=self.quarantine,
            panes=self.panes,
        )
        if resolver is not None:
            self.world.add(made)
        if "leads" in self._cast:
            self.leads.handle(Owns(self.lead, target))
        self.roster.handle(MemberUp(Identity(target, target, "p", credential, self.lead, pane_of(target)), made))
        return made

    def runs(self, resolver: Resolver, ticket: str = "t-1") -> None:
        """Let a turn run that is at rest from its fifth second on: the next frame ends it (:data:`AT_REST`)."""
        before = frame("idle")
        sent = Typed(Sent("prompt", before), 0)
        for message in (
            Observed(before),
            Deliver(ticket, "prompt", 600 * S),
            GateRead(ticket, {}, {}, True, 0),
            PromptTyped(ticket, sent),
            Observed(frame("idle", "> prompt", f"* {ERROR}", at_s=5)),
        ):
            resolver.handle(message)
        self.world.settle()

    def ticket(self, target: str) -> str:
        """A send that is open; nothing is delivered."""
        ticket = str(self.mail.handle(OpenTicket(self.lead, target, "do it", 600 * S)))
        self.world.take(self.roster)
        return ticket

    def fails(self, target: str, ticket: str, status: Status = Status.BACKEND_ERROR) -> TurnEnded:
        """The end of a turn, as its resolver publishes it."""
        return TurnEnded(target, ticket, Outcome(status, reason=ERROR), self.world.ns)


def evidence(target: str, at_ns: int, credential: str = "c") -> Evidence:
    return Evidence(credential, target, f"t-{target}-{at_ns}", "p", "lead-1", at_ns)


def seen(new: Evidence) -> BackendErrorSeen:
    """Evidence with the end of the turn that it comes from."""
    return BackendErrorSeen(new, TurnEnded(new.target, new.ticket, Outcome(Status.BACKEND_ERROR), new.at_ns))
