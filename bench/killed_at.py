"""A daemon that dies at one of its journal's writes, as ``kill -9`` has it.

    python bench/killed_at.py before|after|MICROSECONDS N ARGUMENT...
    python bench/killed_at.py --forks ERRORS

It is ``fleetd ARGUMENT...``, and kills itself before its Nth write, behind it (before anybody can have heard of it), or
so many microseconds into it. The daemon itself has no hook for this: its store is wrapped from outside.

With ``--forks`` it imports everything once and forks a daemon for each line on standard input (a JSON list of those
arguments, or of ``fleetd``'s alone), because a thousand starts of Python are mostly imports. It answers with the pid,
and with the exit status when that process has ended. What daemons say goes to the file ERRORS.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import signal
import sys
import threading
from collections.abc import Sequence

from actors.journal import Entry
from fleetd.cli import main
from fleetd.store import SqliteStore


def arm(when: str, number: int) -> None:
    """Have this process die at its ``number``-th write that writes something."""
    real, written = SqliteStore.write, 0

    async def write(self: SqliteStore, entries: Sequence[Entry]) -> None:
        nonlocal written
        written += bool(entries)
        now = bool(entries) and written == number
        if now and when == "before":
            die()
        if now and when.isdigit():
            threading.Timer(int(when) / 1e6, die).start()
        await real(self, entries)
        if now and when == "after":
            die()

    SqliteStore.write = write  # type: ignore[method-assign]


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def serve(argv: Sequence[str]) -> int:
    """Be the daemon that these arguments ask for."""
    if argv[0] in ("before", "after") or argv[0].isdigit():
        arm(argv[0], int(argv[1]))
        argv = argv[2:]
    return main(argv)


def forks(errors: str) -> None:
    """Fork a daemon for each line, one at a time."""
    # The daemon, and what it imports beside its work.
    for module in ("fleetd.daemon", "fleetd.mcp.session"):
        importlib.import_module(module)
    gc.freeze()
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            said = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            os.dup2(said, 1)
            os.dup2(said, 2)
            sys.exit(serve(json.loads(line)))
        print(pid, flush=True)
        print(os.waitpid(pid, 0)[1], flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "--forks":
        forks(sys.argv[2])
    else:
        sys.exit(serve(sys.argv[1:]))
