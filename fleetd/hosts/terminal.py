"""The embedded host's terminal: a program's bytes in; lines, modes, answers to its questions and the bytes of keys out.

The emulator is pyavt. It draws well and fast and knows nothing of titles, modes and queries, so a scanner in front of
it finds those few sequences. A read may cut a sequence anywhere: an unfinished one is held back until its rest comes,
from the emulator too, so that the cursor position in an answer is that of the query and not of the chunk.

pyavt keeps no scrollback here. It hands out each line that scrolls away, and the text is kept: a tenth of the memory,
and a capture need not convert two thousand lines again. So the scrollback has no colours; the screen has.

Why a lower bound on the size: pyavt panics on a screen of one column, and a panic in Rust is a BaseException that would
take the daemon with it. With two columns and more, 40,000 screens of random sequences and sizes raised none.
"""

from __future__ import annotations

import codecs
import re
from collections import deque
from typing import Final

# The package exports these names, but does not say so to type checkers.
from avt._avt import Color, Line, Pen, Vt

from actors.screen import FRAME_BYTES

#: Lines above the screen that are kept.
SCROLLBACK_LINES: Final = 2000
#: Columns and rows of a screen, at least and at most.
MIN_SIDE, MAX_SIDE = 2, 1000
#: Characters of one escape sequence that are waited for; what a longer one says is not noted.
SEQUENCE_CHARS: Final = 4096
#: Characters of a title.
TITLE_CHARS: Final = 512
#: Keyboard modes that a program may push; then the oldest is forgotten.
KEYBOARD_DEPTH: Final = 16

#: What the scanner acts on: some CSI, OSC, full reset.
_FOUND: Final = re.compile(
    r"\x1b(?:"
    r"\[(?P<mark>[?><=]?)(?P<params>[0-9;]*)(?P<final>\$p|[chlnuJ])"
    r"|\](?P<osc>[^\x07\x1b]*)(?P<end>\x07|\x1b\\)"
    r"|(?P<reset>c)"
    r")"
)
#: The beginning of a sequence whose rest has not come yet.
_UNFINISHED: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|\][^\x07\x1b]*\x1b?)?\Z")

#: DEC private modes that this terminal has, and their state after a reset.
_MODES: Final = {
    "1": False,
    "6": False,
    "7": True,
    "25": True,
    "47": False,
    "1047": False,
    "1049": False,
    "2004": False,
}
_PASTE: Final = "2004"
#: Light on dark, for programs that choose readable colours by it.
_COLOURS: Final = {"10": "rgb:dddd/dddd/dddd", "11": "rgb:1111/1111/1111"}

PASTE_START, PASTE_END = b"\x1b[200~", b"\x1b[201~"
#: Keys by their tmux names, where their bytes do not depend on a mode.
_KEYS: Final = {
    "Enter": "\r",
    "Tab": "\t",
    "BTab": "\x1b[Z",
    "Space": " ",
    "BSpace": "\x7f",
    "DC": "\x1b[3~",
    "PPage": "\x1b[5~",
    "NPage": "\x1b[6~",
}
#: Keys that send another sequence to a program that asked for "application" cursor keys.
_CURSOR_KEYS: Final = {"Up": "A", "Down": "B", "Right": "C", "Left": "D", "Home": "H", "End": "F"}
_APPLICATION: Final = "1"

_Pen = tuple[str, ...]


