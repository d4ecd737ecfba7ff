"""The live region at the end of Gemini CLI's screen: the input box with the footer below it, or a dialog.

The box has been drawn in four ways: in a frame, between half blocks (since 0.3x), between rules (without background
colours), and on a plain background where the terminal is not known to have many colours; there the status lines above
it tell it from a prompt's echo, which is drawn in the same way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.screen import indent

#: Lines below the input box that are still its footer; a list of suggestions may be among them.
FOOTER_LINES: Final = 24
#: Lines of status that may stand between the transcript and the input box.
STATUS_LINES: Final = 16
#: Lines of prompts that wait, above those.
QUEUED_LINES: Final = 8

FRAME_TOP, FRAME_END = re.compile(r" ?╭─{3,}╮"), re.compile(r" ?╰─{3,}╯")
HALF: Final = re.compile(r"[▄▀]{8,}")
ECHO: Final = re.compile(r" ?[>$!] \S")
SPINNER: Final = re.compile(r" {0,2}[\u2801-\u28ff] ")
CANCEL: Final = re.compile(r" ?[^\s✦✕ℹ⚠│╭╰>].*\(esc to cancel\b|\s*\(esc to cancel\b")
#: Heads the prompts that wait for the turn's end, or for the MCP servers.
QUEUED: Final = re.compile(r" {0,2}Queued \(")
_RULE: Final = re.compile(r"─{8,}")
#: The input box's first row, without its frame. Behind ``!`` the program takes a shell command, behind ``(r:)`` a
#: search.
_BOX: Final = re.compile(r" ?(?P<mark>[>*!]|\(r:\)) (?P<text>.*)")
_STATUS: Final = re.compile(
    r"\s+(?:.* )?(?:\? for shortcuts|press tab twice for more)$"
    r"|\s*(?:Using: |YOLO mode|accepting edits|plan mode|shell mode enabled)"
    r"|\s*Press (?:Ctrl|Esc)\S* again|\s+Tip: |\s+Executing Hooks?: "
)
_OPTION: Final = re.compile(r"[●○]? *(?:\d+\. )?(?P<label>\S.*)")
_SELECTED: Final = re.compile(r"[\s│]*(?:● +\S|❯ +\S)")
#: How a dialog begins that stands where a request has failed, and what it lets one choose.
_GAVE_UP: Final = re.compile(
    r"(?:Usage limit reached|We are currently experiencing high demand|It seems like you don't have access|Model \"|"
    r"You have (?:reached|exhausted)|You've reached|.*\bquota\b)"
)
_CHOICES: Final = re.compile(r"(?:Keep trying|Stop|Switch to |Try again|Continue with |Change auth)")


class Bottom(NamedTuple):
    """The live region at the end of a screen."""

    #: Index of its first line.
    start: int
    #: Indices of the input box's rows; empty where there is none.
    box: range = range(0)
    #: What the input box's rows hold, without mark and frame.
    text: tuple[str, ...] = ()
    mark: str = ""
    #: Rows of a dialog in the box's place, as drawn.
    dialog: tuple[str, ...] = ()
    #: What the program says of itself above the input box.
    status: tuple[str, ...] = ()


def bottom_of(lines: Sequence[str]) -> Bottom:
    """The input box at the end, or a dialog in its place; where there is neither, what the program says there."""
    box = _framed(lines) or _ruled(lines) or _plain(lines)
    if box is not None:
        start = _status_from(lines, box.start)
        rows = lines[box.start : box.stop]
        first = _BOX.match(_unframed(rows[0]) + " ")
        assert first is not None
        column = len(first["mark"]) + 1
        rest = [_unframed(row).removeprefix(" " * column).removeprefix(" ") for row in rows[1:]]
        text = (first["text"].rstrip(), *(row.rstrip() for row in rest))
        return Bottom(start, box, text, first["mark"], status=tuple(lines[start : box.start]))
    dialog = _dialog(lines)
    if dialog is not None:
        return Bottom(dialog.start, dialog=tuple(lines[dialog.start : dialog.stop]), status=tuple(lines[dialog.stop :]))
    # The first versions take the input box away while they work, and leave the footer.
    reach = range(len(lines) - 1, max(-1, len(lines) - 1 - STATUS_LINES), -1)
    spinner = next((index for index in reach if SPINNER.match(lines[index])), len(lines))
    start = _status_from(lines, spinner)
    return Bottom(start, status=tuple(lines[start:]))


def _framed(lines: Sequence[str]) -> range | None:
    """The rows of an input box in a frame."""
    end = _last(lines, FRAME_END, FOOTER_LINES)
    start = None if end is None else _before(lines, end, FRAME_TOP)
    if end is None or start is None or not lines[start + 1].startswith("│ ") or start + 1 == end:
        return None
    # An echo's text stands one column further right.
    row = _unframed(lines[start + 1])
    return range(start + 1, end) if _BOX.match(row + " ") and not row.startswith(" ") else None


def _ruled(lines: Sequence[str]) -> range | None:
    """The rows of an input box between two lines of half blocks, or two rules."""
    for edge in (HALF, _RULE):
        end = _last(lines, edge, FOOTER_LINES)
        start = None if end is None else _before(lines, end, edge)
        if end is None or start is None or start + 1 == end or not _BOX.match(lines[start + 1] + " "):
            continue
        rows, footer = lines[start + 2 : end], lines[end + 1 :]
        # An echo looks the same; but below it stands an item, or a dialog.
        if any(line and not indent(line) for line in footer) or not lines[start + 1].startswith(" "):
            continue
        if all(not row or indent(row) >= 3 for row in rows):
            return range(start + 1, end)
    return None


def _plain(lines: Sequence[str]) -> range | None:
    """The rows of an input box that nothing but the status lines above it tells from an echo."""
    rule = _last(lines, _RULE, len(lines))
    if rule is None:
        return None
    for start in range(rule + 1, min(rule + 6, len(lines))):
        if lines[start].startswith(" ") and _BOX.match(lines[start] + " "):
            end = start + 1
            while end < len(lines) and (not lines[end] or indent(lines[end]) >= 3):
                end += 1
            while end > start + 1 and not lines[end - 1]:
                end -= 1
            return range(start, end) if len(lines) - end <= FOOTER_LINES else None
    return None


def _dialog(lines: Sequence[str]) -> range | None:
    """The last frame, where it lets a person choose or where nothing stands below it."""
    end = _last(lines, FRAME_END, FOOTER_LINES)
    start = None if end is None else _before(lines, end, FRAME_TOP)
    if end is None or start is None:
        return None
    frame = lines[start : end + 1]
    return range(start, end + 1) if end == len(lines) - 1 or any(map(_SELECTED.match, frame)) else None


def _last(lines: Sequence[str], edge: re.Pattern[str], reach: int) -> int | None:
    first = max(-1, len(lines) - 1 - reach)
    return next((index for index in range(len(lines) - 1, first, -1) if edge.fullmatch(lines[index])), None)


def _before(lines: Sequence[str], end: int, edge: re.Pattern[str]) -> int | None:
    """Where a frame begins: the line above ``end`` that is drawn as far left as the end."""
    column = indent(lines[end])
    above = range(end - 1, -1, -1)
    return next((index for index in above if edge.fullmatch(lines[index]) and indent(lines[index]) == column), None)


def _status_from(lines: Sequence[str], box: int) -> int:
    """Where the lines begin that the program keeps above the input box, whose first row is ``box``."""
    start = box
    for index in range(box - 1, max(-1, box - 1 - STATUS_LINES), -1):
        line = lines[index]
        if line and not (
            HALF.fullmatch(line)
            or _RULE.fullmatch(line)
            or FRAME_TOP.fullmatch(line)
            or _STATUS.match(line)
            or SPINNER.match(line)
            or CANCEL.match(line)
            or (indent(line) == 1 and not ECHO.match(line) and not line.startswith((" │", " ╰")))
        ):
            break
        # A half block above an echo is the end of the transcript's last item.
        if HALF.fullmatch(line) and index < box - 1:
            break
        if line:
            start = index
    queued = range(start - 1, max(-1, start - 1 - QUEUED_LINES), -1)
    return next((index for index in queued if QUEUED.match(lines[index])), start)


def _unframed(line: str) -> str:
    return line.strip().removeprefix("│ ").removesuffix("│").rstrip() if line.lstrip().startswith("│") else line


def is_failure(dialog: Sequence[str]) -> bool:
    """Whether a dialog stands where a request has failed. One that a model has made up begins otherwise."""
    words = [row for row in (_unframed(line).strip() for line in dialog[1:-1]) if row]
    labels = [found["label"] for found in map(_OPTION.match, words) if found]
    return bool(words) and _GAVE_UP.match(words[0]) is not None and any(map(_CHOICES.match, labels[1:]))
