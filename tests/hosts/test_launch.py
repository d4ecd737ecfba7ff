"""Processes are named by pid and start time, and their files are private."""

from __future__ import annotations

import os
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio

from actors.host import OpenFailed, PaneSpec
from fleetd.hosts.launch import Launch, end_tree, ended, process_start, runs, send_signal
from tests.hosts.contract import ENV, alive


@contextmanager
def sleeper(program: str = "sleep") -> Iterator[int]:
    with subprocess.Popen([program, "1000"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


@pytest.mark.live
def test_a_start_time_is_read_whatever_the_program_is_called(tmp_path: Path) -> None:
    before = process_start(os.getpid())
    odd = tmp_path / "a) Z 1 (b"
    shutil.copy(shutil.which("sleep") or "", odd)
    with sleeper(str(odd)) as pid:
        assert process_start(pid) > before > 0
        assert runs(pid, process_start(pid))


@pytest.mark.live
async def test_a_process_of_another_start_time_is_another_process() -> None:
    with sleeper() as pid:
        other = process_start(pid) - 1
        assert not runs(pid, other)
        with trio.fail_after(10):
            await ended(pid, other)
        send_signal(pid, other, signal.SIGKILL)
        await end_tree(pid, other)
        await end_tree(pid, 0)
        assert alive(pid)


@pytest.mark.live
def test_no_process_has_no_start_time() -> None:
    with sleeper() as pid:
        pass
    assert process_start(pid) == 0
    assert not runs(pid, 0)


@pytest.mark.live
async def test_a_process_that_waits_to_be_reaped_has_ended() -> None:
    with sleeper() as pid:
        started = process_start(pid)
        os.kill(pid, 9)
        with trio.fail_after(10):
            await ended(pid, started)
        assert not runs(pid, started)
        assert process_start(pid) == started, "it is still there"


def test_the_files_are_private_and_removed(tmp_path: Path) -> None:
    directory = tmp_path / "panes"
    launch = Launch.prepare(directory, PaneSpec("m-1", (sys.executable,), {**ENV, "SECRET": "sesame"}, "/"))
    (file,) = directory.iterdir()
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert not any("sesame" in word for word in launch.argv)
    launch.discard()
    assert list(directory.iterdir()) == []
    launch.discard()


def test_a_directory_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o770)
    with pytest.raises(OpenFailed, match="not a private directory"):
        Launch.prepare(tmp_path, PaneSpec("m-1", (sys.executable,), ENV, "/"))
    assert list(tmp_path.iterdir()) == []


def test_an_ending_is_unknown_until_it_is_written_down(tmp_path: Path) -> None:
    launch = Launch.prepare(tmp_path / "panes", PaneSpec("m-1", (sys.executable,), ENV, "/"))
    status = next((tmp_path / "panes").iterdir()).with_suffix(".status")
    for text, ending in (("started 12\n", (None, None)), ("exited 7\n", (7, None)), ("killed 9\n", (None, 9))):
        assert launch.ending() == (None, None)
        status.write_text(text)
        assert launch.ending() == ending
        status.unlink()
