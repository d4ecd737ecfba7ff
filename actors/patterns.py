"""Regular expressions that nobody can stall the daemon with.

Operators write patterns and members print what they are matched against, so both may be hostile or merely unlucky:
``(?s).*?API Error.*?529`` took 17 s on an ordinary pane with ``re`` and froze the loop from a thread too. RE2 takes
linear time, and refuses what it cannot do in it (lookaround, back-references) when the pattern is compiled.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Final

import msgspec
import re2

from actors.screen import logical_lines

#: The heuristic for profiles without an ``errorPattern``: it keeps an unedited configuration from showing a failed
#: turn as a finished one, and it is known to hit prose. Start-up reports it as degraded coverage.
LEGACY_ERROR_TEXT: Final = r"(?i)\bAPI Error\s*:"

#: A pattern that asks for the ends of the whole text, or that turns flags off.
_WHOLE: Final = re2.compile(r"\\[Az]|\(\?[a-zA-Z]*-")


class BadPattern(ValueError):
    """The text is not a regular expression that RE2 takes. The message says why, in one line."""


class Hit(msgspec.Struct, frozen=True):
    """Where a pattern matched."""

    #: The pattern's name for explanations: ``@claude``, ``errorPattern``, ``legacy``.
    pattern: str
    #: The line that matched, as the program drew it, joined with its continuations when only that matched.
    line: str


class Lines:
    """The lines that patterns are looked for in, prepared once for all of them.

    Args:
        lines: as the program drew them.
        width: columns of the pane, to join what the program wrapped.
    """

    def __init__(self, lines: Sequence[str], width: int) -> None:
        self.pairs = logical_lines(lines, width)
        self.text = "\n".join(lines)

    @cached_property
    def joined(self) -> str:
        """The lines that go on in others, each with its continuations."""
        return "\n".join(joined for raw, joined in self.pairs if joined is not raw)


class Pattern:
    """One compiled pattern.

    Args:
        text: the regular expression, in RE2's syntax.
        name: what explanations call it.

    Raises:
        BadPattern: RE2 does not take the text, or it matches the empty line and so every turn.
    """

    def __init__(self, text: str, name: str) -> None:
        options = re2.Options()
        options.log_errors = False
        try:
            self._compiled = re2.compile(text, options)
        except re2.error as exc:
            reason = exc.args[0] if exc.args else "not a regular expression"
            detail = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
            raise BadPattern(f"{detail} (patterns use RE2: no lookaround, no back-references)") from None
        if self._compiled.search(""):
            raise BadPattern("it matches the empty line, so every turn would match")
        #: Matches a text of many lines wherever the pattern matches one of them, and perhaps more; ``None`` where
        #: that cannot be had: the pattern asks for the text's own ends.
        self._any_line = None if _WHOLE.search(text) else re2.compile(f"(?m){text}", options)
        self.text = text
        self.name = name

    def __repr__(self) -> str:
        return f"<Pattern {self.name} {self.text!r}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Pattern) and (self.text, self.name) == (other.text, other.name)

    def __hash__(self) -> int:
        return hash((self.text, self.name))

    def matches(self, line: str) -> bool:
        """Whether the pattern matches anywhere in one line."""
        return self._compiled.search(line) is not None

    def find(self, lines: Lines) -> Hit | None:
        """The first line that matches: raw, joined with its continuations, or as part of the text as a whole."""
        if self._may_match(lines.text) or self._may_match(lines.joined):
            for raw, joined in lines.pairs:
                if self.matches(raw):
                    return Hit(self.name, raw)
                if joined is not raw and self.matches(joined):
                    return Hit(self.name, joined)
        found = self._compiled.search(lines.text)
        if found is None:
            return None
        return Hit(self.name, lines.text[found.start() : found.end()].replace("\n", " ")[:400])

    def _may_match(self, text: str) -> bool:
        """Whether a line of the text may match: one look at all of them instead of one at each."""
        return self._any_line is None or self._any_line.search(text) is not None


LEGACY_ERROR: Final = Pattern(LEGACY_ERROR_TEXT, "legacy")


class Patterns(msgspec.Struct, frozen=True):
    """What the classifier looks for on one profile's screens, in the order of ``actors.classify``."""

    exhausted: tuple[Pattern, ...] = ()
    error: tuple[Pattern, ...] = (LEGACY_ERROR,)
    auth: tuple[Pattern, ...] = ()
    request: tuple[Pattern, ...] = ()
    #: Any other line by which the program says that the turn failed.
    failed: tuple[Pattern, ...] = ()


#: For a resolver that nobody gave patterns.
LEGACY: Final = Patterns()
