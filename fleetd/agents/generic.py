"""Any program without an adapter of its own: what can be told from its screen with a few patterns, or with none.

State. The patterns say what a line of the last screenful looks like; they are tried in the order blocked, busy, idle.
When none of them matches, what that means depends on which there are:

======  =====  ==========================================================================================
idle    busy   no match means
======  =====  ==========================================================================================
none    any    unknown: a screen that stands still for 3 s counts as idle, and its input line as open
given   none   busy: a program that is not at its idle line is doing something
given   given  unknown, with no open input line: it does not work and does not wait for a prompt either, so it shows
               something that nobody foresaw. Its turn may end by standing still; nothing is typed into it
======  =====  ==========================================================================================

A program that only scrolls leaves its busy lines standing. So one that has other text below it, and then an idle line,
is past: it makes the state unknown, and standing still decides. Directly above the input line, or below it, it counts.

Turn. The open turn begins below the prompt's echo. That is the first echo below what is left of the screen before: the
same prompt may have been sent before, and an answer may repeat its prompt. Only where an old echo stood on the screen
and nothing is where it was, it is the last. Programs wrap what they echo, so white space does not count, and an echo
fills its lines up to their ends: a prompt ``hi`` is not found in ``this``. Where there is no echo, the turn is whatever
is new on the screen. It ends above the input line: the last line that looks idle, or those lines at the bottom that
stood below the old transcript, too.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from textwrap import dedent
from typing import Final, NamedTuple

from actors.inject import Typing
from actors.patterns import Pattern
from actors.screen import Frame, Reading, Sent, State

#: Places to which the old transcript may have moved that are tried.
MOVES: Final = 200
#: Borders that boxes put before and behind a line, and what whole lines of boxes and rules are made of.
_BORDERS: Final = " \t│┃║|▌▐"
_RULE: Final = re.compile(r"[\s─━═╌╭╮╰╯┌┐└┘├┤│┃║|_=-]*")


def generic_typing() -> Typing:
    """Lines of a prompt become spaces, unless the program asked for bracketed paste: Enter would submit each."""
    return Typing(multiline=False)


class _Overlap(NamedTuple):
    """Where the old transcript, as far as it is still there, ends in the earlier screen and in this one."""

    old_end: int
    new_end: int


class GenericGrammar:
    """Reads a screen by an operator's patterns.

    Args:
        idle, busy, blocked: what a line of the last screenful looks like in that state.
        answer_marker: how an answer block starts, behind its indentation.
    """

    def __init__(
        self,
        idle: Pattern | None = None,
        busy: Pattern | None = None,
        blocked: Pattern | None = None,
        answer_marker: str | None = None,
    ) -> None:
        self._idle, self._busy, self._blocked = idle, busy, blocked
        self._marker = answer_marker

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        state, input_open = self._state(frame.screen)
        scope, echoed = self._scope(frame, sent)
        block_at = None
        if self._marker:
            starts = [index for index, line in enumerate(scope) if line.lstrip().startswith(self._marker)]
            block_at = starts[-1] if starts else None
        return Reading(
            state,
            scope=scope,
            block_at=block_at,
            answer=self._answer(scope, block_at),
            input_open=input_open,
            echoed=echoed or bool(scope),
        )

    def _state(self, screen: Sequence[str]) -> tuple[State, bool]:
        """The state, and whether there is an input line that would take a prompt."""
        idle = _last(self._idle, screen)
        blocked, busy = _last(self._blocked, screen), _last(self._busy, screen)
        if blocked is not None and not self._is_past(blocked, idle, screen):
            return State.BLOCKED, False
        if busy is not None and not self._is_past(busy, idle, screen):
            return State.BUSY, False
        if self._idle is None or blocked is not None or busy is not None:
            return State.UNKNOWN, True
        if idle is not None:
            return State.IDLE, True
        return (State.BUSY if self._busy is None else State.UNKNOWN), False

    def _is_past(self, line: int, idle: int | None, screen: Sequence[str]) -> bool:
        """Whether something was printed between this line and an idle line below it."""
        patterns = (self._idle, self._busy, self._blocked)
        return idle is not None and any(
            not _RULE.fullmatch(text) and not any(_any(pattern, [text]) for pattern in patterns)
            for text in screen[line + 1 : idle]
        )

    def _scope(self, frame: Frame, sent: Sent | None) -> tuple[tuple[str, ...], bool]:
        """The open turn's lines, and whether its prompt's echo was found."""
        lines, below = frame.lines, None
        start, end = 0, len(lines)
        if sent is not None:
            before = sent.before.lines
            common = _overlap(before, lines)
            start = common.new_end
            echoes = _echoes(lines[start:], sent.prompt)
            if echoes:
                # An old echo that is not where it was can only be told from the new one by being older.
                moved = start == 0 and bool(_echoes(before, sent.prompt))
                below = start + echoes[-1 if moved else 0]
                start = below
            end -= _same_tail(before[common.old_end :], lines[start:])
        if self._idle is not None:
            inputs = [index for index in range(start, len(lines)) if _looks(self._idle, lines[index])]
            end = min(end, inputs[-1]) if inputs else end
        while end > start and _RULE.fullmatch(lines[end - 1]):
            end -= 1
        return lines[start:end], below is not None

    def _answer(self, scope: Sequence[str], block_at: int | None) -> str:
        if block_at is None or self._marker is None:
            return dedent("\n".join(scope)).strip("\n")
        first = scope[block_at].lstrip().removeprefix(self._marker).strip()
        return f"{first}\n{dedent(chr(10).join(scope[block_at + 1 :]))}".strip("\n")


def _looks(pattern: Pattern, line: str) -> bool:
    """Whether a line matches. A frame's lines have lost the blank that most prompts end with: it may be asked for."""
    return pattern.matches(line) or pattern.matches(f"{line} ")


