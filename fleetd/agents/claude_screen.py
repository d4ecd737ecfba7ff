"""How Claude Code draws its screen: see :mod:`fleetd.agents.claude_transcript` for the turns on it.

From top to bottom: the transcript, a live region and, where nothing is asked, the input box between two rules with the
footer below it. A dialog takes the place of box and footer. Whether a turn runs is said in the footer, by the spinner's
line above the box, or by the title alone: while text streams there is no spinner. A dialog is looked for only where
there is no box, because an answer can show one.

A turn that is stopped before its first word leaves no trace in the transcript: its prompt is given back to the box.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.inject import HEAD
from actors.prompt import dense
from actors.screen import Frame, Reading, Retrying, Sent, State, indent
from fleetd.agents.claude_transcript import ASKS, LIVE, SPINNER, Turn, turn_of
from fleetd.agents.styles import bright

#: Lines below the last rule that are still a footer; a list of suggestions may be among them.
FOOTER_LINES: Final = 30
#: Lines at the end of a screen without a box in which a dialog is looked for.
DIALOG_LINES: Final = 60
#: A line above the box that begins further right is a notice of the program's own.
NOTICE_COLUMNS: Final = 16
#: Rows that a suggestion of the program's own never has.
SUGGESTED_ROWS: Final = 3

_RULE: Final = re.compile(r"[─▔]{8,}(?: .{1,60} [─▔]*)?")
_BOX: Final = re.compile(r"[❯>!#](?:[ \xa0].*)?")
_RETRY: Final = re.compile(r"\bretrying in (?P<wait>\d[\dhms ]*).*\battempt (?P<attempt>\d+)/", re.IGNORECASE)
_STALLED: Final = re.compile(rf"{SPINNER} .*\bwill retry in \d", re.IGNORECASE)
_SPAN: Final = re.compile(r"(\d+) ?([dhms]?)")
_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1, "": 1}
_BUSY_TITLE: Final = re.compile(r"[◐◑◒◓\u2801-\u28ff] ")
_OPTION: Final = re.compile(r"\s*(?P<chosen>❯ )?\d+\. \S")
_HINTS: Final = re.compile(r"\b[Ee]sc to |\b[Ee]nter to |\(esc\)|\bto toggle\b|Press Enter to continue")
_LIMIT_MENU: Final = re.compile(r"\s*What do you want to do\?")
_LIMIT_CHOICE: Final = "Stop and wait for limit to reset"
#: The first character of a suggestion stands under the cursor and is not dim.
_UNDER_CURSOR: Final = re.compile("\x1b\\[(?:[0-9;]*;)?7m(.)\x1b\\[0;2m")
#: What the box shows instead of a long paste.
PASTED: Final = "[Pasted text #"
_LONG_PROMPT: Final = re.compile(rf"(?:{re.escape(HEAD)}\s)?{re.escape(PASTED)}[^\]]*\]")


class _Bottom(NamedTuple):
    """What stands below the transcript."""

    #: Index of its first line.
    start: int
    #: Indices of the input box's rows; empty where there is none.
    box: range = range(0)
    footer: tuple[str, ...] = ()
    #: A question to a person.
    dialog: bool = False
    #: The question what to do about a used-up quota: its turn has ended.
    limit: bool = False


class ClaudeGrammar:
    """Reads Claude Code's screen, from version 2.1.197 to 2.1.332, and older ones as far as reports show them."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        bottom = _bottom(frame.lines)
        transcript = _above(frame.lines, bottom)
        draft = _draft(frame, bottom.box)
        given_back = sent is not None and _is_given_back(draft, sent.prompt)
        # Where nothing was printed since the prompt was typed, what stands there is another turn's.
        unmoved = sent is not None and transcript == _above(sent.before.lines, _bottom(sent.before.lines))
        turn = Turn((), echoed=False) if unmoved or given_back else turn_of(transcript, sent)
        state, retrying = _state(frame, bottom)
        hint = _hint(frame.lines, bottom)
        block_at, answer = turn.answer
        return Reading(
            state,
            scope=turn.scope,
            block_at=block_at,
            answer="" if hint else answer,
            input_open=bool(bottom.box),
            draft=draft,
            retrying=retrying,
            interrupted=turn.interrupted or given_back,
            finished=turn.finished and not hint,
            judged=turn.judged(hint),
            echoed=turn.echoed or bool(turn.items),
        )


# -- the live region ------------------------------------------------------------------------------------------------


