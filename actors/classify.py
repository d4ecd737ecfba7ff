"""What the end of a turn means.

The order is the same for an assistant block, for a raw screen without one, and for a turn that ended under the
two-second floor: stale baseline, exhaustion, backend error, then generic failure or completion. Exhaustion is first
because one line can match both and the two have different consequences.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from actors.clock import to_seconds
from actors.patterns import Patterns
from actors.screen import Frame, Reading, Sent
from actors.turn import Considered, Outcome, Source, Status, bounded, clean, spoken


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


#: Lines of the judged frame kept with a verdict.
EXPLAIN_LINES: Final = 40

_STATUS: Final = {
    Kind.EXHAUSTED: Status.EXHAUSTED,
    Kind.BACKEND_ERROR: Status.BACKEND_ERROR,
    Kind.INTERRUPTED: Status.INTERRUPTED,
    Kind.COMPLETED: Status.COMPLETED,
}


def outcome_of(verdict: Verdict, frame: Frame, reading: Reading, turn_ns: int, floor_ns: int) -> Outcome:
    """What a scraped verdict makes of its send. A verdict without a status of its own is a generic failure."""
    reasons = {
        Kind.INTERRUPTED: "somebody stopped the turn in its pane",
        Kind.EMPTY: "the turn ended without an answer",
        Kind.TOO_FAST: f"it ended after {to_seconds(turn_ns):.1f} s, under the floor of {to_seconds(floor_ns):g} s",
        Kind.COMPLETED: "",
    }
    text, truncated = bounded(reading.answer) if verdict.kind is Kind.COMPLETED else ("", False)
    return Outcome(
        _STATUS.get(verdict.kind, Status.FAILED),
        text=text,
        truncated=truncated,
        reason=reasons.get(verdict.kind, spoken(verdict.line)),
        source=verdict.source,
        turn_ns=turn_ns,
        pattern=verdict.pattern,
        line=clean(verdict.line),
        frame=tuple(frame.lines[-EXPLAIN_LINES:]),
        considered=verdict.considered,
    )
