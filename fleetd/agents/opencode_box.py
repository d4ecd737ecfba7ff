"""OpenCode's input box, what stands in its place, and what its footer says that the program does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

import msgspec

from actors.screen import Frame, Retrying, State, collapse, columns, indent
from fleetd.agents.opencode_parts import colour_at_end, cropped, text_colour

#: Columns of a box that stands under the transcript; the one of the home screen is centred.
LEFT: Final = range(6)
#: Lines of a dialog at most, from the end of the screen.
DIALOG_LINES: Final = 30
#: A dialog's margins differ by at most so many columns.
CENTRED: Final = 8
#: The right edge of a box that draws none.
ANYWHERE: Final = 10_000

_EDGE: Final = re.compile(r"^ *╹▀{3}")
_AGENT_ROW: Final = re.compile(r"^ *┃ {1,2}[A-Z]\S* (?: ?· | )\S")
_BUSY: Final = re.compile(r"^ *(?:[⬝■]|\[⋯\])|\besc +(?:again to +)?interrupt\b")
_SPINNER: Final = re.compile(r"^(?:[⬝■]+|\[⋯\])")
_RETRY: Final = re.compile(r"\bretrying(?: in (?P<wait>~?\d[\w ~]*?))?(?: -)? attempt\b(?:[^#]*#(?P<attempt>\d+))?")
_SPAN: Final = re.compile(r"(\d+) ?([a-z])")
_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
#: What a suggestion in the box begins with.
_SUGGESTION: Final = re.compile(r"^(?:Ask anything|Run a command)(?:\.\.\.|…)")
_CHOICES: Final = re.compile(r"\b(?:enter (?:confirm|submit|toggle)|esc (?:dismiss|cancel))\b|⇆ ")
#: Old versions ask in the tool's own block, above the box.
_TOOL_CHOICES: Final = re.compile(r"\benter accept\b.*\bd deny\b")
#: A dialog's head: its title, and how to leave it.
_HEAD: Final = re.compile(r"^(?P<pad> {6,})(?P<title>[A-Z]\S.*?) {3,}esc(?: {2,}|$)")
#: A dialog by which the program says that a quota is used up.
_LIMIT: Final = re.compile(r"(?i)limit reached|usage exceeded")


class Box(msgspec.Struct, frozen=True):
    """The input box."""

    rows: range
    #: The column of its bar, and the first one right of it.
    column: int
    right: int
    footer: tuple[str, ...]


class Doing(msgspec.Struct, frozen=True):
    """What the program does."""

    state: State
    #: Its box would take a prompt.
    input_open: bool = False
    retrying: Retrying | None = None


def box_of(lines: Sequence[str]) -> Box | None:
    """The box; ``None`` where something else stands in its place."""
    end = _last(lines, _EDGE)
    if end is not None:
        rows = _barred(lines, end, lines[end].index("╹"))
        return Box(rows, lines[end].index("╹"), lines[end].rindex("▀") + 1, tuple(lines[end + 1 :])) if rows else None
    # An older box without the edge: the last barred lines, of which the last names agent and model.
    last = _last(lines, re.compile(r"^ *┃"))
    if last is None or not _AGENT_ROW.match(lines[last]) or len(lines) - last > 5:
        return None
    rows = _barred(lines, last + 1, lines[last].index("┃"))
    return Box(rows, lines[last].index("┃"), ANYWHERE, tuple(lines[last + 1 :])) if len(rows) > 1 else None


def _last(lines: Sequence[str], shape: re.Pattern[str]) -> int | None:
    return next((n for n in range(len(lines) - 1, -1, -1) if shape.match(lines[n])), None)


def _barred(lines: Sequence[str], end: int, column: int) -> range:
    """The lines above ``end`` with a bar in one column."""
    start = end
    while start > 0 and lines[start - 1][column : column + 1] == "┃":
        start -= 1
    return range(start, end)


def doing(frame: Frame, box: Box | None) -> Doing:
    """What the program does, by its footer, and by what covers the box or stands in its place."""
    bottom = frame.lines[-DIALOG_LINES:]
    if box is None:
        asks = any("┃" in line and _CHOICES.search(line) for line in bottom)
        return Doing(State.BLOCKED if asks else State.UNKNOWN)
    if any("┃" in line and _TOOL_CHOICES.search(line) for line in bottom):
        return Doing(State.BLOCKED)
    dialog = _dialog(frame)
    if any(_BUSY.search(line) for line in box.footer):
        return Doing(State.BUSY, not dialog, _retry(collapse(" ".join(takewhile(bool, box.footer)))))
    if dialog:
        return Doing(State.IDLE if _LIMIT.search(dialog) else State.BLOCKED)
    return Doing(State.IDLE, input_open=True)


def _dialog(frame: Frame) -> str:
    """The title of a dialog that covers the screen's middle; empty where there is none."""
    for line in frame.lines:
        found = _HEAD.match(line)
        if found is None:
            continue
        left, right = columns(found["pad"]), frame.width - columns(line[: line.index("esc", found.end("title")) + 3])
        if abs(left - right) <= CENTRED:
            return found["title"].strip()
    return ""


def _retry(text: str) -> Retrying | None:
    found = _RETRY.search(text)
    if found is None:
        return None
    end = text.find("]", found.end())
    line = _SPINNER.sub("", text if end < 0 else text[: end + 1]).strip()
    attempt = int(found["attempt"]) if found["attempt"] else None
    return Retrying(attempt, line, _seconds(found["wait"]) if found["wait"] else None)


def old_retry(scope: Sequence[str]) -> Retrying | None:
    """A retry that is announced above the box, left of the assistant's column."""
    lines = [line for line in scope if line.strip()][-3:]
    return _retry(collapse(" ".join(line for line in lines if indent(line) < 5)))


def _seconds(span: str) -> int | None:
    found = [int(amount) * _SECONDS[unit] for amount, unit in _SPAN.findall(span) if unit in _SECONDS]
    return sum(found) if found else None


def muted(frame: Frame, box: Box | None) -> str:
    """The colour of what is said in passing: of errors, of tools' titles, and of the last word in the box."""
    if box is None or not frame.styled:
        return ""
    row = next((n for n in reversed(box.rows) if frame.lines[n].strip(" ┃")), box.rows.start)
    return colour_at_end(frame.styled[row], box.right)


def draft_in(frame: Frame, box: Box) -> str:
    """What stands in the box and is no suggestion. Its last row names the agent and the model."""
    rows = box.rows[:-1]
    texts = [cropped(frame.lines[n], box.right)[box.column + 1 :].removeprefix("  ").rstrip() for n in rows]
    text = "\n".join(texts).strip()
    if _SUGGESTION.match(text) is None:
        return text
    drawn = text_colour(frame.styled[rows.start : rows.stop]) if frame.styled else ""
    return "" if drawn == muted(frame, box) else text
