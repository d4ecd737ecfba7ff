"""Kill and stall the terminals under the daemon, and see that it lives and says what became of whom.

    python bench/terminal_death.py [--rounds 5] [--keep] [SCENARIO...]

``server``: the tmux server is killed. Every member is lost, and every open send ends with a reason; the daemon goes on,
and the next spawn gets a new server. ``pane``: one pane is closed, one member's shim killed, one program killed: each
of them is over, and nobody else. ``hung``: the tmux server stops for longer than the daemon waits for it, and goes on:
the daemon answers all the while, nobody is given up, and the running turns end as if nothing had been. ``restart``: the
daemon is killed while the server is stopped; the next one does not take silence for death, and adopts everybody once
the server goes on. Exit code 0: all of it held.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

import trio
from ledger import Ledger, Send
from processes import Life
from stage import Gone, Stage, dispose, lives, load, scratch

#: How long the tmux server is stopped, in seconds: longer than the daemon waits for an answer.
HUNG_S: Final = 13.0
#: How soon a control request must be answered while tmux hangs, in seconds. Here is where a busy machine shows.
ANSWER_S: Final = 5.0


class Round:
    """One scenario on a fresh daemon."""

    def __init__(self, stage: Stage, life: Life) -> None:
        self.stage, self.life = stage, life
        self.ledger = Ledger(stage)

    async def spawn(self, count: int) -> list[str]:
        targets = [(await self.stage.call("fleet_spawn", profile="demo", cwd="/"))["target"] for _ in range(count)]
        for target in targets:
            await self.stage.until_state(target, "idle")
        return targets

    async def busy(self, target: str, work_s: float) -> Send:
        """A send whose turn runs."""
        send = self.ledger.make(target, work_s)
        await self.ledger.send(send)
        await self.stage.until_state(target, "busy")
        return send

    async def queued(self, target: str) -> Send:
        """A send that waits behind the one that runs."""
        send = self.ledger.make(target, 0.3)
        await self.ledger.send(send)
        return send

    async def took(self, send: Send, *statuses: str) -> None:
        """Its end, which must be one of these."""
        self.ledger.took(send, (await self.stage.until_ended(send.ticket))[send.ticket])
        if send.result["status"] not in statuses:
            self.ledger.wrong(f"{send.ticket} should end {' or '.join(statuses)}: {send.result}")

    async def works(self, target: str) -> None:
        """The member answers another prompt."""
        send = self.ledger.make(target, 0.3)
        await self.ledger.send(send)
        await self.took(send, "completed")

    async def states(self) -> dict[str, str]:
        return {row["target"]: row["state"] for row in (await self.stage.call("fleet_list"))["members"]}


async def server(on: Round) -> None:
    first, second = await on.spawn(2)
    running, waiting = await on.busy(first, 30), await on.queued(first)
    os.kill(on.stage.tmux_pid, signal.SIGKILL)
    for target in (first, second):
        await on.stage.until_state(target, "lost")
    await on.took(running, "lost")
    await on.took(waiting, "lost", "refused")
    (third,) = await on.spawn(1)
    await on.works(third)
    for target in (first, second):
        await on.stage.call("fleet_release", target=target)
    if await on.states() != {third: "done"}:
        on.ledger.wrong(f"after the server's death the roster is {await on.states()}")


async def pane(on: Round) -> None:
    closed, orphaned, killed, well = await on.spawn(4)
    sends = {target: await on.busy(target, 30) for target in (closed, orphaned, killed)}
    beside = await on.busy(well, 3)
    on.stage.tmux("kill-pane", "-t", on.stage.pane_of(closed))
    shim = on.stage.tmux("display-message", "-p", "-t", on.stage.pane_of(orphaned), "#{pane_pid}")
    os.kill(int(shim), signal.SIGKILL)
    os.kill(on.stage.witnessed()[0][killed], signal.SIGKILL)
    for target, send in sends.items():
        await on.stage.until_state(target, "failed", "lost")
        await on.took(send, "failed", "lost")
    await on.took(beside, "completed")
    for target in sends:
        await on.stage.call("fleet_release", target=target)
    await on.works(well)
    pids = on.stage.witnessed()[0]
    if left := [target for target in sends if lives(pids[target], on.stage.notes)]:
        on.ledger.wrong(f"released, and their programs live: {left}")


async def hung(on: Round) -> None:
    first, second = await on.spawn(2)
    running = await on.busy(first, 2)
    stopped = on.stage.tmux_pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        until = time.monotonic() + HUNG_S
        meanwhile = on.ledger.make(second, 0.3)
        await on.ledger.send(meanwhile)
        while time.monotonic() < until:
            asked = time.monotonic()
            await on.stage.request("fleetd/status")
            states = await on.states()
            if (took := time.monotonic() - asked) > ANSWER_S:
                on.ledger.wrong(f"while tmux hung, two requests took {took:.1f} s")
            if {*states.values()} & {"lost", "failed"}:
                on.ledger.wrong(f"while tmux hung, the roster was {states}")
            await trio.sleep(0.5)
    finally:
        os.kill(stopped, signal.SIGCONT)
    await on.took(running, "completed")
    await on.took(meanwhile, "completed", "lost", "refused")
    await on.works(first)
    if stopped != on.stage.tmux_pid:
        on.ledger.wrong("the tmux server that had hung is another one now")


async def restart(on: Round) -> None:
    (first,) = await on.spawn(1)
    running = await on.busy(first, 2)
    stopped = on.stage.tmux_pid
    os.kill(stopped, signal.SIGSTOP)
    try:
        on.life.kill()
        await on.life.end()
        on.life = on.stage.start()
        # It may wait or give up, as long as it gives nobody else up.
        if await on.stage.ready(on.life) is not None and set((await on.states()).values()) & {"lost", "failed"}:
            on.ledger.wrong(f"tmux hung at the start, and the roster is {await on.states()}")
    finally:
        os.kill(stopped, signal.SIGCONT)
    if on.life.ended:
        if "tmux" not in on.stage.said():
            on.ledger.wrong(f"the daemon gave up and did not say why: {on.stage.said()[-2000:]}")
        on.life = await on.stage.up()
    await on.took(running, "completed")
    await on.works(first)


Scenario = Callable[[Round], Awaitable[None]]
SCENARIOS: Final[Mapping[str, Scenario]] = {"server": server, "pane": pane, "hung": hung, "restart": restart}


async def main(rounds: int, names: list[str], keep: bool) -> int:
    directory = scratch("terminals")
    began, load_before, violations = time.monotonic(), load(), 0
    for number in range(rounds):
        for name in names:
            base = directory / f"{name}-{number}"
            base.mkdir()
            stage = Stage(base / "run", base / "notes")
            on = Round(stage, await stage.up())
            try:
                await SCENARIOS[name](on)
                on.ledger.judge()
                if on.life.ended:
                    on.ledger.wrong(f"the daemon has ended: {stage.said()[-2000:]}")
            except Gone as gone:
                on.ledger.wrong(f"{name}: the daemon is gone: {gone}: {stage.said()[-2000:]}")
            finally:
                stage.clean_up(on.life)
            violations += len(on.ledger.violations)
            print(f"{name}, round {number + 1}: sends ended {on.ledger.ends()}", flush=True)
    print(f"load before {load_before}, after {load()}; {time.monotonic() - began:.0f} s in all")
    print(f"violations: {violations}")
    dispose(directory, keep=keep or bool(violations))
    return 1 if violations else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO", default=[])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--keep", action="store_true", help="keep the directory")
    arguments = parser.parse_args()
    sys.exit(trio.run(partial(main, arguments.rounds, arguments.scenarios or list(SCENARIOS), arguments.keep)))
