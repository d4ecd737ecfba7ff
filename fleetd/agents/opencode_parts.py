"""The parts of OpenCode's transcript, and the toast that may cover it. See :mod:`fleetd.agents.opencode_screen`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum, auto
from itertools import pairwise
from typing import Final
from unicodedata import combining, east_asian_width

import msgspec

from actors.screen import collapse, columns

#: A toast begins within so many lines of the top, and is at least so wide, in columns.
TOAST_TOP: Final = 5
TOAST_COLUMNS: Final = 12
#: Characters of a prompt, without white space, by which its echo is known.
PROMPT_CHARS: Final = 60

_BAR: Final = re.compile(r"^ {0,4}┃")
_MARK: Final = re.compile(r"^ {0,6}▣ +\S")
_DONE: Final = re.compile(r" · ~?\d+(?:\.\d+)?(?:ms|s|m|h|d)(?: \d+[a-z]+)*$")
_RULE: Final = re.compile(r"^ {0,4}─+ ?(?:Compaction)\b")
#: How a tool's block begins: a command, or a title.
_TOOL: Final = re.compile(r"^(?:\$|#|←|→|✱|⚙|%|◈|◇|│|~|[⠀-⣿]|Thinking:) ?")
_SGR: Final = re.compile("\x1b\\[([0-9;:]*)m")


class Kind(Enum):
    USER = auto()
    TOOL = auto()
    ERROR = auto()


class Block(msgspec.Struct, frozen=True):
    """Lines behind one bar, from ``start`` to before ``end`` of the transcript."""

    start: int
    end: int
    rows: tuple[str, ...]
    kind: Kind = Kind.USER

    @property
    def is_user(self) -> bool:
        return self.kind is Kind.USER

    @property
    def is_error(self) -> bool:
        return self.kind is Kind.ERROR


class Mark(msgspec.Struct, frozen=True):
    """The mark under the last message."""

    at: int
    end: int
    line: str
    #: It names how long the turn took, which it does once it has ended.
    finished: bool
    interrupted: bool
    #: It stands under a summary of the conversation.
    summary: bool = False


class Rule(msgspec.Struct, frozen=True):
    """The line above a summary of the conversation."""

    end: int


class Text(msgspec.Struct, frozen=True):
    """Any other line, also an empty one."""

    at: int
    line: str

    @property
    def end(self) -> int:
        return self.at + 1


Part = Block | Mark | Rule | Text


def parts_of(lines: Sequence[str], styled: Sequence[str], muted: str, prompt: str) -> tuple[Part, ...]:
    """The transcript's parts, each block with its kind.

    Args:
        lines: the transcript.
        styled: the frame's lines with their colours; may be empty.
        muted: the colour of text that is no prompt; empty where it is not known.
        prompt: the last prompt of ours without white space; empty where there is none.
    """
    parts = _split(lines)
    before: Part | None = None
    for n, part in enumerate(parts):
        if isinstance(part, Block):
            after = next((each for each in parts[n + 1 :] if not is_blank(each)), None)
            parts[n] = msgspec.structs.replace(part, kind=_kind(part, before, after, styled, muted, prompt))
        if not is_blank(part):
            before = parts[n]
    return tuple(parts)


def _split(lines: Sequence[str]) -> list[Part]:
    parts: list[Part] = []
    at = 0
    while at < len(lines):
        line, end = lines[at], at + 1
        if _BAR.match(line):
            while end < len(lines) and _BAR.match(lines[end]):
                end += 1
            rows = (_behind(row) for row in lines[at:end])
            parts.append(Block(at, end, tuple(row for row in rows if row)))
        elif _MARK.match(line) and (at == 0 or not lines[at - 1]):
            # In a narrow terminal it goes on below.
            while end < len(lines) and lines[end].strip() and not _BAR.match(lines[end]):
                end += 1
            text = collapse(" ".join(lines[at:end]))
            summary = text.startswith("▣ Compaction ")
            parts.append(Mark(at, end, line, bool(_DONE.search(text)), text.endswith("· interrupted"), summary))
        elif _RULE.match(line):
            parts.append(Rule(end))
        else:
            parts.append(Text(at, line))
        at = end
    return parts


def _behind(row: str) -> str:
    """What stands behind a bar."""
    return row[row.index("┃") + 1 :].strip()


def is_blank(part: Part) -> bool:
    return isinstance(part, Text) and not part.line.strip()


def _kind(
    block: Block, before: Part | None, after: Part | None, styled: Sequence[str], muted: str, prompt: str
) -> Kind:
    """What a block is. Its colours tell; without them its place does."""
    if isinstance(before, Mark) and not before.summary:
        return Kind.USER
    if block.rows and _TOOL.match(block.rows[0]):
        return Kind.TOOL
    if muted and (colour := text_colour(styled[block.start : block.end])):
        return Kind.ERROR if colour == muted else Kind.USER
    if before is None:
        return Kind.USER
    if isinstance(before, Rule):
        return Kind.ERROR
    if isinstance(before, Block) and before.kind is not Kind.TOOL:
        return Kind.ERROR if before.is_user else Kind.USER
    # Behind a tool, a text or a summary: the error that ended the turn, or a prompt after a turn that left no mark.
    text = "".join("".join(block.rows).split())
    if prompt and text.startswith(prompt[:PROMPT_CHARS]):
        return Kind.USER
    return Kind.ERROR if isinstance(after, Mark | Block) else Kind.USER


# -- the toast ------------------------------------------------------------------------------------------------------


class Toast(msgspec.Struct, frozen=True):
    """A box at the top right that covers the transcript for some seconds."""

    rows: range
    #: Its first column.
    left: int
    text: str


def cells(line: str) -> list[str]:
    """A line by terminal columns: a wide character is followed by an empty cell."""
    found: list[str] = []
    for ch in line:
        if found and (combining(ch) or ch in "\u200d\ufe0e\ufe0f"):
            found[-1] += ch
        else:
            found += [ch, ""] if east_asian_width(ch) in "WF" else [ch]
    return found


def cropped(line: str, right: int) -> str:
    """A line without what stands right of a column."""
    return "".join(cells(line)[:right]).rstrip() if columns(line) > right else line


def toast_of(lines: Sequence[str]) -> Toast | None:
    """The toast: lines near the top with two bars each in the same columns, the first of them no block's."""
    bars = [_last_bars(line) for line in lines[: TOAST_TOP + 40]]
    for start in range(min(TOAST_TOP, len(bars))):
        ends = bars[start]
        if ends is None:
            continue
        stop = start
        while stop < len(bars) and bars[stop] == ends:
            stop += 1
        if stop - start >= 3:
            left, right = ends
            rows = (("".join(cells(line)[left + 1 : right])).strip() for line in lines[start:stop])
            return Toast(range(start, stop), left, " ".join(row for row in rows if row))
    return None


