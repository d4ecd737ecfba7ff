"""How the demo agent draws: one story, its transcript, the live region below it, and a painter that redraws it.

The program (:mod:`fleetd.demo_agent`), the scripted agent of the memory host and the demo grammar all use the marks and
functions of this module, so what a test reads in memory is what a terminal shows. It imports next to nothing: the
program must be on the screen at once.

The screen is built as real agents build theirs. Finished blocks are printed once and scroll away; the region with the
input box is drawn over and over. Blocks start in column 0 with a mark of their own and go on indented by two, wrapped
to the terminal's width by the program itself, so no text that the agent quotes can stand in column 0.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from unicodedata import combining, east_asian_width

ECHO: Final = "> "
ANSWER: Final = "● "
TROUBLE: Final = "✗ "
DONE: Final = "— "
NOTE: Final = "· "
INDENT: Final = "  "

RULE: Final = "─"
BOX: Final = "❯ "
#: Shown dim in an empty input box: a suggestion, and nobody's draft.
HINT: Final = "Ask for something, or script it: demo: work 3; say hello"
BUSY: Final = "* "
RETRY: Final = "↻ "
QUESTION: Final = "Allow this command?"
CHOICES: Final = ("  1. Yes", "  2. No (esc)")
READY: Final = "  ready · /exit quits"
ARMED: Final = "  press ctrl-c again to exit"
BANNER: Final = "demo agent · a scripted stand-in for a coding agent, without an account"
INTERRUPTED: Final = "Interrupted"

OVERLOADED: Final = "API Error: 529 Overloaded (req_demo_0001)"
LIMIT: Final = "Usage limit reached · resets in 3h 20m"

#: Rows that the live region takes besides the draft's.
CHROME_ROWS: Final = 6
_SGR: Final = re.compile("\x1b\\[[0-9;]*m")


class Block(NamedTuple):
    """A finished piece of the transcript: its mark, and its text."""

    mark: str
    text: str


class Story:
    """What the agent has to show: finished blocks, and the state of the live region. Times are in seconds."""

    def __init__(self) -> None:
        self.blocks = [Block(NOTE, BANNER)]
        self.draft = ""
        #: What it is busy with (``Working``), since when; ``None`` at rest.
        self.doing: str | None = None
        self.since = 0.0
        #: The banner of a retry that it waits for.
        self.retrying = ""
        self.asking = False
        #: A first Ctrl-C has been pressed.
        self.armed = False

    @property
    def title(self) -> str:
        return f"demo: {'waiting' if self.asking else 'working' if self.doing else 'ready'}"

    def submit(self) -> str:
        """The draft becomes the next prompt."""
        prompt, self.draft = self.draft, ""
        self.blocks.append(Block(ECHO, prompt))
        return prompt

    def begin(self, label: str, now: float) -> None:
        """Be busy with something; the seconds count from the first."""
        if self.doing is None:
            self.since = now
        self.doing = label

    def say(self, text: str) -> None:
        self.blocks.append(Block(ANSWER, text))

    def trouble(self, text: str) -> None:
        """An error line: no answer block."""
        self.blocks.append(Block(TROUBLE, text))

    def retry(self, wait_s: int, attempt: int) -> None:
        self.retrying = f"{RETRY}529 Overloaded · retrying in {wait_s}s · attempt {attempt}/3"

    def rest(self, seconds: float) -> None:
        """The turn is over, well or badly: like real agents it says "done" in both cases."""
        self.blocks.append(Block(DONE, f"done in {int(seconds)}s"))
        self._at_rest()

    def interrupt(self) -> None:
        self.trouble(INTERRUPTED)
        self._at_rest()

    def _at_rest(self) -> None:
        self.doing, self.retrying, self.asking = None, "", False


def cells(text: str) -> int:
    """Terminal columns of a text."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(ch) else 2 if east_asian_width(ch) in "WF" else 1 for ch in text)


def plain(line: str) -> str:
    """A drawn line without its SGR sequences."""
    return _SGR.sub("", line)


