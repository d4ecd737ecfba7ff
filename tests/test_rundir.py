"""The runtime directory: who may be in it, who is its daemon, and where it listens."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from fleetd.peer import process_start
from fleetd.rundir import (
    LOCK_NAME,
    SOCKET_PATH_BYTES,
    AlreadyRunning,
    DaemonLock,
    RuntimeDirError,
    SocketPathTooLong,
    UnsafeRuntimeDir,
    bind_socket,
    check_runtime_dir,
    make_runtime_dir,
    runtime_dir,
    socket_path,
)

pytestmark = pytest.mark.live


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    make_runtime_dir(made)
    return made


# -- where it is -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("chosen", "environ", "expected"),
    [
        ("/a", {"FLEETD_RUNTIME_DIR": "/b", "XDG_RUNTIME_DIR": "/c"}, "/a"),
        (None, {"FLEETD_RUNTIME_DIR": "/b", "XDG_RUNTIME_DIR": "/c"}, "/b"),
        (None, {"XDG_RUNTIME_DIR": "/c"}, "/c/fleetd"),
        (None, {"XDG_RUNTIME_DIR": "relative"}, f"/tmp/fleetd-{os.geteuid()}"),
        (None, {"FLEETD_RUNTIME_DIR": "", "XDG_RUNTIME_DIR": ""}, f"/tmp/fleetd-{os.geteuid()}"),
        (None, {}, f"/tmp/fleetd-{os.geteuid()}"),
    ],
)
def test_the_runtime_directory_is_the_first_one_that_is_named(
    chosen: str | None, environ: dict[str, str], expected: str
) -> None:
    assert runtime_dir(chosen, environ) == Path(expected)


def test_a_relative_choice_is_relative_to_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert runtime_dir("run", {}) == tmp_path / "run"


# -- who may be in it ------------------------------------------------------------------------------------------------


def test_it_is_made_for_its_owner_alone(directory: Path) -> None:
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    make_runtime_dir(directory)


def test_one_that_lets_others_in_is_refused_with_the_command_that_helps(directory: Path) -> None:
    directory.chmod(0o750)
    with pytest.raises(UnsafeRuntimeDir, match=f"0750.*chmod 700 {directory}"):
        make_runtime_dir(directory)


def test_a_symbolic_link_is_refused_even_to_a_good_directory(directory: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(directory)
    with pytest.raises(UnsafeRuntimeDir, match="symbolic link"):
        make_runtime_dir(link)


def test_a_dangling_link_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(UnsafeRuntimeDir, match="symbolic link"):
        make_runtime_dir(link)
    assert not (tmp_path / "nothing").exists()


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "run").touch(mode=0o600)
    with pytest.raises(UnsafeRuntimeDir, match="not a directory"):
        make_runtime_dir(tmp_path / "run")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_one_of_somebody_else_is_refused(directory: Path) -> None:
    os.chown(directory, 12345, 12345)
    with pytest.raises(UnsafeRuntimeDir, match=r"belongs to user 12345.*--runtime-dir"):
        make_runtime_dir(directory)


def test_a_missing_parent_is_refused_with_the_command_that_helps(tmp_path: Path) -> None:
    with pytest.raises(RuntimeDirError, match=f"mkdir -p {tmp_path}/no"):
        make_runtime_dir(tmp_path / "no" / "run")


def test_a_client_that_finds_no_directory_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_runtime_dir(tmp_path / "run")


def test_a_path_that_no_socket_fits_is_refused_with_the_bound(tmp_path: Path) -> None:
    room = SOCKET_PATH_BYTES - len(os.fsencode(tmp_path)) - len("//fleetd.sock")
    make_runtime_dir(tmp_path / ("x" * room))
    with pytest.raises(SocketPathTooLong, match=f"{SOCKET_PATH_BYTES + 1} bytes.*{SOCKET_PATH_BYTES}"):
        make_runtime_dir(tmp_path / ("x" * (room + 1)))


async def test_the_longest_path_that_is_taken_can_be_bound_and_reached(tmp_path: Path) -> None:
    directory = tmp_path / ("x" * (SOCKET_PATH_BYTES - len(os.fsencode(tmp_path)) - len("//fleetd.sock")))
    make_runtime_dir(directory)
    async with bind_socket(directory):
        await (await trio.open_unix_socket(socket_path(directory))).aclose()


# -- who is its daemon -----------------------------------------------------------------------------------------------


def test_a_second_daemon_is_told_who_the_first_one_is(directory: Path) -> None:
    with DaemonLock(directory, "0.1.0"):
        with pytest.raises(AlreadyRunning, match=f"pid {os.getpid()}, since 20") as already, DaemonLock(directory, "2"):
            pass
        holder = already.value.holder
        assert holder is not None
        assert (holder.pid, holder.started, holder.version) == (os.getpid(), process_start(os.getpid()), "0.1.0")
    with DaemonLock(directory, "0.1.0"):
        pass


def test_the_lock_is_for_its_owner_alone_and_stays_behind(directory: Path) -> None:
    with DaemonLock(directory, "0.1.0"):
        assert stat.S_IMODE((directory / LOCK_NAME).stat().st_mode) == 0o600
    assert (directory / LOCK_NAME).exists()


def test_a_child_process_does_not_keep_the_lock(directory: Path) -> None:
    with DaemonLock(directory, "0.1.0"):
        child = subprocess.Popen(["sleep", "60"], close_fds=False)
    try:
        with DaemonLock(directory, "0.1.0"):
            pass
    finally:
        child.kill()
        child.wait()


def test_a_link_in_place_of_the_lock_is_refused_and_not_followed(directory: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (directory / LOCK_NAME).symlink_to(victim)
    with pytest.raises(UnsafeRuntimeDir, match=f"rm {directory / LOCK_NAME}"), DaemonLock(directory, "0.1.0"):
        pass
    assert victim.read_text() == "precious"


def test_the_note_of_a_daemon_that_was_killed_names_nobody(directory: Path) -> None:
    """The next daemon holds the lock already but has not written yet: the old note must not be believed."""
    (directory / LOCK_NAME).write_bytes(b'{"pid":1,"started":1,"since":"2020-01-01T00:00:00+00:00","version":"0"}')
    file = os.open(directory / LOCK_NAME, os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(AlreadyRunning, match="has not said yet") as already, DaemonLock(directory, "0.1.0"):
            pass
        assert already.value.holder is None
    finally:
        os.close(file)


# -- where it listens ------------------------------------------------------------------------------------------------


async def test_the_socket_answers_and_is_for_its_owner_alone(directory: Path) -> None:
    async with bind_socket(directory):
        mode = socket_path(directory).stat().st_mode
        assert stat.S_ISSOCK(mode)
        assert stat.S_IMODE(mode) == 0o600
        assert os.listdir(directory) == ["fleetd.sock"]
        await (await trio.open_unix_socket(socket_path(directory))).aclose()


def stale_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(path))


@pytest.mark.parametrize("make", [stale_socket, os.mkfifo, lambda path: path.touch()])
async def test_what_a_dead_daemon_left_is_no_obstacle(directory: Path, make: object) -> None:
    make(socket_path(directory))  # type: ignore[operator]
    stale_socket(directory / f".{os.getpid()}")
    async with bind_socket(directory) as listener, await trio.open_unix_socket(socket_path(directory)):
        await (await listener.accept()).aclose()


def test_a_directory_in_its_place_is_refused_and_nothing_is_left_behind(directory: Path) -> None:
    socket_path(directory).mkdir()
    with pytest.raises(RuntimeDirError, match=r"cannot listen on .*fleetd\.sock"):
        bind_socket(directory)
    assert [path.name for path in directory.iterdir()] == ["fleetd.sock"]


# -- the race --------------------------------------------------------------------------------------------------------

STARTER = """
import os, sys, trio
from pathlib import Path
from fleetd.rundir import AlreadyRunning, DaemonLock, bind_socket, make_runtime_dir

