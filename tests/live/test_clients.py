"""Clients that do what no client should, at a real daemon's real socket: they hurt themselves and nobody else."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from fleetd.client import Client, connect
from fleetd.frames import QUEUE_FRAMES
from fleetd.hosts.pty import PtyHost
from fleetd.rundir import socket_path
from tests.live.conftest import CONFIG
from tests.live.running import PATIENCE_S, Running, private_run, serving
from tests.live.scripts import script

pytestmark = pytest.mark.live

#: Calls one tool over the socket without saying in which directory, and prints the answer.
CALLER = """
import socket, sys
with socket.socket(socket.AF_UNIX) as client:
    client.connect(sys.argv[1])
    client.sendall(sys.argv[2].encode() + b"\\n")
    print(client.makefile().readline())
"""


@pytest.fixture
async def running(tmp_path: Path) -> AsyncIterator[Running]:
    async with serving(tmp_path, CONFIG, PtyHost(private_run(tmp_path))) as running:
        yield running


async def ask_and_never_read(sleepy: trio.SocketStream, call: dict[str, Any], reader: Client) -> None:
    """Ask on one connection and read nothing, until it breaks; another one is served at once meanwhile."""
    with trio.fail_after(4 * PATIENCE_S):
        for id in range(100_000):
            await sleepy.send_all(json.dumps(call | {"id": id}).encode() + b"\n")
            if id % 50 == 0:
                with trio.fail_after(PATIENCE_S):
                    assert (await reader.request("fleetd/status"))["pid"] == os.getpid()


async def test_a_client_that_never_reads_is_dropped_at_its_cap_and_hurts_nobody(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    socket = socket_path(running.daemon.directory)
    call = {"jsonrpc": "2.0", "method": "fleetd/call", "params": {"tool": "fleet_health", "arguments": {}}}
    async with connect(socket) as reader, await trio.open_unix_socket(socket) as sleepy:
        with caplog.at_level(logging.WARNING), pytest.raises(trio.BrokenResourceError):
            await ask_and_never_read(sleepy, call, reader)
        (dropped,) = [record for record in caplog.records if "client dropped" in record.message]
        assert dropped.__dict__["fleet_frames"] <= QUEUE_FRAMES
        assert (await reader.request("fleetd/status"))["pid"] == os.getpid()

    async def gone() -> bool:
        return "0 of" in repr(running.daemon.door)

    await running.until(gone, "both connections have ended")


# -- what is no text ------------------------------------------------------------------------------------------------


def fleetd(running: Running, *argv: str | bytes, cwd: bytes, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "fleetd", "--runtime-dir", str(running.daemon.directory), *argv]
    return subprocess.run(words, cwd=cwd, input=stdin, capture_output=True, timeout=60, check=False)


@pytest.fixture
def nowhere(tmp_path: Path) -> bytes:
    """A directory whose name is no UTF-8."""
    made = os.fsencode(tmp_path) + b"/caf\xe9"
    os.mkdir(made)
    return made


async def test_a_caller_in_a_directory_that_is_no_text_is_served(running: Running, nowhere: bytes) -> None:
    call: dict[str, Any] = {"tool": "fleet_spawn", "arguments": {"profile": "demo-a"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "fleetd/call", "params": call})
    argv = [sys.executable, "-c", CALLER, str(socket_path(running.daemon.directory)), line]
    done = await trio.run_process(argv, cwd=nowhere, capture_stdout=True)
    assert json.loads(done.stdout)["result"]["structured"]["target"] == "m-1"
    assert await running.state("m-1") in ("starting", "idle")


@pytest.mark.parametrize(
    ("argv", "stdin"),
    [
        (("spawn", "demo-a"), b""),
        (("send", "m-1", b"caf\xe9"), b""),
        (("send", "m-1", "-"), b"caf\xe9"),
    ],
    ids=["directory", "argument", "input"],
)
async def test_what_is_no_text_is_refused_in_one_sentence(
    running: Running, nowhere: bytes, argv: tuple[str | bytes, ...], stdin: bytes
) -> None:
    done = await trio.to_thread.run_sync(lambda: fleetd(running, *argv, cwd=nowhere, stdin=stdin))
    assert (done.returncode, done.stdout) == (1, b"")
    assert len(done.stderr.splitlines()) == 1
    assert b"no text in UTF-8" in done.stderr
    assert (await running.call("fleet_list"))["members"] == []


# -- the long runs of bench/, in small ------------------------------------------------------------------------------


def test_of_many_starters_over_all_that_dead_daemons_leave_one_is_the_daemon_each_time() -> None:
    assert "one owner each time" in script("starters.py", "--starters", "16", "--rounds", "8")


def test_starters_without_the_lock_are_caught() -> None:
    assert "8 owners" in script("starters.py", "--starters", "8", "--rounds", "1", "--without-lock", code=1)


def test_frames_that_no_client_should_send_end_nothing_but_their_connection() -> None:
    assert "400 frames" in script("fuzz_frames.py", "--frames", "400", "--seed", "3")


def test_generated_prompts_arrive_byte_for_byte_and_are_submitted_once() -> None:
    assert "60 prompts arrived" in script("prompts.py", "--prompts", "60", "--panes", "3", "--seed", "2")
