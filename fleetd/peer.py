"""Who is at the other end of a socket: the kernel's word, never the peer's.

A process can put anything into its environment and its messages. What it cannot choose is the identifier that the
kernel notes when it connects, and the chain of parents above it. A member's helper is known as the member because the
member's pane stands in that chain; a process that has cut itself loose (a double fork) is known as nobody.

Process identifiers are used again, so each process is named by its identifier *and* its start time, and each link
of the chain is read twice: it counts when the child still has that start time and that parent afterwards.
"""

from __future__ import annotations

import errno
import logging
import os
import signal
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import msgspec

from actors.actor import Refused

log = logging.getLogger("fleetd.peer")

#: Processes in one ancestry.
ANCESTRY_DEPTH: Final = 64
#: Bytes read of one process's environment.
ENVIRON_BYTES: Final = 1024 * 1024
#: How often a link is read again while its child's parent changes.
LINK_READS: Final = 3

#: ``getsockopt`` for a descriptor of the peer's process; Python has no name for it. Linux 6.5 and later.
SO_PEERPIDFD: Final = 77

#: Programs that have the terminal back when the agent they started has stopped or gone to the background.
SHELLS: Final = frozenset(
    {"sh", "bash", "dash", "ash", "busybox", "zsh", "fish", "ksh", "ksh93", "mksh", "oksh", "yash", "csh", "tcsh"}
    | {"rc", "nu", "elvish", "xonsh", "pwsh"}
)
#: States of a process that has ended and whose parent has not looked yet.
ENDED: Final = frozenset({"Z", "X"})
#: A service manager leads a session of its own, which is nobody's.
SERVICE_MANAGERS: Final = frozenset({"systemd", "init"})


class PeerRefused(Refused):
    """The peer cannot be identified, or is not one that may call."""

    error = "not_allowed"


class ForeignPeer(PeerRefused):
    """The peer belongs to another user, or lives where its identifier means nothing to us."""


class PeerGone(PeerRefused):
    """The peer ended while it was looked at: its identifier may be somebody else's by now."""


class Process(msgspec.Struct, frozen=True):
    """One process, as /proc had it."""

    pid: int
    #: In clock ticks since boot. With ``pid`` it is never used again.
    started: int
    ppid: int
    #: Identifier of its session's leader.
    session: int
    #: Its controlling terminal; 0 for none.
    tty_nr: int
    pgrp: int
    #: The process group in the foreground of its terminal; -1 for none.
    tpgid: int = -1
    #: One letter, as in ``ps``.
    state: str = "S"
    #: The program's file name, cut to 15 bytes.
    comm: str = ""


class Peer(msgspec.Struct, frozen=True):
    """The process at the other end of a connection, and those above it."""

    pid: int
    uid: int
    gid: int
    #: The peer itself first.
    ancestry: tuple[Process, ...]


class HasSockopt(Protocol):
    """A socket of the standard library or of Trio."""

    def getsockopt(self, level: int, option: int, buffersize: int, /) -> bytes: ...


def peer_of(sock: HasSockopt) -> Peer:
    """Who is connected to this unix socket.

    Raises:
        ForeignPeer: another user's process, or one of another process namespace.
        PeerGone: it has ended meanwhile.
    """
    pid, uid, gid = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    if uid != os.geteuid():
        raise ForeignPeer(f"a process of user {uid} may not call the fleetd of user {os.geteuid()}: start its own")
    if pid <= 0:
        raise ForeignPeer("the caller lives in another process namespace, where fleetd cannot see who it is")
    handle = _peer_handle(sock)
    try:
        chain = ancestry(pid)
        if handle is not None:
            # Still the process that connected, so everything read until now was about it.
            signal.pidfd_send_signal(handle, 0)
    except ProcessLookupError:
        raise PeerGone(f"process {pid} ended before fleetd knew who it was") from None
    finally:
        if handle is not None:
            os.close(handle)
    return Peer(pid, uid, gid, chain)


def _peer_handle(sock: HasSockopt) -> int | None:
    """A descriptor that stands for the peer's process for ever; ``None`` where the kernel has none to give."""
    try:
        (handle,) = struct.unpack("i", sock.getsockopt(socket.SOL_SOCKET, SO_PEERPIDFD, struct.calcsize("i")))
    except OSError as exc:
        if exc.errno == errno.ENOPROTOOPT:
            return None
        raise PeerGone("the caller ended before fleetd knew who it was") from None
    assert isinstance(handle, int)
    return handle


# -- reading /proc ---------------------------------------------------------------------------------------------------


def parse_stat(stat: bytes) -> Process:
    """``/proc/PID/stat``. The name may hold anything, brackets and newlines too, so it ends at the last bracket."""
    opened, closed = stat.index(b"("), stat.rindex(b")")
    fields = stat[closed + 1 :].split()
    return Process(
        pid=int(stat[:opened]),
        started=int(fields[19]),
        ppid=int(fields[1]),
        session=int(fields[3]),
        tty_nr=int(fields[4]),
        pgrp=int(fields[2]),
        tpgid=int(fields[5]),
        state=fields[0].decode("ascii", "replace"),
        comm=stat[opened + 1 : closed].decode("utf-8", "replace"),
    )


