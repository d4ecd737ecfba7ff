"""When a turn that nobody announced the end of is over.

A screen that looks at rest may only be between two redraws, and one that never looked busy may belong to a turn that
came and went between two captures. So an end needs two things: the turn has left a mark (busy was seen, or the screen
is another than before the prompt), and the program has been at rest with the same text for a while. The turn's length
is measured to the *first* frame of that rest.
"""

from __future__ import annotations

from typing import Final

from actors.inject import STILL_NS
from actors.screen import Frame, Reading, Sent, State, Stillness

#: Rest that a grammar's plain "idle" must last, in nanoseconds: two polls behind the first.
SETTLE_NS: Final = 500_000_000


class TurnTracker:
    """Follows one turn through its frames."""

    def __init__(self, sent: Sent) -> None:
        self.sent = sent
        self.seen_busy = False
        self._still = Stillness()
        #: What stands on the screen at rest, and since when, in nanoseconds.
        self._rest: tuple[object, int] | None = None

    def note(self, frame: Frame, reading: Reading) -> int | None:
        """Take a frame.

        Returns:
            When the program came to rest, in nanoseconds, once that is settled; ``None`` while the turn goes on.
        """
        still_ns = self._still.note(frame)
        if reading.state is State.BUSY:
            self.seen_busy = True
        if reading.state in (State.BUSY, State.BLOCKED):
            self._rest = None
            return None
        if not self.seen_busy and frame.lines == self.sent.before.lines:
            return None
        if reading.state is State.UNKNOWN:
            return frame.at_ns - still_ns if still_ns >= STILL_NS else None
        rest = (reading.scope, reading.draft)
        if self._rest is None or self._rest[0] != rest:
            self._rest = (rest, frame.at_ns)
        since_ns = self._rest[1]
        return since_ns if frame.at_ns - since_ns >= SETTLE_NS else None

    def unsettle(self) -> None:
        """That rest was none of this turn's: look for the next."""
        self._rest = None
