"""The control client's output, cut into blocks, whatever the panes print and wherever a read ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetd.hosts.tmux_blocks import LINE_BYTES, Block, Parser, TerminalLost

TRIPLE = "1795985939 4711 1"
#: What a hostile pane prints, and what is between: anything but the one triple that nobody can know.
LINES = st.lists(
    st.sampled_from(["", "text", "%exit", "%end", "%end 1 1 1", f"%begin {TRIPLE}", "%error 1 1 1", f"%end {TRIPLE} "])
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n")).filter(lambda line: TRIPLE not in line)
)


def parse(data: bytes, cuts: list[int]) -> list[Block | str]:
    parser = Parser()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [item for start, end in pairwise(edges) for item in parser.feed(data[start:end])]


@given(st.lists(st.tuples(LINES, st.booleans()), max_size=4), st.lists(st.integers(min_value=0), max_size=8))
def test_each_block_is_what_was_printed_wherever_the_reads_end(
    answers: list[tuple[list[str], bool]], cuts: list[int]
) -> None:
    data = "%session-changed $0 fleetd\n"
    expected: list[Block | str] = ["%session-changed $0 fleetd"]
    for lines, failed in answers:
        body = "".join(f"{line}\n" for line in lines)
        data += f"%begin {TRIPLE}\n{body}%{'error' if failed else 'end'} {TRIPLE}\n%window-add @1\n"
        expected += [Block("\n".join(lines), failed), "%window-add @1"]
    assert parse(data.encode(), cuts) == expected


def test_blocks_that_the_server_made_by_itself_are_passed_over_but_for_their_errors() -> None:
    data = b"%begin 1 1 0\nhook\n%end 1 1 0\n%begin 1 2 0\nno sessions\n%error 1 2 0\n%begin 1 3 1\nours\n%end 1 3 1\n"
    assert parse(data, []) == ["no sessions", Block("ours", failed=False)]


def test_bytes_that_are_no_utf_8_do_not_stop_it() -> None:
    assert parse(b"%begin 1 1 1\n\xff\xfe\n%end 1 1 1\n", []) == [Block("\ufffd\ufffd", failed=False)]


def test_a_line_without_an_end_is_given_up() -> None:
    parser = Parser()
    assert list(parser.feed(b"x" * LINE_BYTES)) == []
    with pytest.raises(TerminalLost, match=f"line of more than {LINE_BYTES} bytes"):
        list(parser.feed(b"x"))
