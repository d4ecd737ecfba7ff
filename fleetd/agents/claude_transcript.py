"""The transcript of Claude Code: what it shows of the turn that began last, and how that turn ended.

It is made of *items*. An item begins in column 0 with a glyph (``●`` or ``⏺``), or in column 2 with ``⎿`` where nothing
stands right above it: so the program draws what it has to say itself (a limit, a login). A ``⎿`` that does stand below
an item is the output of a tool, and may be anything. Behind its own ``⎿`` the program writes a no-break space, which a
quotation seldom has. The last item that is not a mere notice says how the turn ended: a failed turn has no answer, and
what stands above may be the answer of the turn before.

Newer versions say more. Behind a good turn, and only there, they print ``✻ Cooked for 10s · done 5:28 PM`` (older ones
print ``✻ Cooked for 10s`` behind failures too), and after a failure the empty input box shows a dim hint that asks to
resend the message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from actors.screen import Sent

_GLYPHS: Final = ("●", "⏺")
_ECHO: Final = re.compile(r"❯ (?!/rate-limit-options$)")
SPINNER: Final = r"[·✢✳✶✻✽∗*]"
#: The line of a running turn.
LIVE: Final = re.compile(
    rf"{SPINNER} (?:.*…(?: \(.*)?$|.*\bretrying in \d|.*\bwill retry in \d|Waiting for .+)", re.IGNORECASE
)
#: The line behind a turn.
_DONE: Final = re.compile(rf"{SPINNER} \S.* for (?:\d+[dhms] ?)+(?P<good>.*· done \d)?")
#: The program's logo, and boxes.
_ART: Final = re.compile(r"[ \u2500-\u259f]*[\u2500-\u259f]")
_VERSION: Final = "Claude Code v"
#: Says more of a limit that another item reports; on its own it is neither answer nor failure.
_NOTICE: Final = re.compile(r"[●⏺] (?:Usage limit reached ·|Automatic continue cancelled)")
#: Neither an answer nor a failure, and what stands above it is over.
_RESUMED: Final = re.compile(r"[●⏺] Usage limit reset · Continuing")
_DECLINED: Final = re.compile(r"[●⏺] (?:User declined|Declined) to answer ")
#: What the empty box asks for after a failure: the program's own word that the turn failed.
RESEND: Final = "Resend your message to try again"
ASKS: Final = (RESEND, "Once fixed, resend your message", "Run /rewind to go back")
#: A failure that the program offers to try again and that is not the backend's.
_TOO_LONG: Final = re.compile(r"[●⏺] API Error: Claude's response exceeded")


class Item(NamedTuple):
    #: Index of its first line in the scope.
    start: int
    lines: tuple[str, ...]

    @property
    def is_block(self) -> bool:
        """Drawn with a glyph in column 0."""
        return self.lines[0].startswith(_GLYPHS)

    @property
    def text(self) -> tuple[str, ...]:
        """Without the output of tools below it."""
        end = next((index for index, line in enumerate(self.lines) if index and _output(line)), len(self.lines))
        return self.lines[:end] if self.is_block else self.lines


class Turn(NamedTuple):
    """What the transcript shows of the turn that began last."""

    scope: tuple[str, ...]
    echoed: bool
    #: The text below the echo that no item begins.
    leading: tuple[str, ...] = ()
    items: tuple[Item, ...] = ()
    #: What every row of the program's own output starts with.
    own: str = ""

    @property
    def last(self) -> Item | None:
        """The item that says how the turn ended; ``None`` where there is none yet."""
        weighty = [item for item in self.items if not _NOTICE.match(item.lines[0])]
        return weighty[-1] if weighty and not _RESUMED.match(weighty[-1].lines[0]) else None

    @property
    def done(self) -> re.Match[str] | None:
        """The line that the program prints behind a turn, where nothing else follows it."""
        last = self.last
        below = self.scope[0 if last is None else last.start :]
        return next((found for line in reversed(below) if (found := _DONE.match(line))), None)

    @property
    def finished(self) -> bool:
        """The program says that the turn ended well."""
        done = self.done
        return done is not None and done["good"] is not None

    @property
    def interrupted(self) -> bool:
        last = self.last
        if last is None or self.done is not None:
            return False
        said = any(line.startswith(self.own) and _words(line).startswith("Interrupted") for line in last.lines)
        return said or _DECLINED.match(last.lines[0]) is not None

    @property
    def answer(self) -> tuple[int | None, str]:
        """Where the last answer block starts, and its text."""
        last = self.last
        if last is not None and last.is_block and not (len(last.lines) > 1 and _output(last.lines[1])):
            first, *others = last.lines
            return last.start, "\n".join([first[2:], *(line.removeprefix("  ") for line in others)]).strip("\n")
        if last is None and self.leading and not (self.echoed and self.done):
            return None, "\n".join(line.removeprefix("  ") for line in self.leading).strip("\n")
        return None, ""

    def judged(self, hint: str) -> tuple[str, ...]:
        """The lines in which failures are looked for; ``hint`` is what the empty box asks for."""
        if self.interrupted:
            return ()
        last = self.last
        lines = () if last is None else last.text
        notices = tuple(item.lines[0] for item in self.items if last is None or item.start > last.start)
        asks = () if not hint or (hint == RESEND and lines and _TOO_LONG.match(lines[0])) else (f"❯ {hint}",)
        return (*lines, *notices, *asks)


def turn_of(transcript: Sequence[str], sent: Sent | None) -> Turn:
    """The turn that began last in a transcript, which is that of ``sent`` where that is known."""
    own = "  ⎿ \xa0" if any("⎿ \xa0" in line for line in transcript) else "  ⎿"
    echo = next((index for index in range(len(transcript) - 1, -1, -1) if _ECHO.match(transcript[index])), None)
    begin = 0 if echo is None else echo + 1
    if echo is not None and sent is not None:
        begin += _echo_rows(transcript[echo:], sent.prompt)
    scope = tuple(transcript[begin:])
    starts = _starts(scope, own)
    return Turn(
        scope,
        echo is not None,
        leading=tuple(line for line in scope[: starts[0] if starts else len(scope)] if not _passes(line)),
        items=tuple(
            Item(start, _without_done(scope[start:end]))
            for start, end in zip(starts, [*starts[1:], len(scope)], strict=False)
        ),
        own=own,
    )


def _echo_rows(rows: Sequence[str], prompt: str) -> int:
    """How many rows of an echo follow its first, where it shows the whole prompt; else 0."""
    wanted, shown = "".join(prompt.split()), ""
    for index, row in enumerate(rows):
        shown += "".join(row[2:].split())
        if shown == wanted:
            return index
        if not wanted.startswith(shown):
            break
    return 0


def _starts(scope: Sequence[str], own: str) -> list[int]:
    """Where items begin."""
    art = next((index for index in range(len(scope) - 1, -1, -1) if _VERSION in scope[index]), -3)
    starts: list[int] = []
    free = True  # nothing stands right above
    for index, line in enumerate(scope):
        if index <= art + 2 or not line or _passes(line):
            free = True
            continue
        if not line.startswith((" ", ">", "❯")) or (free and line.startswith(own)):
            starts.append(index)
        free = False
    return starts


def _passes(line: str) -> bool:
    """Whether a line belongs to no item: a rule, a logo, a spinner, the line behind a turn."""
    return not line or bool(_ART.match(line) or LIVE.match(line) or _DONE.match(line))


def _without_done(lines: Sequence[str]) -> tuple[str, ...]:
    end = next((index for index, line in enumerate(lines) if line and not line.startswith(" ") and _passes(line)), None)
    return tuple(lines[:end])


def _output(line: str) -> bool:
    return line.startswith("  ⎿")


def _words(line: str) -> str:
    return line.strip().lstrip("⎿").strip()
