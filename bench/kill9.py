"""Kill the daemon over and over, with members at work, and see that whatever it acknowledged is still true.

    python bench/kill9.py [--points 500] [--seed 1] [--exec-each 1] [--keep]

One fleet of demo agents in tmux lives through all of it. At each point a daemon is started, taken to be ready when it
first answers ``fleetd/status``, put to work by a lead (sends, results, releases, spawns), and killed: before, in or
right behind one of its journal's writes, or at a random moment, also while it still starts. Then:

* every acknowledged send is known, and it ends: ``completed`` with its own answer, or otherwise with a reason;
* no prompt was submitted twice, by the members' own notes, and no refused one at all;
* what was seen of a result is what the next daemon says of it;
* every member that lives is in the roster of the next daemon, and none of them is lost.

Exit code 0: all of it held. A start's time depends on the machine's load, so its processor time is told too. On a busy
machine ``--exec-each 10`` starts only every tenth daemon as a program of its own and forks the others from a process
that has imported everything; their starts are counted apart.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import trio
from ledger import Ledger
from processes import BENCH, Forker, Life
from stage import FLEETD, Gone, Ready, Stage, dispose, lives, load, scratch, spread

MEMBERS: Final = 4
#: Sends that wait for one member at most.
AHEAD: Final = 2
#: Journal writes among which the deadly one is drawn: those of the recovery, of the first sends, or any.
WRITES: Final = (5, 12, 30)
#: How deep into a write a kill may come, in microseconds.
INTO_US: Final = 4000
#: Random moments: so long after it is ready, in seconds, or after its start, as a part of what a start takes here.
AFTER_READY_S: Final = 2.5
OF_A_START: Final = 1.2
#: How long a life goes on whose deadly write does not come, in seconds.
LONGEST_S: Final = 6.0
#: Share of prompts that ask for a backend error, and of steps that end a member.
FAILING: Final = 0.04
RELEASING: Final = 0.01
#: How long the last daemon is given to bring every send to its end, in seconds.
LAST_S: Final = 180.0
#: What a member shows when nothing can be sent to it any more.
OVER: Final = ("failed", "backend_error", "exhausted")


@dataclass
class Point:
    """When one daemon dies."""

    kind: str
    #: Arguments of ``killed_at.py`` before the daemon's own; none for a daemon that is killed from outside.
    write: tuple[str, ...] = ()
    from_start_s: float | None = None
    from_ready_s: float = LONGEST_S


def drawn(rng: random.Random, start_s: float) -> Point:
    """When the next daemon dies; ``start_s`` is what a start takes here."""
    kind = rng.choice(("before", "in", "after", "running", "running", "starting"))
    match kind:
        case "running":
            return Point(kind, from_ready_s=rng.uniform(0, AFTER_READY_S))
        case "starting":
            return Point(kind, from_start_s=rng.uniform(0, OF_A_START * start_s))
        case _:
            when = str(rng.randrange(INTO_US)) if kind == "in" else kind
            return Point(f"{kind} a write", (when, str(rng.randint(1, rng.choice(WRITES)))))


class Run:
    """Everything that outlives the daemons."""

    def __init__(self, stage: Stage, seed: int, forker: Forker) -> None:
        self.stage, self.rng, self.forker = stage, random.Random(seed), forker
        self.ledger = Ledger(stage)
        #: Members whose spawn was acknowledged, or that were seen; without those that were released.
        self.members: set[str] = set()
        #: Members that somebody has asked to release.
        self.leaving: set[str] = set()
        self.released: set[str] = set()
        #: Whom nobody wrote down: the daemon died between the launch and the record of it.
        self.strangers: set[str] = set()
        self.ready: list[Ready] = []
        #: Starts of forked daemons.
        self.forked: list[Ready] = []
        self.kills: Counter[str] = Counter()
        self.unready = 0
        #: The last daemon was killed from outside.
        self._outside = False
        #: Spawns that the machine was too slow for.
        self.not_spawned = 0

    # -- a lead's work -------------------------------------------------------------------------------------------

    async def work(self) -> None:
        """Lead the fleet until the daemon is gone."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._collect)
                nursery.start_soon(self._populate, nursery)
                for target in sorted(self.members - self.leaving):
                    nursery.start_soon(self._lead, target)
        except* Gone:
            pass

    async def _populate(self, nursery: trio.Nursery) -> None:
        while True:
            if len(self.members - self.leaving) < MEMBERS:
                spawned = await self.stage.call("fleet_spawn", profile="demo", cwd="/")
                if "target" in spawned:
                    self.members.add(spawned["target"])
                    nursery.start_soon(self._lead, spawned["target"])
                elif "was not seen to start" in spawned["message"]:
                    self.not_spawned += 1
                else:
                    self.ledger.wrong(f"no member was spawned: {spawned}")
            await trio.sleep(0.2)

    async def _lead(self, target: str) -> None:
        while target not in self.leaving:
            waiting = sum(1 for send in self.ledger.open if send.target == target)
            if waiting < AHEAD:
                fails = self.rng.random() < FAILING
                send = self.ledger.make(target, self.rng.uniform(0.1, 0.8), fails=fails)
                said = await self.ledger.send(send)
                if not send.ticket:
                    self.ledger.wrong(f"not sent: {said}")
                if said.get("status"):
                    self.ledger.took(send, said)
            elif self.rng.random() < RELEASING:
                await self._release(target)
            await trio.sleep(self.rng.uniform(0.05, 0.4))

    async def _release(self, target: str) -> None:
        self.leaving.add(target)
        said = await self.stage.call("fleet_release", target=target)
        if said.get("state") == "released":
            self.released.add(target)

    async def _collect(self, *, until_ended: bool = False) -> None:
        while self.ledger.open or not until_ended:
            for send in self.ledger.open:
                result = await self.stage.call("fleet_collect", ticket=send.ticket)
                if "error" in result:
                    self.ledger.wrong(f"acknowledged and not known: {send.ticket}: {result}")
                    send.result = {"status": "unknown", "text": "", "reason": str(result)}
                elif "status" in result:
                    self.ledger.took(send, result)
                    self._tidy(send.target, result)
            for row in (await self.stage.call("fleet_list"))["members"]:
                if row["state"] in OVER and row["target"] not in self.leaving:
                    await self._release(row["target"])
            await trio.sleep(0.2)

    def _tidy(self, target: str, result: dict[str, Any]) -> None:
        """Do what a person does who is told that a prompt stands in a member's input line: empty it."""
        reason = result.get("reason", "")
        if target not in self.leaving and ("input line" in reason or "draft" in reason):
            self.stage.tmux("send-keys", "-t", self.stage.pane_of(target), "C-u")

    # -- after a start -------------------------------------------------------------------------------------------

    async def inspect(self) -> None:
        """Compare the roster and the latest results with what was known before the daemon died."""
        listed = {row["target"]: row for row in (await self.stage.call("fleet_list"))["members"]}
        pids, _ = self.stage.witnessed()
        for target in sorted(self.members - self.leaving):
            row = listed.get(target)
            if target in pids and not lives(pids[target], self.stage.notes):
                self.ledger.wrong(f"{target} has died, and nobody has ended it")
            elif row is None or row["state"] == "lost":
                self.ledger.wrong(f"{target} lives and was not adopted: {row}")
        for target in (await self.stage.call("fleet_health"))["strangers"]:
            if target in self.members - self.leaving:
                self.ledger.wrong(f"{target} is a member, and health takes it for a stranger")
            else:
                # A person does what fleetd leaves to one.
                self.strangers.add(target)
                self.stage.tmux("kill-pane", "-t", self.stage.pane_of(target))
        for target in self.released & listed.keys():
            self.ledger.wrong(f"{target} was released and came back: {listed[target]}")
        for target in self.leaving & listed.keys() - self.released:
            await self._release(target)
        self.members |= listed.keys()
        for send in [send for send in self.ledger.acknowledged if send.result][-2 * MEMBERS :]:
            again = await self.stage.call("fleet_collect", ticket=send.ticket)
            if "status" not in again:
                self.ledger.wrong(f"its result was seen and is forgotten: {send.ticket}: {again}")
            else:
                self.ledger.took(send, again)

    # -- one life ------------------------------------------------------------------------------------------------

    async def live(self, point: Point, *, fork: bool) -> None:
        """Start a daemon, put it to work, and see it die."""
        self._outside = False
        if fork:
            life = self.stage.fork(self.forker, point.write)
        else:
            killing = (sys.executable, str(BENCH / "killed_at.py"), *point.write)
            life = self.stage.start(killing if point.write else FLEETD)
        try:
            async with trio.open_nursery() as nursery:
                if point.from_start_s is not None:
                    nursery.start_soon(self._kill_in, life, point.from_start_s)
                ready = await self.stage.ready(life)
                if ready is None:
                    self.unready += 1
                else:
                    (self.forked if fork else self.ready).append(ready)
                    if point.from_start_s is None:
                        nursery.start_soon(self._kill_in, life, point.from_ready_s)
                    with suppress(Gone):
                        await self.inspect()
                    await self.work()
                await life.end()
                nursery.cancel_scope.cancel()
        finally:
            life.kill()
        if (code := life.process.wait()) != -9:
            self.ledger.wrong(f"the daemon ended with {code}: {self.stage.said()[-3000:]}")
        late = bool(point.write) and self._outside
        self.kills["running, before the write came" if late else point.kind] += 1

    async def _kill_in(self, life: Life, seconds: float) -> None:
        await trio.sleep(seconds)
        self._outside = not life.ended
        life.kill()

    async def finish(self) -> None:
        """A last daemon, which nobody kills: every send ends, and the fleet with it."""
        life = await self.stage.up()
        await self.inspect()
        with trio.move_on_after(LAST_S):
            await self._collect(until_ended=True)
        self.ledger.judge()
        await self.stage.request("fleetd/down", {"killMembers": True})
        if (code := await life.end()) != 0:
            self.ledger.wrong(f"the daemon ended with exit code {code}: {self.stage.said()[-3000:]}")
        for target, pid in self.stage.witnessed()[0].items():
            if lives(pid, self.stage.notes):
                self.ledger.wrong(f"{target} lives after the end of all")


