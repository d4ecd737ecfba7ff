"""Where daemons come and go: a runtime directory with a private tmux server, a lead's hands, and what members saw.

The scripts beside this one start the real ``fleetd up --foreground`` in it, ill-treat it, and compare what it says with
what members' own notes say (see ``witness.py``).
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import trio
from processes import BENCH, LOOK_S, PATIENCE_S, Forker, Life, Violation

from actors.supervise import leaf
from fleetd.client import NoDaemon, Refusal, connect
from fleetd.hosts.launch import process_start, runs
from fleetd.hosts.tmux_commands import server_pid

#: The daemon as everybody starts it.
FLEETD: Final = (sys.executable, "-m", "fleetd")

CONFIG: Final = """
host: tmux
outage: {{threshold: 100}}
profiles:
  demo: {{agent: demo, capacity: 16, minTurnSeconds: 0, errorPattern: "@demo", exhaustedPattern: "@demo",
         command: ["{python}", "{witness}", "{notes}"]}}
"""


class Gone(Exception):
    """The daemon went away, or is not there."""


@dataclass
class Ready:
    """How long a start took until ``fleetd/status`` was answered, in seconds: by the clock, and of processor time."""

    wall_s: float
    cpu_s: float


class Stage:
    """A runtime directory, who runs in it, and a lead.

    Args:
        directory: the runtime directory; made where it is missing.
        notes: the file that members write their notes to.
    """

    def __init__(self, directory: Path, notes: Path) -> None:
        self.run_dir, self.notes = directory, notes
        self.run_dir.mkdir(mode=0o700, exist_ok=True)
        self.config = notes.with_name("fleetd.yaml")
        self.config.write_text(CONFIG.format(python=sys.executable, witness=BENCH / "witness.py", notes=notes))
        self.errors = notes.with_name("daemon.err")

    @property
    def socket(self) -> Path:
        return self.run_dir / "fleetd.sock"

    # -- the daemon ----------------------------------------------------------------------------------------------

    def start(self, program: Sequence[str] = FLEETD) -> Life:
        """Start a daemon; what it says goes to a file."""
        argv = [*program, *self._arguments]
        with self.errors.open("ab") as said:
            started = time.monotonic()
            return Life(subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=said, stderr=said), started)

    def fork(self, forker: Forker, program: Sequence[str]) -> Life:
        """Start a daemon without its imports."""
        started = time.monotonic()
        return Life(forker.fork([*program, *self._arguments]), started)

    @property
    def _arguments(self) -> list[str]:
        return ["--runtime-dir", str(self.run_dir), "up", "--foreground", "--config", str(self.config)]

    def said(self) -> str:
        """What daemons have said on standard error."""
        return self.errors.read_text(errors="replace") if self.errors.exists() else ""

    async def ready(self, life: Life) -> Ready | None:
        """Wait for the first answer; ``None`` where the daemon has ended before."""
        while not life.ended:
            try:
                status = await self.request("fleetd/status")
            except Gone:
                await trio.sleep(LOOK_S)
                continue
            if status["pid"] != life.pid:
                raise Violation(f"pid {status['pid']} answers, and {life.pid} was started")
            return Ready(time.monotonic() - life.started, _cpu_s(life.pid))
        return None

    async def up(self) -> Life:
        """Start a daemon that must come up."""
        life = self.start()
        if await self.ready(life) is None:
            raise Violation(f"the daemon did not come up: {self.said()[-2000:]}")
        return life

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """One request on a connection of its own.

        Raises:
            Gone: the daemon is not there, or went before it answered.
            Refusal: it said no.
        """
        try:
            async with connect(self.socket) as client:
                return await client.request(method, params)
        except (NoDaemon, ExceptionGroup) as why:
            cause = leaf(why)
            if isinstance(cause, NoDaemon):
                raise Gone(str(cause)) from None
            if isinstance(cause, Refusal):
                raise cause from None
            raise

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool call: what it says, refusals too."""
        answer = await self.request("fleetd/call", {"tool": tool, "arguments": arguments})
        return dict(answer["structured"])

    async def until_ended(self, *tickets: str) -> dict[str, dict[str, Any]]:
        """Wait for these sends to end; return their results."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            waited = await self.call("fleet_wait", tickets=list(tickets), all=True, waitSeconds=10)
            if "error" in waited:
                raise Violation(f"{tickets} were acknowledged: {waited}")
            if not waited["running"]:
                return {ticket: await self.call("fleet_collect", ticket=ticket) for ticket in tickets}
            if time.monotonic() > deadline:
                raise Violation(f"sends did not end: {waited['running']}")

    async def until_state(self, target: str, *states: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            row = next((r for r in (await self.call("fleet_list"))["members"] if r["target"] == target), None)
            if row is not None and row["state"] in states:
                return
            if time.monotonic() > deadline:
                raise Violation(f"{target} is not {' or '.join(states)}: {row}")
            await trio.sleep(0.1)

    # -- what members saw ----------------------------------------------------------------------------------------

    def witnessed(self) -> tuple[dict[str, int], list[tuple[str, str]]]:
        """Each member's process, and each prompt that was submitted with the member that took it."""
        pids: dict[str, int] = {}
        prompts: list[tuple[str, str]] = []
        if self.notes.exists():
            for line in self.notes.read_text(encoding="utf-8").splitlines():
                note = json.loads(line)
                if "prompt" in note:
                    prompts.append((note["target"], note["prompt"]))
                else:
                    pids[note["target"]] = note["pid"]
        return pids, prompts

    # -- the terminal --------------------------------------------------------------------------------------------

    @property
    def tmux_pid(self) -> int:
        """The tmux server's; 0 where there is none."""
        return server_pid(str(self.run_dir / "tmux.sock"))

    def tmux(self, *words: str) -> str:
        """A command of a person to the members' tmux server."""
        argv = ["tmux", "-u", "-S", str(self.run_dir / "tmux.sock"), *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE_S).stdout

    def pane_of(self, target: str) -> str:
        """The id of the pane that carries the member's tag."""
        for line in self.tmux("list-panes", "-a", "-F", "#{pane_id} #{@fleetd_member}").splitlines():
            pane, _, tag = line.partition(" ")
            if tag and json.loads(tag)["target"] == target:
                return pane
        raise Violation(f"no pane carries the tag of {target}")

    def clean_up(self, *lives: Life) -> None:
        """End what this stage has started: daemons, members, the tmux server."""
        for life in lives:
            life.kill()
            life.process.wait()
        members, _ = self.witnessed()
        pids = [pid for pid in (self.tmux_pid, *members.values()) if pid]
        for pid, started in [(pid, process_start(pid)) for pid in pids]:
            if started and (pid == self.tmux_pid or _is_witness(pid, self.notes)):
                os.kill(pid, signal.SIGCONT)
                os.kill(pid, signal.SIGKILL)
                while runs(pid, started):
                    time.sleep(LOOK_S)


