"""The command line against a daemon of its own: verbs, exit codes, JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.hosts.contract import alive

pytestmark = pytest.mark.live

CONFIG = """
host: {host}
outage: {{coolOffSeconds: 5}}
profiles:
  demo-a: {{agent: demo, credentialId: shared, errorPattern: "@demo", exhaustedPattern: "@demo"}}
  legacy: {{agent: demo, credentialId: other}}
"""


class Shell:
    """A person's shell with a runtime directory of its own."""

    def __init__(self, directory: Path, host: str) -> None:
        self.run_dir = directory / "run"
        self.config = directory / "fleetd.yaml"
        self.config.write_text(CONFIG.format(host=host))
        self.directory = directory

    def __call__(self, *argv: str, stdin: str | None = None, code: int = 0) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "FLEETD_RUNTIME_DIR": str(self.run_dir)}
        done = subprocess.run(
            [sys.executable, "-m", "fleetd", *argv],
            env=env,
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == code, (argv, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
        return done

    def json(self, *argv: str, code: int = 0) -> dict[str, Any]:
        return dict(json.loads(self(*argv, "--json", code=code).stdout))


@pytest.fixture(params=["tmux", "pty"])
def shell(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path, request.param)
    yield shell
    if (shell.run_dir / "fleetd.sock").exists():
        shell("down", "--kill-members")
    if (shell.run_dir / "tmux.sock").exists():
        # Members live on in tmux when their daemon ends; these must not.
        kill = ["tmux", "-S", str(shell.run_dir / "tmux.sock"), "kill-server"]
        subprocess.run(kill, capture_output=True, check=False)


def test_without_a_daemon_every_verb_ends_with_3_and_says_what_to_do(shell: Shell) -> None:
    for argv in (["list"], ["status"], ["send", "m-1", "hello"], ["reload"], ["down"]):
        assert "fleetd up" in shell(*argv, code=3).stderr


def test_a_usage_error_ends_with_2(shell: Shell) -> None:
    shell("nonesuch", code=2)
    shell("send", code=2)


def test_a_days_work(shell: Shell) -> None:
    assert shell.json("up")["host"] in ("tmux", "pty")
    status = shell.json("status")
    assert {*status} == {"pid", "version", "uptimeSeconds", "host", "members", "socket", "config"}
    assert status["config"] == str(shell.config)
    assert [row["name"] for row in shell.json("profiles")["profiles"]] == ["demo-a", "legacy"]
    spawned = shell.json("spawn", "demo-a", "--name", "helper")
    assert (spawned["target"], spawned["name"], spawned["cwd"]) == ("m-1", "helper", str(shell.directory))
    sent = shell.json("send", "helper", "demo:", "work", "3;", "say", "hello")
    assert sent["stillRunning"] is True
    waited = shell.json("wait", sent["ticket"])
    assert [row["status"] for row in waited["ended"]] == ["completed"]
    assert shell("collect", sent["ticket"]).stdout.splitlines()[-1] == "hello"
    assert "hello" in shell("peek", "m-1").stdout
    assert shell.json("explain", "--ticket", sent["ticket"])["source"] == "block"
    assert shell.json("explain", "m-1")["target"] == "m-1"
    assert shell.json("whoami")["role"] == "lead"
    assert "m-1" in shell("list").stdout
    from_stdin = shell("send", "m-1", "-", "--wait-seconds", "30", stdin="demo: work 3; say from stdin\n")
    assert from_stdin.stdout.splitlines()[-1] == "from stdin"
    assert shell.json("release", "helper")["state"] == "released"
    assert shell.json("list")["members"] == []
    shell("down")
    shell("status", code=3)


def test_a_failed_send_ends_with_1_and_its_reason_on_stderr(shell: Shell) -> None:
    shell("up")
    shell("spawn", "demo-a")
    failed = shell("send", "m-1", "demo: work 1; fail", "--wait-seconds", "30", code=1)
    assert "API Error: 529 Overloaded" in failed.stderr
    assert failed.stdout == ""
    row = shell.json("list")["members"][0]
    assert (row["state"], row["failureReason"]) == ("backend_error", "API Error: 529 Overloaded (req_demo_0001)")


def test_refusals_end_with_1_and_say_what_to_do(shell: Shell) -> None:
    shell("up")
    assert "there are: demo-a, legacy" in shell("spawn", "nonesuch", code=1).stderr
    assert shell.json("spawn", "nonesuch", code=1)["error"] == "unknown_profile"
    assert "no member is called m-9" in shell("send", "m-9", "hello", code=1).stderr


@pytest.mark.criterion("U5.1")
def test_start_and_reload_report_coverage_and_what_is_deferred(shell: Shell) -> None:
    shell("up")
    log = (shell.run_dir / "fleetd.log").read_text()
    assert "errorPattern: configured for demo-a; legacy default (degraded coverage) for legacy" in log
    text = shell.config.read_text()
    shell.config.write_text(text.replace("credentialId: other", 'credentialId: third, errorPattern: "oops"'))
    reloaded = shell.json("reload")
    assert reloaded == {"applied": ["profiles.legacy.credentialId"], "deferred": ["profiles.legacy.errorPattern"]}
    shell.config.write_text(text + "nonesuch: 1\n")
    refused = shell("reload", code=1)
    assert "nonesuch" in refused.stderr
    assert "old configuration stays in force" in refused.stderr


@pytest.mark.criterion("U5.2")
def test_a_malformed_pattern_stops_the_start_and_is_named(shell: Shell) -> None:
    shell.config.write_text(shell.config.read_text().replace('errorPattern: "@demo"', 'errorPattern: "(oops"'))
    refused = shell("up", code=1)
    assert "profiles.demo-a.errorPattern" in refused.stderr
    shell("status", code=3)


def test_a_second_start_says_who_holds_the_daemon(shell: Shell) -> None:
    pid = shell.json("up")["pid"]
    refused = shell("up", code=1)
    assert str(pid) in refused.stderr
    assert shell.json("status")["pid"] == pid


def test_sighup_reloads_and_sigterm_ends(shell: Shell) -> None:
    pid = shell.json("up")["pid"]
    shell.config.write_text(shell.config.read_text() + "quarantineCooldownSeconds: 60\n")
    os.kill(pid, signal.SIGHUP)
    deadline = time.monotonic() + 20
    while "quarantineCooldownSeconds" not in (shell.run_dir / "fleetd.log").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    os.kill(pid, signal.SIGUSR1)
    os.kill(pid, signal.SIGTERM)
    while alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    shell("status", code=3)


def test_replay_reads_saved_panes(shell: Shell, tmp_path: Path) -> None:
    failed, good = tmp_path / "failed.txt", tmp_path / "good.txt"
    failed.write_text("> do it\n\n✗ API Error: 529 Overloaded\n\n")
    good.write_text("> do it\n\n● all done\n\n— done in 3s\n")
    done = shell("replay", str(failed), str(good), "--agent", "demo", "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["verdict"] for row in rows] == ["backend_error", "completed"]
    assert (rows[0]["pattern"], rows[0]["reason"]) == ("@demo", "API Error: 529 Overloaded")
    legacy = shell("replay", str(failed), "--profile", "legacy", "--json")
    assert json.loads(legacy.stdout)["pattern"] == "legacy"
    assert "cannot be read" in shell("replay", str(tmp_path / "nonesuch"), code=1).stderr


@pytest.mark.parametrize("host", ["tmux", "pty"])
def test_the_demo_tells_the_truth(host: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "fleetd", "demo", "--fast", "--host", host],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all of it happened as told" in done.stdout