def _last(pattern: Pattern | None, lines: Sequence[str]) -> int | None:
    """The lowest line that matches."""
    if pattern is None:
        return None
    return next((index for index in range(len(lines) - 1, -1, -1) if _looks(pattern, lines[index])), None)


def _any(pattern: Pattern | None, lines: Sequence[str]) -> bool:
    return pattern is not None and any(_looks(pattern, line) for line in lines)


def _overlap(before: Sequence[str], lines: Sequence[str]) -> _Overlap:
    """What of the earlier screen is still there, from the top down to its input line.

    Usually all of it. Where the top has scrolled away, what followed it has moved up, perhaps below a header.
    """
    top = 0
    while top < min(len(before), len(lines)) and before[top] == lines[top]:
        top += 1
    found = _Overlap(top, top)
    if top == len(lines):
        return found
    starts = [index for index in range(top + 1, len(before)) if before[index] == lines[top]]
    for start in starts[:MOVES]:
        run = 0
        while start + run < len(before) and top + run < len(lines) and before[start + run] == lines[top + run]:
            run += 1
        if run > max(1, found.new_end - top):
            found = _Overlap(start + run, top + run)
        if 2 * run >= len(before) - start:
            break
    return found


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _echoes(lines: Sequence[str], prompt: str) -> list[int]:
    """For each echo of the prompt, the index of the line below it."""
    wanted = _squeezed(prompt)
    rows = [_squeezed(line.strip(_BORDERS)) for line in lines]
    text = "".join(rows)
    begins: set[int] = set()
    ends: dict[int, int] = {}
    at = 0
    for index, row in enumerate(rows):
        begins.add(at)
        at += len(row)
        if row:
            ends[at] = index + 1
    found: list[int] = []
    at = text.find(wanted) if wanted else -1
    while at >= 0:
        if at + len(wanted) in ends and (at in begins or not text[at - 1].isalnum()):
            found.append(ends[at + len(wanted)])
        at = text.find(wanted, at + 1)
    return found


def _same_tail(old: Sequence[str], new: Sequence[str]) -> int:
    """How many lines at the bottom are the old ones again."""
    same = 0
    while same < min(len(old), len(new)) and old[-1 - same] == new[-1 - same]:
        same += 1
    return same