class Terminal:
    """One screen and its scrollback."""

    def __init__(self, width: int, height: int) -> None:
        self._vt = Vt(_side(width), _side(height), 0)
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._held = ""
        self._scrollback: deque[str] = deque(maxlen=SCROLLBACK_LINES)
        self._lines: tuple[str, ...] | None = None
        self._styled: tuple[str, ...] | None = None
        self.title = ""
        self._modes = dict(_MODES)
        self._keyboard = [0]

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        width, height = self._vt.size
        return width, height

    @property
    def bracketed(self) -> bool:
        """The program asked for bracketed paste."""
        return self._modes[_PASTE]

    # -- in ------------------------------------------------------------------------------------------------------

    def feed(self, data: bytes) -> tuple[str, bytes]:
        """Take output.

        Returns:
            What another terminal must be given to show the same, without the questions, which it would answer once
            more; and the answers, for the program's input.
        """
        text, self._held = self._held + self._decode(data), ""
        cut = _UNFINISHED.search(text, max(0, len(text) - SEQUENCE_CHARS))
        if cut is not None:
            text, self._held = text[: cut.start()], text[cut.start() :]
        shown: list[str] = []
        answers: list[str] = []
        drawn = passed = 0
        for found in _FOUND.finditer(text):
            self._draw(text[drawn : found.start()])
            drawn = found.start()
            answer = self._act(found)
            if answer is not None:
                answers.append(answer)
                shown.append(text[passed : found.start()])
                passed = found.end()
        self._draw(text[drawn:])
        shown.append(text[passed:])
        return "".join(shown), "".join(answers).encode()

    def resize(self, width: int, height: int) -> None:
        self._keep(self._vt.resize(_side(width), _side(height))[1])

    def _draw(self, text: str) -> None:
        self._keep(self._vt.feed_str(text)[1])

    def _keep(self, scrolled: list[Line]) -> None:
        self._scrollback.extend(line.text.rstrip() for line in scrolled)
        self._lines = self._styled = None

    def _act(self, found: re.Match[str]) -> str | None:
        """Note what a sequence says.

        Returns:
            The answer, where the sequence is between the program and this terminal only; ``None`` for all others.
        """
        if found["reset"]:
            self._modes, self._keyboard = dict(_MODES), [0]
            return None
        if (osc := found["osc"]) is not None:
            return self._osc(osc, found["end"])
        params = found["params"]
        match found["mark"], found["final"]:
            case "?", "h" | "l" as final:
                self._modes |= {mode: final == "h" for mode in params.split(";") if mode in self._modes}
            case "", "J" if params == "3":
                self._scrollback.clear()
            case "", "c" if params in ("", "0"):
                return "\x1b[?62;22c"
            case ">", "c" if params in ("", "0"):
                return "\x1b[>1;10;0c"
            case "", "n" if params == "5":
                return "\x1b[0n"
            case "" | "?" as mark, "n" if params == "6":
                cursor = self._vt.cursor
                return f"\x1b[{mark}{cursor.row + 1};{min(cursor.col + 1, self.size[0])}R"
            case "" | "?" as mark, "$p" if len(params) <= 5:
                known = self._modes.get(params) if mark else None
                return f"\x1b[{mark}{params};{0 if known is None else 1 if known else 2}$y"
            case "?", "u":
                return f"\x1b[?{self._keyboard[-1]}u"
            case ">" | "<" | "=" as mark, "u":
                self._set_keyboard(mark, params)
                return ""
        return None

    def _osc(self, text: str, end: str) -> str | None:
        kind, _, value = text.partition(";")
        if kind in ("0", "2"):
            self.title = "".join(ch for ch in value[:TITLE_CHARS] if ch.isprintable())
        elif kind in _COLOURS and value == "?":
            return f"\x1b]{kind};{_COLOURS[kind]}{end}"
        return None

    def _set_keyboard(self, mark: str, params: str) -> None:
        """Kitty's protocol: push, pop, set. Of its flags this terminal has the first."""
        first, _, how = params.partition(";")
        number = int(first[:4] or 0)
        top = self._keyboard[-1]
        if mark == ">":
            self._keyboard = [*self._keyboard, number & 1][-KEYBOARD_DEPTH:]
        elif mark == "<":
            self._keyboard = self._keyboard[: -max(1, number)] or [0]
        else:
            self._keyboard[-1] = {"2": top | number, "3": top & ~number}.get(how, number) & 1

    # -- out -----------------------------------------------------------------------------------------------------

    def lines(self) -> tuple[str, ...]:
        """Scrollback and screen as a frame keeps them: raw columns, no trailing blanks, the newest 256 KiB."""
        if self._lines is None:
            lines = [*self._scrollback, *(line.text.rstrip() for line in self._vt.view())]
            while lines and not lines[-1]:
                lines.pop()
            self._lines = tuple(lines[_first(lines) :])
        return self._lines

    def styled(self) -> tuple[str, ...]:
        """The same lines with the screen's SGR sequences, each line for itself."""
        if self._styled is None:
            lines = self.lines()
            rows = [_sgr(line) for line in self._vt.view()]
            rows = rows[: len(rows) - self.blank()][-len(lines) :] if lines else []
            self._styled = lines[: len(lines) - len(rows)] + tuple(rows)
        return self._styled

    def blank(self) -> int:
        """Rows at the bottom of the screen that show nothing."""
        rows = self._vt.view()
        return next((index for index, row in enumerate(reversed(rows)) if row.text.rstrip()), len(rows))

    def cursor(self) -> tuple[int, int]:
        """Its column and row, from 0."""
        at = self._vt.cursor
        return at.col, at.row

    def key(self, name: str) -> bytes:
        """What a key sends in the modes that the program asked for.

        Args:
            name: as tmux calls it, or one plain character.

        Raises:
            ValueError: no key is called so.
        """
        if name in _CURSOR_KEYS:
            return f"\x1b{'O' if self._modes[_APPLICATION] else '['}{_CURSOR_KEYS[name]}".encode()
        # With kitty's flag, keys that could be the start of a sequence have one of their own.
        plain = not self._keyboard[-1]
        if name == "Escape":
            return b"\x1b" if plain else b"\x1b[27u"
        if len(name) == 3 and name.startswith("C-") and name[2].isascii() and name[2].isalpha():
            code = ord(name[2].lower())
            return bytes([code & 0x1F]) if plain else f"\x1b[{code};5u".encode()
        text = _KEYS.get(name, name)
        if name not in _KEYS and not (len(text) == 1 and text.isprintable()):
            raise ValueError(f"no key is called {name!r}: give a tmux key name or one character")
        return text.encode()

    def pasted(self, text: str) -> bytes:
        """What a paste sends: newlines as Enter would, between brackets where the program asked for them."""
        data = text.replace("\n", "\r").encode("utf-8", "replace")
        return PASTE_START + data + PASTE_END if self.bracketed else data

    def snapshot(self) -> bytes:
        """What another terminal of this size must be given to show what this one shows."""
        # pyavt writes CSI as one C1 character, which many terminals do not take.
        drawn = "\x1b[H\x1b[2J" + self._vt.dump().replace("\x9b", "\x1b[")
        title = f"\x1b]2;{self.title}\x07" if self.title else ""
        return (drawn + ("\x1b[?2004h" if self.bracketed else "") + title).encode()


