"""A pane's process, from the start of its shim to the end of everything below it.

A host prepares a :class:`Launch`, runs its ``argv`` in a terminal and waits for :meth:`Launch.started`. What the shim
needs to know goes through a file that only this user can read, so that neither the environment nor the arguments of a
program stand in a command line or in a terminal server's memory.

A process is named by its pid and its start time together: a pid alone may be somebody else's by now.
"""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import signal
import sys
from collections.abc import Iterable, Iterator
from json import dumps
from pathlib import Path
from typing import Final, NamedTuple

import trio

from actors.host import HostError, OpenFailed, PaneSpec
from fleetd.hosts import shim

log = logging.getLogger("fleetd.launch")

#: How long a program may take to start, in seconds.
START_S: Final = 10.0
#: Between two looks at a file or at a process that is on its way, in seconds.
LOOK_S: Final = 0.01
#: What a process tree is given after SIGHUP, after SIGTERM and after SIGKILL, in seconds.
STEPS: Final = ((signal.SIGHUP, 1.0), (signal.SIGTERM, 2.0), (signal.SIGKILL, 2.0))
#: What the shim is given to write down how its program ended, in seconds.
LAST_WORD_S: Final = 2.0


class Launch:
    """One program on its way into a pane: the shim's specification file and its status file."""

    def __init__(self, spec_path: Path, status_path: Path) -> None:
        self._spec_path, self._status_path = spec_path, status_path

    @classmethod
    def prepare(cls, directory: Path, spec: PaneSpec) -> Launch:
        """Write the specification into ``directory``, which is made when it is missing.

        Raises:
            OpenFailed: the specification cannot be run or cannot be written; nothing is left behind.
        """
        target = spec.target
        if not spec.argv:
            raise OpenFailed(f"{target} has no command: give its profile at least the program's name")
        if any("\0" in text for text in (*spec.argv, spec.cwd, *spec.env, *spec.env.values())):
            raise OpenFailed(f"{target} has a NUL in its command, environment or directory: a program cannot take one")
        directory = directory.absolute()
        name = f"{target}-{secrets.token_hex(8)}"
        launch = cls(directory / f"{name}.spec", directory / f"{name}.status")
        # The host says which terminal this is; whoever started the daemon had another one.
        env = {key: value for key, value in spec.env.items() if key != "TERM"}
        text = dumps(
            {
                "argv": [_find(spec.argv[0], env), *spec.argv[1:]],
                "env": env,
                "cwd": spec.cwd,
                "status": str(launch._status_path),
            }
        )
        try:
            private_directory(directory)
            write_private(launch._spec_path, text.encode())
        except OSError as exc:
            launch.discard()
            raise OpenFailed(f"{target} was not started: {exc.strerror}: {exc.filename}") from exc
        return launch

    @classmethod
    def resumed(cls, status: str) -> Launch:
        """The launch that writes to this status file: one that an earlier daemon began."""
        path = Path(status)
        return cls(path.with_suffix(".spec"), path)

    @property
    def status(self) -> str:
        """The path of the status file."""
        return str(self._status_path)

    @property
    def argv(self) -> list[str]:
        """What the terminal runs."""
        return [sys.executable, "-I", "-S", shim.__file__, str(self._spec_path)]

    async def started(self) -> None:
        """Wait until the program runs.

        Raises:
            OpenFailed: it could not be started, with the system's reason, or nothing was heard within 10 s.
        """
        with trio.move_on_after(START_S):
            while True:
                match self._status():
                    case ["failed", why]:
                        raise OpenFailed(f"the program could not be started: {why}")
                    case [_, _]:
                        return
                await trio.sleep(LOOK_S)
        raise OpenFailed(f"the program was not seen to start within {START_S:g} s; look at the machine's load")

    def ending(self) -> tuple[int | None, int | None]:
        """Exit status and signal, as far as the shim has written them down."""
        match self._status():
            case ["exited", number]:
                return int(number), None
            case ["killed", number]:
                return None, int(number)
        return None, None

    def discard(self) -> None:
        """Remove the files."""
        for path in (self._spec_path, self._status_path, Path(f"{self._status_path}.new")):
            path.unlink(missing_ok=True)

    def _status(self) -> list[str]:
        try:
            return self._status_path.read_text(encoding="utf-8").rstrip("\n").split(" ", 1)
        except FileNotFoundError:
            return []


