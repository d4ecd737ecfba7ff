"""How Qwen Code draws its screen.

The transcript is made of *items*. An item begins with a mark in one fixed column (2; in the first versions 0) and goes
on further right, so whatever an answer quotes never stands in the marks' column: ``>`` a prompt, ``✦`` or ``◆`` an
answer, ``●`` a notice, ``✕`` an error, ``✓ x - ?`` a tool. Below stands the live region, against the left edge: the
input box between two rules (in the first versions in a frame) with the footer under it, or a dialog in its place, and
above either, while a turn runs, a line that begins with a spinner.

An error line proves a failure only where it is final: while the program waits to try again by itself it shows the same
line with a countdown. Newer versions say in the title what they do; older ones and saved panes have no such title, so
it only adds to what the screen says.

What a key has stopped before it printed anything leaves no trace in newer versions: they take the prompt's echo back,
and put its text into the input box again.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.screen import Frame, Reading, Retrying, Sent, State, collapse, columns, indent

#: Lines below the input box that are still its footer; a list of suggestions may be among them.
FOOTER_LINES: Final = 24
#: Lines above the input box or the end in which a spinner or a countdown is looked for.
LIVE_LINES: Final = 24
#: Lines at the end of a screen without input box in which a dialog is looked for.
DIALOG_LINES: Final = 60
#: Characters of a prompt by which its text in the input box is known again.
PROMPT_CHARS: Final = 16

_RULE: Final = re.compile(r"─{8,}(?: .{1,80} ─{1,8})?")
_FRAME_TOP, _FRAME_END = re.compile(r" {0,1}╭─{8,}╮"), re.compile(r" {0,1}╰─{8,}╯")
#: The input box's first row. Behind ``!`` the program takes a shell command, behind ``(r:)`` a search.
_BOX: Final = re.compile(r"(?P<mark>[>*!]|\(r:\)) (?P<text>.*)")
_SPINNER: Final = re.compile(r" {2}\.{1,3} +\S| {0,2}[\u2801-\u28ff] +\S| {2}\((?:\d.* · )?[Ee]sc to cancel\)$")
_COUNTDOWN: Final = re.compile(r" {2}↻ \D*(?P<wait>\d+)\D+(?P<attempt>\d+)/\d+")
_HINT: Final = re.compile(r"\s*\((?:Retrying in|Press Ctrl\+Y)\b.*$")
_OPTION: Final = re.compile(r"[\s│]*(?:[›❯] +\S|[●○] +\d+\. )")
_ANSWER: Final = re.compile("[✦◆]\ufe0e? ")
_STOPPED: Final = re.compile("●\ufe0e? (?:Request cancelled|User cancelled the request)\\.")
#: A tool that a person has refused, in newer versions and in the frame of older ones.
_REFUSED: Final = re.compile(r"(?:│ )?- +[A-Z]\w*\b")
_SCROLLBAR: Final = re.compile(r"\s[│█]$")
#: Stands behind the cursor at the end of a draft.
_CURSOR: Final = "\u200b"
#: Asks for the text form of the character before it, and takes no column.
_TEXT_FORM: Final = "\ufe0e"
_SGR: Final = re.compile("\x1b\\[([0-9;:]*)m")
_BUSY_TITLE, _ASKING_TITLE = "◐", "✳"


class _Bottom(NamedTuple):
    """The live region at the end of a screen."""

    #: Index of its first line.
    start: int
    #: Indices of the input box's rows; empty where there is none.
    box: range = range(0)
    #: What the input box's rows hold, without mark and frame.
    text: tuple[str, ...] = ()
    mark: str = ""
    footer: tuple[str, ...] = ()
    #: The column of the items' marks.
    column: int = 2


class QwenGrammar:
    """Reads Qwen Code's screen."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        lines = _without_scrollbar(frame.lines, frame.width)
        bottom = _bottom(lines)
        transcript = lines[: bottom.start]
        live = transcript[-LIVE_LINES:]
        state = _state(frame.title, bottom, lines, live)
        draft = _draft(frame, bottom)
        unmoved = sent is not None and _unmoved(transcript, sent.before)
        echo = None if unmoved else _echo(transcript, bottom.column)
        scope = () if unmoved else _below(transcript, echo, bottom.column)
        block_at, end = _last_answer(scope, bottom.column, echoed=echo is not None)
        judged = scope[end:]
        if sent is not None and state is State.IDLE and not draft and not any(scope):
            state = State.UNKNOWN  # taken, and its spinner not drawn yet on a slow machine
        return Reading(
            state,
            scope=scope,
            block_at=block_at,
            answer="" if block_at is None else _text(scope[block_at:end], bottom.column),
            input_open=bottom.mark in (">", "*") and not _starts(bottom),
            draft=draft,
            retrying=_retrying(live) if state is State.BUSY else None,
            interrupted=_interrupted(judged, bottom.column)
            or (sent is not None and (_is_back(draft, sent.prompt) or _stops(transcript) > _stops(sent.before.lines))),
            judged=judged,
            echoed=echo is not None,
        )


