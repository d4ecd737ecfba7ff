"""The runtime directory: where the daemon's socket and its lock live, and who may be in there.

The directory is the gate: only its owner gets through, so it is checked before anything in it is used, by clients
too. In it, the lock decides who is the daemon, and nothing else does. The lock is a file that is never removed (whoever
removed it could hold a lock that nobody else sees), and the kernel drops it with the process, however that ends.
The socket is bound under another name and renamed into place, so a stale one is no obstacle and a client that
connects always meets a daemon that listens.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Final

import msgspec
import trio

from fleetd.peer import process_start

#: Bytes of a unix socket's path that the kernel takes.
SOCKET_PATH_BYTES: Final = 107
#: Connections that may wait to be accepted.
BACKLOG: Final = 128
#: Bytes read of the lock's note about its holder.
NOTE_BYTES: Final = 4096

SOCKET_NAME: Final = "fleetd.sock"
LOCK_NAME: Final = "fleetd.lock"


class RuntimeDirError(Exception):
    """The runtime directory cannot be used; the message says what to run."""


class UnsafeRuntimeDir(RuntimeDirError):
    """Somebody else could get at it, or has made it."""


class SocketPathTooLong(RuntimeDirError):
    """The socket's path has more than :data:`SOCKET_PATH_BYTES` bytes."""


class AlreadyRunning(Exception):
    """Another daemon holds this runtime directory."""

    def __init__(self, directory: Path, holder: Holder | None) -> None:
        who = f"pid {holder.pid}, since {holder.since}" if holder else "it has not said yet who it is"
        super().__init__(f"a fleetd already runs for {directory} ({who}): use it, or end it with `fleetd down`")
        self.holder = holder


class Holder(msgspec.Struct, frozen=True):
    """What a daemon notes in its lock. For people to read: only the lock itself decides."""

    pid: int
    #: Start time of the process in clock ticks since boot: shows whether the note is about a process that lives.
    started: int
    #: The wall clock when it took the lock, ISO 8601.
    since: str
    version: str


def runtime_dir(chosen: str | None, environ: Mapping[str, str]) -> Path:
    """Where the runtime directory is: ``--runtime-dir`` or $FLEETD_RUNTIME_DIR, else the user's own, else in /tmp."""
    if chosen := chosen or environ.get("FLEETD_RUNTIME_DIR"):
        return Path(chosen).absolute()
    user = environ.get("XDG_RUNTIME_DIR", "")
    # A relative one is invalid by its own specification.
    return Path(user, "fleetd") if user.startswith("/") else Path(f"/tmp/fleetd-{os.geteuid()}")  # noqa: S108


def make_runtime_dir(directory: Path) -> None:
    """Make it where there is none, for its owner alone, and check it.

    Raises:
        RuntimeDirError: it cannot be made, or :func:`check_runtime_dir` refuses it.
    """
    try:
        with suppress(FileExistsError):  # whatever stands there is looked at below
            directory.mkdir(mode=0o700)
    except OSError as exc:
        raise RuntimeDirError(
            f"cannot make the runtime directory {directory}: {exc.strerror}; run `mkdir -p {directory.parent}`, "
            f"or choose another with --runtime-dir"
        ) from None
    check_runtime_dir(directory)


def check_runtime_dir(directory: Path) -> None:
    """Refuse a runtime directory that anybody but this user could have made or could write into.

    Raises:
        UnsafeRuntimeDir: it is a link or no directory, belongs to somebody else, or lets others in.
        SocketPathTooLong: the socket would not fit.
        FileNotFoundError: there is none.
    """
    found = os.lstat(directory)
    choose = "choose another with --runtime-dir"
    if stat.S_ISLNK(found.st_mode):
        raise UnsafeRuntimeDir(
            f"the runtime directory {directory} is a symbolic link: run `rm {directory}`, or {choose}"
        )
    if not stat.S_ISDIR(found.st_mode):
        raise UnsafeRuntimeDir(
            f"the runtime directory {directory} is not a directory: run `rm {directory}`, or {choose}"
        )
    if found.st_uid != os.geteuid():
        raise UnsafeRuntimeDir(
            f"the runtime directory {directory} belongs to user {found.st_uid} and not to {os.geteuid()}: {choose}"
        )
    if found.st_mode & 0o077:
        raise UnsafeRuntimeDir(
            f"the runtime directory {directory} lets others in (mode {stat.S_IMODE(found.st_mode):04o}): "
            f"run `chmod 700 {directory}`"
        )
    length = len(os.fsencode(socket_path(directory)))
    if length > SOCKET_PATH_BYTES:
        raise SocketPathTooLong(
            f"the socket's path {socket_path(directory)} has {length} bytes and may have {SOCKET_PATH_BYTES}: "
            f"choose a shorter one with --runtime-dir"
        )


def socket_path(directory: Path) -> Path:
    return directory / SOCKET_NAME


class DaemonLock:
    """The right to be this directory's daemon, while the context lasts or until the process ends.

    Raises:
        AlreadyRunning: another process has it. It says who.
        UnsafeRuntimeDir: the lock file is a link.
    """

    def __init__(self, directory: Path, version: str) -> None:
        self._directory = directory
        self._version = version
        self._file = -1

    def __enter__(self) -> DaemonLock:
        path = self._directory / LOCK_NAME
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            if exc.errno != errno.ELOOP:
                raise
            raise UnsafeRuntimeDir(f"the lock {path} is a symbolic link: run `rm {path}`") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _note(file, self._version)
        except BlockingIOError:
            holder = _holder(file)
            os.close(file)
            raise AlreadyRunning(self._directory, holder) from None
        except OSError:
            os.close(file)
            raise
        self._file = file
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.ftruncate(self._file, 0)
        os.close(self._file)
        self._file = -1


def _note(file: int, version: str) -> None:
    pid = os.getpid()
    since = datetime.now(UTC).isoformat(timespec="seconds")
    note = msgspec.json.encode(Holder(pid, process_start(pid) or 0, since, version)) + b"\n"
    os.pwrite(file, note, 0)
    os.ftruncate(file, len(note))


def _holder(file: int) -> Holder | None:
    """Who holds the lock. ``None`` while the note is still that of a daemon that has ended, or half written."""
    try:
        holder = msgspec.json.decode(os.pread(file, NOTE_BYTES, 0), type=Holder)
    except msgspec.MsgspecError:
        return None
    return holder if process_start(holder.pid) == holder.started else None


def bind_socket(directory: Path) -> trio.SocketListener:
    """Listen on the directory's socket, in place of whatever stood there. Only for who holds the lock.

    Raises:
        RuntimeDirError: something stands in its place that cannot be replaced.
    """
    path = socket_path(directory)
    # Not longer than the socket's own name, so that it fits where that fits.
    draft = directory / f".{os.getpid()}"
    draft.unlink(missing_ok=True)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(os.fspath(draft))
        draft.chmod(0o600)
        sock.listen(BACKLOG)
        draft.rename(path)
    except OSError as exc:
        sock.close()
        draft.unlink(missing_ok=True)
        raise RuntimeDirError(f"cannot listen on {path}: {exc.strerror}; look at what stands there") from None
    return trio.SocketListener(trio.socket.from_stdlib_socket(sock))