def _side(wanted: int) -> int:
    return max(MIN_SIDE, min(MAX_SIDE, wanted))


def _first(lines: list[str]) -> int:
    """Where the newest lines begin that fit into a frame."""
    room = FRAME_BYTES
    if 5 * sum(map(len, lines)) + len(lines) <= room:
        return 0
    first = len(lines)
    while first and (room := room - len(lines[first - 1].encode()) - 1) >= 0:
        first -= 1
    return first


def _sgr(line: Line) -> str:
    """A line's text with SGR sequences where its look changes, and a reset behind the last."""
    parts: list[str] = []
    cells = line.cells
    while cells and cells[-1].is_default():
        cells.pop()
    before: _Pen = ()
    for cell in cells:
        if not cell.width:
            continue  # the right half of a wide character
        look = _look(cell.pen)
        if look != before:
            parts.append(("\x1b[0m" if before else "") + (f"\x1b[{';'.join(look)}m" if look else ""))
            before = look
        parts.append(cell.char)
    return "".join(parts) + ("\x1b[0m" if before else "")


def _look(pen: Pen) -> _Pen:
    """A pen as SGR parameters; none for the default."""
    if pen.is_default():
        return ()
    flags = (pen.bold, pen.faint, pen.italic, pen.underline, pen.blink, pen.inverse, pen.strikethrough)
    codes = [code for code, on in zip("1234579", flags, strict=True) if on]
    return (*codes, *_colour("3", pen.foreground), *_colour("4", pen.background))


def _colour(kind: str, colour: Color | None) -> _Pen:
    """A foreground (``3``) or background (``4``) as SGR parameters."""
    if colour is None:
        return ()
    if isinstance(colour, Color.RGB):
        return (f"{kind}8", "2", *(str(colour[index]) for index in (0, 1, 2)))
    assert isinstance(colour, Color.Indexed)
    number = colour[0]
    if number < 8:
        return (f"{kind}{number}",)
    return (f"{int(kind) + 6}{number - 8}",) if number < 16 else (f"{kind}8", "5", str(number))
