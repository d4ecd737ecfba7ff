"""Who is at the other end: real processes with real parents, and what their ancestry says."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fleetd.peer
from fleetd.peer import (
    ANCESTRY_DEPTH,
    ForeignPeer,
    PeerGone,
    Process,
    ancestry,
    in_foreground,
    locate,
    parse_stat,
    peer_of,
    process_start,
    session_key,
    tmux_hints,
)

DEADLINE_S = 10.0


def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)


# -- the process tree ------------------------------------------------------------------------------------------------

#: Says who it is over the abstract socket that it is given, then lives until it is ended. ``how`` is what it does
#: first: each letter one step, so ``cs`` is a child that starts a session of its own.
TALKER = """
import os, socket, sys
name, how = sys.argv[1], sys.argv[2]
for step in how:
    if step == "c" and os.fork():          # a child; the parent stays
        os.wait(); sys.exit(0)
    if step == "f" and os.fork():          # a child; the parent goes
        os._exit(0)
    if step == "s":
        os.setsid()
    if step == "u":
        os.setresuid(54321, 54321, 54321)
    if step == "e":
        os.seteuid(54321)
sock = socket.socket(socket.AF_UNIX)
sock.connect(chr(0) + name)
if "e" in how:
    os.seteuid(0)
sock.sendall(str(os.getpid()).encode() + b"\\n")
sock.recv(1)
"""


class Tree:
    """Runs talkers and accepts what they connect."""

    def __init__(self) -> None:
        self._name = f"fleetd-test-{uuid.uuid4()}"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind("\0" + self._name)
        self._listener.listen()
        self._listener.settimeout(DEADLINE_S)
        self._open: list[socket.socket] = [self._listener]
        self._roots: list[subprocess.Popen[bytes]] = []

    def run(self, how: str, **options: object) -> tuple[subprocess.Popen[bytes], socket.socket, int]:
        """The talker's first process, its connection, and the pid that the talker says it has."""
        argv = [sys.executable, "-c", TALKER, self._name, how]
        root = subprocess.Popen(argv, **options)  # type: ignore[call-overload]
        self._roots.append(root)
        sock, _ = self._listener.accept()
        sock.settimeout(DEADLINE_S)
        self._open.append(sock)
        return root, sock, int(sock.makefile().readline())

    def close(self) -> None:
        for sock in self._open:
            sock.close()
        for root in self._roots:
            root.wait(DEADLINE_S)


@pytest.fixture
def tree() -> Iterator[Tree]:
    made = Tree()
    yield made
    made.close()


def key_of(pid: int) -> tuple[int, int]:
    started = process_start(pid)
    assert started is not None
    return pid, started


@pytest.mark.live
def test_a_child_and_a_grandchild_are_found_below_the_root_process(tree: Tree) -> None:
    for how in ("", "c", "cc", "cs", "csc"):
        root, sock, pid = tree.run(how)
        peer = peer_of(sock)
        assert (peer.pid, peer.uid, peer.gid) == (pid, os.geteuid(), os.getegid())
        chain = [process.pid for process in peer.ancestry]
        assert chain[0] == pid
        assert chain.index(root.pid) == how.count("c")
        assert os.getpid() in chain
        assert locate(peer.ancestry, {key_of(root.pid): "m-1"}) == "m-1"


@pytest.mark.live
def test_a_double_fork_is_nobody_s_child(tree: Tree) -> None:
    root, sock, _ = tree.run("fsf")
    started = key_of(root.pid) if process_start(root.pid) else (root.pid, 0)
    root.wait(DEADLINE_S)
    peer = peer_of(sock)
    assert root.pid not in [process.pid for process in peer.ancestry]
    assert locate(peer.ancestry, {started: "m-1", key_of(os.getpid()): "us"}) is None


@pytest.mark.live
def test_what_a_process_says_in_its_environment_changes_nothing(tree: Tree) -> None:
    root, sock, _ = tree.run("c", env={"FLEETD_MEMBER": "m-9", "FLEETD_LEAD": "lead-1", "TMUX_PANE": "%0"})
    assert locate(peer_of(sock).ancestry, {key_of(root.pid): "m-1"}) == "m-1"