# -- the live region ------------------------------------------------------------------------------------------------


def _without_scrollbar(lines: Sequence[str], width: int) -> tuple[str, ...]:
    """The lines without the bar that newer versions draw in the last column."""

    def barred(line: str) -> bool:
        full = columns(line.replace(_TEXT_FORM, "")) >= width - 1
        return full and line[:1] != "│" and _SCROLLBAR.search(line) is not None

    return tuple(line[:-1].rstrip() if barred(line) else line for line in lines)


def _bottom(lines: Sequence[str]) -> _Bottom:
    """The input box at the end; where there is none, nothing."""
    for end in range(len(lines) - 1, max(-1, len(lines) - 1 - FOOTER_LINES), -1):
        framed = _FRAME_END.fullmatch(lines[end]) is not None
        if not framed and _RULE.fullmatch(lines[end]) is None:
            continue
        top = _FRAME_TOP if framed else _RULE
        start = next((index for index in range(end - 1, -1, -1) if top.fullmatch(lines[index])), None)
        if start is None:
            break
        rows = tuple(_unframed(line) if framed else line for line in lines[start + 1 : end])
        first = _BOX.match(rows[0] + " ") if rows else None
        if first is None:
            break
        text = (first["text"].rstrip(), *(row[len(first["mark"]) + 1 :] for row in rows[1:]))
        footer = tuple(line for line in lines[end + 1 :] if line)
        return _Bottom(start, range(start + 1, end), text, first["mark"], footer, 0 if framed else 2)
    return _Bottom(len(lines))


def _unframed(line: str) -> str:
    return line.strip().removeprefix("│").removesuffix("│").removeprefix(" ").rstrip()


def _starts(bottom: _Bottom) -> bool:
    """The footer says that the program still starts: it draws its input box seconds before it takes a prompt."""
    return any(_SPINNER.match(line) for line in bottom.footer)


def _state(title: str, bottom: _Bottom, lines: Sequence[str], live: Sequence[str]) -> State:
    if title.startswith(_ASKING_TITLE):
        return State.BLOCKED
    busy = title.startswith(_BUSY_TITLE) or any(map(_SPINNER.match, live))
    if bottom.box:
        return State.BUSY if busy or _starts(bottom) else State.IDLE
    if any(map(_OPTION.match, lines[-DIALOG_LINES:])):
        return State.BLOCKED  # a start or a torn redraw has no input box either, and offers nothing
    return State.BUSY if busy else State.UNKNOWN


def _retrying(live: Sequence[str]) -> Retrying | None:
    """The countdown of a program that tries again by itself, with the error above it as its reason."""
    for at in range(len(live) - 1, -1, -1):
        if (found := _COUNTDOWN.match(live[at])) is not None:
            start = next((index for index in range(at - 1, -1, -1) if live[index].startswith("  ✕ ")), at)
            reason = collapse(" ".join(live[start:at])) if start < at else live[at]
            return Retrying(int(found["attempt"]), _HINT.sub("", reason), int(found["wait"]))
    return None


# -- the input box --------------------------------------------------------------------------------------------------


def _draft(frame: Frame, bottom: _Bottom) -> str:
    """What stands in the input box and is not a suggestion."""
    text = "\n".join(bottom.text)
    if _CURSOR in text or len(bottom.text) > 1:
        return text.replace(_CURSOR, "").strip()
    if not text.strip() or _is_hint(frame, bottom):
        return ""
    return text.strip()


def _is_hint(frame: Frame, bottom: _Bottom) -> bool:
    """Whether the box shows a suggestion: in the colour in which the footer gives its hints, but for the cursor.

    Without colours only the fixed one is known, which begins two columns further right.
    """
    if not frame.styled:
        return bottom.text[0].startswith("  ")
    inks = [_inks(line) for line in frame.styled[bottom.box.start :]]
    behind_cursor = frame.lines[bottom.box.start].index(bottom.mark) + len(bottom.mark) + 2
    drawn = {ink for char, ink in inks[0][behind_cursor:] if not char.isspace() and char != "│"}
    below = {ink for row in inks[1:] for char, ink in row if char.isalpha()}
    return len(drawn) == 1 and "" not in drawn and drawn <= below