def _is_witness(pid: int, notes: Path) -> bool:
    """Whether the process is a member of this stage, and not one that has got its number since."""
    try:
        return os.fsencode(notes) in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def lives(pid: int, notes: Path) -> bool:
    """Whether a member's process runs."""
    return _is_witness(pid, notes)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- reports --------------------------------------------------------------------------------------------------------


def spread(values: Sequence[float]) -> str:
    """Median, 95th percentile and maximum of some seconds."""
    if not values:
        return "none"
    ordered = sorted(values)
    p95 = ordered[min(len(ordered) - 1, int(len(ordered) * 0.95))]
    return (
        f"median {statistics.median(ordered):.2f} s, p95 {p95:.2f} s, max {ordered[-1]:.2f} s ({len(ordered)} starts)"
    )


def load() -> str:
    """The machine's load averages over 1, 5 and 15 minutes."""
    return " ".join(f"{each:.1f}" for each in os.getloadavg())


def scratch(name: str) -> Path:
    """A directory of this run's own. Short: a socket's path must fit."""
    return Path(tempfile.mkdtemp(prefix=f"{name}-"))


def dispose(directory: Path, *, keep: bool) -> None:
    """Remove what a run has left, or say where it is."""
    if keep:
        print(f"kept: {directory}")
    else:
        shutil.rmtree(directory)
