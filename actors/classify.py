"""What the end of a turn means.

The order is the same for an assistant block, for a raw screen without one, and for a turn that ended under the
two-second floor: stale baseline, exhaustion, backend error, then generic failure or completion. Exhaustion is first
because one line can match both and the two have different consequences.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from actors.patterns import Patterns
from actors.screen import Reading, Sent
from actors.turn import Considered, Source


class Kind(StrEnum):
    """What the classifier found."""

    #: The screen is what it was when the prompt was typed: nothing of this turn is on it.
    STALE = "stale"
    EXHAUSTED = "exhausted"
    BACKEND_ERROR = "backend_error"
    INTERRUPTED = "interrupted"
    #: The program is at rest and shows no answer.
    EMPTY = "empty"
    #: An untyped end under the floor: too fast to be believed.
    TOO_FAST = "too_fast"
    COMPLETED = "completed"


class Verdict(msgspec.Struct, frozen=True):
    """The classifier's answer, and why."""

    kind: Kind
    source: Source
    pattern: str = ""
    #: The line of the screen that decided, as the program drew it.
    line: str = ""
    considered: tuple[Considered, ...] = ()


def classify(
    reading: Reading,
    patterns: Patterns,
    *,
    width: int,
    sent: Sent | None = None,
    screen: tuple[str, ...] = (),
    fast: bool,
) -> Verdict:
    """Classify a turn whose program is at rest.

    Args:
        reading: the screen, understood.
        patterns: the profile's.
        width: columns of the pane, to join what the program wrapped.
        sent: the delivery, with the screen before it; ``None`` when there was none (replay without a baseline).
        screen: the frame's lines, for the stale-baseline guard.
        fast: the turn took less than the profile's floor.
    """
    source = Source.RAW if reading.block_at is None else Source.BLOCK
    considered: list[Considered] = []

    if sent is not None and screen == sent.before.lines:
        return Verdict(
            Kind.STALE, source, considered=(Considered("baseline", "the screen has not changed since the prompt"),)
        )
    for kind, candidates in ((Kind.EXHAUSTED, patterns.exhausted), (Kind.BACKEND_ERROR, patterns.error)):
        for pattern in candidates:
            hit = pattern.find(reading.ending, width)
            considered.append(Considered(f"{kind} {pattern.name}", "no match" if hit is None else "matched"))
            if hit is not None:
                return Verdict(kind, source, hit.pattern, hit.line, tuple(considered))
    if reading.interrupted:
        return Verdict(Kind.INTERRUPTED, source, considered=tuple(considered))
    if fast:
        considered.append(Considered("floor", "ended too soon"))
        return Verdict(Kind.TOO_FAST, source, considered=tuple(considered))
    if not reading.answer.strip():
        considered.append(Considered("answer", "none on the screen"))
        return Verdict(Kind.EMPTY, source, considered=tuple(considered))
    return Verdict(Kind.COMPLETED, source, considered=tuple(considered))
