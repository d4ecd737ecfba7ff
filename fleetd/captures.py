"""A pane in a file: written by ``fleetd record``, read by ``fleetd replay``.

The first line is a header, JSON behind :data:`MARK`, with what the text alone does not tell; then the pane's lines with
their SGR sequences. A file without the header is any saved pane. What looks like a secret or names its user is taken
out when the capture is made: a capture is for a bug report.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from datetime import datetime
from itertools import accumulate
from typing import Final

import msgspec

from actors.screen import Frame, clean_lines, columns

MARK: Final = "fleetd-capture: "
REDACTED: Final = "[redacted]"
#: Values of the environment shorter than this are too common to be taken out wherever they stand, in characters.
SECRET_CHARS: Final = 8
_SGR: Final = re.compile("\x1b\\[[0-9;:]*m")
#: What stands beside a row's text where the program frames it.
_FRAME: Final = " \t│┃║|"
_KEPT: Final = re.compile("\x1b\\[[0-9;:]*m|\n")
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|auth|credential|cookie")
_SECRETS: Final = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abpsr]|hf|gsk|npm|AKIA|ASIA|AIza|ya29)[-_.]?[A-Za-z0-9_.-]{12,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"
    r"|(?i:bearer)[ \t]+[A-Za-z0-9._~+/=-]{8,}"
    r"|[A-Za-z0-9._%+-]+@[A-Za-z0-9.-]+\.[A-Za-z]{2,}"
)


class Header(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """What a capture's text does not tell."""

    agent: str = ""
    title: str = ""
    width: int = 0
    height: int = 0
    blank: int = 0
    cursor: tuple[int, int] | None = None
    #: When it was made, with a time zone.
    at: datetime | None = None


def frame_of(text: str) -> Frame:
    """A saved pane as a frame, with a header or without; SGR sequences in it are kept beside the plain lines."""
    header, body = header_of(text)
    styled = clean_lines(body)
    lines = tuple(_SGR.sub("", line).rstrip() for line in styled)
    width = header.width or max(max((columns(line) for line in lines), default=0), 40)
    return Frame(
        lines,
        title=header.title,
        width=width,
        height=header.height or max(len(lines), 1),
        blank=header.blank,
        cursor=header.cursor,
        styled=styled if "\x1b[" in body else (),
    )


def header_of(text: str) -> tuple[Header, str]:
    """A capture's header, and what follows it. A header that is none is the pane's own first line."""
    first, _, rest = text.partition("\n")
    if first.startswith(MARK):
        try:
            header = msgspec.json.decode(first.removeprefix(MARK), type=Header)
        except msgspec.MsgspecError:
            return Header(), text
        return header, rest
    return Header(), text


def text_of(frame: Frame, agent: str, at: datetime, redact: Redactor) -> str:
    """A frame as the text of a capture, redacted."""
    header = Header(agent, redact(frame.title), frame.width, frame.height, frame.blank, frame.cursor, at)
    lines = frame.styled or frame.lines
    return "\n".join((MARK + msgspec.json.encode(header).decode(), redact("\n".join(lines)), ""))


class Redactor:
    """Takes secrets out of a text, row by row as a screen shows it.

    Args:
        environ: names and values of the member's environment; those whose names say so are secret.
        home: the user's home directory.
        named: values that are secret whatever they are called.
    """

    def __init__(self, environ: Iterable[tuple[str, str]], home: str, named: Iterable[str] = ()) -> None:
        values = {value for name, value in environ if _SECRET_NAME.search(name)} | set(named)
        self._values = sorted((value for value in values if len(value) >= SECRET_CHARS), key=len, reverse=True)
        self._home = home.rstrip("/")

    def __call__(self, text: str) -> str:
        for value in self._values:
            text = _without(value, text)
        if self._home:
            text = text.replace(self._home, "~")
        return _SECRETS.sub(REDACTED, text)


def _without(value: str, text: str) -> str:
    """The text with a value taken out where it stands, also across rows and styles; these stay."""
    pieces = _pieces(text)
    whole = "".join(text[start:end] for start, end in pieces)
    # Where each piece begins in the text that has nothing between them.
    at = [0, *accumulate(end - start for start, end in pieces)]

    def origin(index: int) -> int:
        piece = bisect_right(at, index) - 1
        return pieces[piece][0] + index - at[piece]

    found = whole.rfind(value)
    while found >= 0:
        begin, end = origin(found), origin(found + len(value) - 1) + 1
        text = text[:begin] + REDACTED + "".join(_KEPT.findall(text[begin:end])) + text[end:]
        found = whole.rfind(value, 0, found)
    return text


def _pieces(text: str) -> list[tuple[int, int]]:
    """Where a text has characters of its own: not the styles, and in no row what frames it."""
    pieces: list[tuple[int, int]] = []
    for row in re.finditer("[^\n]+", text):
        styles = [edge for style in _SGR.finditer(text, *row.span()) for edge in style.span()]
        edges = [row.start(), *styles, row.end()]
        runs = list(zip(edges[::2], edges[1::2], strict=True))
        solid = [index for index, (start, end) in enumerate(runs) if text[start:end].strip(_FRAME)]
        for index in range(solid[0], solid[-1] + 1) if solid else ():
            start, end = runs[index]
            if index == solid[0]:
                start = end - len(text[start:end].lstrip(_FRAME))
            if index == solid[-1]:
                end = start + len(text[start:end].rstrip(_FRAME))
            pieces.append((start, end))
    return pieces
