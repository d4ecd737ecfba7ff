"""How Codex draws its screen.

Its transcript has one rule that makes it readable: whatever begins in column 0 is the program's own. A prompt's echo
begins with ``›``, an answer and a tool call with ``•``, a failure with ``■``; what follows of them is indented by two.
So a failure that an answer quotes never stands in column 0. (A failure's own further lines do: it alone is wrapped
without an indentation.)

Below the transcript is what is drawn over and over: the status line while a turn runs, prompts that wait, and the
input line, which begins with ``›`` too, or a dialog in its place. While an answer's text streams there is no status
line: only the pane's title says then that a turn runs. So a turn without its closing line and without a title that says
so is neither called running nor at rest.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.screen import Frame, Reading, Retrying, Sent, State, collapse
from fleetd.agents.styles import bright

PROMPT: Final = "›"
ANSWER: Final = "• "
FAILURE: Final = "■ "
INDENT: Final = "  "

#: The program's suggestions for an empty input line, dim where there are colours.
SUGGESTIONS: Final = frozenset(
    {
        "Ask Codex to do anything",
        "Explain this codebase",
        "Summarize recent commits",
        "Implement {feature}",
        "Find and fix a bug in @filename",
        "Write tests for @filename",
        "Improve documentation in @filename",
        "Run /review on my current changes",
        "Use /skills to list available skills",
    }
)

#: All that stands below the input line before the program has started: a dialog may take its place yet.
STARTING: Final = ("", "  ? for shortcuts")

#: The session's head: what stands above it is no turn of this session.
_HEAD: Final = re.compile(r"(?:[│|] | {2})>_ OpenAI Codex \(v")
#: Closes a turn that ended well. Printed neither after a failure nor after an interruption. Another day's has a date.
_DONE: Final = re.compile(r" {2}Worked for \S.* • (?:\S.* at )?\d{1,2}:\d\d(?: ?[AP]M)?$")
#: The one warning that ends a turn, in versions before 0.156.
_FULL: Final = re.compile(r"⚠ Selected model is at capacity")
_INTERRUPTED: Final = re.compile(r"■ Conversation interrupted")
#: ``• Working (1m 4s • esc to interrupt)``, cut off where the pane is narrow; without its key where that is not bound.
_STATUS: Final = re.compile(
    r"[^\w\s] (?:\S.* )?\((?:\d+[dhm] )*\d+s • "
    r"|[^\w\s] (?:Working|Thinking|Reconnecting\.\.\. \S.*) \((?:\d+[dhm] )*\d+s\)"
)
_RETRYING: Final = re.compile(r"[^\w\s] Reconnecting\.\.\. (?:(?P<attempt>\d+)/\d+|\S)")
#: Prompts that wait for the turn's end, between the status line and the input line.
_QUEUED: Final = re.compile(r" {2,4}↳ ")
_TITLE_BUSY: Final = re.compile("[\u2801-\u28ff] ")
_TITLE_ASKS: Final = re.compile(r"\[ . ] Action Required\b")
_OPTION: Final = re.compile(r"› +\d+\. ")
#: The keys that a dialog names in its last lines.
_KEYS: Final = re.compile(
    r"\s*(?:press |tab to add notes \| |t trust all · |↑/↓ (?:to )?\w+ +· |space \w+ +· )?"
    r"(?:enter (?:to )?(?:confirm|continue|submit|select|choose|review|approve|open|save|apply|accept)\b"
    r"|any key to continue\b|esc (?:to )?(?:cancel|close|go back|back|dismiss|exit|skip)\b)",
    re.IGNORECASE,
)
#: A tool call, by its second line or by its first.
_TOOL_BODY: Final = re.compile(r" {2}[└│] ")
_TOOL_HEAD: Final = re.compile(
    r"• (?:(?:Calling|Called) [\w./-]+\(|(?:Edited|Added|Deleted) .* \(\+\d+ -\d+\)$|(?:Running|Ran|Viewed Image)\b.*$)"
)
#: The second line of a status line, which may be left on the alternate screen amid what was drawn over it.
_TIP: Final = re.compile(r" {2}└ Tip: ")
#: Lines at the bottom in which a dialog names its keys.
KEY_LINES: Final = 2


class _Bottom(NamedTuple):
    """What is drawn over and over at the end of a frame."""

    #: Index of its first line; the transcript stands above.
    top: int
    #: A dialog stands where the input line would be.
    dialog: bool = False
    #: Rows of the input line; empty where there is none.
    box: range = range(0)
    #: The status line with its details; empty while there is none.
    status: tuple[str, ...] = ()


class _Ending(NamedTuple):
    """How a turn looks from its scope."""

    #: Where its answer starts.
    block_at: int | None
    answer: str
    #: Lines of its failures.
    failures: tuple[str, ...]
    interrupted: bool
    #: The closing line of a turn that ended well is the last.
    done: bool


class CodexGrammar:
    """Reads Codex's screen."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        bottom = _bottom(frame)
        transcript = frame.lines[: bottom.top]
        # Nothing was printed since the prompt was typed: what stands there is another turn's.
        unmoved = sent is not None and transcript == sent.before.lines[: _bottom(sent.before).top]
        first, echo = (0, None) if unmoved else _echo(transcript)
        scope = () if unmoved else _below(transcript, first, echo)
        ending = _ending(scope, torn=echo is not None and not any(transcript[:echo]))
        ended = ending.done or ending.interrupted or bool(ending.failures)
        state = _state(frame, bottom, ended=ended, fresh=echo is None and ending.block_at is None)
        return Reading(
            state,
            scope=scope,
            block_at=ending.block_at,
            answer=ending.answer,
            # The title may know of a dialog that is not drawn yet.
            input_open=bool(bottom.box) and state is not State.BLOCKED,
            draft=_draft(frame, bottom.box),
            retrying=_retrying(bottom.status),
            interrupted=ending.interrupted,
            finished=ending.done,
            judged=ending.failures,
            echoed=echo is not None,
        )


