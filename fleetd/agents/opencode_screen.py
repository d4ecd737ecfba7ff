"""How OpenCode draws its screen. It owns the whole terminal, so only what is visible can be read.

From the left: a bar ``┃`` in column 2 before each prompt, each tool's output and each error; the assistant's own text
in column 5; a mark ``▣  Build · Model`` under the last message, with a duration once that has ended well. Nothing in
the text says which barred block is an error, so their order does: a turn begins with the prompt's block, tools' blocks
begin with a glyph of their own, and an error is the last block above the mark. Colours decide where they were
captured.

The input box, with a bar too, ends in ``╹▀▀▀``; permissions and questions take its place. What covers the screen must
be taken off first: a sidebar right of the box's edge, a scroll bar, and the toast that repeats an error for seconds.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from actors.screen import Frame, Reading, Sent, State, collapse, columns, indent
from fleetd.agents.opencode_box import LEFT, Box, Doing, box_of, doing, draft_in, muted, old_retry
from fleetd.agents.opencode_parts import (
    Block,
    Mark,
    Part,
    Rule,
    Text,
    Toast,
    cropped,
    is_blank,
    parts_of,
    toast_of,
    untoasted,
)

#: How a failure is handed to the patterns: its text in one line behind its bar.
BAR: Final = "  ┃  "
#: Left of this column stands nothing of the assistant's.
TEXT_COLUMN: Final = 5

#: Lines that are not the assistant's words though they stand in their column.
_TOOL_LINE: Final = re.compile(r"^ {3,8}(?:[→←✱⚙%◈◇✓✗↳~│] |\$ |(?:[+-] )?Thought(?::| ·|$)|\S.* view subagents$)")
#: A scroll bar, or the right bar of a block in older versions.
_RIGHT_BAR: Final = re.compile(r"(?:^| {2,})[█▀▄┃]$")
_ABORTED: Final = re.compile(r"^(?:The operation was aborted|Aborted)\.?$")


class _Screen(msgspec.Struct, frozen=True):
    """A frame, taken apart."""

    box: Box | None
    transcript: tuple[str, ...]
    toast: Toast | None


class _Turn(msgspec.Struct, frozen=True):
    """What follows the last prompt's echo."""

    parts: tuple[Part, ...]
    #: Where it starts in the transcript; ``None`` where no echo stands on the screen.
    start: int | None
    mark: Mark | None
    #: The text of the error that ended it.
    error: str | None
    #: How each prompt on the screen begins.
    prompts: tuple[str, ...]

    @property
    def interrupted(self) -> bool:
        aborted = self.error is not None and _ABORTED.match(self.error) is not None
        return aborted or (self.mark is not None and self.mark.interrupted)

    @property
    def finished(self) -> bool:
        return self.mark is not None and self.mark.finished and self.error is None


