"""How a member's program is read and typed to."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

import msgspec

from actors.classify import Verdict, classify
from actors.clock import from_seconds
from actors.inject import Typing
from actors.patterns import LEGACY, Patterns
from actors.resets import local_now
from actors.screen import Frame, Grammar, Reading, Sent
from actors.signal import Events

#: The floor under which an untyped end of a turn is not believed, in seconds.
MIN_TURN_S: Final = 2.0


class Setup(msgspec.Struct, frozen=True):
    """How the member's program is read and typed to; from its profile, fixed at launch."""

    grammar: Grammar
    patterns: Patterns = LEGACY
    typing: Typing = Typing()
    min_turn_ns: int = from_seconds(MIN_TURN_S)
    interrupt_keys: tuple[str, ...] = ("Escape",)
    #: The present by the wall clock, to read printed reset times by; it decides nothing else.
    wall: Callable[[], datetime] = local_now
    #: Understands the events of the program's hooks; ``None`` for a program without hooks of ours.
    events: Events | None = None

    def classify(self, frame: Frame, reading: Reading, sent: Sent | None, *, fast: bool) -> Verdict:
        """What a turn came to that has ended with this frame."""
        return classify(
            reading,
            self.patterns,
            width=frame.width,
            sent=sent,
            screen=frame.lines,
            fast=fast,
            wall=self.wall(),
        )
