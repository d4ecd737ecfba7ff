"""The embedded host: panes are pseudo-terminals of the daemon itself, for machines without tmux. They end with it.

How the child gets its terminal: a stub of one line calls ``os.login_tty`` and becomes the shim by ``exec``. That is
what ``setsid -c`` of util-linux does, and costs 10 ms more; but it is there wherever this Python is, and neither runs
Python between fork and exec (``preexec_fn``) nor needs a path to the terminal.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from actors.clock import now_ns
from actors.host import HostError, OpenFailed, PaneEnded, PaneGone, PaneHost, PaneRef, PaneSpec
from actors.screen import Frame
from fleetd.hosts.launch import Launch, end_tree
from fleetd.hosts.pty_pane import WRITE_S, Attachment, PtyPane, set_size
from fleetd.hosts.terminal import Terminal

log = logging.getLogger("fleetd.pty")

#: How long the last output is waited for when a program has ended, in seconds.
DRAIN_S: Final = 0.5
#: Endings that may wait for their reader; more of them wait where they arose.
ENDINGS: Final = 256

#: Makes standard input, a terminal, the one that controls a new session, and becomes the program behind it.
_LOGIN: Final = "import os, sys; os.login_tty(0); os.execv(sys.argv[1], sys.argv[1:])"
_TERMINAL: Final = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}


class PtyHost(PaneHost):
    """Pseudo-terminals of this process.

    Args:
        directory: a directory of the daemon's own, for the panes' files.
        patience_s: how long a program may take to read what is typed into it.
    """

    name = "pty"
    outlives_daemon = False

    def __init__(self, directory: Path, *, patience_s: float = WRITE_S) -> None:
        self._directory = directory
        self._patience_s = patience_s
        self._nursery: trio.Nursery | None = None
        self._ptys: dict[PaneRef, PtyPane] = {}
        self._tell, self._told = trio.open_memory_channel[PaneEnded](ENDINGS)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled, then end every pane."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = None
            with trio.CancelScope(shield=True):
                async with trio.open_nursery() as closing:
                    for pty in list(self._ptys.values()):
                        closing.start_soon(self._remove, pty)

    # -- the protocol --------------------------------------------------------------------------------------------

    async def open(self, spec: PaneSpec) -> PaneRef:
        self._serving()
        launch = Launch.prepare(self._directory / "panes", spec)
        pty: PtyPane | None = None
        runs_now = False
        try:
            pty = await self._start(spec, launch)
            self._ptys[pty.ref] = pty
            self._serving().start_soon(pty.read)
            await launch.started()
            self._serving().start_soon(self._follow, pty)
            runs_now = True
        except OSError as exc:
            raise OpenFailed(f"{spec.target} got no pane: {exc.strerror}") from exc
        finally:
            if not runs_now:
                with trio.CancelScope(shield=True):
                    if pty is not None:
                        await self._remove(pty)
                launch.discard()
        return pty.ref

    async def capture(self, panes: Sequence[PaneRef], *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        frames: dict[PaneRef, Frame] = {}
        for pane in panes:
            await trio.lowlevel.checkpoint()
            if pty := self._ptys.get(pane):
                terminal = pty.terminal
                width, height = terminal.size
                frames[pane] = Frame(
                    terminal.lines(),
                    at_ns=now_ns(),
                    title=terminal.title,
                    width=width,
                    height=height,
                    blank=terminal.blank(),
                    cursor=terminal.cursor(),
                    dead=pty.dead,
                    bracketed=terminal.bracketed,
                    styled=terminal.styled() if styled else (),
                )
        return frames

    async def paste(self, pane: PaneRef, text: str) -> None:
        pty = self._pty(pane)
        await pty.write(pty.terminal.pasted(text))

    async def press(self, pane: PaneRef, *keys: str) -> None:
        pty = self._pty(pane)
        try:
            data = b"".join(pty.terminal.key(key) for key in keys)
        except ValueError as unknown:
            raise HostError(f"nothing was pressed in pane {pane.id}: {unknown}") from None
        await pty.write(data)

    async def leave_mode(self, pane: PaneRef) -> None:
        """Nothing: a person who scrolls does so in a terminal of their own."""
        await trio.lowlevel.checkpoint()
        self._pty(pane)

    async def close(self, pane: PaneRef) -> None:
        await trio.lowlevel.checkpoint()
        if pty := self._ptys.get(pane):
            await self._end(pty)

    def endings(self) -> AsyncIterator[PaneEnded]:
        return self._told

    # -- beyond it -----------------------------------------------------------------------------------------------

    async def attach(self, pane: PaneRef) -> Attachment:
        """A person's terminal on this pane, beside any others.

        Raises:
            PaneGone: the pane is none of this host's.
        """
        await trio.lowlevel.checkpoint()
        return self._pty(pane).attach()

    # -- one pane ------------------------------------------------------------------------------------------------

    def _serving(self) -> trio.Nursery:
        if self._nursery is None:
            raise OpenFailed("the pty host does not run: start it before it is used")
        return self._nursery

    def _pty(self, pane: PaneRef) -> PtyPane:
        pty = self._ptys.get(pane)
        if pty is None:
            raise PaneGone(f"pane {pane.id} is gone")
        return pty

    async def _start(self, spec: PaneSpec, launch: Launch) -> PtyPane:
        master, slave = os.openpty()
        process: trio.Process | None = None
        try:
            terminal = Terminal(spec.width, spec.height)
            set_size(slave, *terminal.size)
            argv = [sys.executable, "-I", "-S", "-c", _LOGIN, *launch.argv]
            process = await trio.lowlevel.open_process(
                argv, stdin=slave, stdout=slave, stderr=slave, env=_TERMINAL, cwd="/"
            )
        finally:
            os.close(slave)
            if process is None:
                os.close(master)
        return PtyPane(launch, process, terminal, master, self._patience_s)

    async def _follow(self, pty: PtyPane) -> None:
        """Wait for the end of a pane's process and tell it."""
        await pty.process.wait()
        with trio.move_on_after(DRAIN_S):
            await pty.drained.wait()
        pty.dead = True
        status, number = pty.launch.ending()
        if status is None and number is None:
            # The shim did not come to its last word: it was killed itself.
            code = pty.process.returncode
            status, number = (None, -code) if code is not None and code < 0 else (code, None)
        pty.launch.discard()
        log.info("pane ended", extra={"fleet_pane": pty.ref.id, "fleet_status": status, "fleet_signal": number})
        await self._tell.send(PaneEnded(pty.ref, status, number))

    async def _end(self, pty: PtyPane) -> None:
        """End the processes, then the terminal.

        Raises:
            HostError: processes remain.
        """
        try:
            await end_tree(pty.ref.pid, pty.ref.started)
        finally:
            with trio.CancelScope(shield=True):
                with trio.move_on_after(DRAIN_S):
                    await pty.process.wait()
                self._ptys.pop(pty.ref, None)
                await pty.aclose()

    async def _remove(self, pty: PtyPane) -> None:
        """End a pane that nobody will be told about."""
        try:
            await self._end(pty)
        except HostError as broken:
            log.error("pane not removed", extra={"fleet_pane": pty.ref.id, "fleet_reason": str(broken)})
        pty.launch.discard()
