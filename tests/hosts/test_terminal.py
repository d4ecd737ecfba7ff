"""The embedded host's terminal: what it draws, notes and answers."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.screen import FRAME_BYTES
from fleetd.hosts.terminal import SCROLLBACK_LINES, SEQUENCE_CHARS, Terminal

#: Output with everything that the scanner looks for, and characters of two to four bytes.
STORY = (
    "héllo 漢字 😀\r\n\x1b[2mdim\x1b[0m\x1b]0;a title é\x07\x1b[?2004h\x1b[6n\x1b[c\x1b]11;?\x1b\\"
    "\x1b[?u\x1b[>1u\x1b[5n end\x1b]2;another\x1b\\"
).encode()


def terminal(*chunks: bytes, width: int = 40, height: int = 6) -> tuple[Terminal, str, bytes]:
    """A terminal that was fed, with all that it passed on and answered."""
    made, shown, answers = Terminal(width, height), "", b""
    for chunk in chunks:
        more, said = made.feed(chunk)
        shown, answers = shown + more, answers + said
    return made, shown, answers


@given(st.lists(st.integers(0, len(STORY)), max_size=8))
def test_a_read_may_cut_the_output_anywhere(cuts: list[int]) -> None:
    edges = [0, *sorted(cuts), len(STORY)]
    whole, shown, answers = terminal(STORY)
    cut, cut_shown, cut_answers = terminal(*(STORY[a:b] for a, b in pairwise(edges)))
    assert (cut.lines(), cut.styled(), cut.title, cut.bracketed) == (
        whole.lines(),
        whole.styled(),
        whole.title,
        whole.bracketed,
    )
    assert (cut_shown, cut_answers) == (shown, answers)
    assert whole.lines() == ("héllo 漢字 😀", "dim end")
    assert (whole.title, whole.bracketed) == ("another", True)


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        (b"\x1b[c", b"\x1b[?62;22c"),
        (b"\x1b[0c", b"\x1b[?62;22c"),
        (b"\x1b[>c", b"\x1b[>1;10;0c"),
        (b"\x1b[5n", b"\x1b[0n"),
        (b"ab\r\nc\x1b[6n", b"\x1b[2;2R"),
        (b"\x1b[?6n", b"\x1b[?1;1R"),
        (b"x" * 40 + b"\x1b[6n", b"\x1b[1;40R"),
        (b"\x1b]10;?\x07", b"\x1b]10;rgb:dddd/dddd/dddd\x07"),
        (b"\x1b]11;?\x1b\\", b"\x1b]11;rgb:1111/1111/1111\x1b\\"),
        (b"\x1b[?u", b"\x1b[?0u"),
        (b"\x1b[>7u\x1b[?u", b"\x1b[?1u"),
        (b"\x1b[>1u\x1b[>0u\x1b[<u\x1b[?u", b"\x1b[?1u"),
        (b"\x1b[>1u\x1b[<9u\x1b[?u", b"\x1b[?0u"),
        (b"\x1b[=1u\x1b[?u", b"\x1b[?1u"),
        (b"\x1b[=1;1u\x1b[=1;3u\x1b[?u", b"\x1b[?0u"),
        (b"\x1b[?2004$p", b"\x1b[?2004;2$y"),
        (b"\x1b[?25;2004h\x1b[?2004$p", b"\x1b[?2004;1$y"),
        (b"\x1b[?2026$p", b"\x1b[?2026;0$y"),
        (b"\x1b[4$p", b"\x1b[4;0$y"),
        (b"\x1b]11;rgb:0/0/0\x07\x1b[2c\x1b[7n\x1b[>4;1m\x1b[?" + b"9" * 5000 + b"$p", b""),
    ],
)
def test_what_a_program_asks_is_answered(question: bytes, answer: bytes) -> None:
    assert terminal(question)[2] == answer


def test_another_terminal_is_not_given_the_questions_that_were_answered() -> None:
    shown = terminal(b"a\x1b[6nb\x1b[cc\x1b]11;?\x07d\x1b[>1ue\x1b[1mf")[1]
    assert shown == "abcde\x1b[1mf"


def test_bracketed_paste_goes_off_and_with_a_reset() -> None:
    for end in (b"\x1b[?2004l", b"\x1bc"):
        made, _, _ = terminal(b"\x1b[?2004h")
        assert made.bracketed
        made.feed(end)
        assert not made.bracketed


def test_a_title_has_no_control_characters_and_a_bound() -> None:
    made, _, _ = terminal(b"\x1b]2;one\x08two" + b"x" * 2000 + b"\x07")
    assert made.title == "onetwo" + "x" * 505


def test_an_endless_sequence_is_not_waited_for() -> None:
    made, _, _ = terminal(b"\x1b]2;" + b"x" * (2 * SEQUENCE_CHARS), b"y" * SEQUENCE_CHARS, b"\x07shown")
    assert made.lines() == ("shown",)


def test_bytes_that_are_not_utf_8_are_shown_as_such() -> None:
    assert terminal(b"a\xffb\xe6\xbc", b"c")[0].lines() == ("a\ufffdb\ufffdc",)


# -- lines ----------------------------------------------------------------------------------------------------------


def test_styles_are_rebuilt_each_line_for_itself() -> None:
    made, _, _ = terminal(
        b"\x1b[2mdim\r\nstill\x1b[0m \x1b[1;3;4;5;7;9mall\x1b[0m\r\n"
        b"\x1b[31mr\x1b[92mg\x1b[38;5;200mi\x1b[48;2;1;2;3mb\x1b[m \xe6\xbc\xa2 \x1b[41m  \x1b[0m\r\n"
    )
    assert made.styled() == (
        "\x1b[2mdim\x1b[0m",
        "\x1b[2mstill\x1b[0m \x1b[1;3;4;5;7;9mall\x1b[0m",
        "\x1b[31mr\x1b[0m\x1b[92mg\x1b[0m\x1b[38;5;200mi\x1b[0m\x1b[38;5;200;48;2;1;2;3mb\x1b[0m 漢 \x1b[41m  \x1b[0m",
    )
    assert made.lines() == ("dim", "still all", "rgib 漢")


def test_lines_that_scroll_away_are_kept_up_to_a_bound() -> None:
    made = Terminal(40, 6)
    for number in range(3000):
        made.feed(b"\x1b[2mline %d\x1b[0m\r\n" % number)
    lines = made.lines()
    assert len(lines) == SCROLLBACK_LINES + 5
    assert lines[-1] == "line 2999"
    assert lines == tuple(f"line {number}" for number in range(3000 - len(lines), 3000))
    assert len(made.styled()) == len(lines)
    assert made.styled()[-1] == "\x1b[2mline 2999\x1b[0m"
    assert made.styled()[0] == lines[0]


def test_lines_are_kept_up_to_the_bytes_of_a_frame() -> None:
    made = Terminal(400, 6)
    made.feed(("漢" * 200 + "\r\n").encode() * 1000)
    lines = made.lines()
    assert FRAME_BYTES - 602 < sum(len(line.encode()) + 1 for line in lines) <= FRAME_BYTES
    assert len(made.styled()) == len(lines)


def test_clearing_the_scrollback_clears_it() -> None:
    made = Terminal(40, 6)
    made.feed(b"old\r\n" * 50 + b"\x1b[H\x1b[2J\x1b[3Jnew")
    assert made.lines() == ("new",)


def test_the_alternate_screen_leaves_no_lines_behind() -> None:
    made = Terminal(40, 6)
    made.feed(b"before\x1b[?1049h" + b"full screen\r\n" * 50)
    assert "full screen" in made.lines()
    made.feed(b"\x1b[?1049l")
    assert made.lines() == ("before",)


def test_an_empty_screen_has_no_lines() -> None:
    assert Terminal(40, 6).lines() == Terminal(40, 6).styled() == ()


def test_a_smaller_screen_keeps_the_text() -> None:
    made, _, _ = terminal(b"".join(b"%d\r\n" % number for number in range(5)) + b"end")
    made.resize(20, 3)
    assert made.size == (20, 3)
    assert made.lines() == ("0", "1", "2", "3", "4", "end")


def test_a_snapshot_shows_the_same_on_another_terminal() -> None:
    made, _, _ = terminal("plain \x1b[2mdim\x1b[0m 漢\r\n\x1b]2;title\x07\x1b[?2004hlast".encode())
    snapshot = made.snapshot()
    assert b"\xc2\x9b" not in snapshot
    other, _, _ = terminal(b"what was there before\r\nand more", snapshot)
    assert (other.lines(), other.styled(), other.title, other.bracketed) == (
        made.lines(),
        made.styled(),
        "title",
        True,
    )


def test_no_size_and_no_output_breaks_the_emulator() -> None:
    """pyavt panics on one column; a panic would end the daemon."""
    chooser = random.Random(1)
    pieces = [
        "\x1b[",
        "\x1b",
        "?1049h",
        ";",
        "漢",
        "a",
        "\n",
        "J",
        "H",
        "1",
        "999",
        "L",
        "P",
        "@",
        "X",
        "b",
        "é",
        "\x1bM",
    ]
    for _ in range(150):
        made = Terminal(chooser.randint(-1, 9), chooser.randint(-1, 5))
        for _ in range(5):
            made.feed("".join(chooser.choices(pieces, k=60)).encode())
            made.resize(chooser.randint(0, 12), chooser.randint(0, 6))
            made.styled()


# -- keys -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "name", "sent"),
    [
        (b"", "Enter", b"\r"),
        (b"", "Escape", b"\x1b"),
        (b"", "C-c", b"\x03"),
        (b"", "C-u", b"\x15"),
        (b"", "Tab", b"\t"),
        (b"", "BTab", b"\x1b[Z"),
        (b"", "Up", b"\x1b[A"),
        (b"\x1b[?1h", "Up", b"\x1bOA"),
        (b"", "Space", b" "),
        (b"", "BSpace", b"\x7f"),
        (b"", "y", b"y"),
        (b"", "é", "é".encode()),
        (b"\x1b[>1u", "Escape", b"\x1b[27u"),
        (b"\x1b[>1u", "C-c", b"\x1b[99;5u"),
        (b"\x1b[>1u", "Enter", b"\r"),
    ],
)
def test_keys_are_sent_as_the_program_asked_for_them(mode: bytes, name: str, sent: bytes) -> None:
    assert terminal(mode)[0].key(name) == sent


@pytest.mark.parametrize("name", ["Entr", "", "C-", "\x1b", "hello", "C-cc"])
def test_a_key_that_does_not_exist_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="no key is called"):
        Terminal(40, 6).key(name)


def test_a_paste_is_bracketed_only_where_the_program_asked_for_it() -> None:
    made = Terminal(40, 6)
    assert made.pasted("a\n\tb \ud800") == b"a\r\tb ?"
    made.feed(b"\x1b[?2004h")
    assert made.pasted("a\nb") == b"\x1b[200~a\rb\x1b[201~"
