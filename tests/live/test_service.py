"""The daemon as a service manager runs it: readiness, signs of life, signals, and what a restart leaves alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.live

DEADLINE_S = 60.0
CONFIG = """
host: tmux
profiles:
  demo-a: {agent: demo, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""


class Manager:
    """Stands in for systemd: starts the service and listens to what it says."""

    def __init__(self, directory: Path) -> None:
        self.run_dir = directory / "run"
        self.config = directory / "fleetd.yaml"
        self.config.write_text(CONFIG)
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(directory / "notify"))
        self._socket.settimeout(DEADLINE_S)
        self._address = str(directory / "notify")
        self._services: list[subprocess.Popen[bytes]] = []

    def start(self) -> subprocess.Popen[bytes]:
        argv = [sys.executable, "-m", "fleetd", "--runtime-dir", str(self.run_dir)]
        env = {**os.environ, "NOTIFY_SOCKET": self._address, "WATCHDOG_USEC": "400000"}
        service = subprocess.Popen([*argv, "up", "--foreground", "--config", str(self.config)], env=env)
        self._services.append(service)
        return service

    def hears(self, state: str) -> None:
        """Wait until the service has said this."""
        while self._socket.recv(1024).decode() != state:
            pass

    def falls_silent(self) -> bool:
        """Whether the service says nothing for ten times as long as it may."""
        self._socket.settimeout(4.0)
        try:
            for _ in range(100):
                self._socket.recv(1024)
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(DEADLINE_S)
        return False

    def call(self, *argv: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "fleetd", "--runtime-dir", str(self.run_dir), *argv, "--json"],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=True,
        )
        return dict(json.loads(done.stdout))

    def log(self) -> str:
        return (self.run_dir / "fleetd.log").read_text()

    def logs(self, text: str) -> None:
        """Wait until the log has this."""
        end = time.monotonic() + DEADLINE_S
        while text not in self.log():
            assert time.monotonic() < end, self.log()
            time.sleep(0.05)

    def close(self) -> None:
        for service in self._services:
            if service.poll() is None:
                service.kill()
            service.wait()
        kill = ["tmux", "-S", str(self.run_dir / "tmux.sock"), "kill-server"]
        subprocess.run(kill, capture_output=True, check=False)
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(tmp_path)
    yield manager
    manager.close()


def test_a_restart_of_the_service_leaves_the_members_alone_and_takes_them_over(manager: Manager) -> None:
    service = manager.start()
    manager.hears("READY=1")
    for _ in range(3):
        manager.hears("WATCHDOG=1")
    target = manager.call("spawn", "demo-a", "--cwd", str(manager.run_dir))["target"]
    ticket = manager.call("send", target, "demo: work 2; say", "through", "the", "restart")["ticket"]
    service.send_signal(signal.SIGTERM)
    manager.hears("STOPPING=1")
    assert service.wait(DEADLINE_S) == 0

    manager.start()
    manager.hears("READY=1")
    assert [row["target"] for row in manager.call("list")["members"]] == [target]
    assert manager.call("wait", ticket)["ended"]
    assert manager.call("collect", ticket)["text"] == "through the restart"
    manager.call("down", "--kill-members")


def test_a_daemon_that_hangs_gives_no_sign_of_life(manager: Manager) -> None:
    """The sign comes from a task that has just passed through every actor, so the manager restarts what is stuck."""
    service = manager.start()
    manager.hears("WATCHDOG=1")
    service.send_signal(signal.SIGSTOP)
    assert manager.falls_silent()
    service.send_signal(signal.SIGCONT)
    manager.hears("WATCHDOG=1")


def test_sigusr1_logs_every_actor_with_its_mailbox_and_its_last_message(manager: Manager) -> None:
    service = manager.start()
    manager.hears("READY=1")
    target = manager.call("spawn", "demo-a", "--cwd", str(manager.run_dir))["target"]
    service.send_signal(signal.SIGUSR1)
    manager.logs("<Roster")
    dump = [line for line in manager.log().splitlines() if " depth " in line and " last " in line]
    for name in ("Journal", "Panes", "Mail", "Questions", "Leads", "OutagePolicy", "Quarantine", "Roster", "Launcher"):
        assert any(f"<{name} " in line for line in dump), (name, dump)
    assert any(f"<Resolver {target}" in line for line in dump)


def test_the_unit_names_this_interpreter_and_the_files_that_were_given(tmp_path: Path) -> None:
    argv = [sys.executable, "-m", "fleetd", "--runtime-dir", str(tmp_path), "unit", "--config", "a b.yaml"]
    unit = subprocess.run(argv, capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    command = f'{sys.executable} -m fleetd --runtime-dir {tmp_path} up --foreground --config "{tmp_path}/a b.yaml"'
    assert f"ExecStart={command}\n" in unit
    assert "Type=notify\n" in unit
    assert "KillMode=process\n" in unit
