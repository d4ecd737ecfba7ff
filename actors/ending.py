"""What a verdict on a screen, or the program's own report, makes of its send."""

from __future__ import annotations

from typing import Final

from actors.classify import Kind, Verdict
from actors.clock import to_seconds
from actors.screen import Frame, Reading
from actors.signal import Signal
from actors.turn import Failure, Outcome, Status, bounded, clean, spoken

#: Lines of the judged frame kept with a verdict.
EXPLAIN_LINES: Final = 40

#: What a verdict makes of its send. One without a row is a generic failure.
STATUS: Final = {
    Kind.EXHAUSTED: Status.EXHAUSTED,
    Kind.BACKEND_ERROR: Status.BACKEND_ERROR,
    Kind.INTERRUPTED: Status.INTERRUPTED,
    Kind.COMPLETED: Status.COMPLETED,
}
FAILURE: Final = {Kind.AUTH: Failure.AUTH, Kind.REQUEST: Failure.REQUEST}
#: Why a send failed whose program printed no reason.
REASONS: Final = {
    Kind.INTERRUPTED: "somebody stopped the turn in its pane",
    Kind.EMPTY: "the turn ended without an answer",
    Kind.COMPLETED: "",
}


def outcome_of(verdict: Verdict, frame: Frame, reading: Reading, turn_ns: int, floor_ns: int) -> Outcome:
    """What a scraped verdict makes of its send."""
    too_fast = f"it ended after {to_seconds(turn_ns):.1f} s, under the floor of {to_seconds(floor_ns):g} s"
    reasons = {**REASONS, Kind.TOO_FAST: too_fast}
    text, truncated = bounded(reading.answer) if verdict.kind is Kind.COMPLETED else ("", False)
    return Outcome(
        STATUS.get(verdict.kind, Status.FAILED),
        text=text,
        truncated=truncated,
        reason=reasons.get(verdict.kind, spoken(verdict.line)),
        source=verdict.source,
        turn_ns=turn_ns,
        pattern=verdict.pattern,
        line=clean(verdict.line),
        frame=tuple(frame.lines[-EXPLAIN_LINES:]),
        considered=verdict.considered,
        failure=FAILURE.get(verdict.kind),
        resets_in_ns=verdict.resets_in_ns,
    )


def outcome_of_report(kind: Kind, report: Signal, turn_ns: int) -> Outcome:
    """What the program's own word on the end of a turn makes of its send."""
    text, truncated = bounded(report.text) if kind is Kind.COMPLETED else ("", False)
    return Outcome(
        STATUS.get(kind, Status.FAILED),
        text=text,
        truncated=truncated,
        reason=REASONS.get(kind, clean(report.text) or f"the program reported {report.pattern or kind}"),
        source=report.source,
        turn_ns=turn_ns,
        pattern=report.pattern,
        failure=FAILURE.get(kind),
        resets_in_ns=report.resets_in_ns,
    )
