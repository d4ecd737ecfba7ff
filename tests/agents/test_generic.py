"""The generic grammar: what can be told of any program with patterns and with none."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest

from actors.patterns import Pattern
from actors.screen import Frame, Sent, State
from fleetd.agents.generic import GenericGrammar, generic_typing


def pattern(text: str | None) -> Pattern | None:
    return None if text is None else Pattern(text, "test")


def grammar(
    idle: str | None = None, busy: str | None = None, blocked: str | None = None, marker: str | None = None
) -> GenericGrammar:
    return GenericGrammar(pattern(idle), pattern(busy), pattern(blocked), marker)


def frame(*lines: str, height: int = 20, width: int = 40) -> Frame:
    return Frame(tuple(lines), width=width, height=height)


def test_lines_of_a_prompt_become_spaces_for_a_program_that_nobody_knows() -> None:
    assert not generic_typing().multiline


IDLE, BUSY, BLOCKED = r"^> ", r"working", r"\[y/N\]"


@pytest.mark.parametrize(
    ("patterns", "lines", "state", "input_open"),
    [
        ((None, None, None), ["> "], State.UNKNOWN, True),
        ((None, BUSY, None), ["> "], State.UNKNOWN, True),
        ((None, BUSY, None), ["working"], State.BUSY, False),
        ((None, BUSY, BLOCKED), ["working", "sure? [y/N]"], State.BLOCKED, False),
        ((IDLE, None, None), ["> x"], State.IDLE, True),
        ((IDLE, None, None), ["something else"], State.BUSY, False),
        ((IDLE, BUSY, None), ["> x", "working"], State.BUSY, False),
        ((IDLE, BUSY, None), ["> x"], State.IDLE, True),
        ((IDLE, BUSY, None), ["a menu that nobody foresaw"], State.UNKNOWN, False),
        ((IDLE, None, None), [">"], State.IDLE, True),
        ((r"^>$", None, None), [">"], State.IDLE, True),
        ((r"^> $", None, None), [">"], State.IDLE, True),
        ((IDLE, BUSY, BLOCKED), ["> x", "working", "sure? [y/N]"], State.BLOCKED, False),
        ((IDLE, None, BLOCKED), ["sure? [y/N]"], State.BLOCKED, False),
        ((IDLE, None, None), [], State.BUSY, False),
    ],
)
def test_the_state_is_that_of_the_first_pattern_that_matches_a_line(
    patterns: tuple[str | None, str | None, str | None], lines: Sequence[str], state: State, input_open: bool
) -> None:
    reading = grammar(*patterns).read(frame(*lines))
    assert (reading.state, reading.input_open, reading.draft) == (state, input_open, "")


def test_only_the_last_screenful_tells_the_state() -> None:
    lines = ["working", *("────────" for _ in range(5)), "> x"]
    assert grammar(IDLE, BUSY).read(frame(*lines, height=6)).state is State.IDLE
    assert grammar(IDLE, BUSY).read(frame(*lines, height=7)).state is State.BUSY


@pytest.mark.parametrize(
    ("lines", "state", "input_open"),
    [
        (["working", "the answer", "> "], State.UNKNOWN, True),
        (["sure? [y/N] y", "the answer", "> "], State.UNKNOWN, True),
        (["working", "", "────────", "> "], State.BUSY, False),
        (["> ", "  working (esc to stop)"], State.BUSY, False),
        (["working", "half an answer"], State.BUSY, False),
        (["working", "the answer", "> again", "working"], State.BUSY, False),
    ],
)
def test_a_busy_line_with_text_between_it_and_an_idle_line_is_past(
    lines: Sequence[str], state: State, input_open: bool
) -> None:
    """A program that only scrolls leaves its busy lines standing; one with an input box draws them next to it."""
    reading = grammar(IDLE, BUSY, BLOCKED).read(frame(*lines))
    assert (reading.state, reading.input_open) == (state, input_open)


# -- the open turn --------------------------------------------------------------------------------------------------

BOX = ["╭──────────────╮", "│ >            │", "╰──────────────╯", "  help: F1"]

#: name, grammar, the screen before, the prompt, the screen now, the scope, the answer.
TURNS = [
    (
        "a line-oriented program: the echo takes the input line's place, and a new one stands below",
        grammar(),
        ["welcome", ">>>"],
        "1 + 1",
        ["welcome", ">>> 1 + 1", "2", ">>>"],
        ["2"],
        "2",
    ),
    (
        "the same prompt was sent before and had the same answer",
        grammar(),
        [">>> 1 + 1", "2", ">>>"],
        "1 + 1",
        [">>> 1 + 1", "2", ">>> 1 + 1", "2", ">>>"],
        ["2"],
        "2",
    ),
    (
        "the answer repeats the prompt, and more than once",
        grammar(),
        [">"],
        "say hi",
        ["> say hi", "You said: say hi", "again: say hi", ">"],
        ["You said: say hi", "again: say hi"],
        "You said: say hi\nagain: say hi",
    ),
    (
        "a short prompt is part of other words",
        grammar(),
        [">"],
        "hi",
        ["> hi", "Everything in this", "machine is called Delhi", ">"],
        ["Everything in this", "machine is called Delhi"],
        "Everything in this\nmachine is called Delhi",
    ),
    (
        "the program wraps the echo and indents its further lines",
        grammar(),
        ["banner", "> "],
        "a prompt that is too long for a line of this program",
        ["banner", "> a prompt that is too", "  long for a line of", "  this program", "", "  the answer", "> "],
        ["", "  the answer"],
        "the answer",
    ),
    (
        "the echo stands in a box",
        grammar(),
        ["banner", *BOX],
        "one two three",
        ["banner", "│ one two │", "│ three   │", "the answer", *BOX],
        ["the answer"],
        "the answer",
    ),
    (
        "an input box below the transcript is not part of the answer",
        grammar(),
        ["old", "", *BOX],
        "go",
        ["old", "", "> go", "", "● the answer", "  goes on", "", *BOX],
        ["", "● the answer", "  goes on"],
        "● the answer\n  goes on",
    ),
    (
        "the footer has changed meanwhile; the idle line ends the turn all the same",
        grammar(idle=r"^│ >"),
        ["old", *BOX[:3], "  12:00"],
        "go",
        ["old", "> go", "the answer", *BOX[:3], "  12:01"],
        ["the answer"],
        "the answer",
    ),
    (
        "lines of the answer that look idle do not end it",
        grammar(idle=r"^\$ "),
        ["$ "],
        "how do I list",
        ["$ how do I list", "Type:", "$ ls", "and press Enter", "$ "],
        ["Type:", "$ ls", "and press Enter"],
        "Type:\n$ ls\nand press Enter",
    ),
    (
        "the last block that starts with the marker is the answer",
        grammar(marker="●"),
        ["> "],
        "go",
        ["> go", "● I look first", "", "  ● The result:", "      code", "    - item", "> "],
        ["● I look first", "", "  ● The result:", "      code", "    - item"],
        "The result:\n  code\n- item",
    ),
    (
        "no block has the marker: the whole scope is the answer",
        grammar(marker="●"),
        ["> "],
        "go",
        ["> go", "plain words", "> "],
        ["plain words"],
        "plain words",
    ),
    (
        "the program shows no echo: the turn is what is new",
        grammar(),
        ["old answer", "", ">"],
        "secret",
        ["old answer", "", "new answer", ">"],
        ["new answer"],
        "new answer",
    ),
    (
        "the top of the screen has scrolled away",
        grammar(),
        [f"old {number}" for number in range(30)] + ["> "],
        "go",
        [f"old {number}" for number in range(12, 30)] + ["> go", "the answer", "> "],
        ["the answer"],
        "the answer",
    ),
    (
        "a header stays and the rest has scrolled",
        grammar(),
        ["HEADER", "> go", *(f"old {number}" for number in range(16)), "> "],
        "go",
        ["HEADER", *(f"old {number}" for number in range(8, 16)), "> go", "the answer", "> "],
        ["the answer"],
        "the answer",
    ),
    (
        "the old echo stands somewhere else, because all was drawn anew: the last echo begins the turn",
        grammar(),
        ["header", "> go", "an older answer"],
        "go",
        ["> go", "an older", "answer", "> go", "the answer"],
        ["the answer"],
        "the answer",
    ),
    (
        "nothing is new",
        grammar(),
        ["old answer", "> "],
        "go",
        ["old answer", "> "],
        [],
        "",
    ),
    (
        "the prompt was typed and not answered yet",
        grammar(),
        ["old answer", ">"],
        "go",
        ["old answer", "> go"],
        [],
        "",
    ),
]


@pytest.mark.parametrize(
    ("reader", "before", "prompt", "now", "scope", "answer"), [row[1:] for row in TURNS], ids=[row[0] for row in TURNS]
)
def test_the_open_turn_is_found(
    reader: GenericGrammar, before: list[str], prompt: str, now: list[str], scope: list[str], answer: str
) -> None:
    old = Frame(tuple(line.rstrip() for line in before), height=20)
    reading = reader.read(Frame(tuple(line.rstrip() for line in now), height=20), Sent(prompt, old))
    assert list(reading.scope) == scope
    assert reading.answer == answer


def test_a_prompt_of_several_lines_is_found_in_an_echo_with_other_breaks() -> None:
    sent = Sent("first line\n\nsecond line", frame(">"))
    now = frame("> first line second", "  line", "the answer", ">")
    assert grammar().read(now, sent).answer == "the answer"


def test_a_screen_without_a_baseline_is_all_scope_down_to_the_input_line() -> None:
    reading = grammar(idle=r"^>$", marker="●").read(frame("one", "● two", "three", "", ">"))
    assert reading.scope == ("one", "● two", "three")
    assert (reading.block_at, reading.answer) == (1, "two\nthree")


def test_where_no_turn_stands_on_the_screen_the_reading_says_so() -> None:
    before = frame("old", ">")
    assert not grammar().read(before, Sent("go", before)).echoed
    assert grammar().read(frame("old", "> go", "new", ">"), Sent("go", before)).echoed


@pytest.mark.parametrize("same", [0, 1, 1900, 2000])
def test_two_thousand_lines_are_read_fast_enough_for_a_poll(same: int) -> None:
    """A grammar is read four times a second for each member: 50 ms would be a fifth of a core."""
    before = frame(*(f"line {number % 7}" for number in range(2000)), height=60)
    now = frame(*before.lines[:same], *(f"new {number % 5}" for number in range(2000 - same)), "> go", "x", height=60)
    reader = grammar(idle=r"^\$ $", busy="never", marker="●")
    best = 1.0
    for _ in range(3):
        began = time.perf_counter()
        reader.read(now, Sent("go", before))
        best = min(best, time.perf_counter() - began)
    assert best < 0.05
