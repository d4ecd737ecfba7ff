"""What is told to a member's resolver: deliveries, replies, and whatever else may end a turn."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actors.actor import Ask, Message, Refused
from actors.classify import Verdict
from actors.screen import Frame, Reading
from actors.turn import Phase


class NoOpenTurn(Refused):
    """There is nothing to answer or to stop: no turn of this member is open."""

    error = "no_open_turn"


class Deliver(Message, frozen=True):
    """Type this prompt when the member is free."""

    ticket: str
    prompt: str
    #: From the prompt's arrival, in nanoseconds; then the send ends ``timed_out``.
    timeout_ns: int


class MemberReply(Ask[str], frozen=True):
    """``fleet_reply``: the member's own answer of its open turn. Answers with the ticket."""

    text: str


class Interrupt(Ask[tuple[str, ...]], frozen=True):
    """Stop the open turn, or else take back what waits. Answers with the tickets that ended by it."""


class Release(Message, frozen=True):
    """The roster has released the member and closes its pane: end its sends, and this actor."""


class Examination(msgspec.Struct, frozen=True):
    """A frame as the resolver reads it: what the classifier would say if the turn ended with it."""

    target: str
    ticket: str | None
    phase: Phase | None
    reading: Reading
    verdict: Verdict
    #: Messages that came second in a race, by what they were.
    lost_races: Mapping[str, int]


class Examine(Ask[Examination], frozen=True):
    """Explain this frame of the member's pane."""

    frame: Frame


class HoldOver(Message, frozen=True):
    """The cool-off that held this send should be over: read the gate again."""

    ticket: str


class TimedOut(Message, frozen=True):
    ticket: str


class Entering(Message, frozen=True):
    """Enter is about to be pressed: what the program answers from now on can be the answer of this send."""

    ticket: str


class StartTimer(Message, frozen=True):
    """A resumed send ends ``timed_out`` when so much time has passed; the loop runs only now."""

    ticket: str
    left_ns: int
