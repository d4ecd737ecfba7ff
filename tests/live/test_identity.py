"""Real processes of members that try to be taken for a lead, and what the daemon makes of them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from subprocess import DEVNULL
from typing import Any, NamedTuple

import pytest
import trio

from actors.leads import Join
from fleetd.callers import Caller, Role
from fleetd.hosts.pty import PtyHost
from fleetd.hosts.tmux import TmuxHost
from tests.live.running import PATIENCE_S, Running, private_run, serving

pytestmark = pytest.mark.live

WANDERER = str(Path(__file__).parent / "programs" / "wanderer.py")
#: What members do, by the steps of ``wanderer.py``. All of it stays below the pane's root process.
WAYS = {
    "says-it-is-a-lead": "l",
    "a-child-of-a-child": "cc",
    "a-session-of-its-own": "cs",
    "double-fork": "ff",
    "double-fork-and-session": "fsf",
    "double-fork-and-clean": "fsfe",
    "own-tmux": "t",
    "own-tmux-and-clean": "et",
}


class Answer(NamedTuple):
    """What the daemon said to a process."""

    who: dict[str, Any]
    spawn_code: int
    spawn_error: str


def config(directory: Path) -> str:
    """One profile for each way, and one that does nothing."""
    lines = ["profiles:", "  quiet: {command: [sleep, '600'], idlePattern: '^>'}"]
    for name, how in WAYS.items():
        argv = [sys.executable, WANDERER, how, str(directory / name), str(directory / "run")]
        lines.append(f"  {name}: {{command: {json.dumps(argv)}, idlePattern: '^>'}}")
    return "\n".join(lines)


@pytest.fixture(params=["tmux", "pty"])
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    directory = private_run(tmp_path)
    host = TmuxHost(directory) if request.param == "tmux" else PtyHost(directory)
    async with serving(tmp_path, config(tmp_path), host) as running:
        running.lead = Caller(Role.LEAD, await running.daemon.fleet.leads.ask(Join("the test")), str(tmp_path))
        yield running
    for name in WAYS:
        await trio.run_process(
            ["tmux", "-S", str(tmp_path / f"{name}.sock"), "kill-server"], check=False, stderr=DEVNULL
        )


async def answer(running: Running, path: trio.Path) -> Answer:
    await running.until(path.exists, f"{path.name} has asked", within_s=3 * PATIENCE_S)
    asked, code, error = (await path.read_text()).split("\0")
    return Answer(json.loads(asked), int(code), error)


async def test_no_member_is_taken_for_a_lead_however_it_wanders_off(running: Running, tmp_path: Path) -> None:
    targets = {name: await running.spawn(name) for name in WAYS}
    answers = {name: await answer(running, trio.Path(tmp_path / name)) for name in WAYS}
    for name, target in targets.items():
        who, code, error = answers[name]
        assert (who.get("role"), who.get("id")) == ("member", target), (name, who)
        assert code == 1, name
        assert "fleet_spawn" in error, name
    assert len((await running.call("fleet_list"))["members"]) == len(WAYS)


def asks(directory: Path, env: dict[str, str], *before: str) -> dict[str, Any]:
    """What a process of the test's own is told, which stands below no pane."""
    argv = [*before, sys.executable, "-m", "fleetd", "--runtime-dir", str(directory / "run"), "whoami", "--json"]
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    found: dict[str, Any] = json.loads(done.stdout) if done.stdout.strip() else {"said": done.stderr}
    return found


async def test_what_was_started_as_a_member_and_stands_in_no_pane_is_nobody(running: Running, tmp_path: Path) -> None:
    """A job that a member has given to a service manager, say: it is below no pane, and is no person either."""
    plain = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    person = await trio.to_thread.run_sync(asks, tmp_path, plain)
    assert person["role"] == "lead"
    stray = await trio.to_thread.run_sync(asks, tmp_path, {**plain, "FLEETD_MEMBER": f"m-1 {tmp_path / 'run'}"})
    assert "came from member m-1 and has left its pane" in stray["said"]
    other = await trio.to_thread.run_sync(asks, tmp_path, {**plain, "FLEETD_MEMBER": "m-1 /run/of/another/daemon"})
    assert other["role"] == "lead"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
async def test_another_user_does_not_even_reach_the_socket(running: Running, tmp_path: Path) -> None:
    plain = {"PATH": os.environ["PATH"], "HOME": "/"}
    refused = await trio.to_thread.run_sync(
        asks, tmp_path, plain, "setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"
    )
    assert refused.get("role") is None
