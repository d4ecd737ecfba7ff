"""The tmux host: members live in windows of a private tmux server, and go on living when the daemon ends.

All members are windows of one session. The root process of each pane is the shim (:mod:`fleetd.hosts.shim`), which
hides tmux from the program and writes down how it ended.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import trio
from trio_util import wait_any

from actors.host import HostError, OpenFailed, PaneEnded, PaneGone, PaneHost, PaneRef, PaneSpec
from actors.screen import Frame
from fleetd.hosts import tmux_commands
from fleetd.hosts.launch import Launch, end_tree, ended, process_start, runs
from fleetd.hosts.tmux_adoption import TAG, Tag, encode, opened, tagged
from fleetd.hosts.tmux_commands import NoServer, command, server_pid
from fleetd.hosts.tmux_control import CommandFailed, Control
from fleetd.hosts.tmux_endings import Life, Seat, how
from fleetd.hosts.tmux_server import SESSION, Server

log = logging.getLogger("fleetd.tmux")

#: Endings that may wait for their reader; more of them wait where they arose.
ENDINGS: Final = 256


class TmuxHost(PaneHost):
    """The private tmux server of one daemon.

    Args:
        directory: a directory of the daemon's own; the socket, the configuration and the panes' files stand there.
        tmux: the tmux program.
    """

    name = "tmux"
    outlives_daemon = True

    def __init__(self, directory: Path, *, tmux: str = "tmux") -> None:
        self._directory = directory.absolute()
        self._server = Server(self._directory, tmux)
        self._control = Control(self._server.client, self._server.socket, SESSION)
        self._nursery: trio.Nursery | None = None
        self._starting = trio.Lock()
        self._life: Life | None = None
        self._seats: dict[PaneRef, Seat] = {}
        self._tell, self._told = trio.open_memory_channel[PaneEnded](ENDINGS)

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled. The server starts with the first pane; it and its panes live on afterwards.

        Raises:
            HostError: tmux is missing or too old, or the directory cannot be used.
        """
        await self._server.check()
        try:
            async with trio.open_nursery() as nursery:
                await nursery.start(self._control.serve)
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = self._life = None

    # -- the protocol --------------------------------------------------------------------------------------------

    async def open(self, spec: PaneSpec) -> PaneRef:
        await self._serving()
        launch = Launch.prepare(self._directory / "panes", spec)
        try:
            seat = await self._new_window(spec, launch)
        except HostError as refused:
            launch.discard()
            raise OpenFailed(f"{spec.target} got no pane: {refused}") from refused
        runs_now = False
        try:
            await self._dress(seat, spec)
            await launch.started()
            nursery = self._running()
            runs_now = True
        except CommandFailed as refused:
            raise OpenFailed(f"{spec.target} got no pane: {refused}") from refused
        finally:
            if not runs_now:
                with trio.CancelScope(shield=True):
                    await self._undo(seat)
        self._seats[seat.pane] = seat
        nursery.start_soon(self._follow, seat)
        return seat.pane

    async def capture(self, panes: Sequence[PaneRef], *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        try:
            return await tmux_commands.capture(self._control, {pane: pane.id for pane in panes}, styled=styled)
        except NoServer:
            return {}

    async def paste(self, pane: PaneRef, text: str) -> None:
        try:
            await tmux_commands.paste(self._control, pane, pane.id, text, self._directory)
        except NoServer as gone:
            raise PaneGone(f"pane {pane.id} is gone: {gone}") from gone

    async def press(self, pane: PaneRef, *keys: str) -> None:
        try:
            await tmux_commands.press(self._control, pane, pane.id, keys)
        except NoServer as gone:
            raise PaneGone(f"pane {pane.id} is gone: {gone}") from gone

    async def leave_mode(self, pane: PaneRef) -> None:
        try:
            blocks = await self._control.batch([_if_same(pane, "copy-mode", "-q")])
        except NoServer as gone:
            raise PaneGone(f"pane {pane.id} is gone: {gone}") from gone
        if any(block.failed or block.text for block in blocks):
            raise PaneGone(f"pane {pane.id} is gone")

    async def close(self, pane: PaneRef) -> None:
        survivors: HostError | None = None
        try:
            await end_tree(pane.pid, pane.started)
        except HostError as exc:
            survivors = exc
        try:
            await self._control.batch([_if_same(pane, "kill-window")])
        except NoServer:
            log.debug("pane went with its server", extra={"fleet_pane": pane.id})
        self._seats.pop(pane, None)
        if survivors is not None:
            raise survivors

    def endings(self) -> AsyncIterator[PaneEnded]:
        return self._told

    async def adopt(self, pane: PaneRef, target: str) -> None:
        if not server_pid(self._server.socket):
            raise PaneGone(f"pane {pane.id} is gone: its tmux server has ended")
        await self._serving()
        life = self._life
        assert life is not None
        try:
            found = (await tagged(self._control)).get(pane.id)
        except NoServer as ended_now:
            raise PaneGone(f"pane {pane.id} is gone: {ended_now}") from ended_now
        if found is None or not found.is_pane(pane, target):
            raise PaneGone(f"pane {pane.id} is gone, or another one by now")
        seat = self._seats[pane] = Seat(pane, found.window, Launch.resumed(found.tag.status), life)
        self._running().start_soon(self._follow, seat)

    async def strangers(self) -> tuple[str, ...]:
        if not server_pid(self._server.socket):
            return ()
        await self._serving()
        ours = {pane.id for pane in self._seats}
        return tuple(target for id, target in (await opened(self._control)).items() if id not in ours)

    # -- beyond it -----------------------------------------------------------------------------------------------

    def attach_argv(self, pane: PaneRef) -> list[str]:
        """What a person's terminal executes to see the member and type to it; good for one use.

        It makes a session of its own over the same windows: which one it shows, and its status line, are its own. It
        does not resize anything, and it goes when the person detaches.

        Raises:
            PaneGone: the pane is none of this host's.
        """
        seat = self._seats.get(pane)
        if seat is None:
            raise PaneGone(f"pane {pane.id} is not open")
        view = f"view-{secrets.token_hex(4)}"
        settings = {
            "destroy-unattached": "on",
            "status": "on",
            "status-left-length": "60",
            "status-left": "fleetd: C-b d leaves this view, C-b [ scrolls   ",
            "status-right": "",
        }
        argv = [*self._server.client, "new-session", "-t", f"={SESSION}", "-s", view, "-f", "ignore-size"]
        for option, value in settings.items():
            argv += [";", "set-option", "-t", f"={view}:", option, value]
        return [*argv, ";", "select-window", "-t", f"={view}:{seat.window}"]

    async def kill_server(self) -> None:
        """End every process in every pane, then the server. Nothing lives on.

        Raises:
            HostError: a process does not end.
        """
        await self._server.kill()
        self._seats.clear()

    # -- one server life -----------------------------------------------------------------------------------------

    def _running(self) -> trio.Nursery:
        if self._nursery is None:
            raise HostError("the tmux host does not run: start it before it is used")
        return self._nursery

    async def _serving(self) -> None:
        """See that the server runs, and that it has its session: a person may have closed it."""
        async with self._starting:
            self._running()
            life = self._life
            if life is None or not runs(life.pid, life.started) or not self._control.connected:
                pid, started = await self._server.start()
                if life is None or (life.pid, life.started) != (pid, started):
                    nursery = self._running()
                    self._life = Life(pid, started)
                    nursery.start_soon(self._watch, self._life)
                    log.info("tmux server runs", extra={"fleet_server": pid})

    async def _watch(self, life: Life) -> None:
        await ended(life.pid, life.started)
        log.warning("tmux server ended", extra={"fleet_server": life.pid})
        life.died.set()

    # -- one pane ------------------------------------------------------------------------------------------------

    async def _new_window(self, spec: PaneSpec, launch: Launch) -> Seat:
        where = ["-d", "-t", f"={SESSION}:", "-n", spec.target, "-c", "/"]
        told = ["-P", "-F", "#{pane_id} #{window_id} #{pane_pid}"]
        # Once asked for, the window's address is waited for: without it the window could not be removed again.
        with trio.CancelScope(shield=True):
            blocks = await self._control.batch(
                [
                    command("set-option", "-t", f"={SESSION}:", "default-size", f"{spec.width}x{spec.height}"),
                    command("new-window", *where, *told, "--", *launch.argv),
                ]
            )
        made, life = blocks[-1], self._life
        if made.failed or life is None:
            raise CommandFailed(f"tmux made no window: {made.text}")
        pane_id, window, pid = made.text.split(" ")
        return Seat(PaneRef(self.name, pane_id, int(pid), process_start(int(pid))), window, launch, life)

    async def _dress(self, seat: Seat, spec: PaneSpec) -> None:
        """Hold the window's size whoever attaches, and tag the pane."""
        pane = seat.pane
        # This sets `window-size manual` for the one window.
        await self._control.run("resize-window", "-t", seat.window, "-x", str(spec.width), "-y", str(spec.height))
        tag = Tag(spec.target, pane.pid, pane.started, seat.launch.status)
        await self._control.run("set-option", "-p", "-t", pane.id, TAG, encode(tag))

    async def _undo(self, seat: Seat) -> None:
        """Leave nothing behind of a pane that was not opened."""
        try:
            await self.close(seat.pane)
        except HostError as broken:
            log.error("pane not removed", extra={"fleet_pane": seat.pane.id, "fleet_reason": str(broken)})
        seat.launch.discard()

    async def _follow(self, seat: Seat) -> None:
        """Wait for the end of a pane's process and tell it."""
        pane = seat.pane
        await wait_any(partial(ended, pane.pid, pane.started), seat.life.died.wait)
        status, number = await how(self._control, seat)
        seat.launch.discard()
        log.info("pane ended", extra={"fleet_pane": pane.id, "fleet_status": status, "fleet_signal": number})
        await self._tell.send(PaneEnded(pane, status, number))


def _if_same(pane: PaneRef, *action: str) -> str:
    """An action on the pane, unless its id has been given to another one by now: then it says so."""
    same = f"#{{==:#{{pane_pid}},{pane.pid}}}"
    other = command("display-message", "-p", "gone")
    return command("if-shell", "-F", "-t", pane.id, same, command(*action, "-t", pane.id), other)
