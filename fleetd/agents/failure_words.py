"""What the words of a failure say, by an agent's own shipped patterns, in the classifier's order."""

from __future__ import annotations

from actors.classify import Kind
from actors.patterns import Pattern


class FailureWords:
    """One agent's patterns, for the texts that its program reports beside its screen.

    Args:
        name: what explanations call them: ``@claude``.
    """

    def __init__(self, name: str, *, exhausted: str, backend: str, auth: str, request: str) -> None:
        self._patterns = tuple(
            (kind, Pattern(text, name))
            for kind, text in (
                (Kind.EXHAUSTED, exhausted),
                (Kind.BACKEND_ERROR, backend),
                (Kind.AUTH, auth),
                (Kind.REQUEST, request),
            )
        )

    def kind(self, line: str) -> Kind | None:
        """The kind of failure that a line names; ``None`` where it names none that is known."""
        return next((kind for kind, pattern in self._patterns if pattern.matches(line)), None)
