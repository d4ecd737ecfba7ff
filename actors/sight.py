"""What a member's frames say: that it is at rest for the first time, and how its open turn ended."""

from __future__ import annotations

from typing import Final, NamedTuple

from actors.classify import Kind, hopeless
from actors.ending import outcome_of
from actors.inject import STILL_NS
from actors.openturn import OpenTurn, doubt
from actors.screen import Frame, Reading, State, Stillness
from actors.setup import Setup
from actors.tracker import TurnTracker
from actors.turn import Outcome, Status

#: How long a screen at rest waits for the program's own word on a turn that it has announced, in nanoseconds.
GRACE_NS: Final = 1_500_000_000


class Seen(NamedTuple):
    """One frame, understood."""

    frame: Frame
    reading: Reading
    #: For how many nanoseconds its text has stood.
    still_ns: int

    @property
    def open_at_rest(self) -> bool:
        """The program waits for a prompt. One that cannot be told idle from busy has to stand still for that."""
        state = self.reading.state
        at_rest = state is State.IDLE or (state is State.UNKNOWN and self.still_ns >= STILL_NS)
        return at_rest and self.reading.input_open


class Sight:
    """Reads the frames of one member, and follows those of its open turn in their order."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._still = Stillness()

    def read(self, frame: Frame, turn: OpenTurn | None) -> Reading:
        """Any frame of the member's pane, against what was typed."""
        sent = None if turn is None or turn.tracker is None else turn.tracker.sent
        return self._setup.grammar.read(frame, sent)

    def see(self, frame: Frame, turn: OpenTurn | None) -> Seen:
        return Seen(frame, self.read(frame, turn), self._still.note(frame))

    def ended(self, turn: OpenTurn, tracker: TurnTracker, seen: Seen) -> Outcome | None:
        """How the turn ended, by this frame and those before it; ``None`` while it goes on."""
        frame, reading, still_ns = seen
        elapsed_ns = frame.at_ns - (turn.began_ns or 0)
        if not turn.settled and (lost := hopeless(reading.retrying)) is not None:
            return outcome_of(lost, frame, reading, elapsed_ns, self._setup.min_turn_ns)
        ended_ns = tracker.note(frame, reading)
        at_rest = ended_ns is not None or still_ns >= STILL_NS
        if turn.resumed and not turn.settled and at_rest and (why := doubt(turn, frame, reading)):
            return Outcome(Status.LOST, reason=why, turn_ns=elapsed_ns)
        if ended_ns is None:
            turn.rest_ns = None
            return None
        turn.rest_ns = frame.at_ns if turn.rest_ns is None else turn.rest_ns
        if turn.announced and frame.at_ns - turn.rest_ns < GRACE_NS:
            return None
        turn_ns = max(0, ended_ns - (turn.began_ns or 0))
        verdict = self._setup.classify(frame, reading, tracker.sent, fast=turn_ns < self._setup.min_turn_ns)
        if verdict.kind is Kind.STALE:
            tracker.unsettle()
            return None
        return outcome_of(verdict, frame, reading, turn_ns, self._setup.min_turn_ns)