async def main(directory):
    make_runtime_dir(directory)
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        with DaemonLock(directory, "0"):
            async with bind_socket(directory) as listener:
                print("owner", flush=True)
                while True:
                    async with await listener.accept() as stream:
                        await stream.send_all(str(os.getpid()).encode())
    except AlreadyRunning as held:
        print("refused", held.holder.pid if held.holder else 0, flush=True)

trio.run(main, Path(sys.argv[1]))
"""


@pytest.fixture
def starters(tmp_path: Path) -> Iterator[list[subprocess.Popen[str]]]:
    argv = [sys.executable, "-c", STARTER, os.fspath(tmp_path / "run")]
    started = [
        subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) for _ in range(6)
    ]
    yield started
    for process in started:
        process.kill()
        process.communicate()


async def test_of_many_starters_one_owns_the_directory_and_the_others_know_it(
    starters: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    (tmp_path / "run").mkdir(mode=0o700)
    stale_socket(tmp_path / "run" / "fleetd.sock")
    lines = []
    for process in starters:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in starters:
        assert process.stdin is not None
        process.stdin.write("go\n")
    for process in starters:
        assert process.stdout is not None
        lines.append(process.stdout.readline().split())
    owners = [process for process, line in zip(starters, lines, strict=True) if line == ["owner"]]
    assert len(owners) == 1
    assert {line[1] for line in lines if line != ["owner"]} <= {str(owners[0].pid), "0"}
    async with await trio.open_unix_socket(tmp_path / "run" / "fleetd.sock") as stream:
        assert await stream.receive_some() == str(owners[0].pid).encode()


def test_the_lock_is_free_at_once_when_its_holder_is_killed(
    starters: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    first = starters[0]
    assert first.stdin is not None
    assert first.stdout is not None
    first.stdin.write("go\n")
    assert [first.stdout.readline(), first.stdout.readline()] == ["ready\n", "owner\n"]
    with pytest.raises(AlreadyRunning), DaemonLock(tmp_path / "run", "0"):
        pass
    first.send_signal(signal.SIGKILL)
    first.wait()
    with DaemonLock(tmp_path / "run", "0"):
        pass
