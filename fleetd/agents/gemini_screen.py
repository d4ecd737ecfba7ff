"""How Gemini CLI draws its screen.

The transcript is made of *items*. An item begins with a mark in column 0 (``✦`` an answer, ``✕`` an error, ``ℹ`` and
``⚠`` notices) or is a frame there (a tool, in the first versions also a prompt), and goes on further right. So whatever
an answer quotes never stands in column 0, and what a tool printed stands in a frame. Two things have no mark of their
own: an answer that begins with code, and, in newer versions, a tool that is shown in one line.

Below stands the live region, see :mod:`fleetd.agents.gemini_live`.

A backend that does not answer and a used-up quota bring up a dialog that stands until a person chooses. The turn is
over then for all who wait for it, so such a dialog reads as rest without an input line, and its words are judged.

Newer versions say in the title what they do. Older ones and saved panes have no such title, so it only adds to what the
screen says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.screen import Frame, Reading, Retrying, Sent, State, collapse, indent
from fleetd.agents.gemini_live import (
    CANCEL,
    ECHO,
    FRAME_END,
    FRAME_TOP,
    HALF,
    QUEUED,
    SPINNER,
    STATUS_LINES,
    Bottom,
    bottom_of,
    is_failure,
)

_FRAMED_ECHO: Final = re.compile(r"│  [>$!] ")
_CONFIRM: Final = re.compile(r" {0,2}[\u2801-\u28ff] Waiting for user confirmation")
_ATTEMPT: Final = re.compile(r"Trying to reach .+ \(Attempt (?P<attempt>\d+)/\d+\)")
_LONGER: Final = re.compile(r"This is taking a bit longer")
_RETRY: Final = re.compile(r"Attempt (?P<attempt>\d+) failed\b.*\bRetrying after (?P<ms>\d+)(?:\.\d+)? ?ms")
#: The program's name, in large letters.
_LOGO: Final = re.compile(r"\s*[\u2580-\u259f]")
#: A tool in one line.
_TOOL: Final = re.compile(r" {2}[✓✔✗xo?⊶⊷-]  [A-Z]")
#: The first line of code in an answer.
_CODE: Final = re.compile(r" {2,}1 ")
_ASKS: Final = re.compile(r"\[[yY]/[nN]\]\s*$")
#: How the program says that a turn was stopped by a key.
STOPPED: Final = r"^ℹ (?:Request cancelled|User cancelled|Operation cancelled)\b"
_BUSY_TITLES: Final = ("✦", "⏲")
_ASKING_TITLE: Final = "✋"


class _Item(NamedTuple):
    """A piece of the transcript: where it begins and ends, and its mark; ``□`` and ``✓`` for a tool."""

    start: int
    end: int
    mark: str


class GeminiGrammar:
    """Reads Gemini CLI's screen."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        lines = frame.lines
        bottom = bottom_of(lines)
        failure = is_failure(bottom.dialog)
        state = _state(frame.title, bottom, lines, failure=failure)
        transcript = lines[: bottom.start]
        draft = _draft(bottom)
        unmoved = sent is not None and not bottom.dialog and not _begun(transcript, sent.before)
        echo = None if unmoved else _echo(transcript)
        scope = () if unmoved else tuple(transcript[0 if echo is None else echo[1] :])
        items = _items(scope)
        if state is State.IDLE and not failure:
            state = _rest(frame, sent, unmoved=unmoved, echoed=echo is not None, silent=not items, draft=draft)
        answer = next((item for item in reversed(items) if item.mark == "✦"), None)
        judged = [
            line
            for item in items
            if item.mark not in "□✓" and (answer is None or item.start >= answer.end)
            for line in scope[item.start : item.end]
        ]
        return Reading(
            state,
            scope=scope,
            block_at=None if answer is None else answer.start,
            answer="" if answer is None else _text(scope[answer.start : answer.end]),
            input_open=bottom.mark in (">", "*"),
            draft=draft,
            retrying=_retrying(scope, bottom.status) if state is State.BUSY else None,
            interrupted=any(re.match(STOPPED, line) for line in judged),
            judged=(*judged, *(row.rstrip("│ ") for row in bottom.dialog)) if failure else tuple(judged),
            echoed=echo is not None,
        )


def _state(title: str, bottom: Bottom, lines: Sequence[str], *, failure: bool) -> State:
    if failure:
        return State.IDLE
    if title.startswith(_ASKING_TITLE) or any(map(_CONFIRM.match, bottom.status)):
        return State.BLOCKED
    busy = any(mark.match(line) for line in bottom.status for mark in (SPINNER, CANCEL, QUEUED))
    if bottom.box and not busy and not title.startswith(_BUSY_TITLES):
        # It draws the box before it takes a prompt, and the banner when it does.
        return State.IDLE if any(lines[: bottom.start]) else State.UNKNOWN
    if bottom.box:
        return State.BUSY
    if bottom.dialog:
        return State.BLOCKED
    if lines and _ASKS.search(lines[-1]):
        return State.BLOCKED
    return State.BUSY if busy else State.UNKNOWN


