"""One resolver between recorders, for tests of what it publishes."""

from __future__ import annotations

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.gate import GateRead
from actors.host import PaneRef
from actors.inject import Typed
from actors.panes import Observed, PromptTyped
from actors.patterns import Pattern, Patterns
from actors.resolver import Resolver
from actors.screen import Frame, Sent
from actors.sends import Deliver
from actors.setup import Setup
from actors.turn import Outcome, TurnEnded
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven, frame

S = NS_PER_S
CUSTOM = Patterns(
    exhausted=(Pattern(r"quota is used up", "exhaustedPattern"),),
    error=(Pattern(r"backend (?:down|quota)", "errorPattern"),),
)
SETUP = Setup(TableGrammar(), CUSTOM)
BASELINE = frame("idle", "* API Error: 529 from an older turn")


class Bench:
    """One resolver between recorders; the screen shows what the test says."""

    def __init__(self, setup: Setup = SETUP, *, ready: bool = True) -> None:
        self.clock = Clock()
        self.outlet, self.gate, self.panes = Recorder("outlet"), Recorder("gate"), Recorder("panes")
        self.resolver = Resolver(
            "m-1",
            setup,
            pane=PaneRef("memory", "%1"),
            credential="c",
            outlet=self.outlet,
            gate=self.gate,
            panes=self.panes,
        )
        driven(self.resolver, self.clock)
        if ready:
            self.shows("idle")
            self.outlet.told.clear()

    def tell(self, message: Message) -> object:
        return self.resolver.handle(message)

    def shows(self, *lines: str, at_s: float | None = None) -> None:
        if at_s is not None:
            self.clock.ns = round(at_s * S)
        self.tell(Observed(frame(*lines, at_s=self.clock.ns / S)))

    def deliver(self, ticket: str = "t-1", *, timeout_s: int = 600) -> None:
        self.tell(Deliver(ticket, f"prompt of {ticket}", timeout_s * S))

    def gate_says(
        self,
        ticket: str = "t-1",
        *,
        exhausted: dict[str, int] | None = None,
        cooling: dict[str, int] | None = None,
        hold: bool = True,
    ) -> None:
        self.tell(GateRead(ticket, exhausted or {}, cooling or {}, hold, self.clock.ns))

    def typed(self, ticket: str = "t-1", before: Frame = BASELINE) -> None:
        self.tell(PromptTyped(ticket, Typed(Sent(f"prompt of {ticket}", before), self.clock.ns)))

    def begin(self, ticket: str = "t-1", **more: int) -> None:
        """A turn that runs."""
        self.deliver(ticket, **more)
        self.gate_says(ticket)
        self.typed(ticket)

    def rests_on(self, *lines: str, after_s: float) -> None:
        """The program comes to rest on this screen, ``after_s`` seconds from now."""
        rest = self.clock.ns / S + after_s
        for delay in (0.0, 0.25, 0.5):
            self.shows(*lines, at_s=rest + delay)

    def ended(self) -> list[TurnEnded]:
        return self.outlet.only(TurnEnded)

    @property
    def outcome(self) -> Outcome:
        (ended,) = self.ended()
        return ended.outcome
