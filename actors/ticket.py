"""A ticket: a lead's durable handle of one send."""

from __future__ import annotations

import msgspec

from actors.journal import Entry
from actors.turn import Outcome, Phase


class TicketView(msgspec.Struct, frozen=True):
    """A ticket as an edge sees it."""

    id: str
    lead: str
    target: str
    phase: Phase
    #: For ``held``: the end of the cool-off, in nanoseconds.
    until_ns: int
    opened_ns: int
    #: ``None`` while the send has not ended.
    outcome: Outcome | None
    collected: bool
    #: What the member answered after the send had ended, where it did.
    late_reply: str | None


class Ticket(msgspec.Struct):
    """One send, as mail owns it and as the journal keeps it."""

    id: str
    lead: str
    target: str
    opened_ns: int
    timeout_ns: int
    #: What to type; empty once it has ended.
    prompt: str
    phase: Phase = Phase.QUEUED
    until_ns: int = 0
    outcome: Outcome | None = None
    collected: bool = False
    late_reply: str | None = None
    #: How it ended, while that is being written down: nobody is told yet, and whatever is written meanwhile has it.
    ending: Outcome | None = None

    def entry(self) -> Entry:
        kept = self
        if self.ending is not None:
            kept = msgspec.structs.replace(self, outcome=self.ending, ending=None, prompt="")
        return Entry("ticket", self.id, msgspec.json.encode(kept))

    def view(self) -> TicketView:
        return TicketView(
            self.id,
            self.lead,
            self.target,
            self.phase,
            self.until_ns,
            self.opened_ns,
            self.outcome,
            self.collected,
            self.late_reply,
        )