@pytest.mark.live
def test_a_reused_pid_is_not_the_process_that_had_it(tree: Tree) -> None:
    root, sock, _ = tree.run("c")
    pid, started = key_of(root.pid)
    assert locate(peer_of(sock).ancestry, {(pid, started - 1): "m-1"}) is None


@pytest.mark.live
def test_a_peer_that_has_ended_is_refused(tree: Tree) -> None:
    root, sock, _ = tree.run("")
    root.kill()
    root.wait(DEADLINE_S)
    with pytest.raises(PeerGone):
        peer_of(sock)


@pytest.mark.live
def test_a_peer_that_ends_while_it_is_looked_at_is_refused(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's handle notices even where start times could not: here the ancestry is read as if all were well."""
    root, sock, pid = tree.run("")
    chain = ancestry(pid)

    def read_meanwhile(_: int) -> tuple[Process, ...]:
        root.kill()
        root.wait(DEADLINE_S)
        return chain

    monkeypatch.setattr(fleetd.peer, "ancestry", read_meanwhile)
    with pytest.raises(PeerGone):
        peer_of(sock)


@pytest.mark.live
def test_without_the_kernel_s_handle_the_start_times_decide(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleetd.peer, "SO_PEERPIDFD", 9999)
    root, sock, pid = tree.run("")
    assert peer_of(sock).ancestry[0].pid == pid
    root.kill()
    root.wait(DEADLINE_S)
    with pytest.raises(PeerGone):
        peer_of(sock)


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_s_process_is_refused(tree: Tree) -> None:
    _, sock, pid = tree.run("u")
    with pytest.raises(ForeignPeer, match="54321"):
        peer_of(sock)
    with pytest.raises(ForeignPeer, match="54321"):
        ancestry(pid)


@pytest.mark.live
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_a_peer_is_who_it_was_when_it_connected(tree: Tree) -> None:
    _, sock, pid = tree.run("e")
    assert ancestry(pid)
    with pytest.raises(ForeignPeer, match="54321"):
        peer_of(sock)


@pytest.mark.live
def test_no_descriptor_is_left_behind(tree: Tree) -> None:
    _, sock, _ = tree.run("c")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        peer_of(sock)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.live
def test_a_process_that_waits_to_be_collected_has_ended() -> None:
    child = subprocess.Popen(["sleep", "60"])
    assert process_start(child.pid) is not None
    child.kill()
    until(lambda: process_start(child.pid) is None)
    child.wait()
    assert process_start(child.pid) is None


@pytest.mark.live
def test_tmux_sockets_are_read_from_the_ancestors_nearest_first(tree: Tree) -> None:
    env = os.environ | {"TMUX": "/tmp/with,comma/default,123,0"}
    _, sock, pid = tree.run("c", env=env)
    assert tmux_hints(peer_of(sock).ancestry)[0] == "/tmp/with,comma/default"
    gone = msgspec.structs.replace(ancestry(pid)[0], pid=2**22 + 1)
    assert tmux_hints((gone,)) == ()


@pytest.mark.live
def test_a_tmux_variable_that_is_no_path_is_no_hint(tree: Tree) -> None:
    _, sock, _ = tree.run("", env={"TMUX": "default,1,0"})
    assert tmux_hints(peer_of(sock).ancestry[:1]) == ()


# -- real terminals --------------------------------------------------------------------------------------------------


@pytest.mark.live
def test_a_job_is_in_front_of_its_real_terminal_until_its_shell_has_it_back() -> None:
    shell, terminal = pty.fork()
    if not shell:
        os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
    children = Path(f"/proc/{shell}/task/{shell}/children")
    try:
        os.write(terminal, b"sleep 60\n")
        until(lambda: children.read_text() and process_start(int(children.read_text())))
        job = int(children.read_text())
        until(lambda: in_foreground(ancestry(job)))
        assert session_key(ancestry(job)) == ".".join(map(str, key_of(shell)))
        os.write(terminal, b"\x1a")
        until(lambda: ancestry(job)[0].state == "T" and os.tcgetpgrp(terminal) == shell)
        assert not in_foreground(ancestry(job))
        os.write(terminal, b"fg\n")
        until(lambda: in_foreground(ancestry(job)))
    finally:
        os.killpg(os.tcgetpgrp(terminal), signal.SIGKILL)
        os.kill(shell, signal.SIGKILL)
        os.waitpid(shell, 0)
        os.close(terminal)


# -- pure ------------------------------------------------------------------------------------------------------------


@given(st.binary(max_size=15).filter(lambda name: b"\0" not in name))
def test_a_program_s_name_cannot_upset_the_parser(name: bytes) -> None:
    fields = b"S 10 20 30 34816 40 " + b" ".join(b"%d" % n for n in range(100, 112)) + b" 0 777 1 2 3"
    process = parse_stat(b"42 (" + name + b") " + fields + b"\n")
    assert (process.pid, process.ppid, process.pgrp, process.session) == (42, 10, 20, 30)
    assert (process.tty_nr, process.tpgid, process.state) == (34816, 40, "S")
    assert process.comm == name.decode("utf-8", "replace")


def test_the_parser_agrees_with_the_kernel() -> None:
    mine = ancestry(os.getpid())[0]
    assert (mine.pid, mine.ppid, mine.pgrp, mine.session) == (os.getpid(), os.getppid(), os.getpgrp(), os.getsid(0))


TTY = 34816


def chain(*processes: tuple[int, str, dict[str, int]]) -> tuple[Process, ...]:
    """An ancestry, nearest first: pid, program and what differs from a service's child."""
    made = []
    for (pid, comm, own), above in zip(processes, [*processes[1:], (0, "", {})], strict=True):
        fields = {"session": 1, "tty_nr": 0, "pgrp": pid, "tpgid": -1} | own
        made.append(Process(pid=pid, started=pid * 10, ppid=above[0], comm=comm, **fields))  # type: ignore[arg-type]
    return tuple(made)


INIT = (1, "systemd", {"session": 1})
MANAGER = (900, "systemd", {"session": 900})


def seated(session: int, pgrp: int, front: int, tty: int = TTY) -> dict[str, int]:
    return {"session": session, "pgrp": pgrp, "tpgid": front, "tty_nr": tty}


def test_the_nearest_pane_wins() -> None:
    processes = chain((30, "helper", {}), (20, "agent", {}), (10, "shim", {}), INIT)
    assert locate(processes, {(20, 200): "m-2", (10, 100): "m-1"}) == "m-2"
    assert locate(processes, {(10, 100): "m-1"}) == "m-1"
    assert locate(processes, {(30, 300): "m-3"}) == "m-3"
    assert locate(processes, {(20, 201): "m-2"}) is None
    assert locate(processes, {}) is None


def test_one_terminal_s_session_is_one_key() -> None:
    shell = (10, "bash", seated(10, 10, 20))
    agent = (20, "claude", seated(10, 20, 20))
    bridge = (30, "python", seated(10, 20, 20))
    detached = (40, "python", {"session": 40})
    keys = {
        session_key(chain(bridge, agent, shell, INIT)),
        session_key(chain(detached, agent, shell, INIT)),
        session_key(chain((50, "fleetd", seated(10, 50, 50)), shell, INIT)),
    }
    assert keys == {"10.100"}


def test_two_terminals_are_two_keys() -> None:
    outer = (10, "bash", seated(10, 10, 20))
    inner = (20, "bash", seated(20, 20, 30, tty=TTY + 1))
    tool = (30, "fleetd", seated(20, 30, 30, tty=TTY + 1))
    assert session_key(chain(tool, inner, outer, INIT)) == "20.200"


def test_without_a_terminal_the_topmost_session_below_the_service_manager_is_the_key() -> None:
    editor = (10, "code", {"session": 10})
    window = (20, "node", {"session": 10})
    tool = (30, "python", {"session": 30})
    assert session_key(chain(tool, window, editor, MANAGER, INIT)) == "10.100"
    assert session_key(chain(window, editor, INIT)) == "10.100"


def test_a_process_that_hangs_from_the_service_manager_alone_is_its_own_key() -> None:
    assert session_key(chain((30, "python", {"session": 20}), MANAGER, INIT)) == "30.300"
    assert session_key(chain(INIT)) == "1.10"


def test_where_the_leader_is_no_ancestor_the_topmost_of_its_session_stands_for_it() -> None:
    assert session_key(chain((30, "b", seated(10, 20, 20)), (20, "a", seated(10, 20, 20)), INIT)) == "20.200"


BRIDGE, AGENT = (30, "python"), (20, "claude")


def front(*processes: tuple[tuple[int, str], dict[str, int]]) -> bool:
    return in_foreground(chain(*((pid, comm, own) for (pid, comm), own in processes)))


@pytest.mark.parametrize("own", [seated(10, 20, 20), seated(10, 30, 20), {"session": 30}])
def test_an_agent_in_its_shell_s_foreground_is_in_front_however_its_bridge_is_started(own: dict[str, int]) -> None:
    assert front((BRIDGE, own), (AGENT, seated(10, 20, 20)), ((10, "zsh"), seated(10, 10, 20)))


@pytest.mark.parametrize("own", [seated(20, 20, 20), seated(20, 30, 20), {"session": 30}])
def test_an_agent_that_is_its_terminal_s_first_process_is_in_front(own: dict[str, int]) -> None:
    assert front((BRIDGE, own), (AGENT, seated(20, 20, 20)))


def test_a_script_around_the_agent_is_no_shell_that_has_the_terminal_back() -> None:
    assert front((AGENT, seated(10, 10, 10)), ((10, "bash"), seated(10, 10, 10)))


@pytest.mark.parametrize("own", [seated(10, 20, 10), seated(10, 30, 10), {"session": 30}])
def test_an_agent_that_was_stopped_or_sent_to_the_background_is_not_in_front(own: dict[str, int]) -> None:
    assert not front((BRIDGE, own), (AGENT, seated(10, 20, 10)), ((10, "bash"), seated(10, 10, 10)))


def test_the_orphan_of_an_agent_that_has_ended_is_not_in_front() -> None:
    assert not in_foreground(chain((30, "python", seated(10, 20, 10)), INIT))


def test_an_agent_behind_another_program_is_not_in_front() -> None:
    assert not front((AGENT, seated(10, 20, 40)), ((10, "bash"), seated(10, 10, 40)))


def test_what_is_in_front_of_another_terminal_further_out_does_not_count() -> None:
    inner = TTY + 1
    assert not front(
        (AGENT, seated(15, 20, 99, inner)),
        ((15, "bash"), seated(15, 15, 99, inner)),
        ((12, "script"), seated(10, 12, 12)),
        ((10, "bash"), seated(10, 10, 12)),
    )


def test_without_a_terminal_nothing_is_in_front() -> None:
    assert not in_foreground(chain((20, "cron-job", {}), INIT))
    assert not in_foreground(())


def test_an_ancestry_has_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one that goes in a circle, which the kernel never shows."""
    real = fleetd.peer._look
    mine = os.getpid()

    def circle(pid: int) -> Process:
        return msgspec.structs.replace(real(mine), pid=pid, ppid=pid)

    monkeypatch.setattr(fleetd.peer, "_look", circle)
    assert len(ancestry(mine)) == ANCESTRY_DEPTH


def test_a_parent_that_changes_while_it_is_looked_up_is_looked_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The parent ends between two reads, and its pid is given to a process that stands above nobody."""
    child = Process(pid=30, started=300, ppid=20, session=1, tty_nr=0, pgrp=30)
    reads = {
        30: iter([child, *[msgspec.structs.replace(child, ppid=1)] * 3]),
        20: iter([Process(pid=20, started=999, ppid=1, session=1, tty_nr=0, pgrp=20)]),
        1: iter([Process(pid=1, started=1, ppid=0, session=1, tty_nr=0, pgrp=1)] * 2),
    }
    monkeypatch.setattr(fleetd.peer, "_look", lambda pid: next(reads[pid]))
    monkeypatch.setattr(fleetd.peer, "_uid", lambda _: os.geteuid())
    assert [process.pid for process in ancestry(30)] == [30, 1]


def test_a_child_that_is_another_process_on_the_second_read_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    child = Process(pid=30, started=300, ppid=20, session=1, tty_nr=0, pgrp=30)
    reads = {
        30: iter([child, msgspec.structs.replace(child, started=301)]),
        20: iter([Process(pid=20, started=200, ppid=1, session=1, tty_nr=0, pgrp=20)]),
    }
    monkeypatch.setattr(fleetd.peer, "_look", lambda pid: next(reads[pid]))
    monkeypatch.setattr(fleetd.peer, "_uid", lambda _: os.geteuid())
    with pytest.raises(PeerGone):
        ancestry(30)