# -- the bottom -----------------------------------------------------------------------------------------------------


def _bottom(frame: Frame) -> _Bottom:
    lines = frame.lines
    at = next((index for index in range(len(lines) - 1, -1, -1) if _is_prompt(lines[index])), None)
    asks = at is not None and _OPTION.match(lines[at]) is not None
    last = lines[_paragraph(lines, len(lines)) or 0 :]
    if any(_KEYS.match(line) for line in last[-KEY_LINES:]) and (asks or not any(map(_is_prompt, last))):
        return _Bottom(at if at is not None and asks else len(lines), dialog=True)
    if at is None or any(line and not line.startswith(INDENT) for line in lines[at + 1 :]):
        return _Bottom(len(lines))
    footer = next((index for index in range(len(lines) - 1, at, -1) if not lines[index]), len(lines))
    if footer == len(lines) and (asks or not _has_cursor(frame, at)):
        return _Bottom(len(lines), dialog=asks and at + 1 < len(lines))
    box = range(at, footer)
    return _above(lines, box, listed=lines[at][2:3] in ("/", "@", "$"))


def _is_prompt(line: str) -> bool:
    return line.startswith(PROMPT)


def _has_cursor(frame: Frame, at: int) -> bool:
    """Whether the cursor stands in a line or below it."""
    first = len(frame.lines) - len(frame.screen)
    return frame.cursor is not None and first + frame.cursor[1] >= at


def _above(lines: Sequence[str], box: range, *, listed: bool) -> _Bottom:
    """What belongs to the bottom above the input line: waiting prompts, a list of commands, the status line."""
    top = box.start
    while (start := _paragraph(lines, top)) is not None:
        rows = lines[start:top]
        if _STATUS.match(rows[0]):
            return _Bottom(start, box=box, status=tuple(row for row in rows if row))
        queued = any(_QUEUED.match(row) for row in rows)
        if not queued and not (listed and any(map(_is_prompt, rows))):
            break
        top, listed = start, False
    return _Bottom(top, box=box)


def _paragraph(lines: Sequence[str], stop: int) -> int | None:
    """Where the last paragraph above ``stop`` begins."""
    while stop > 0 and not lines[stop - 1]:
        stop -= 1
    start = stop
    while start > 0 and lines[start - 1]:
        start -= 1
    return start if start < stop else None


def _draft(frame: Frame, box: range) -> str:
    """What stands in the input line and is not a suggestion."""
    rows = [line[len(INDENT) :] for line in frame.lines[box.start : box.stop]]
    text = "\n".join(rows).strip()
    if frame.styled:
        shown = bright(frame.styled)[box.start : box.stop]
        return "\n".join(row[len(INDENT) :] for row in shown).strip()
    return "" if text in SUGGESTIONS else text


