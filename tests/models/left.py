"""A resolver between recorders, with a journal, and with what an earlier daemon left."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from actors.actor import Message
from actors.gate import GateRead
from actors.host import PaneRef
from actors.inject import Typed
from actors.openturn import Resumed, TypedTurn
from actors.panes import (
    Observed,
    PromptTyped,
    TypePrompt,
)
from actors.resolver import Resolver
from actors.screen import Frame, Reading, Retrying, Sent
from actors.sends import Deliver
from actors.setup import Setup
from actors.turn import Outcome, TurnEnded
from tests.actors.bench import CUSTOM, S
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven, frame
from tests.models.senders import Disk

PANE = PaneRef("memory", "%1")
BEFORE = frame("idle", "before", at_s=1)


class Screen(TableGrammar):
    """As the table, and ``echo`` in the last line says that the prompt's echo is there; a draft is what it says."""

    def read(self, shown: Frame, sent: Sent | None = None) -> Reading:
        reading = super().read(shown, sent)
        draft = next((line.removeprefix("> ") for line in shown.lines if line.startswith("> ")), "")
        waits = next((int(line.removeprefix("wait ")) for line in shown.lines if line.startswith("wait ")), None)
        retrying = None if waits is None else Retrying(1, f"wait {waits}", waits)
        echoed = "echo" in shown.lines
        return msgspec.structs.replace(reading, draft=draft, echoed=echoed, retrying=retrying)


class Left:
    """A resolver with what an earlier daemon left, or a journal, and the clock at 100 s."""

    def __init__(self, resumed: Resumed | None = None, **setup: Any) -> None:
        self.order: list[Message] = []
        self.outlet, self.gate, self.panes, self.disk = Recorder(), Recorder(), Recorder(), Disk()
        self.clock = Clock(100 * S)
        self.resolver = Resolver(
            "m-1",
            Setup(**{"grammar": Screen(), "patterns": CUSTOM, **setup}),
            pane=PANE,
            credential="c",
            outlet=self.outlet,
            gate=self.gate,
            panes=self.panes,
            journal=self.disk,
            resumed=resumed,
        )
        driven(self.resolver, self.clock)
        self.timers: list[tuple[int, Message]] = []
        self.deadline = trio.CancelScope()
        self.resolver.after = self._after  # type: ignore[method-assign]

    def _after(self, delay_ns: int, message: Message) -> trio.CancelScope:
        self.timers.append((delay_ns, message))
        return self.deadline

    def tell(self, *messages: Message) -> Any:
        return [self.resolver.handle(message) for message in messages][-1]

    def shows(self, *lines: str, at_s: float) -> None:
        self.clock.ns = round(at_s * S)
        self.tell(Observed(frame(*lines, at_s=at_s)))

    def to_typing(self, ticket: str = "t-1") -> TypePrompt:
        self.tell(Observed(frame("idle", at_s=99)), Deliver(ticket, "the prompt", 9 * S))
        self.tell(GateRead(ticket, {}, {}, True, self.clock.ns))
        return self.panes.only(TypePrompt)[-1]

    def runs(self) -> None:
        self.to_typing()
        self.tell(PromptTyped("t-1", Typed(Sent("the prompt", BEFORE), 100 * S)))

    @property
    def outcome(self) -> Outcome:
        (end,) = self.outlet.only(TurnEnded)
        return end.outcome


TURN = TypedTurn("t-1", "m-1", "the prompt", 50 * S, BEFORE.lines, 80, 60 * S, 61 * S)
