"""What the actors need from a terminal: the pane host's protocol.

Three hosts speak it: tmux, an embedded pty, and memory (scripted screens and recorded keystrokes, for tests). One
contract suite, ``tests/hosts/contract.py``, is run against each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

import msgspec

from actors.screen import Frame


class HostError(Exception):
    """The terminal could not do what was asked. Never a statement about the member: a tmux error is not a dead pane."""


class PaneGone(HostError):
    """The pane does not exist any more, and the host is sure of it."""


class PaneDead(HostError):
    """The pane still stands but its process has ended: nothing can be typed."""


class PaneInMode(HostError):
    """A person scrolls in the pane (copy mode): what is typed would not reach the program."""


class OpenFailed(HostError):
    """The program could not be started; the message says why (not found, no such directory, no permission)."""


class PaneSpec(msgspec.Struct, frozen=True):
    """A program to start in a new pane."""

    #: The member's target, or another identifier of ``[a-z0-9-]``; the host tags the pane with it.
    target: str
    #: Never a shell string.
    argv: tuple[str, ...]
    #: The program's whole environment, but for TERM, which the host sets.
    env: Mapping[str, str]
    cwd: str
    width: int = 160
    height: int = 60


class PaneRef(msgspec.Struct, frozen=True):
    """The address of a pane, and the process that the kernel knows it by."""

    host: str
    id: str
    #: The pane's root process and its start time in clock ticks since boot, from /proc: together never reused.
    pid: int = 0
    started: int = 0


class PaneEnded(msgspec.Struct, frozen=True):
    """A pane's process has ended. Told once per pane."""

    pane: PaneRef
    #: Exit status, or the signal that ended it; both ``None`` where nobody knows (the terminal server has died).
    status: int | None = None
    signal: int | None = None

    def how(self) -> str:
        if self.signal is not None:
            return f"its process was ended by signal {self.signal}"
        if self.status is not None:
            return f"its process exited with status {self.status}"
        return "its pane is gone and nobody can say how its process ended"


class PaneHost(Protocol):
    """A terminal that holds panes. Every method may raise :class:`HostError`; none of them blocks the loop."""

    #: ``tmux``, ``pty`` or ``memory``.
    name: str
    #: Whether panes live on when the daemon ends.
    outlives_daemon: bool

    async def open(self, spec: PaneSpec) -> PaneRef:
        """Start a program in a new pane; return when its process runs.

        Raises:
            OpenFailed: it could not be started. No pane is left behind.
        """
        ...

    async def capture(self, panes: Sequence[PaneRef], *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        """What the panes show now, in one go. Panes that are gone are absent."""
        ...

    async def paste(self, pane: PaneRef, text: str) -> None:
        """Insert text as a paste (bracketed where the program asked for it). Submits nothing.

        ``text`` holds no control characters but newline and tab: the caller has cleaned it.

        Raises:
            PaneGone, PaneDead, PaneInMode: nothing was pasted.
        """
        ...

    async def press(self, pane: PaneRef, *keys: str) -> None:
        """Press keys by their tmux names: ``Enter``, ``Escape``, ``C-c``, ``C-u``.

        Raises:
            PaneGone, PaneDead, PaneInMode: nothing was pressed.
        """
        ...

    async def leave_mode(self, pane: PaneRef) -> None:
        """End a person's copy mode. For members only; never for a lead's pane."""
        ...

    async def close(self, pane: PaneRef) -> None:
        """End the pane and every process below it: hang up, terminate, then kill. Idempotent."""
        ...

    def endings(self) -> AsyncIterator[PaneEnded]:
        """Each pane's end, once, as it happens. One reader."""
        ...

    async def adopt(self, pane: PaneRef, target: str) -> None:
        """Take over a pane that an earlier daemon opened for this target; from then on it is as one of our own.

        Its process may have ended meanwhile: then its end is told as any other.

        Raises:
            PaneGone: there is no such pane any more, or it is another one by now: it is left alone.
        """
        raise PaneGone(f"pane {pane.id} ended with the daemon that opened it")

    async def strangers(self) -> tuple[str, ...]:
        """Targets of panes that an earlier daemon opened and that nobody has adopted."""
        return ()