def _retrying(status: tuple[str, ...]) -> Retrying | None:
    found = _RETRYING.match(status[0]) if status else None
    if found is None:
        return None
    attempt = found["attempt"]
    return Retrying(None if attempt is None else int(attempt), collapse(" ".join(status).replace("└", "")))


def _state(frame: Frame, bottom: _Bottom, *, ended: bool, fresh: bool) -> State:
    if bottom.dialog or _TITLE_ASKS.match(frame.title):
        # A used-up quota is announced in a dialog too, behind the turn's end.
        return State.IDLE if ended and bottom.dialog else State.BLOCKED
    if bottom.status or _TITLE_BUSY.match(frame.title):
        return State.BUSY
    started = fresh and frame.lines[bottom.box.stop :] != STARTING
    return State.IDLE if bottom.box and (ended or started) else State.UNKNOWN


# -- the transcript -------------------------------------------------------------------------------------------------


def _echo(lines: Sequence[str]) -> tuple[int, int | None]:
    """Where this session's lines begin, and where its last prompt's echo does.

    An input line that could not be told from an echo shows a suggestion, and nothing of the program's follows.
    """
    heads = [index for index, line in enumerate(lines) if _HEAD.match(line)]
    first = heads[-1] if heads else 0
    followed = False
    for index in range(len(lines) - 1, first - 1, -1):
        if _is_prompt(lines[index]) and (followed or lines[index][len(INDENT) :] not in SUGGESTIONS):
            return first, index
        followed = followed or (bool(lines[index]) and not lines[index].startswith((INDENT, PROMPT)))
    return first, None


def _below(lines: Sequence[str], first: int, echo: int | None) -> tuple[str, ...]:
    """What follows an echo, whose own further rows are indented; everything where there is none."""
    if echo is None:
        return tuple(lines[first:])
    start = echo + 1
    if not any(lines[:echo]):
        # Pinned to the top of a screen without scrollback: what follows may be any part of the answer.
        return tuple(lines[start:])
    while start < len(lines) and (not lines[start] or lines[start].startswith(INDENT)):
        if _DONE.match(lines[start]) and not lines[start - 1]:
            break
        start += 1
    return tuple(lines[start:])


def _ending(drawn: Sequence[str], *, torn: bool) -> _Ending:
    """Read a scope from its marks. ``torn``: the answer's beginning may have scrolled out of sight."""
    scope = ["" if _TIP.match(line) else line for line in drawn]
    marks = [index for index, line in enumerate(scope) if line and not line.startswith(INDENT)]
    block_at = next((index for index in reversed(marks) if scope[index].startswith(ANSWER)), None)
    head = scope[: marks[0]] if marks else scope
    if block_at is None and torn and any(line and not _DONE.match(line) for line in head):
        block_at = 0
    answer = "" if block_at is None or _is_tool(scope[block_at:]) else _answer(scope[block_at:])
    stopped = [index for index in marks if _INTERRUPTED.match(scope[index])]
    failures = [
        line
        for index in marks
        if (scope[index].startswith(FAILURE) and index not in stopped)
        or (_FULL.match(scope[index]) and index > (-1 if block_at is None else block_at))
        for line in _failure(scope, index)
    ]
    last = next((line for line in reversed(scope) if line), "")
    done = _DONE.match(last) is not None
    return _Ending(block_at if answer else None, answer, tuple(failures), bool(stopped) and not done, done)


def _failure(scope: Sequence[str], at: int) -> Sequence[str]:
    """A failure with the lines that it was wrapped to: they stand in column 0 as well."""
    stop = at + 1
    while stop < len(scope) and scope[stop] and not scope[stop].startswith(FAILURE):
        stop += 1
    return scope[at:stop]


def _is_tool(block: Sequence[str]) -> bool:
    return _TOOL_HEAD.match(block[0]) is not None or (len(block) > 1 and _TOOL_BODY.match(block[1]) is not None)


def _answer(block: Sequence[str]) -> str:
    rows = [block[0].removeprefix(ANSWER if block[0].startswith(ANSWER) else INDENT)]
    for line in block[1:]:
        if (line and not line.startswith(INDENT)) or _DONE.match(line):
            break
        rows.append(line.removeprefix(INDENT))
    return "\n".join(rows).strip("\n")