class OpenCodeGrammar:
    """Reads OpenCode's screen."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        screen = _screen(frame)
        does = doing(frame, screen.box)
        draft = draft_in(frame, screen.box) if screen.box is not None and does.input_open else ""
        turn, state = _turn(frame, screen, _prompt(sent)), does.state
        scope = screen.transcript[turn.start or 0 :]
        if sent is not None and _is_older(turn, _turn(sent.before, _screen(sent.before), _prompt(sent))):
            turn, scope = _Turn((), None, None, None, ()), ()
        answer_at, answer = _answer(turn.parts)
        if sent is not None and state is State.IDLE:
            state = _at_rest(frame, screen, sent, turn, answer, draft)
        elif sent is not None and not any(frame.lines):
            state = State.BUSY
        retrying = does.retrying
        if does.state is State.BUSY and retrying is None:
            retrying = old_retry(scope)
        return Reading(
            state,
            scope=scope,
            block_at=None if answer_at is None else answer_at - (turn.start or 0),
            answer=answer,
            input_open=does.input_open,
            draft=draft,
            retrying=retrying,
            interrupted=turn.interrupted,
            finished=turn.finished,
            judged=_judged(does, screen, turn, scope),
            echoed=turn.start is not None,
        )


def _judged(does: Doing, screen: _Screen, turn: _Turn, scope: Sequence[str]) -> tuple[str, ...]:
    """The lines that can say that the turn failed."""
    if turn.interrupted:
        return ()
    if turn.error is not None:
        return (BAR + turn.error,)
    if turn.mark is None and any(line.strip() for line in scope):
        # No layout that is known: what stands left of the assistant's column is the program's.
        return tuple(line for line in scope if indent(line) < TEXT_COLUMN and line.strip(" ┃"))
    toast = () if screen.toast is None else (BAR + screen.toast.text,)
    if turn.mark is None:
        return toast if turn.start is not None else ()
    if does.state is State.IDLE and turn.start is not None and not turn.mark.finished:
        # At rest, and its last message has neither ended nor been stopped. A toast comes before its block.
        return toast or (turn.mark.line,)
    return ()


def _at_rest(frame: Frame, screen: _Screen, sent: Sent, turn: _Turn, answer: str, draft: str) -> State:
    """Whether a program that looks idle has ended a turn of ours: it draws what comes of a prompt piece by piece.

    First there is nothing, not even a box, for seconds where the prompt opens a session; then the prompt, the mark, and
    the text.
    """
    if turn.interrupted or turn.error is not None or (turn.finished and answer):
        return State.IDLE
    drawn = any(not is_blank(part) for part in turn.parts) or screen.toast is not None
    return State.UNKNOWN if drawn or draft or frame.lines == sent.before.lines else State.BUSY


# -- the screen's regions -------------------------------------------------------------------------------------------


def _screen(frame: Frame) -> _Screen:
    lines = frame.lines
    box = box_of(lines)
    if box is None:
        toast = toast_of(lines)
        return _Screen(None, untoasted(lines, toast), toast)
    if box.column not in LEFT:
        return _Screen(box, (), None)
    above = [cropped(line, box.right) for line in lines[: box.rows.start]]
    toast = toast_of(above)
    return _Screen(box, tuple(_unbarred(line, box.right) for line in untoasted(above, toast)), toast)


def _unbarred(line: str, right: int) -> str:
    """A line without a scroll bar or a block's second bar at the transcript's edge."""
    return _RIGHT_BAR.sub("", line).rstrip() if columns(line) >= right - 2 else line


# -- the turn -------------------------------------------------------------------------------------------------------


def _prompt(sent: Sent | None) -> str:
    return "" if sent is None else "".join(sent.prompt.split())


def _turn(frame: Frame, screen: _Screen, prompt: str) -> _Turn:
    """The last turn on the screen."""
    parts = parts_of(screen.transcript, frame.styled, muted(frame, screen.box), prompt)
    at = next((n for n in range(len(parts) - 1, -1, -1) if _is_echo(parts[n])), None)
    rest = parts if at is None else parts[at + 1 :]
    mark = next((part for part in reversed(rest) if isinstance(part, Mark)), None)
    prompts = tuple("".join(part.rows[:1]) for part in parts if isinstance(part, Block) and part.is_user)
    return _Turn(rest, None if at is None else parts[at].end, mark, _error(rest, screen.toast), prompts)


def _is_older(turn: _Turn, before: _Turn) -> bool:
    """The last turn was on the screen before ours began: of ours nothing is drawn yet.

    More of the older one may have been drawn since then, or uncovered by a toast that has gone.
    """
    if len(turn.prompts) != len(before.prompts) or not all(map(_alike, turn.prompts, before.prompts)):
        return False
    ended = before.mark if before.mark is not None and before.mark.finished else None
    if ended is not None and (turn.mark is None or not _alike(turn.mark.line, ended.line)):
        return False
    texts, known = _texts(turn), _texts(before)
    return len(texts) >= len(known) and all(map(_alike, texts, known))


def _texts(turn: _Turn) -> list[str]:
    texts: list[str] = []
    for part in turn.parts:
        texts += part.rows if isinstance(part, Block) else [part.line] if isinstance(part, Text) else []
    return [text for text in texts if text.strip()]


def _alike(one: str, other: str) -> bool:
    """The same line, or one of them is cut by a toast."""
    return one.startswith(other) or other.startswith(one)


def _is_echo(part: Part) -> bool:
    return isinstance(part, Block) and part.is_user


def _error(turn: Sequence[Part], toast: Toast | None) -> str | None:
    """The text of the error that ended the turn; ``None`` where it was none."""
    left = [part for part in turn if not (isinstance(part, Mark) or is_blank(part))]
    if not left or not isinstance(left[-1], Block) or not left[-1].is_error:
        return None
    block = left[-1]
    text = collapse(" ".join(block.rows))
    if toast is not None and block.start < toast.rows.stop and block.end > toast.rows.start:
        # Its lines are cut where the toast covers them; the toast has all of them.
        shown = block.rows[0].strip() if block.rows else ""
        if collapse(toast.text).startswith(shown):
            return collapse(toast.text)
    return text


def _answer(turn: Sequence[Part]) -> tuple[int | None, str]:
    """Where the turn's last text begins, and the text."""
    texts: list[tuple[int, str]] = []
    last = next((part for part in reversed(turn) if isinstance(part, Mark)), None)
    for part in turn:
        if isinstance(part, Block | Rule):
            # What comes before an error was written before it, and is no answer.
            texts = []
        elif isinstance(part, Mark) and part.summary:
            texts = []
        elif part is not last:
            # A mark that is not the last one is quoted.
            texts.append((part.at, part.line))
    while texts and (not texts[0][1].strip() or _TOOL_LINE.match(texts[0][1])):
        texts.pop(0)
    if not texts:
        return None, ""
    return texts[0][0], "\n".join(_undented(line for _, line in texts)).strip("\n")


def _undented(lines: Iterator[str]) -> Iterator[str]:
    return (line[min(TEXT_COLUMN, indent(line)) :] for line in lines)