def _look(pid: int) -> Process:
    """Raises :class:`ProcessLookupError` when there is no such process, or none that may be seen."""
    try:
        return parse_stat(Path(f"/proc/{pid}/stat").read_bytes())
    except (FileNotFoundError, PermissionError):
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}") from None


def process_start(pid: int) -> int | None:
    """When this process started, in clock ticks since boot; ``None`` when it has ended, collected or not."""
    try:
        found = _look(pid)
    except ProcessLookupError:
        return None
    return None if found.state in ENDED else found.started


def ancestry(pid: int) -> tuple[Process, ...]:
    """The process and those above it, itself first; at most :data:`ANCESTRY_DEPTH`.

    Raises:
        PeerGone: it does not exist any more.
        ForeignPeer: it belongs to another user. Its parents may: every login hangs below one of root's.
    """
    try:
        child = _look(pid)
        uid = _uid(pid)
        if uid != os.geteuid():
            raise ForeignPeer(f"process {pid} belongs to user {uid} and not to {os.geteuid()}")
        chain = [child]
        while child.ppid > 0 and len(chain) < ANCESTRY_DEPTH:
            parent = _parent(child)
            if parent is None:
                break
            chain.append(parent)
            child = parent
        again = _look(pid)
    except ProcessLookupError:
        again = None
    if again is None or again.started != chain[0].started:
        raise PeerGone(f"process {pid} ended before fleetd knew who it was")
    return tuple(chain)


def _uid(pid: int) -> int:
    """The effective user. Not the owner of its files in /proc, which is root for a process that forbids core dumps."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        raise ProcessLookupError(errno.ESRCH, f"no process {pid}") from None
    line = next(line for line in status.splitlines() if line.startswith(b"Uid:"))
    return int(line.split()[2])


def _parent(child: Process) -> Process | None:
    """The parent, with the link read again behind it; ``None`` where the chain ends.

    Raises:
        PeerGone: the child ended meanwhile: what stands above it cannot be known any more.
    """
    for _ in range(LINK_READS):
        parent: Process | None = None
        with suppress(ProcessLookupError):
            parent = _look(child.ppid)
        try:
            again = _look(child.pid)
        except ProcessLookupError:
            again = None
        if again is None or again.started != child.started:
            raise PeerGone(f"process {child.pid} ended before fleetd knew what stands above it")
        if again.ppid == child.ppid:
            return parent
        child = again
    raise PeerGone(f"the parent of process {child.pid} changed {LINK_READS} times while it was looked up")


def tmux_hints(ancestry: tuple[Process, ...]) -> tuple[str, ...]:
    """Socket paths of tmux servers that the processes say they run under, nearest first.

    Their environment is theirs to write: somebody has to ask that server whether the pane is really there.
    """
    hints: dict[str, None] = {}
    for value in started_with("TMUX", ancestry):
        # PATH,SERVER_PID,SESSION: only the path may hold commas.
        path = value.rsplit(",", 2)[0]
        if path.startswith("/"):
            hints[path] = None
    return tuple(hints)


def started_with(name: str, ancestry: Iterable[Process]) -> Iterator[str]:
    """The values of a variable in the environments that the processes were started with, nearest first."""
    begin = f"{name}=".encode()
    for process in ancestry:
        try:
            with open(f"/proc/{process.pid}/environ", "rb") as file:
                environ = file.read(ENVIRON_BYTES)
        except OSError as exc:
            log.debug("environment not read", extra={"fleet_pid": process.pid, "fleet_reason": str(exc)})
            continue
        yield from (os.fsdecode(entry[len(begin) :]) for entry in environ.split(b"\0") if entry.startswith(begin))


# -- what an ancestry says -------------------------------------------------------------------------------------------


def locate(ancestry: tuple[Process, ...], roots: Mapping[tuple[int, int], str]) -> str | None:
    """The target whose pane the process runs in: the nearest ancestor that is a pane's root process.

    Args:
        roots: pid and start time of each pane's root process, and its target.
    """
    return next((roots[key] for p in ancestry if (key := (p.pid, p.started)) in roots), None)


def session_key(ancestry: tuple[Process, ...]) -> str:
    """A name for the terminal session that the process belongs to, the same for all that is run in it.

    It is the leader of the nearest session that has a terminal; without one, the topmost session leader below the
    service manager. Where the leader is not an ancestor, the topmost ancestor that is in its session stands for it.
    """
    seated = next((p for p in ancestry if p.tty_nr), None)
    if seated is not None:
        leader = [p for p in ancestry if p.session == seated.session][-1]
    else:
        below = list(ancestry)
        while len(below) > 1 and (below[-1].pid == 1 or below[-1].comm in SERVICE_MANAGERS):
            below.pop()
        leader = ([p for p in below if p.pid == p.session] or below)[-1]
    return f"{leader.pid}.{leader.started}"


def in_foreground(ancestry: tuple[Process, ...]) -> bool:
    """Whether the terminal listens to the agent above this process, and not to the shell that started it.

    That is so when the nearest ancestor in the foreground of the nearest terminal is not a shell. Once the agent has
    stopped, ended or gone to the background, its shell is the one in the foreground: nothing may be typed into it.
    """
    terminal = next((p.tty_nr for p in ancestry if p.tty_nr), 0)
    front = (p for p in ancestry if terminal and p.tty_nr == terminal and p.pgrp == p.tpgid)
    nearest = next(front, None)
    return nearest is not None and nearest.comm not in SHELLS