async def main(points: int, seed: int, exec_each: int, keep: bool) -> int:
    directory = scratch("kill9")
    stage = Stage(directory / "run", directory / "notes")
    forker = Forker(stage.errors)
    run = Run(stage, seed, forker)
    began, load_before = time.monotonic(), load()
    try:
        for number in range(1, points + 1):
            fork = number % exec_each != 0
            known = run.forked if fork else run.ready
            start_s = statistics.median(each.wall_s for each in known) if known else 1.0
            await run.live(drawn(run.rng, start_s), fork=fork)
            if number % 25 == 0 or number == points:
                told = f"{number} kills, {len(run.ledger.acknowledged)} sends, {time.monotonic() - began:.0f} s"
                print(
                    f"{told}, load {load()}, ready: {spread([each.wall_s for each in (*run.ready, *run.forked)])}",
                    flush=True,
                )
        await run.finish()
    finally:
        stage.clean_up()
        forker.close()
    report(run, load_before, time.monotonic() - began)
    dispose(directory, keep=keep or bool(run.ledger.violations))
    return 1 if run.ledger.violations else 0


def report(run: Run, load_before: str, took_s: float) -> None:
    wall = [each.wall_s for each in run.ready]
    quick = sum(1 for each in wall if each <= 2.0)
    print(f"kills: {dict(run.kills)}; {run.unready} of them before the daemon was ready")
    started = len(run.stage.witnessed()[0])
    print(
        f"members: {started} started, {len(run.released)} released; {run.not_spawned} spawns timed out; "
        f"{len(run.strangers)} were spawned and never acknowledged, and were left alone"
    )
    print(f"sends: {len(run.ledger.sends)} tried, {len(run.ledger.acknowledged)} acknowledged: {run.ledger.ends()}")
    print(f"prompts submitted: {len(run.stage.witnessed()[1])}")
    print(f"ready by the clock: {spread(wall)}; within 2 s: {100 * quick / max(1, len(wall)):.0f} %")
    print(f"ready, processor time: {spread([each.cpu_s for each in run.ready])}")
    if run.forked:
        print(f"forked, ready by the clock: {spread([each.wall_s for each in run.forked])}")
        print(f"forked, ready, processor time: {spread([each.cpu_s for each in run.forked])}")
    print(f"load before {load_before}, after {load()}; {took_s:.0f} s in all")
    print(f"violations: {len(run.ledger.violations)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--points", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--exec-each", type=int, default=1, help="fork the daemons between")
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    arguments = parser.parse_args()
    sys.exit(trio.run(partial(main, arguments.points, arguments.seed, arguments.exec_each, arguments.keep)))
