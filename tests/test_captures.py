"""Captures: what ``fleetd record`` writes, ``fleetd replay`` reads, and nobody's secrets stand in it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from actors.screen import Frame
from fleetd.captures import MARK, Redactor, frame_of, header_of, text_of

AT = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
FRAME = Frame(
    ("❯ fix it", "● done"),
    title="✳ fix",
    width=120,
    height=40,
    blank=38,
    cursor=(2, 3),
    styled=("\x1b[1m❯ fix it\x1b[0m", "● done"),
)
NOBODY = Redactor([], "")


def test_a_capture_gives_the_frame_back_that_it_was_made_of() -> None:
    text = text_of(FRAME, "claude", AT, NOBODY)
    header, _ = header_of(text)
    assert frame_of(text) == FRAME
    assert (header.agent, header.at) == ("claude", AT)


def test_a_saved_pane_without_a_header_is_read_as_it_is() -> None:
    frame = frame_of("one\n  two  \n\n")
    assert (frame.lines, frame.title, frame.width) == (("one", "  two"), "", 40)


@pytest.mark.parametrize("first", [MARK + "{", MARK + '{"width": "wide"}', MARK])
def test_a_first_line_that_only_looks_like_a_header_is_the_panes_own(first: str) -> None:
    assert frame_of(f"{first}\nrest").lines == (first.rstrip(), "rest")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefghijklmnop",
        "ghp_abcdefghijklmnopqrstuvwxyz123456",
        "AIzaSyA-abcdefghijklmnopqrstuvwxyz",
        "Bearer abcdefghijkl.mnop",
        "eyJhbGciOiJI.eyJzdWIiOiIxMjM0.abc",
        "someone@example.com",
        "correct-horse-battery",
    ],
)
def test_what_looks_like_a_secret_is_taken_out(secret: str) -> None:
    redact = Redactor([("MY_API_KEY", "correct-horse-battery"), ("LANG", "C.UTF-8")], "/home/someone")
    line = redact(f"the key is {secret}, in /home/someone/project under C.UTF-8")
    assert secret not in line
    assert line.endswith(" in ~/project under C.UTF-8")


def test_a_short_value_is_not_taken_out_wherever_it_stands() -> None:
    assert Redactor([("TOKEN", "a")], "")("a banana") == "a banana"


def test_a_title_is_redacted_too() -> None:
    frame = Frame(("x",), title="~ someone@example.com")
    assert "example.com" not in text_of(frame, "", AT, NOBODY)
