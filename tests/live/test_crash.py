"""Crashes of everything that can crash: small versions of the long runs in ``bench/``, and starts that are refused."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
import trio

from actors.host import HostError, PaneSpec
from actors.journal import Entry
from fleetd.hosts import shim
from fleetd.hosts.tmux import TmuxHost
from fleetd.store import SqliteStore

pytestmark = pytest.mark.live

BENCH = Path(__file__).parents[2] / "bench"
#: A whole run on a busy machine, in seconds.
RUN_S = 600


def holds(script: str, *arguments: str) -> str:
    """Run a script of ``bench/``; it ends with 0 when all that it checks has held. Returns what it reported."""
    argv = [sys.executable, str(BENCH / script), *arguments]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_daemon_that_is_killed_over_and_over_keeps_what_it_acknowledged_and_types_nothing_twice() -> None:
    assert "violations: 0" in holds("kill9.py", "--points", "10", "--seed", "7")


def test_a_full_disk_refuses_sends_with_journal_full_and_never_stops_the_daemon_and_neither_does_a_full_log() -> None:
    assert "2 points" in holds("diskfull.py", "--points", "2", "--means", "limit")


@pytest.mark.parametrize("scenario", ["server", "pane", "hung", "restart"])
def test_the_daemon_lives_and_tells_the_truth_when_terminals_do_not(scenario: str) -> None:
    assert "violations: 0" in holds("terminal_death.py", "--rounds", "1", scenario)


def refused(run_dir: Path) -> str:
    """Start a daemon that must say in one sentence why it cannot run."""
    argv = [sys.executable, "-m", "fleetd", "--runtime-dir", str(run_dir), "up", "--foreground"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, cwd=run_dir)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1), done.stderr
    return done.stderr


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    run_dir = tmp_path / "run"
    run_dir.mkdir(mode=0o700)
    return run_dir


def test_a_file_that_is_no_journal_stops_the_start_and_stays_as_it_is(run_dir: Path) -> None:
    (run_dir / "journal.db").write_bytes(b"no journal " * 100)
    assert "journal.db cannot be used: file is not a database" in refused(run_dir)
    assert (run_dir / "journal.db").read_bytes() == b"no journal " * 100


async def test_a_journal_that_is_damaged_further_down_stops_the_start_too(run_dir: Path) -> None:
    path = run_dir / "journal.db"
    store = SqliteStore(path)
    await store.write([Entry("ticket", f"t-{number}", bytes(1000)) for number in range(100)])
    store.close()
    _spoil(path)
    assert "malformed" in refused(run_dir)


def _spoil(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096].ljust(len(data), b"\xa5"))


def test_a_journal_of_a_later_fleetd_stops_the_start(run_dir: Path) -> None:
    later = sqlite3.connect(run_dir / "journal.db")
    later.execute("PRAGMA user_version=99")
    later.close()
    assert "is of version 99" in refused(run_dir)


async def test_a_start_waits_for_its_daemon_while_another_one_hangs_up(run_dir: Path) -> None:
    """As one does that is killed while it is asked."""
    fleetd = [sys.executable, "-m", "fleetd", "--runtime-dir", str(run_dir)]
    dying = trio.socket.socket(trio.socket.AF_UNIX)
    await dying.bind(str(run_dir / "fleetd.sock"))
    dying.listen()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(trio.serve_listeners, trio.SocketStream.aclose, [trio.SocketListener(dying)])
        up = await trio.run_process([*fleetd, "up"], capture_stdout=True, capture_stderr=True, check=False)
        nursery.cancel_scope.cancel()
    assert (up.returncode, up.stderr) == (0, b"")
    await trio.run_process([*fleetd, "down"], capture_stdout=True)


async def test_a_tmux_server_that_runs_is_used_though_its_configuration_cannot_be_written(run_dir: Path) -> None:
    """As on a full disk: whoever takes the members over must not need room for it."""
    (run_dir / "tmux.conf" / "in the way").mkdir(parents=True)
    blocked = TmuxHost(run_dir)
    async with trio.open_nursery() as nursery:
        await nursery.start(blocked.run)
        with pytest.raises(HostError, match="tmux cannot be configured"):
            await blocked.open(PaneSpec("m-1", ("cat",), {"PATH": "/usr/bin:/bin"}, "/"))
        _swap(run_dir / "tmux.conf", run_dir / "aside")
        pane = await blocked.open(PaneSpec("m-1", ("cat",), {"PATH": "/usr/bin:/bin"}, "/"))
        nursery.cancel_scope.cancel()
    (run_dir / "tmux.conf").unlink()
    _swap(run_dir / "aside", run_dir / "tmux.conf")
    after = TmuxHost(run_dir)
    async with trio.open_nursery() as nursery:
        await nursery.start(after.run)
        await after.adopt(pane, "m-1")
        await after.kill_server()
        nursery.cancel_scope.cancel()


def _swap(old: Path, new: Path) -> None:
    old.rename(new)


def test_a_program_ends_with_its_own_exit_code_though_nobody_can_write_it_down(tmp_path: Path) -> None:
    status = tmp_path / "panes" / "m-1.status"
    status.parent.mkdir()
    ends = f"until [ -e {status} ]; do sleep 0.02; done; rm -r {status.parent}; exit 7"
    spec = tmp_path / "m-1.spec"
    argv = ["/bin/sh", "-c", ends]
    spec.write_text(
        json.dumps({"argv": argv, "env": {"PATH": "/usr/bin:/bin"}, "cwd": "/", "status": str(status)}),
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-I", "-S", shim.__file__, str(spec)], timeout=60, check=False)
    assert done.returncode == 7
