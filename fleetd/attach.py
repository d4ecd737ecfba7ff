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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from fleetd.client import Client, Refusal, connect
from fleetd.jsonrpc import notification

#: Ctrl-\\ : no agent program uses it, and shells take it for "quit".
DETACH: Final = b"\x1c"


def attach(socket: Path, target: str) -> int:
    """Show the member until the person detaches or the member ends. Needs a terminal."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refusal("fleetd attach needs a terminal on standard input and output", {})
    argv = trio.run(_attach, socket, target)
    if argv:
        os.execvp(argv[0], argv)
    return 0


async def _attach(socket: Path, target: str) -> list[str]:
    """Attach over the door; or return the command that attaches instead."""
    async with connect(socket) as client:
        columns, rows = shutil.get_terminal_size()
        answer = await client.request("fleetd/attach", {"target": target, "columns": columns, "rows": rows})
        if answer["kind"] == "exec":
            return [str(word) for word in answer["argv"]]
        print(f"attached to {target}; Ctrl-\\ detaches\r")
        with _raw(sys.stdin.fileno()):
            _write(answer["screen"])
            await _relay(client)
        print("\r\ndetached")
        return []


async def _relay(client: Client) -> None:
    async with trio.open_nursery() as nursery:

        async def keys() -> None:
            async with trio.lowlevel.FdStream(os.dup(sys.stdin.fileno())) as terminal:
                async for data in terminal:
                    before, found, _ = bytes(data).partition(DETACH)
                    if before:
                        client.send(notification("fleetd/input", {"data": _encode(before)}))
                    if found:
                        break
            nursery.cancel_scope.cancel()

        async def size() -> None:
            with trio.open_signal_receiver(signal.SIGWINCH) as resized:
                async for _ in resized:
                    columns, rows = shutil.get_terminal_size()
                    client.send(notification("fleetd/resize", {"columns": columns, "rows": rows}))

        nursery.start_soon(keys)
        nursery.start_soon(size)
        while (message := await client.receive()) is not None:
            if message.get("method") == "fleetd/output":
                _write(message["params"]["data"])
        nursery.cancel_scope.cancel()


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
