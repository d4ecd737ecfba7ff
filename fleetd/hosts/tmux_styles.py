"""Styled captures: what tmux says of colours, so that each line can be read by itself.

tmux writes a style where it begins, which may be some lines above. Here each line repeats what it inherits.
"""

from __future__ import annotations

import re
from typing import Final

from actors.screen import clean_lines

#: A style, or the beginning or end of a link.
_STYLE: Final = re.compile(r"\x1b(?:\[([0-9;:]*)m|\]8;[^\x07\x1b]*(?:\x07|\x1b\\))")
#: What a style sequence colours, by its first digit: 3x and 9x the text, 4x and 10x the ground.
_COLOURS: Final = {"3": "text", "9": "text", "4": "ground", "1": "ground"}
#: Back to the terminal's own colours.
_DEFAULTS: Final = (39, 49, 59)


def plain(shown: str) -> str:
    """A styled capture without its styles."""
    return _STYLE.sub("", shown)


def unstyle(shown: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The lines of a styled capture as a frame keeps them, and the same lines with their styles."""
    # Line drawing is bracketed by these two, and only in a styled capture.
    shown = shown.replace("\x0e", "").replace("\x0f", "")
    text = plain(shown)
    lines = clean_lines(text)
    end = text.rstrip().count("\n") + 1
    inherited: dict[str, str] = {}
    styled: list[str] = []
    for row in shown.split("\n")[:end]:
        styled.append("".join(inherited.values()) + row.rstrip() if inherited else row.rstrip())
        if "\x1b" in row:
            for found in _STYLE.finditer(row):
                if found[1] is not None:
                    _inherit(inherited, found[0], found[1])
    return lines, tuple(styled[end - len(lines) :])


def _inherit(inherited: dict[str, str], sequence: str, numbers: str) -> None:
    """Take one style sequence. A colour replaces the one before it, so a long screen inherits a short prefix."""
    if numbers in ("", "0"):
        inherited.clear()
        return
    first = int(re.split("[;:]", numbers, maxsplit=1)[0] or 0)
    if first == 0:
        inherited.clear()
    kind = "attributes" if first < 30 else _COLOURS.get(str(first)[0], "underline")
    if first in _DEFAULTS:
        inherited.pop(kind, None)
    elif kind != "attributes":
        inherited[kind] = sequence
    elif sequence not in inherited.get(kind, ""):
        inherited[kind] = inherited.get(kind, "") + sequence
