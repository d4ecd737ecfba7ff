"""``fleetd mcp``: the process that an agent starts as its MCP server.

It is in memory once for each agent, so it imports neither the protocol's SDK nor anything of the daemon's.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import trio

from fleetd.mcp.relay import Relay, Started
from fleetd.rundir import RuntimeDirError, check_runtime_dir

log = logging.getLogger("fleetd.bridge")

#: Between looks at the parent process, in seconds.
PARENT_S: Final = 1.0


def spawn_daemon(argv: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start a daemon in a session of its own, with none of our standard streams.

    Raises:
        OSError: there is no such program.
    """
    nothing = subprocess.DEVNULL
    return subprocess.Popen(argv, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True)


def run_bridge(socket_path: Path, start_daemon: Callable[[], Started]) -> int:
    """Carry the standard streams' lines to the daemon and back until the agent ends; return the exit status.

    Args:
        start_daemon: starts a daemon and returns at once (:func:`spawn_daemon`). Two bridges may do so at a time: the
            daemon's lock decides.
    """
    parent = os.getppid()
    source, sink = _claim_streams()
    trio.run(_run, socket_path, start_daemon, source, sink, parent)
    return 0


def _claim_streams() -> tuple[int, int]:
    """Take the standard streams for the protocol alone.

    What prints to standard output from now on, here or in a child, prints to standard error; what reads standard
    input reads nothing.
    """
    source, sink = (fcntl.fcntl(stream, fcntl.F_DUPFD_CLOEXEC, 3) for stream in (0, 1))
    nothing = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(nothing, 0)
    try:
        os.dup2(2, 1)
    except OSError:  # started without a standard error
        os.dup2(nothing, 1)
    os.close(nothing)
    return source, sink


async def _run(socket_path: Path, start_daemon: Callable[[], Started], source: int, sink: int, parent: int) -> None:
    async def dial() -> trio.SocketStream:
        try:
            check_runtime_dir(socket_path.parent)
        except RuntimeDirError as unsafe:
            raise ConnectionRefusedError(str(unsafe)) from None
        stream = await trio.open_unix_socket(socket_path)
        try:
            stream.socket.getpeername()
        except OSError:
            # A full backlog looks like success to Trio; requests would be "sent" into a socket that leads nowhere.
            await trio.aclose_forcefully(stream)
            raise
        return stream

    async with (
        trio.lowlevel.FdStream(source) as agent,
        trio.lowlevel.FdStream(sink) as reader,
        trio.open_nursery() as n,
    ):
        n.start_soon(_end_by_signal, n.cancel_scope)
        n.start_soon(_end_with_parent, parent, n.cancel_scope)
        await Relay(agent, reader, dial, start_daemon).run()
        n.cancel_scope.cancel()


async def _end_by_signal(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as signals:
        async for number in signals:
            log.debug("ending: signal %d", number)
            scope.cancel()


async def _end_with_parent(parent: int, scope: trio.CancelScope) -> None:
    """An agent that was killed may leave its end of the pipes open in some child of its own."""
    while True:
        await trio.sleep(PARENT_S)
        if os.getppid() != parent:
            log.warning("ending: the process that started this bridge has gone")
            scope.cancel()
