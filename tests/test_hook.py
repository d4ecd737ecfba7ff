"""``fleetd hook``: an event on its way from a program to the daemon."""

from __future__ import annotations

import io
import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from fleetd import hook


def taken(directory: Path, event: bytes) -> tuple[bytes, subprocess.CompletedProcess[bytes]]:
    """What a daemon gets when a program's hook is given this event, and how the hook ended."""
    path = directory / "door"
    got: list[bytes] = []
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(str(path))
        door.listen()

        def serve() -> None:
            client, _ = door.accept()
            with client, client.makefile("rb") as lines:
                got.append(lines.readline())
                client.sendall(b'{"jsonrpc": "2.0", "id": 1, "result": {}}\n')

        server = threading.Thread(target=serve, daemon=True)
        server.start()
        ended = run(path, event)
        server.join(10)
    return got[0], ended


def run(path: Path, event: bytes) -> subprocess.CompletedProcess[bytes]:
    argv = [sys.executable, "-I", "-S", hook.__file__, str(path)]
    return subprocess.run(argv, input=event, capture_output=True, timeout=30, check=False)


def test_an_event_arrives_whole_and_the_hook_says_nothing(tmp_path: Path) -> None:
    line, ended = taken(tmp_path, json.dumps({"hook_event_name": "Stop", "text": "fertig ✓"}).encode())
    assert json.loads(line)["params"] == {"event": {"hook_event_name": "Stop", "text": "fertig ✓"}}
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


@pytest.mark.parametrize("event", [b"", b"not json", b"[1]", b"\xff"])
def test_an_event_that_is_none_stops_no_turn_and_is_named_on_standard_error(tmp_path: Path, event: bytes) -> None:
    ended = run(tmp_path / "nobody", event)
    assert (ended.returncode, ended.stdout) == (0, b"")
    assert b"was not handed over" in ended.stderr


def test_a_daemon_that_is_away_stops_no_turn(tmp_path: Path) -> None:
    ended = run(tmp_path / "nobody", b"{}")
    assert (ended.returncode, ended.stdout) == (0, b"")


def test_an_event_of_any_size_fits_the_daemons_messages() -> None:
    event = {"hook_event_name": "Stop", "text": "ü" * 400_000, "more": ["x" * 300_000] * 5, "n": 7}
    line = hook.message(event)
    sent = json.loads(line)["params"]["event"]
    assert len(line) <= hook.MESSAGE_BYTES
    assert (sent["hook_event_name"], sent["n"]) == ("Stop", 7)
    assert len(sent["text"].encode()) == hook.TEXT_BYTES


def test_the_hook_runs_in_this_process_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"{}")))
    assert hook.main([str(tmp_path / "nobody")]) == 0