def private_directory(directory: Path) -> None:
    """Make a directory of mode 0700, or see that nobody else can put files into the one that is there.

    Raises:
        PermissionError: it belongs to somebody else, or others may write to it.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise PermissionError(1, "not a private directory: others own it or may write to it", str(directory))


def write_private(path: Path, data: bytes) -> None:
    """Write a new file of mode 0600. Raises :class:`FileExistsError`, also where a link stands."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(path, flags, 0o600), "wb") as file:
        file.write(data)


def _find(program: str, env: dict[str, str]) -> str:
    """The program's path, looked up in its own PATH; the shim would look in the terminal's."""
    if "/" in program:
        return program
    path = env.get("PATH", os.defpath)
    found = shutil.which(program, path=path)
    if found is None:
        raise OpenFailed(f"{program} was not found in the program's PATH ({path}): install it or give its full path")
    return found


# -- processes ------------------------------------------------------------------------------------------------------


class _Stat(NamedTuple):
    pid: int
    state: str
    parent: int
    session: int
    started: int


def _stat(pid: int) -> _Stat | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    # The second field is the program's name in parentheses, and may hold spaces and parentheses of its own.
    fields = text[text.rindex(")") + 2 :].split()
    return _Stat(pid, fields[0], int(fields[1]), int(fields[3]), int(fields[19]))


def process_start(pid: int) -> int:
    """The process's start time in clock ticks since boot; 0 when there is no such process."""
    found = _stat(pid)
    return 0 if found is None else found.started


def runs(pid: int, started: int) -> bool:
    """Whether this very process still runs. One that waits to be reaped does not."""
    found = _stat(pid)
    return found is not None and found.started == started and found.state not in "ZX"


async def ended(pid: int, started: int) -> None:
    """Wait until this very process has ended, whoever its parent is."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if runs(pid, started):
            await trio.lowlevel.wait_readable(handle)
    finally:
        os.close(handle)


def send_signal(pid: int, started: int, number: signal.Signals) -> None:
    """Signal this very process, if it still runs: the handle is taken before the look, so it cannot be reused."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if runs(pid, started):
            signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        log.debug("process ended before its signal", extra={"fleet_pid": pid, "fleet_signal": int(number)})
    finally:
        os.close(handle)


def _everybody() -> Iterator[_Stat]:
    for name in os.listdir("/proc"):
        if name.isdigit() and (found := _stat(int(name))) is not None:
            yield found


def children(pid: int) -> set[tuple[int, int]]:
    """Pid and start time of each process that ``pid`` is the parent of."""
    return {(found.pid, found.started) for found in _everybody() if found.parent == pid}


def _below(root: int, started: int, known: Iterable[tuple[int, int]]) -> set[tuple[int, int]]:
    """Pid and start time of what runs below a pane's root: its descendants, those of ``known``, and its session.

    The session finds what the program left behind when it died. A session's number is not given away as long as one
    process is in it, so those that began after the root are the root's.
    """
    stats = [found for found in _everybody() if found.state not in "ZX"]
    by_pid = {found.pid: found for found in stats}
    family = {pid for pid, start in known if pid in by_pid and by_pid[pid].started == start}
    if root not in by_pid or by_pid[root].started == started:
        family |= {root} | {found.pid for found in stats if found.session == root and found.started >= started}
    grown = True
    while grown:
        children = {found.pid for found in stats if found.parent in family} - family
        family |= children
        grown = bool(children)
    return {(pid, by_pid[pid].started) for pid in family if pid in by_pid} - {(root, started)}


async def _all_ended(processes: Iterable[tuple[int, int]], within_s: float) -> None:
    with trio.move_on_after(within_s):
        async with trio.open_nursery() as nursery:
            for one in processes:
                nursery.start_soon(ended, *one)


async def end_tree(pid: int, started: int) -> None:
    """End the shim ``pid`` and everything below it: hang up, terminate, then kill. Usually at once, at most 11 s.

    The shim itself is signalled only when nothing is below it: it still has to write down how its program ended.

    Raises:
        HostError: processes remain that not even SIGKILL ends.
    """
    if not started:
        return
    root = {(pid, started)}
    tree: set[tuple[int, int]] = set()
    for number, patience_s in STEPS:
        tree = _below(pid, started, tree)
        targets = tree or root
        for one in targets:
            send_signal(*one, number)
        await _all_ended(targets, patience_s)
        tree = _below(pid, started, tree)
        if not tree:
            await _all_ended(root, LAST_WORD_S)
            if not runs(pid, started):
                return
    send_signal(pid, started, signal.SIGKILL)
    if tree:
        pids = ", ".join(str(one) for one, _ in sorted(tree))
        raise HostError(f"processes {pids} do not end, not even by SIGKILL: look at what they wait for in the kernel")
