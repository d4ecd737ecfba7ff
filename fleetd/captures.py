"""A pane in a file: written by ``fleetd record``, read by ``fleetd replay``.

The first line is a header, JSON behind :data:`MARK`, with what the text alone does not tell; then the pane's lines with
their SGR sequences. A file without the header is any saved pane. What looks like a secret or names its user is taken
out when the capture is made: a capture is for a bug report.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

import msgspec

from actors.screen import Frame, clean_lines, columns

MARK: Final = "fleetd-capture: "
REDACTED: Final = "[redacted]"
#: Values of the environment shorter than this are too common to be taken out wherever they stand, in characters.
SECRET_CHARS: Final = 8
_SGR: Final = re.compile("\x1b\\[[0-9;:]*m")
_SECRET_NAME: Final = re.compile(r"(?i)key|token|secret|passw|auth|credential|cookie")
_SECRETS: Final = re.compile(
    r"(?:sk|pk|rk|ghp|gho|ghu|ghs|ghr|github_pat|glpat|xox[abpsr]|hf|gsk|npm|AKIA|ASIA|AIza|ya29)[-_.]?[A-Za-z0-9_.-]{12,}"
    r"|eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_.-]+"
    r"|(?i:bearer)\s+[A-Za-z0-9._~+/=-]{8,}"
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
    return "\n".join((MARK + msgspec.json.encode(header).decode(), *(redact(line) for line in lines), ""))


class Redactor:
    """Takes secrets out of a line.

    Args:
        environ: names and values of the member's environment; those whose names say so are secret.
        home: the user's home directory.
    """

    def __init__(self, environ: Iterable[tuple[str, str]], home: str) -> None:
        values = [value for name, value in environ if _SECRET_NAME.search(name) and len(value) >= SECRET_CHARS]
        self._values = sorted(values, key=len, reverse=True)
        self._home = home.rstrip("/")

    def __call__(self, line: str) -> str:
        for value in self._values:
            line = line.replace(value, REDACTED)
        if self._home:
            line = line.replace(self._home, "~")
        return _SECRETS.sub(REDACTED, line)
