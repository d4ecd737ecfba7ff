"""Starting the daemon in the background, and waiting until it answers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Final

import trio

from actors.supervise import leaf
from fleetd.client import NoDaemon, connect
from fleetd.rundir import make_runtime_dir, runtime_dir, socket_path

#: How long a daemon may take until it answers, in seconds.
START_S: Final = 20.0
LOOK_S: Final = 0.05


class StartFailed(Exception):
    """The daemon did not come up. The message is what it said."""


def start(directory: str | None, config: Path | None) -> dict[str, Any]:
    """Start a daemon that outlives this process; return its status once it answers.

    Raises:
        StartFailed: it ended, or did not answer in time.
        RuntimeDirError: there is no safe place for its socket.
    """
    run = runtime_dir(directory, os.environ)
    make_runtime_dir(run)
    said = run / "start.log"
    argv = [sys.executable, "-m", "fleetd", "--runtime-dir", str(run), "up", "--foreground"]
    if config is not None:
        argv += ["--config", str(config.absolute())]
    fd = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        # A session of its own: the terminal of whoever started it may close.
        daemon = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=fd, stderr=fd, start_new_session=True)
    finally:
        os.close(fd)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if (code := daemon.poll()) is not None:
            words = said.read_text(encoding="utf-8", errors="replace").strip()
            raise StartFailed(words.removeprefix("fleetd: ") or f"the daemon ended with exit code {code}")
        try:
            status = trio.run(_status, socket_path(run))
        except (NoDaemon, ExceptionGroup) as none:
            # One that dies while it is asked leaves its error inside the client's nursery.
            if not isinstance(leaf(none), NoDaemon):
                raise
            time.sleep(LOOK_S)
            continue
        if status["pid"] == daemon.pid:
            return status
        time.sleep(LOOK_S)
    daemon.terminate()
    raise StartFailed(f"the daemon did not answer within {START_S:g} s: see {said}")


async def _status(socket: Path) -> dict[str, Any]:
    async with connect(socket) as client:
        status: dict[str, Any] = await client.request("fleetd/status")
        return status
