"""Colours as evidence: what of a captured line is drawn dim, and so is a program's suggestion and nobody's draft."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_SGR: Final = re.compile("\x1b\\[([0-9;:]*)m")
#: Parameters that follow the colour space of SGR 38 and 48.
_COLOUR: Final = {"5": 1, "2": 3}


def bright(styled: Sequence[str]) -> list[str]:
    """Lines without their dim text and their sequences. A terminal may carry an attribute on to the next line."""
    lines: list[str] = []
    faint = False
    for line in styled:
        kept, at = "", 0
        for found in _SGR.finditer(line):
            kept += "" if faint else line[at : found.start()]
            at, faint = found.end(), _faint(found[1], faint)
        lines.append(kept + ("" if faint else line[at:]))
    return lines


def _faint(parameters: str, faint: bool) -> bool:
    codes = iter(parameters.split(";"))
    for code in codes:
        if code in ("38", "48"):
            # A colour: its own parameters say nothing of faintness.
            for _ in range(_COLOUR.get(next(codes, ""), 0)):
                next(codes, "")
        elif code in ("", "0", "22"):
            faint = False
        elif code == "2":
            faint = True
    return faint
