"""How a pane's process ended.

That a process has ended is learnt from the process, through a handle that the kernel makes readable (``pidfd``): it
comes within milliseconds, costs nothing while nothing happens, and needs neither a subscription (up to 1 s late, and
lost with the client) nor a poll. *How* it ended is asked of the shim first, tmux second, tmux again after a SIGCHLD
third, because tmux before 3.6 misses that signal; else nobody knows. When the server itself dies, nobody knows either.
"""

from __future__ import annotations

import logging
import signal
from typing import Final

import trio

from actors.host import HostError, PaneRef
from fleetd.hosts.launch import Launch, runs, send_signal
from fleetd.hosts.tmux_blocks import TerminalLost
from fleetd.hosts.tmux_commands import NoServer
from fleetd.hosts.tmux_control import Control

log = logging.getLogger("fleetd.tmux")

#: How long tmux is asked how a process ended, in seconds.
HOW_S: Final = 1.0
#: Questions to a server whose client was lost.
ASKS: Final = 3
#: Between two questions to tmux that has not noticed yet, in seconds.
AGAIN_S: Final = 0.05


class Life:
    """A server process, as far as panes care: whether it has died."""

    def __init__(self, pid: int, started: int) -> None:
        self.pid, self.started = pid, started
        self.died = trio.Event()


class Seat:
    """A member's pane that this host has made."""

    def __init__(self, pane: PaneRef, window: str, launch: Launch, life: Life) -> None:
        self.pane, self.window, self.launch, self.life = pane, window, launch, life


async def how(control: Control, seat: Seat) -> tuple[int | None, int | None]:
    """Exit status and signal.

    tmux is asked even where the shim has told: its answer shows that the process did not die of its server's end.
    """
    told = seat.launch.ending()
    with trio.move_on_after(HOW_S):
        try:
            known = await _asked(control, seat)
            if told == known == (None, None):
                send_signal(seat.life.pid, seat.life.started, signal.SIGCHLD)
            while told == known == (None, None):
                await trio.sleep(AGAIN_S)
                known = await _asked(control, seat)
        except NoServer:
            return None, None
        return known if told == (None, None) and known is not None else told
    return told


async def _asked(control: Control, seat: Seat) -> tuple[int | None, int | None] | None:
    """What tmux knows: both ``None`` when it has not noticed; ``None`` when it has no such pane or does not answer.

    Raises:
        NoServer: the server that the pane was in has ended.
    """
    pane, life = seat.pane, seat.life
    words = ["display-message", "-p", "-t", pane.id, "#{pane_pid},#{pane_dead_status},#{pane_dead_signal}"]
    lines: list[str] = []
    for _ in range(ASKS):
        if not runs(life.pid, life.started):
            raise NoServer(f"the tmux server (pid {life.pid}) has ended")
        try:
            lines = await control.run(*words)
            break
        except TerminalLost:
            # A server that dies closes its clients before it is gone; the next question tells which it was.
            await trio.sleep(AGAIN_S)
        except NoServer:
            raise
        except HostError as broken:
            log.warning("ending not asked for", extra={"fleet_pane": pane.id, "fleet_reason": str(broken)})
            return None
    match "".join(lines).split(","):
        case [pid, status, number] if pid == str(pane.pid):
            return int(status) if status.isdigit() else None, int(number) if number.isdigit() else None
    return None
