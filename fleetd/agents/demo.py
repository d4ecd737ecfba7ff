"""The demo agent: fleetd's own stand-in for a coding agent. See :mod:`fleetd.demo_screen` for how it draws.

Its transcript has one rule that makes it readable: whatever stands in column 0 is the program's own. So the last
prompt's echo, the last answer block and an error line are found by their marks there, and what an answer quotes is
indented and never found. Whether it works is read from the footer below the input box, and nowhere else.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from actors.inject import Typing
from actors.screen import Frame, Grammar, Reading, Retrying, Sent, State
from actors.signal import Signal
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.styles import bright
from fleetd.demo_screen import (
    ANSWER,
    ARMED,
    BOX,
    BUSY,
    CHOICES,
    ECHO,
    HINT,
    INDENT,
    INTERRUPTED,
    QUESTION,
    READY,
    RETRY,
    RULE,
    TROUBLE,
)

#: A rule is at least so long; the program draws it over the whole width.
RULE_COLUMNS: Final = 8

_BUSY: Final = re.compile(re.escape(BUSY) + r"\S.*… \(\d+s")
_RETRY: Final = re.compile(re.escape(RETRY) + r".*retrying in (?P<wait>\d+)s · attempt (?P<attempt>\d+)/\d+")


class _Bottom(NamedTuple):
    """The live region at the end of a frame."""

    #: Index of its first line, the rule.
    start: int
    #: Indices of the input box's rows; empty where a dialog stands.
    box: range
    footer: tuple[str, ...]


class DemoGrammar:
    """Reads the demo agent's screen."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        bottom = _bottom(frame.lines)
        transcript = _above(frame.lines)
        # Nothing was printed since the prompt was typed: what stands there is another turn's.
        unmoved = sent is not None and transcript == _above(sent.before.lines)
        echo = None if unmoved else _echo(transcript)
        scope = () if unmoved else _below(transcript, echo)
        starts = [index for index, line in enumerate(scope) if line.startswith(ANSWER)]
        block_at = starts[-1] if starts else None
        state, retrying = State.UNKNOWN, None
        if bottom is not None and not bottom.box:
            state = State.BLOCKED
        elif bottom is not None and bottom.footer:
            state, retrying = _footer(bottom.footer)
        return Reading(
            state,
            scope=scope,
            block_at=block_at,
            answer="" if block_at is None else _answer(scope[block_at:]),
            input_open=bottom is not None and bool(bottom.box),
            draft="" if bottom is None else _draft(frame, bottom.box),
            retrying=retrying,
            interrupted=TROUBLE + INTERRUPTED in scope[block_at or 0 :],
            echoed=echo is not None,
        )


def _is_rule(line: str) -> bool:
    return len(line) >= RULE_COLUMNS and not line.strip(RULE)


def _bottom(lines: Sequence[str]) -> _Bottom | None:
    rules = [index for index, line in enumerate(lines) if _is_rule(line)]
    if not rules:
        return None
    last = rules[-1]
    if tuple(lines[last + 1 :]) == (QUESTION, *CHOICES):
        return _Bottom(last, range(0), ())
    if len(rules) < 2:
        return None
    start, box = rules[-2], range(rules[-2] + 1, last)
    rows = lines[start + 1 : last]
    if not rows or not rows[0].startswith(BOX.rstrip()) or any(row and not row.startswith(INDENT) for row in rows[1:]):
        return None
    return _Bottom(start, box, tuple(lines[last + 1 :]))


def _above(lines: Sequence[str]) -> Sequence[str]:
    """The transcript above the live region."""
    bottom = _bottom(lines)
    return lines if bottom is None else lines[: bottom.start]


def _footer(footer: tuple[str, ...]) -> tuple[State, Retrying | None]:
    if _BUSY.match(footer[0]):
        found = _RETRY.match(footer[-1])
        if found is None:
            return State.BUSY, None
        return State.BUSY, Retrying(int(found["attempt"]), footer[-1], int(found["wait"]))
    # A narrow terminal shows the footer's beginning only.
    at_rest = any(text.startswith(footer[0]) for text in (READY, ARMED))
    return (State.IDLE if at_rest else State.UNKNOWN), None


def _echo(lines: Sequence[str]) -> int | None:
    """Where the last prompt's echo begins."""
    return next((index for index in range(len(lines) - 1, -1, -1) if lines[index].startswith(ECHO)), None)


def _below(lines: Sequence[str], echo: int | None) -> tuple[str, ...]:
    """What follows an echo, whose own further rows are indented; everything where there is none."""
    if echo is None:
        return tuple(lines)
    start = echo + 1
    while start < len(lines) and (not lines[start] or lines[start].startswith(INDENT)):
        start += 1
    return tuple(lines[start:])


def _answer(block: Sequence[str]) -> str:
    rows = [block[0].removeprefix(ANSWER)]
    for line in block[1:]:
        if line and not line.startswith(INDENT):
            break
        rows.append(line.removeprefix(INDENT))
    return "\n".join(rows).strip("\n")


def _draft(frame: Frame, box: range) -> str:
    """What stands in the input box and is not a suggestion."""
    rows = [frame.lines[index] for index in box]
    if frame.styled:
        rows = bright(frame.styled)[box.start : box.stop]
    elif [row.removeprefix(BOX) for row in rows] == [HINT[: frame.width - len(BOX)].rstrip()]:
        return ""
    return "\n".join(row.removeprefix(INDENT) if index else row[len(BOX) :] for index, row in enumerate(rows)).strip()


class Demo:
    """The adapter."""

    name = "demo"
    command: tuple[str, ...] = (sys.executable, "-m", "fleetd.demo_agent")
    grammar: Grammar = DemoGrammar()
    typing = Typing()
    interrupt_keys: tuple[str, ...] = ("Escape",)
    error_pattern = r"^✗ API Error\b"
    exhausted_pattern = r"^✗ Usage limit reached\b"
    auth_pattern = r"^✗ Not logged in\b"
    request_pattern = r"^✗ Bad request\b"
    #: Any of its trouble lines but the one that says that it was interrupted.
    failed_pattern = r"^✗ (?:[^I]|I[^n])"
    client_names: tuple[str, ...] = ("fleetd-demo",)

    def plan(self, context: LaunchContext) -> LaunchPlan:
        """The command as it is: the demo agent needs nothing from fleetd."""
        return LaunchPlan(context.argv, context.env)

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        return None

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        """None: the demo agent has no hooks."""
        return ()
