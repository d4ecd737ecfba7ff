"""Daemons as processes: started as programs, or forked from one that has imported everything."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Final, Protocol

import trio

BENCH: Final = Path(__file__).resolve().parent
#: How long anything may take on a machine under load, in seconds.
PATIENCE_S: Final = 120.0
#: Between looks at something that will be there soon, in seconds.
LOOK_S: Final = 0.01


class Violation(Exception):
    """Something that must never happen has happened; the message says what."""


class Process(Protocol):
    """What a stage needs of a daemon's process; :class:`subprocess.Popen` has it."""

    @property
    def pid(self) -> int: ...

    def poll(self) -> int | None: ...

    def kill(self) -> None: ...

    def wait(self) -> int: ...


class Forker:
    """A process that has imported everything, and forks daemons one at a time; see ``killed_at.py``."""

    def __init__(self, errors: Path) -> None:
        argv = [sys.executable, str(BENCH / "killed_at.py"), "--forks", str(errors)]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def fork(self, arguments: Sequence[str]) -> Forked:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(arguments).encode() + b"\n")
        self._process.stdin.flush()
        return Forked(int(self._process.stdout.readline()), self._process.stdout)

    def close(self) -> None:
        """End; no daemon of its runs any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


class Forked:
    """A forked daemon; see :class:`Process`."""

    def __init__(self, pid: int, statuses: IO[bytes]) -> None:
        self.pid, self._statuses = pid, statuses
        self._pidfd = os.pidfd_open(pid)
        self._code: int | None = None

    def poll(self) -> int | None:
        ended = self._code is not None or select.select([self._pidfd], [], [], 0)[0]
        return self.wait() if ended else None

    def kill(self) -> None:
        if self.poll() is None:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def wait(self) -> int:
        if self._code is None:
            self._code = os.waitstatus_to_exitcode(int(self._statuses.readline()))
            os.close(self._pidfd)
        return self._code


class Life:
    """One process of the daemon."""

    def __init__(self, process: Process, started: float) -> None:
        self.process, self.started = process, started

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def ended(self) -> bool:
        return self.process.poll() is not None

    def kill(self) -> None:
        """``kill -9``."""
        self.process.kill()

    async def end(self) -> int:
        """Wait for its end; return its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while (code := self.process.poll()) is None:
            if time.monotonic() > deadline:
                raise Violation(f"the daemon (pid {self.pid}) does not end")
            await trio.sleep(LOOK_S)
        return code