def _rest(frame: Frame, sent: Sent | None, *, unmoved: bool, echoed: bool, silent: bool, draft: str) -> State:
    """What an input box without a sign of work is worth: a slow machine shows it for seconds within a turn."""
    if sent is not None and not echoed and not draft and frame.lines != sent.before.lines:
        # The prompt was taken and is nowhere to be seen; or so much was printed since that it has left the screen.
        return State.BUSY if unmoved else State.UNKNOWN
    # No turn ends without a word.
    return State.UNKNOWN if echoed and silent else State.IDLE


def _retrying(scope: Sequence[str], status: Sequence[str]) -> Retrying | None:
    """What the program says of trying again by itself: beside its spinner, or in column 0."""
    for line in status:
        if found := _ATTEMPT.search(line):
            return Retrying(int(found["attempt"]), found[0])
        if found := _LONGER.search(line):
            return Retrying(None, collapse(line))
    for line in reversed(scope[-STATUS_LINES:]):
        if found := _RETRY.match(line):
            return Retrying(int(found["attempt"]), line, int(found["ms"]) // 1000)
    return None


def _draft(bottom: Bottom) -> str:
    """What stands in the input box and is not a suggestion: those begin a column further right, behind the cursor."""
    if len(bottom.text) == 1 and bottom.text[0].startswith("  "):
        return ""
    return "\n".join(bottom.text).strip()


# -- the transcript -------------------------------------------------------------------------------------------------


def _begun(transcript: Sequence[str], before: Frame) -> bool:
    """Whether anything of the turn is on the screen whose prompt was typed then: it begins with the prompt's echo.

    The input box may have grown by the prompt's lines, and have pushed the first ones out of sight.
    """
    old, new = _trimmed(before.lines[: bottom_of(before.lines).start]), _trimmed(transcript)
    if new[: len(old)] == old:
        return _echo(new[len(old) :]) is not None
    shorter = min(len(old), len(new))
    return not shorter or old[len(old) - shorter :] != new[len(new) - shorter :]


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without the blank lines at the end."""
    kept = list(lines)
    while kept and not kept[-1]:
        kept.pop()
    return kept


def _echo(lines: Sequence[str]) -> tuple[int, int] | None:
    """Where the last prompt's echo begins and ends."""
    for start in range(len(lines) - 1, -1, -1):
        above = lines[start - 1] if start else ""
        if _FRAMED_ECHO.match(lines[start]) and FRAME_TOP.fullmatch(above):
            end = next((at for at in range(start, len(lines)) if FRAME_END.fullmatch(lines[at])), len(lines) - 1)
            return start, end + 1
        if ECHO.match(lines[start]):
            if HALF.fullmatch(above):
                end = next((at for at in range(start, len(lines)) if HALF.fullmatch(lines[at])), len(lines) - 1)
                return start, end + 1
            return start, _echo_end(lines, start)
    return None


def _echo_end(lines: Sequence[str], start: int) -> int:
    """Where an echo ends that has no edges. Its further rows are indented, and so is an answer of code alone."""
    for at in range(start + 1, len(lines)):
        line = lines[at]
        if (line and indent(line) < 2) or _TOOL.match(line) or (not lines[at - 1] and _CODE.match(line)):
            return at
    return len(lines)


def _items(scope: Sequence[str]) -> list[_Item]:
    """The scope's items, in order."""
    items: list[_Item] = []
    framed = False
    for at, line in enumerate(scope):
        if framed or FRAME_TOP.fullmatch(line):
            begins, mark = not framed, "□"
            framed = FRAME_END.fullmatch(line) is None
        elif not line:
            begins, mark = False, ""
        elif indent(line) < 2:
            begins, mark = True, line.lstrip()[0]
            if mark in "│├╰" or _LOGO.match(line):
                mark = "□"
        elif _TOOL.match(line):
            begins, mark = True, "✓"
        elif not items or items[-1].mark in "□✓":
            # Code without a mark before it; or what a tool in one line shows, which stands further right.
            begins = not items or items[-1].mark == "□" or indent(line) < 6
            mark = "□" if _LOGO.match(line) else "✦"
        else:
            begins, mark = False, ""
        if begins:
            items.append(_Item(at, at + 1, mark))
        elif items and line:
            items[-1] = items[-1]._replace(end=at + 1)
    return items


def _text(block: Sequence[str]) -> str:
    """An answer without the program's mark and indentation."""
    return "\n".join(line[2:] if line[:2] in ("✦ ", "  ") else line for line in block).strip("\n")
