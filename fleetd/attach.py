"""A person's terminal on a member's: ``fleetd attach``.

In tmux this process becomes a tmux client. With the embedded terminal the daemon sends what the pane prints over the
door, and this process passes keys on until Ctrl-\\ detaches it.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import sys
import termios
import tty
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from fleetd.client import Client, Refusal, connect

#: Ctrl-\\ : no agent program uses it, and shells take it for "quit".
DETACH: Final = b"\x1c"


def attach(socket: Path, target: str) -> int:
    """Show the member until the person detaches or the member ends. Needs a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refusal("fleetd attach needs a terminal on standard input and output", {})
    argv = trio.run(_attach, socket, target)
    if argv:
        os.execvp(argv[0], argv)  # noqa: S606  (this process becomes the tmux client)
    return 0


async def _attach(socket: Path, target: str) -> list[str]:
    """Attach over the door; or return the command that attaches instead."""
    async with connect(socket) as shown, connect(socket) as typed, trio.open_nursery() as nursery:
        columns, rows = shutil.get_terminal_size()
        size = {"target": target, "columns": columns, "rows": rows}
        with ExitStack() as terminal:
            async for message in shown.exchange("fleetd/attach", size):
                if message.get("method") == "fleetd/output":
                    params = message["params"]
                    if not nursery.child_tasks:
                        print(f"attached to {target}; Ctrl-\\ detaches")
                        terminal.enter_context(_raw(sys.stdin.fileno()))
                        nursery.start_soon(_type, typed, params["view"], nursery.cancel_scope)
                    _write(params["data"])
                elif message["result"]["kind"] == "exec":
                    return [str(word) for word in message["result"]["argv"]]
            nursery.cancel_scope.cancel()
        return []


async def _type(client: Client, view: str, detach: trio.CancelScope) -> None:
    """Pass on what the person types and the size of their terminal, until Ctrl-\\."""
    requests: deque[tuple[str, dict[str, Any]]] = deque()
    wake = trio.Event()

    async def keys() -> None:
        async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as terminal:
            async for data in terminal:
                before, found, _ = bytes(data).partition(DETACH)
                if before:
                    requests.append(("fleetd/input", {"view": view, "data": _encode(before)}))
                    wake.set()
                if found:
                    break
        detach.cancel()

    async def size() -> None:
        with trio.open_signal_receiver(signal.SIGWINCH) as resized:
            async for _ in resized:
                columns, rows = shutil.get_terminal_size()
                requests.append(("fleetd/resize", {"view": view, "columns": columns, "rows": rows}))
                wake.set()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(keys)
        nursery.start_soon(size)
        while True:
            await wake.wait()
            wake = trio.Event()
            while requests:
                await client.request(*requests.popleft())


def _encode(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _write(encoded: str) -> None:
    sys.stdout.buffer.write(base64.b64decode(encoded))
    sys.stdout.buffer.flush()


@contextmanager
def _raw(fd: int) -> Iterator[None]:
    """The person's terminal passes every key on, and is put back afterwards, screen modes too."""
    before: list[Any] = termios.tcgetattr(fd)
    os.write(fd, b"\x1b[?1049h")
    try:
        tty.setraw(fd)
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)
        os.write(fd, b"\x1b[?2004l\x1b[?1000l\x1b[?1006l\x1b[?25h\x1b[?1049l")
