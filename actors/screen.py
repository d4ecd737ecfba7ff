"""What a pane showed, and what it means: the frame, its reading, and the grammar between them.

A *frame* is one capture: lines in their raw columns, the pane's title, when it was taken. A *grammar* belongs to one
agent program and turns a frame into a *reading*: is the program idle, busy or waiting; which lines belong to the open
turn; where its last answer block starts. Only the grammar knows glyphs; nothing else here does.

Lines are never dedented: real error lines stand in a program's own column and quotes never do. White space is
collapsed only to join a line with its continuation, because the programs wrap lines themselves.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from typing import Final, Protocol
from unicodedata import combining, east_asian_width

import msgspec

#: Pane text kept per member, in bytes of UTF-8.
FRAME_BYTES: Final = 256 * 1024


class Frame(msgspec.Struct, frozen=True):
    """One capture of a pane."""

    #: Scrollback tail, then the screen, top to bottom; trailing white space and trailing empty lines removed.
    lines: tuple[str, ...]
    #: Captured at, in nanoseconds of the daemon's clock.
    at_ns: int = 0
    title: str = ""
    #: Columns and rows of the pane's visible screen.
    width: int = 160
    height: int = 50
    #: Rows at the bottom of the screen that show nothing; ``lines`` ends above them.
    blank: int = 0
    #: Column and row of the cursor on the screen, from 0; ``None`` where the host cannot know.
    cursor: tuple[int, int] | None = None
    #: The pane's process has ended; the text is what it left.
    dead: bool = False
    #: A person scrolls in it (tmux copy mode): keys would not reach the program.
    in_mode: bool = False
    #: The program asked for bracketed paste; ``None`` where the host cannot know.
    bracketed: bool | None = None
    #: The same lines with their SGR sequences where the host was asked for them, else empty.
    styled: tuple[str, ...] = ()

    @property
    def screen(self) -> tuple[str, ...]:
        """The visible rows down to the last that holds text."""
        rows = max(0, self.height - self.blank)
        return self.lines[max(0, len(self.lines) - rows) :]


class Sent(msgspec.Struct, frozen=True):
    """What was typed, and what the pane showed just before: how a grammar finds the open turn on the screen."""

    prompt: str
    before: Frame


class State(StrEnum):
    """What a program is doing, as far as its screen tells."""

    IDLE = "idle"
    BUSY = "busy"
    BLOCKED = "blocked"
    #: The grammar cannot tell from this frame alone; a screen that stands still long enough counts as idle.
    UNKNOWN = "unknown"


class Retrying(msgspec.Struct, frozen=True):
    """The program says that it retries by itself: still working, and no failure yet."""

    attempt: int | None
    line: str
    #: The wait that the program announced, in seconds, where it said one.
    wait_s: int | None = None


class Reading(msgspec.Struct, frozen=True):
    """One frame, understood."""

    state: State
    #: Raw lines after the last prompt's echo and before the input box.
    scope: tuple[str, ...] = ()
    #: Where in ``scope`` the last answer block starts; ``None`` when the turn has none.
    block_at: int | None = None
    #: The answer's text without the program's own marks; empty when there is none.
    answer: str = ""
    #: There is an input line that would take a prompt: false in a dialog.
    input_open: bool = False
    #: Text that somebody typed into the input line and did not submit.
    draft: str = ""
    retrying: Retrying | None = None
    #: The turn was cut short by a key: the program says so.
    interrupted: bool = False
    #: The program says that the turn ended well, in words that it never prints after a failure.
    finished: bool = False
    #: The lines in which failures are looked for, where that is not the last answer block and what follows it.
    judged: tuple[str, ...] | None = None
    #: A prompt's echo stands on the screen: without one there is no turn to judge.
    echoed: bool = True

    @property
    def ending(self) -> tuple[str, ...]:
        """The lines a pattern looks at: what the grammar says, else the last answer block and the rest, else all."""
        if self.judged is not None:
            return self.judged
        return self.scope if self.block_at is None else self.scope[self.block_at :]


class Grammar(Protocol):
    """How one program draws its screen. Pure: the same frame gives the same reading."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading: ...


class Stillness:
    """How long a pane has shown the same text."""

    def __init__(self) -> None:
        self._lines: tuple[str, ...] | None = None
        #: When the text last changed, in nanoseconds; ``None`` before the first frame.
        self.since_ns: int | None = None

    def note(self, frame: Frame) -> int:
        """Take a frame; return for how many nanoseconds its text has stood."""
        if self.since_ns is None or frame.lines != self._lines:
            self._lines, self.since_ns = frame.lines, frame.at_ns
        return frame.at_ns - self.since_ns


def clean_lines(text: str) -> tuple[str, ...]:
    """Lines of a capture as a frame keeps them, bounded to the newest :data:`FRAME_BYTES`."""
    lines = [line.rstrip() for line in text.split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    kept = 0
    for index in range(len(lines) - 1, -1, -1):
        kept += len(lines[index].encode("utf-8", "replace")) + 1
        if kept > FRAME_BYTES:
            return tuple(lines[index + 1 :])
    return tuple(lines)


def blank_rows(text: str) -> int:
    """Rows at the end of a capture that show nothing: those that :func:`clean_lines` leaves out."""
    rows = text.split("\n")
    return next((index for index, row in enumerate(reversed(rows)) if row.strip()), len(rows))


#: Below U+0300 every character takes one column.
_UNUSUAL: Final = re.compile("[\u0300-\U0010ffff]")


def columns(text: str) -> int:
    """Terminal columns that a line takes: wide characters count two, combining ones none."""
    if text.isascii():
        return len(text)
    return len(text) + sum(map(_beyond_one, _UNUSUAL.findall(text)))


@cache
def _beyond_one(ch: str) -> int:
    return -1 if combining(ch) else 1 if east_asian_width(ch) in "WF" else 0


def indent(line: str) -> int:
    """Columns of white space before the first character."""
    return len(line) - len(line.lstrip(" "))


def collapse(text: str) -> str:
    """The text with each run of white space as one space."""
    return " ".join(text.split())


def _wrapped(line: str, below: str, width: int) -> bool:
    """Whether the first word below did not fit behind this line."""
    word = below.split(maxsplit=1)[0]
    # No character takes more than two columns, so most lines need not be measured.
    return 2 * len(line) + 1 + 2 * len(word) > width and columns(line) + 1 + columns(word) > width


def logical_lines(lines: Sequence[str], width: int) -> list[tuple[str, str]]:
    """Each raw line with itself joined to its continuations.

    A line continues the one before when it is indented more than the line that began the paragraph, or when its first
    word did not fit behind the one before: a program wraps only what does not fit.

    Returns:
        Pairs ``(raw line, joined line)``; both keep the raw indentation of their first line.
    """
    pairs: list[tuple[str, str]] = []
    indents = [indent(line) if line.strip() else None for line in lines]
    for start, head in enumerate(lines):
        begin = indents[start]
        if begin is None:
            continue
        joined, last = head, head
        for index in range(start + 1, min(start + 12, len(lines))):
            line, inner = lines[index], indents[index]
            if inner is None or inner < begin or (inner == begin and not _wrapped(last, line, width)):
                break
            joined, last = f"{joined} {line.strip()}", line
        pairs.append((head, joined))
    return pairs
