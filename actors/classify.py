"""What the end of a turn means.

The order is the same for an assistant block, for a raw screen without one, and for a turn that ended under the
two-second floor: stale baseline, exhaustion, backend error, authentication, request error, any other failure mark;
then interruption, floor, empty answer, completion. Exhaustion is first because one line can match two patterns and
the two have different consequences: one closes a credential for hours, the other counts towards an outage.

Busy beats all of it. A program that retries by itself is working, whatever its banner says; only one that announces a
wait beyond the scale of outages has really run out of quota.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final

import msgspec

from actors.clock import NS_PER_S
from actors.patterns import Lines, Pattern, Patterns
from actors.resets import resets_in
from actors.screen import Reading, Retrying, Sent, State, collapse
from actors.turn import Considered, Source

#: A retry that is announced for later than this is no outage but a used-up quota, in seconds.
OUTAGE_SCALE_S: Final = 600


#: The pattern's name of a verdict that a program's own announcement led to.
RETRY: Final = "retry"


class Kind(StrEnum):
    """What the classifier found."""

    #: The screen is what it was when the prompt was typed: nothing of this turn is on it.
    STALE = "stale"
    EXHAUSTED = "exhausted"
    BACKEND_ERROR = "backend_error"
    AUTH = "auth"
    REQUEST = "request"
    #: The program says that it failed, and nothing more is known.
    FAILED = "failed"
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
    #: For exhaustion: from now until the quota comes back, in nanoseconds, where the screen says so.
    resets_in_ns: int | None = None


def classify(
    reading: Reading,
    patterns: Patterns,
    *,
    width: int,
    sent: Sent | None = None,
    screen: tuple[str, ...] = (),
    fast: bool,
    wall: datetime | None = None,
) -> Verdict:
    """Classify a turn whose program is at rest.

    Args:
        reading: the screen, understood.
        patterns: the profile's.
        width: columns of the pane, to join what the program wrapped.
        sent: the delivery, with the screen before it; ``None`` when there was none (replay without a baseline).
        screen: the frame's lines, for the stale-baseline guard.
        fast: the turn took less than the profile's floor.
        wall: the present with its time zone, to read a reset time by; without it none is read.
    """
    source = Source.RAW if reading.block_at is None else Source.BLOCK
    considered: list[Considered] = []

    def verdict(kind: Kind) -> Verdict:
        return Verdict(kind, source, considered=tuple(considered))

    if sent is not None and screen == sent.before.lines:
        considered.append(Considered("baseline", "the screen has not changed since the prompt"))
        return verdict(Kind.STALE)
    lines = Lines(reading.ending, width)
    for kind, candidates in _failures(patterns) if not reading.finished else ():
        for pattern in candidates:
            hit = pattern.find(lines)
            considered.append(Considered(f"{kind} {pattern.name}", "no match" if hit is None else "matched"))
            if hit is not None:
                resets = _resets_in_ns((hit.line, *reading.ending), wall) if kind is Kind.EXHAUSTED else None
                return Verdict(kind, source, hit.pattern, hit.line, tuple(considered), resets)
    if reading.interrupted:
        return verdict(Kind.INTERRUPTED)
    if fast:
        considered.append(Considered("floor", "ended too soon"))
        return verdict(Kind.TOO_FAST)
    if not reading.answer.strip():
        considered.append(Considered("answer", "none on the screen"))
        return verdict(Kind.EMPTY)
    return verdict(Kind.COMPLETED)


def _failures(patterns: Patterns) -> tuple[tuple[Kind, tuple[Pattern, ...]], ...]:
    return (
        (Kind.EXHAUSTED, patterns.exhausted),
        (Kind.BACKEND_ERROR, patterns.error),
        (Kind.AUTH, patterns.auth),
        (Kind.REQUEST, patterns.request),
        (Kind.FAILED, patterns.failed),
    )


def _resets_in_ns(lines: tuple[str, ...], wall: datetime | None) -> int | None:
    """The reset time that the deciding line names, else any line of the turn's end, else all of them as one text."""
    if wall is None:
        return None
    for text in (*lines, collapse(" ".join(lines[1:]))):
        if (span := resets_in(text, wall)) is not None:
            return round(span.total_seconds() * NS_PER_S)
    return None


def hopeless(retrying: Retrying | None) -> Verdict | None:
    """The verdict on a program that still works but only waits for its quota; ``None`` where that is not so."""
    if retrying is None or retrying.wait_s is None or retrying.wait_s <= OUTAGE_SCALE_S:
        return None
    why = Considered(
        "retry", f"it is announced for {retrying.wait_s} s from now, beyond the {OUTAGE_SCALE_S} s of outages"
    )
    return Verdict(Kind.EXHAUSTED, Source.RAW, RETRY, retrying.line, (why,), retrying.wait_s * NS_PER_S)


#: What a person is told of a screen; see :func:`word`. A verdict without a row is a failure.
_WORDS: Final = {
    Kind.STALE: "idle",
    Kind.EXHAUSTED: "exhausted",
    Kind.BACKEND_ERROR: "backend_error",
    Kind.AUTH: "auth",
    Kind.REQUEST: "request",
    Kind.INTERRUPTED: "interrupted",
    Kind.COMPLETED: "completed",
}


def word(reading: Reading, verdict: Verdict) -> str:
    """One word for a screen: a failure's kind, ``completed``, ``interrupted``, ``working``, ``blocked`` or ``idle``."""
    if verdict.kind is not Kind.EXHAUSTED or verdict.pattern != RETRY:
        if reading.state is State.BUSY:
            return "working"
        if reading.state is State.BLOCKED:
            return "blocked"
    if verdict.kind is Kind.EMPTY and not reading.echoed:
        return "idle"
    return _WORDS.get(verdict.kind, "failed")