def _inks(line: str) -> list[tuple[str, str]]:
    """Each character of a styled line with the parameters of its colour; empty for the terminal's own."""
    inks: list[tuple[str, str]] = []
    at, ink = 0, ""
    for found in [*_SGR.finditer(line), None]:
        inks += [(char, ink) for char in line[at : None if found is None else found.start()]]
        if found is not None:
            at, ink = found.end(), _ink(found[1], ink)
    return inks


def _ink(parameters: str, ink: str) -> str:
    """The colour of the text behind an SGR sequence."""
    codes = parameters.replace(":", ";").split(";")
    index = 0
    while index < len(codes):
        code = codes[index]
        if code in ("38", "48"):
            length = 3 if codes[index + 1 : index + 2] == ["5"] else 5
            ink = ";".join(codes[index : index + length]) if code == "38" else ink
            index += length
            continue
        if code in ("", "0", "39"):
            ink = ""
        elif len(code) == 2 and code[0] in "39":
            ink = code
        index += 1
    return ink


def _is_back(draft: str, prompt: str) -> bool:
    """The prompt stands in the input box again, or a good part of it: its turn was stopped."""
    left, whole = "".join(draft.split()), "".join(prompt.split())
    return bool(left) and len(left) >= min(len(whole), PROMPT_CHARS) and left in whole


# -- the transcript -------------------------------------------------------------------------------------------------


def _unmoved(transcript: Sequence[str], before: Frame) -> bool:
    """Nothing was printed since the prompt was typed: what stands there is another turn's.

    The input box has grown by the prompt's lines, and may have pushed the first ones out of sight.
    """
    lines = _without_scrollbar(before.lines, before.width)
    old, new = _trimmed(lines[: _bottom(lines).start]), _trimmed(transcript)
    shorter = min(len(old), len(new))
    return old[len(old) - shorter :] == new[len(new) - shorter :] and (shorter > 0 or len(old) == len(new))


def _trimmed(lines: Sequence[str]) -> list[str]:
    """Without the blank lines at the end."""
    last = max((index for index, line in enumerate(lines) if line), default=-1)
    return list(lines[: last + 1])


def _echo(lines: Sequence[str], column: int) -> int | None:
    """Where the last prompt's echo begins."""
    marks = ("  > ", "  $ ") if column else ("> ", " > ")
    return next((index for index in range(len(lines) - 1, -1, -1) if lines[index].startswith(marks)), None)


def _begins(line: str, column: int) -> bool:
    """Whether an item begins on a line."""
    return bool(line) and indent(line) <= column


def _end(lines: Sequence[str], start: int, column: int) -> int:
    """Where the item ends that begins at ``start``."""
    return next((index for index in range(start + 1, len(lines)) if _begins(lines[index], column)), len(lines))


def _below(lines: Sequence[str], echo: int | None, column: int) -> tuple[str, ...]:
    """What follows an echo; everything where there is none."""
    return tuple(lines if echo is None else lines[_end(lines, echo, max(column, 1)) :])


def _last_answer(scope: Sequence[str], column: int, *, echoed: bool) -> tuple[int | None, int]:
    """Where the last answer begins and ends. Without one the end is 0: everything may be a failure."""
    for start in range(len(scope) - 1, -1, -1):
        if indent(scope[start]) == column and _ANSWER.match(scope[start][column:]):
            return start, _end(scope, start, column)
    if echoed:
        return None, 0
    # The answer is so long that its beginning has left the screen, and the prompt with it.
    start = next((index for index, line in enumerate(scope) if line), len(scope))
    if start < len(scope) and indent(scope[start]) >= column + 2:
        end = _end(scope, start, column + 1)
        if all(not line or indent(line) >= column + 2 for line in scope[start:end]):
            return start, end
    return None, 0


def _text(block: Sequence[str], column: int) -> str:
    """An answer without the program's mark and indentation."""
    rows = [_ANSWER.sub("", block[0][column:], count=1) if indent(block[0]) == column else block[0][column + 2 :]]
    rows += [line[column + 2 :] for line in block[1:]]
    return "\n".join(rows).strip("\n")


def _stops(lines: Sequence[str]) -> int:
    """How often the program says so. A key that comes very early is told of above the prompt's echo."""
    return sum(_STOPPED.match(line.lstrip()) is not None for line in lines if indent(line) in (0, 2))


def _interrupted(judged: Sequence[str], column: int) -> bool:
    """The program says that a person stopped the turn, or that its last tool was refused."""
    begun = [line[column:] for line in judged if _begins(line, column)]
    return any(map(_STOPPED.match, begun)) or any(map(_REFUSED.match, begun))