def _bottom(lines: Sequence[str]) -> _Bottom:
    rules = [index for index, line in enumerate(lines) if _RULE.fullmatch(line)]
    if len(rules) > 1 and len(lines) - rules[-1] - 1 <= FOOTER_LINES:
        start, end = rules[-2:]
        rows, footer = lines[start + 1 : end], tuple(lines[end + 1 :])
        boxed = rows and _BOX.fullmatch(rows[0]) and all(not row or row.startswith("  ") for row in rows[1:])
        if boxed and not any(map(_chosen, footer)):
            return _Bottom(start, range(start + 1, end), footer)
    return _dialog(lines, rules)


def _dialog(lines: Sequence[str], rules: Sequence[int]) -> _Bottom:
    """What a screen without an input box asks."""
    first = max(0, len(lines) - DIALOG_LINES)
    tail = range(first, len(lines))
    if any(_LIMIT_CHOICE in lines[index] and _OPTION.match(lines[index]) for index in tail):
        start = next((index for index in tail if _LIMIT_MENU.match(lines[index])), len(lines))
        while start > 0 and (start - 1 in rules or not lines[start - 1]):
            start -= 1
        return _Bottom(start, limit=True)
    shown = [lines[index] for index in tail if lines[index]]
    if any(map(_chosen, shown)) or any(_HINTS.search(line) for line in shown[-4:]):
        return _Bottom(next((index for index in reversed(rules) if index >= first), len(lines)), dialog=True)
    return _Bottom(len(lines))


def _chosen(line: str) -> bool:
    """Whether a line is the option of a dialog that the cursor is on."""
    found = _OPTION.match(line)
    return found is not None and found["chosen"] is not None


def _above(lines: Sequence[str], bottom: _Bottom) -> Sequence[str]:
    """The transcript, without the notice that may stand right above the box."""
    end = bottom.start
    while end > 0 and (not lines[end - 1] or (bottom.box and indent(lines[end - 1]) >= NOTICE_COLUMNS)):
        end -= 1
    return lines[:end]


def _state(frame: Frame, bottom: _Bottom) -> tuple[State, Retrying | None]:
    if bottom.limit:
        return State.IDLE, None
    if bottom.dialog:
        return State.BLOCKED, None
    if not bottom.box:
        return State.UNKNOWN, None
    transcript = _above(frame.lines, bottom)
    live = next((line for line in reversed(transcript) if line and not line.startswith(" ")), "")
    footer = any("esc to int" in line for line in bottom.footer)
    if not footer and not LIVE.match(live) and not _BUSY_TITLE.match(frame.title):
        return State.IDLE, None
    return State.BUSY, _retrying(transcript)


def _retrying(transcript: Sequence[str]) -> Retrying | None:
    """The banner of a retry, among the last lines above the box."""
    for line in [line for line in transcript[-12:] if line][-4:]:
        if (found := _RETRY.search(line)) is not None and not line.startswith(("●", "⏺")):
            wait = sum(int(amount) * _SECONDS[unit] for amount, unit in _SPAN.findall(found["wait"]))
            return Retrying(int(found["attempt"]), line, wait)
        if _STALLED.match(line):
            # It waits for the rest of a response: the time is its own time-out, and no quota's.
            return Retrying(None, line)
    return None


def _rows(frame: Frame, box: range) -> list[str]:
    """What stands in the input box and is not dim, as far as the frame tells."""
    if not frame.styled:
        return [frame.lines[index] for index in box]
    return bright([_UNDER_CURSOR.sub("\x1b[0;2m", line) for line in frame.styled])[box.start : box.stop]


def _draft(frame: Frame, box: range) -> str:
    rows = [row[1:] if index == 0 and row[:1] in "❯>" else row for index, row in enumerate(_rows(frame, box))]
    text = "\n".join(row.strip() for row in rows).strip()
    return "" if not frame.styled and (text in ASKS or text.startswith('Try "')) else text


def _hint(lines: Sequence[str], bottom: _Bottom) -> str:
    """What the box asks for after a failure; empty where it does not."""
    text = " ".join(lines[index].strip() for index in bottom.box)[1:].strip()
    return text if text in ASKS else ""


def _is_given_back(draft: str, prompt: str) -> bool:
    """Whether the box holds a prompt that had been submitted.

    It may not show all of a long one. A line that is only a part of it may be the program's own suggestion.
    """
    if _LONG_PROMPT.fullmatch(draft):
        return True
    left, whole = dense(draft).removeprefix(dense(HEAD)), dense(prompt)
    return left == whole or (draft.count("\n") >= SUGGESTED_ROWS and left in whole)
