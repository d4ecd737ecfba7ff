"""Fill the daemon's disk, with members at work, and see that it refuses, goes on, and recovers.

    python bench/diskfull.py [--points 50] [--seed 1] [--means tmpfs|limit|both] [--keep]

One daemon and its members live through all of it. The journal, the log and the pastes stand on a disk that is filled
to the last byte or nearly, at a random moment of a running turn: a small tmpfs (``tmpfs``: "no space left"; needs the
right to mount, as ``unshare -Urm python bench/diskfull.py`` gives it), or a bound on the size of every file that the
daemon writes (``limit``, for everybody: "file too large"). While it is full:

* new sends are refused with ``journal_full`` and never reach a member; a spawn is refused;
* the status, the roster, results and health are served, and health says what is wrong;
* the turn that runs ends, and its result is shown.

At every fifth point the daemon is killed and started again on the full disk (``tmpfs``). When there is room again,
sends are taken, what was owed is written, and the log goes on. Exit code 0: all of it held. Before that, one daemon
works with a log that never takes a line.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final, Protocol

import trio
from ledger import Ledger, Send
from processes import Life, Violation
from stage import Stage, dispose, load, scratch

MEMBERS: Final = 2
#: Size of the small disk.
DISK_BYTES: Final = 8 * 1024 * 1024
PAGE: Final = 4096
#: Pages that are left free at most: the failure comes at another write each time.
LEFT_PAGES: Final = 8
#: Sends after which a full disk must have refused one.
TRIES: Final = 40
#: How long after the fill of a running turn's start, in seconds.
MOMENT_S: Final = 1.5
#: How soon what is owed must have been written once there is room, in seconds; the daemon tries each 5 s.
OWED_S: Final = 30.0
RESTART_EACH: Final = 5


class Disk(Protocol):
    def fill(self, life: Life, pages: int) -> None:
        """Leave room for about so many pages."""
        ...

    def tighten(self, life: Life) -> None:
        """Leave none: what is smaller than the write that was refused could still fit."""
        ...

    def free(self, life: Life) -> None: ...


def shorten(directory: Path) -> None:
    """Take the room away that the journal has in its own write-ahead log: it would write there for a long time yet."""
    journal = sqlite3.connect(directory / "journal.db")
    journal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    journal.close()


class Tmpfs:
    """A small file system, filled by a file."""

    survives_restart = True

    def __init__(self, directory: Path) -> None:
        self._directory, self._filler = directory, directory / "filler"

    def fill(self, life: Life, pages: int) -> None:
        shorten(self._directory)
        size = self._fill_up()
        os.truncate(self._filler, max(0, size - pages * PAGE))

    def tighten(self, life: Life) -> None:
        self._fill_up()

    def _fill_up(self) -> int:
        with self._filler.open("ab", buffering=0) as filler:
            with suppress(OSError):
                while True:
                    filler.write(bytes(PAGE))
            return filler.tell()

    def free(self, life: Life) -> None:
        self._filler.unlink()


class Limit:
    """A bound on the size of the files that the daemon writes."""

    survives_restart = False

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def fill(self, life: Life, pages: int) -> None:
        shorten(self._directory)
        self._bound(life, pages * PAGE)

    def tighten(self, life: Life) -> None:
        self._bound(life, 0)

    def free(self, life: Life) -> None:
        self._bound(life, None)

    def _bound(self, life: Life, size: int | None) -> None:
        _, most = resource.prlimit(life.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(life.pid, resource.RLIMIT_FSIZE, (most if size is None else size, most))


class Run:
    """One daemon on one disk."""

    def __init__(self, stage: Stage, disk: Tmpfs | Limit, seed: int) -> None:
        self.stage, self.disk, self.rng = stage, disk, random.Random(seed)
        self.ledger = Ledger(stage)
        self.members: list[str] = []
        #: Where this point's sends begin.
        self.first = 0
        self.seen: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()

    async def begin(self) -> None:
        self.life = await self.stage.up()
        for _ in range(MEMBERS):
            self.members.append((await self.stage.call("fleet_spawn", profile="demo", cwd="/"))["target"])
        first = self._make()
        await self.ledger.send(first)
        await self._take(first)

    def _make(self) -> Send:
        return self.ledger.make(self.rng.choice(self.members), self.rng.uniform(0.2, 1.5))

    async def _take(self, *sends: Send) -> None:
        results = await self.stage.until_ended(*(send.ticket for send in sends))
        for send in sends:
            self.ledger.took(send, results[send.ticket])

    async def point(self, *, restart: bool) -> None:
        """One filling of the disk."""
        self.first = len(self.ledger.sends)
        before = [send for send in self.ledger.acknowledged if send.result][-1]
        running = self._make()
        await self.ledger.send(running)
        await trio.sleep(self.rng.uniform(0, MOMENT_S))
        self.disk.fill(self.life, self.rng.randrange(LEFT_PAGES))
        try:
            await self._refuses()
            await self._serves(before)
            await self._take(running)
            if restart:
                await self._restart()
        finally:
            self.disk.free(self.life)
        await self._recovers()

    async def _refuses(self) -> None:
        for _ in range(TRIES):
            said = await self.ledger.send(self._make())
            if said.get("error") == "journal_full":
                self.seen["refused sends"] += 1
                self.reasons[said["message"].rpartition(": ")[2]] += 1
                break
            self.seen["sends that still fitted"] += 1
        else:
            raise Violation(f"{TRIES} sends were taken on a full disk")
        self.disk.tighten(self.life)
        said = await self.ledger.send(self._make())
        if said.get("error") != "journal_full":
            self.ledger.wrong(f"a send was taken by a disk that takes nothing: {said}")
        spawn = await self.stage.call("fleet_spawn", profile="demo", cwd="/")
        if "error" not in spawn:
            self.ledger.wrong(f"a member was spawned that nobody wrote down: {spawn}")

    async def _serves(self, before: Send) -> None:
        status = await self.stage.request("fleetd/status")
        listed = {row["target"]: row["state"] for row in (await self.stage.call("fleet_list"))["members"]}
        health = await self.stage.call("fleet_health")
        self.ledger.took(before, await self.stage.call("fleet_collect", ticket=before.ticket))
        if status["pid"] != self.life.pid or self.life.ended:
            self.ledger.wrong(f"the daemon has ended: {self.stage.said()[-2000:]}")
        if {*listed} != {*self.members} or {*listed.values()} & {"lost", "failed"}:
            self.ledger.wrong(f"the roster is {listed}")
        if not health["journal"]:
            self.ledger.wrong("health does not say that the journal is full")

    async def _restart(self) -> None:
        """Another daemon, on the full disk: it knows what had been written, and results that had not are open again."""
        self.life.kill()
        await self.life.end()
        for send in self.ledger.sends[self.first :]:
            send.result = {}
        self.life = await self.stage.up()
        listed = {row["target"]: row["state"] for row in (await self.stage.call("fleet_list"))["members"]}
        if {*listed} != {*self.members} or "lost" in listed.values():
            self.ledger.wrong(f"after a start on a full disk the roster is {listed}")
        self.seen["starts on a full disk"] += 1

    async def _recovers(self) -> None:
        again = self._make()
        said = await self.ledger.send(again)
        if not again.ticket:
            self.ledger.wrong(f"there is room again, and a send was refused: {said}")
        await self._take(*self.ledger.open)
        deadline = time.monotonic() + OWED_S
        while trouble := (await self.stage.call("fleet_health"))["journal"]:
            if time.monotonic() > deadline:
                self.ledger.wrong(f"there is room again, and health says {trouble}")
                break
            await trio.sleep(0.2)
        log = self.stage.run_dir / "fleetd.log"
        size = log.stat().st_size
        await self.stage.request("fleetd/reload")
        if log.stat().st_size <= size:
            self.ledger.wrong("there is room again, and nothing is logged")

    async def end(self) -> None:
        self.ledger.judge()
        await self.stage.request("fleetd/down", {"killMembers": True})
        if (code := await self.life.end()) != 0:
            self.ledger.wrong(f"the daemon ended with exit code {code}: {self.stage.said()[-2000:]}")


async def on_a_full_log(stage: Stage) -> list[str]:
    """A daemon whose log never takes a line: it works as any other."""
    (stage.run_dir / "fleetd.log").symlink_to("/dev/full")
    ledger = Ledger(stage)
    life = await stage.up()
    try:
        target = (await stage.call("fleet_spawn", profile="demo", cwd="/"))["target"]
        for _ in range(3):
            send = ledger.make(target, 0.3)
            await ledger.send(send)
            ledger.took(send, (await stage.until_ended(send.ticket))[send.ticket])
            await stage.request("fleetd/reload")
        ledger.judge()
        if ledger.ends() != {"completed": 3}:
            ledger.wrong(f"with a full log, sends ended {ledger.ends()}")
        await stage.request("fleetd/down", {"killMembers": True})
        if (code := await life.end()) != 0:
            ledger.wrong(f"with a full log, the daemon ended with exit code {code}: {stage.said()[-2000:]}")
    finally:
        stage.clean_up(life)
    return ledger.violations


def mount(directory: Path) -> bool:
    """Mount a small disk there; say whether that is allowed."""
    argv = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES},mode=0700", "fleetd-bench", str(directory)]
    return subprocess.run(argv, capture_output=True, check=False).returncode == 0


def unmount(directory: Path) -> None:
    """Even where a process that is about to end still stands in it."""
    subprocess.run(["umount", "-l", str(directory)], check=False)


async def run_on(means: str, points: int, seed: int, directory: Path) -> Run | None:
    """All points on one disk; ``None`` where there is no such disk to be had."""
    base = directory / means
    base.mkdir()
    run_dir = base / "run"
    run_dir.mkdir(mode=0o700)
    if means == "tmpfs" and not mount(run_dir):
        print("no tmpfs: this user may not mount; try unshare -Urm", flush=True)
        return None
    stage = Stage(run_dir, base / "notes")
    run = Run(stage, Tmpfs(run_dir) if means == "tmpfs" else Limit(run_dir), seed)
    try:
        await run.begin()
        for number in range(1, points + 1):
            await run.point(restart=run.disk.survives_restart and number % RESTART_EACH == 0)
            run.seen["points"] += 1
        await run.end()
    finally:
        stage.clean_up(*([run.life] if hasattr(run, "life") else []))
        if means == "tmpfs":
            unmount(run_dir)
    print(f"{means}: {dict(run.seen)}")
    print(f"{means}: sends acknowledged: {run.ledger.ends()}; refused because of: {dict(run.reasons)}", flush=True)
    return run


async def main(points: int, seed: int, means: str, keep: bool) -> int:
    directory = scratch("diskfull")
    began, load_before = time.monotonic(), load()
    (directory / "log" / "run").mkdir(parents=True, mode=0o700)
    violations = await on_a_full_log(Stage(directory / "log" / "run", directory / "log" / "notes"))
    kinds = ["tmpfs", "limit"] if means == "both" else [means]
    done = 0
    for kind in kinds:
        share = (points - done) // (len(kinds) - kinds.index(kind))
        if (run := await run_on(kind, share, seed, directory)) is not None:
            done += run.seen["points"]
            violations += run.ledger.violations
    print(f"{done} points; load before {load_before}, after {load()}; {time.monotonic() - began:.0f} s in all")
    print(f"violations: {len(violations)}")
    dispose(directory, keep=keep or bool(violations))
    return 1 if violations or done < points else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--means", choices=["tmpfs", "limit", "both"], default="both")
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    arguments = parser.parse_args()
    os.umask(0o077)
    sys.exit(trio.run(partial(main, arguments.points, arguments.seed, arguments.means, arguments.keep)))