def fold(text: str, room: int) -> list[str]:
    """One line of text hard-wrapped to ``room`` columns, at spaces where there are any."""
    folded: list[str] = []
    while True:
        if text.isascii() and len(text) <= room:
            return [*folded, text]
        cut = used = 0
        while cut < len(text) and (used := used + cells(text[cut])) <= room:
            cut += 1
        if cut == len(text):
            return [*folded, text]
        space = text.rfind(" ", 0, cut + 1)
        if space > len(text) - len(text.lstrip()):
            cut = space
        folded.append(text[:cut].rstrip())
        text = text[cut:].lstrip()


def rows(text: str, width: int) -> list[str]:
    """A text as rows that leave room for a mark or an indentation."""
    shown = "".join(ch for ch in text.expandtabs(4) if ch == "\n" or ch.isprintable())
    return [row for line in shown.split("\n") for row in fold(line, max(8, width - len(INDENT)))]


def block_lines(block: Block, width: int) -> list[str]:
    """A block as it is printed: its mark in column 0, the rest indented."""
    first, *others = rows(block.text, width)
    return [block.mark + first, *(INDENT + row for row in others)]


def transcript(story: Story, width: int, first: int = 0) -> list[str]:
    """The finished blocks from ``first`` on, an empty line behind each."""
    return [line for block in story.blocks[first:] for line in [*block_lines(block, width), ""]]


def region(story: Story, width: int, height: int, now: float) -> list[str]:
    """The live region: the dialog, or the input box between two rules and the footer. Lines carry their SGR."""
    rule = RULE * width
    if story.asking:
        return [rule, QUESTION, *CHOICES]
    if story.draft:
        first, *others = rows(story.draft, width)[-max(1, height - CHROME_ROWS) :]
        box = [BOX + first, *(INDENT + row for row in others)]
    else:
        box = [f"{BOX}\x1b[2m{HINT[: max(0, width - len(BOX))]}\x1b[0m"]
    if story.doing is not None:
        footer = [f"{BUSY}{story.doing}… ({int(now - story.since)}s · esc to interrupt)"]
        footer += [story.retrying] if story.retrying else []
    else:
        footer = [ARMED if story.armed else READY]
    return [rule, *box, rule, *(line[:width] for line in footer)]


class Painter:
    """Keeps a terminal in step with a story: what to write so that it shows the story as it is now."""

    def __init__(self) -> None:
        self._size: tuple[int, int] | None = None
        self._printed = 0
        self._region: list[str] = []
        #: The cursor's row within the region.
        self._row = 0
        self._title = ""

    def paint(self, story: Story, width: int, height: int, now: float) -> str:
        """The bytes, as text; empty when the terminal shows it already."""
        drawn = region(story, width, height, now)
        if self._size == (width, height) and self._printed == len(story.blocks) and drawn == self._region:
            return ""
        out = []
        if self._size == (width, height):
            out.append("\r" + (f"\x1b[{self._row}A" if self._row else "") + "\x1b[J")
        else:
            # Old lines were wrapped for another width: everything is printed again.
            out.append("\x1b[H\x1b[2J\x1b[3J")
            self._printed = 0
        out.extend(f"{line}\r\n" for line in transcript(story, width, self._printed))
        out.append("\r\n".join(drawn))
        self._row = len(drawn) - 1
        if not story.asking:
            # The cursor stands behind the draft, on the last row above the lower rule.
            self._row = max(index for index, line in enumerate(drawn) if line.startswith(RULE)) - 1
            column = cells(plain(drawn[self._row])) if story.draft else len(BOX)
            out.append(f"\r\x1b[{len(drawn) - 1 - self._row}A" + (f"\x1b[{column}C" if column else ""))
        if story.title != self._title:
            self._title = story.title
            out.append(f"\x1b]2;{self._title}\x07")
        self._size, self._printed, self._region = (width, height), len(story.blocks), drawn
        return "".join(out)