def _last_bars(line: str) -> tuple[int, int] | None:
    columns = [column for column, cell in enumerate(cells(line)) if cell == "┃"] if line.count("┃") > 1 else []
    pair = next(((a, b) for a, b in reversed(list(pairwise(columns))) if b - a >= TOAST_COLUMNS), None)
    return pair if pair is not None and pair[0] > 4 else None


def untoasted(lines: Sequence[str], toast: Toast | None) -> tuple[str, ...]:
    """The lines without what the toast covers."""
    if toast is None:
        return tuple(lines)
    return tuple(
        "".join(cells(line)[: toast.left]).rstrip() if n in toast.rows else line for n, line in enumerate(lines)
    )


# -- colours --------------------------------------------------------------------------------------------------------


def colour_at_end(line: str, right: int) -> str:
    """The colour of the last word before a column of a captured line; empty where none is set."""
    colour, column = "", 0
    for painted, text in _coloured(line):
        if text.strip(" ┃█") and column < right:
            colour = painted
        column += columns(text)
    return colour


def text_colour(rows: Sequence[str]) -> str:
    """The colour of a block's first word."""
    for row in rows:
        words = [(colour, text) for colour, text in _coloured(row) if text.strip()]
        if len(words) > 1 and words[0][1].strip() == "┃" and words[1][1].strip()[0] not in "┃█▀▄":
            return words[1][0]
    return ""


def _coloured(line: str) -> list[tuple[str, str]]:
    """A line's pieces with their foreground colours."""
    pieces: list[tuple[str, str]] = []
    colour, at = "", 0
    for found in _SGR.finditer(line):
        pieces.append((colour, line[at : found.start()]))
        at, colour = found.end(), _foreground(found[1], colour)
    return [*pieces, (colour, line[at:])]


def _foreground(parameters: str, colour: str) -> str:
    codes = parameters.split(";")
    while codes:
        code = codes.pop(0)
        if code in ("38", "48"):
            size = {"5": 2, "2": 4}.get(codes[0] if codes else "", 0)
            value, codes = ";".join(codes[:size]), codes[size:]
            colour = value if code == "38" else colour
        elif code in ("", "0", "39"):
            colour = ""
        elif code.isdigit() and (30 <= int(code) <= 37 or 90 <= int(code) <= 97):
            colour = code
    return colour
