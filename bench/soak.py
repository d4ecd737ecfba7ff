"""A fleet for 24 hours on the fake clock, with failures of every kind: nothing grows, and the counters add up.

    python bench/soak.py                              200 members, 24 virtual hours
    python bench/soak.py --members 40 --hours 6 --seed 3

It is the fleet of :mod:`fleetd.testing`: the real actors and tools over panes in memory. Every half hour a sixth of
the members get a prompt at once, and each turn goes as a draw decides: an answer on the screen or by ``fleet_reply``, a
backend error, a used-up quota, a question, an interrupt, a time-out with a late answer, a death in mid-turn. Pastes and
Enters are lost, captures fail, people scroll, leads are busy for an hour. Members that have failed are released and
replaced as soon as the gate lets them. While turns are open, time passes from deadline to deadline; between them in
steps of five seconds, because all that happens then is a poll of nothing.

After each hour, when no send is open, these are measured: tasks, the entries of everything that an actor holds, records
in the journal, objects and resident memory. What is kept for later by design has a bound (1024 tickets, 256 tombstones,
4096 owners ...) and must stay within it; everything else must be no more at the end than after the second hour, and
memory no more than when the tickets, by far the most of it, had filled their table. What the harness itself writes down
for tests (prompts, keys, transcripts) is thrown away first.

The counters: each send ended once, and the ends by status add up to the sends; members are what was spawned less what
was released, in the roster, the launcher and the journal alike; no lead was nudged more often than was counted.
"""

from __future__ import annotations

import argparse
import gc
import logging
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import trio

from actors.actor import running
from actors.host import HostError, PaneGone
from actors.launcher import Room
from actors.leads import LoopOf
from actors.mail import KEPT_TICKETS
from actors.roster import TOMBSTONES
from actors.supervise import leaf
from fleetd.callers import Caller, Role
from fleetd.hosts.memory import ScriptedAgent
from fleetd.testing import Fleet, Member
from fleetd.testing.people import LeadAgent

#: Between two rounds of prompts, in seconds of virtual time.
ROUND_S: Final = 1800
#: A sixth of the members gets a prompt in each round.
SHARE: Final = 6
#: How far time goes at once while no turn is open, in seconds.
IDLE_STEP_S: Final = 5
#: How long a round's turns may take to end, in seconds of virtual time.
DRAIN_S: Final = 240
LEADS: Final = ("lead", "second", "third", "paneless")
CREDENTIALS: Final = 8

#: What is kept for later, and how much of it: growth up to there is meant.
BOUNDS: Final[Mapping[str, int]] = {
    "mail._tickets": KEPT_TICKETS,
    "store.ticket": KEPT_TICKETS,
    "roster._tombs": TOMBSTONES,
    "leads._owner": 4096,
    "panes._unclaimed": 256,
    "push._told_once": 256 * len(LEADS),
    "questions._questions": 1024,
    "store.question": 1024,
}
#: Growth of memory, and of the number of objects, between the hour in which the tickets' table was full and the last:
#: smaller tables are still filling, and an allocator is uneven.
GROWTH_KIB: Final = 8 * 1024
GROWTH_OBJECTS: Final = 0.05

#: How turns go, and how often in a hundred.
FATES: Final[Mapping[str, int]] = {
    "answers": 62,
    "replies": 10,
    "fails": 8,
    "exhausts": 1,
    "asks": 4,
    "is interrupted": 4,
    "is late": 3,
    "dies": 4,
    "retries": 4,
}


class Wrong(AssertionError):
    """Something grew, or a counter does not add up."""


def config(members: int) -> str:
    """A profile for each credential, with room for all members even while some credentials are shut."""
    capacity = min(64, -(-members * 3 // (2 * CREDENTIALS)))
    patterns = "errorPattern: '@demo', exhaustedPattern: '@demo'"
    rows = [
        f"  p{n}: {{agent: demo, credentialId: c{n}, capacity: {capacity}, {patterns}}}" for n in range(CREDENTIALS)
    ]
    return "\n".join(["quarantineCooldownSeconds: 900", "profiles:", *rows])


@dataclass
class Reading:
    """What was measured after an hour."""

    tasks: int
    entries: dict[str, int]
    objects: int
    resident_kib: int


@dataclass
class Soak:
    """One run.

    Args:
        fleet: a fleet that runs, made with :func:`config`.
    """

    fleet: Fleet
    members: int
    random: random.Random
    alive: dict[str, Member] = field(default_factory=dict)
    tickets: dict[str, str] = field(default_factory=dict)  # open or not collected: ticket to lead
    sends: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    fates: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    spawned: int = 0
    released: int = 0
    nudges: Counter[str] = field(default_factory=Counter)
    readings: list[Reading] = field(default_factory=list)
    #: This process's resident memory; a test that may open no file measures none.
    resident_kib: Callable[[], int] = lambda: 0

    async def run(self, hours: float, progress: Callable[[str], None] = lambda _: None) -> None:
        """Live that long. Raises :class:`Wrong`."""
        for name in LEADS[1:]:
            await self.fleet.add_lead(name, pane=name != "paneless")
        rounds = round(hours * 3600 / ROUND_S)
        an_hour = max(1, 3600 // ROUND_S)
        for number in range(rounds):
            begun = trio.current_time()
            await self._staff()
            await self._round()
            await self._idle(begun + ROUND_S - trio.current_time())
            if (number + 1) % an_hour == 0:
                await self._measure()
                progress(self._said())
        await self._check()

    # -- a round -------------------------------------------------------------------------------------------------

    async def _staff(self) -> None:
        """Replace what is missing, as far as the gate lets."""
        for lead in LEADS:
            agent = None if self.fleet.lead(lead).pane is None else self.fleet.lead(lead).agent
            if agent is not None and self.random.random() < 0.15:
                agent.busy("thinking")
            elif agent is not None:
                agent.idle()
        while len(self.alive) < self.members:
            name = f"w{self.spawned}"
            lead = LEADS[self.spawned % len(LEADS)]
            spawned = await self.fleet.lead(lead).call("fleet_spawn", name=name)
            if "error" in spawned:
                self.refused[spawned["error"]] += 1
                break
            self.spawned += 1
            target = str(spawned["target"])
            self.alive[target] = Member(self.fleet, name, target, self.fleet.host.of(target))
        await self.fleet.advance(seconds=1)

    async def _round(self) -> None:
        chosen = self.random.sample(sorted(self.alive), max(1, len(self.alive) // SHARE))
        fates = {target: self._fate() for target in chosen}
        for target, fate in fates.items():
            await self._send(target, fate)
        self._trouble(chosen)
        await self.fleet.advance(seconds=2)
        for target, fate in fates.items():
            await self._go(target, fate)
        drained = trio.current_time() + DRAIN_S
        while self._open():
            if trio.current_time() > drained:
                raise Wrong(f"sends that do not end: {self._open()}\n{self.fleet.timeline}")
            await self.fleet.advance(seconds=3)
            self._finish(chosen)
            await self._collect()
        for target in [*self.alive]:
            if await self.alive[target].state() in ("failed", "backend_error", "exhausted", "lost"):
                await self._release(target)

    def _fate(self) -> str:
        return self.random.choices([*FATES], [*FATES.values()])[0]

    async def _send(self, target: str, fate: str) -> None:
        lead = self.random.choice(LEADS)
        timeout = 4 if fate == "is late" else 3600
        sent = await self.fleet.lead(lead).call("fleet_send", target=target, prompt="go on", timeoutSeconds=timeout)
        if "ticket" not in sent:
            raise Wrong(f"a send was not taken: {sent}")
        self.sends += 1
        self.fates[fate] += 1
        self.tickets[str(sent["ticket"])] = lead

    def _trouble(self, chosen: Sequence[str]) -> None:
        """Let something go wrong in the terminal."""
        for target in chosen:
            pane = self.alive[target].pane
            match self.random.randrange(40):
                case 0:
                    pane.lost_pastes += 1
                    self.faults["lost paste"] += 1
                case 1:
                    pane.swallowed["Enter"] += 1
                    self.faults["lost Enter"] += 1
                case 2:
                    pane.in_mode = True
                    self.faults["person scrolls"] += 1
        if self.random.random() < 0.3:
            call = self.random.choice(("capture", "paste", "press"))
            self.fleet.host.fail_next(call, HostError("the terminal did not answer"))
            self.faults[f"{call} failed"] += 1

    async def _go(self, target: str, fate: str) -> None:
        """Let a turn take its course, if its prompt arrived."""
        member = self.alive[target]
        agent = member.agent
        if agent.story.doing is None:
            return
        match fate:
            case "replies":
                await self.fleet.tools.call(Caller(Role.MEMBER, target, "/"), "fleet_reply", {"text": "all is done"})
                agent.answers("all is done")
            case "fails":
                agent.fails()
            case "exhausts":
                agent.exhausts()
            case "asks":
                caller = Caller(Role.MEMBER, target, "/")
                asked = await self.fleet.tools.call(caller, "fleet_ask", {"text": f"may {target}?", "waitSeconds": 0})
                question = str(asked.structured["question"])
                if self.random.random() < 0.8:
                    lead = self.fleet.lead(self.random.choice(LEADS))
                    await lead.call("fleet_answer", question=question, text="yes")
                agent.answers("it was asked")
            case "is interrupted":
                await self.fleet.lead().call("fleet_interrupt", target=target)
            case "dies":
                member.dies(self.random.choice((0, 1, None)))
            case "retries":
                agent.retries(2)

    def _finish(self, chosen: Sequence[str]) -> None:
        """Whoever still works comes to an end."""
        for target in chosen:
            member = self.alive.get(target)
            if member is not None and not member.pane.dead and member.agent.story.doing is not None:
                member.agent.answers("done at last")

    def _open(self) -> list[str]:
        return [name for name in self.tickets if not self.fleet.actors.mail._over(name)]

    async def _collect(self) -> None:
        """Collect what has ended; a fifth is left for later."""
        for name, lead in [*self.tickets.items()]:
            if self.fleet.actors.mail._over(name) and self.random.random() < 0.8:
                await self._collect_one(name, lead)

    async def _collect_one(self, name: str, lead: str) -> None:
        result = await self.fleet.lead(lead).call("fleet_collect", ticket=name)
        self.ended[str(result["status"])] += 1
        del self.tickets[name]

    async def _release(self, target: str) -> None:
        await self.fleet.lead().call("fleet_release", target=target)
        self.released += 1
        del self.alive[target]

    async def _idle(self, seconds: float) -> None:
        """Nobody works; timers, health and reminders go on."""
        end = trio.current_time() + max(0.0, seconds)
        while (left := end - trio.current_time()) > 0:
            self.fleet._clock.jump(min(IDLE_STEP_S, left))
            await trio.testing.wait_all_tasks_blocked()

    # -- after each hour -----------------------------------------------------------------------------------------

    async def _measure(self) -> None:
        for name, lead in [*self.tickets.items()]:
            await self._collect_one(name, lead)
        for target in [*self.alive]:
            if self.random.random() < 0.05:
                await self._release(target)
        for lead in LEADS:
            if self.fleet.lead(lead).pane is not None:
                self.fleet.lead(lead).agent.idle()
        await self.fleet.advance(seconds=10)
        self._forget()
        gc.collect()
        tasks = trio.lowlevel.current_statistics().tasks_living
        self.readings.append(Reading(tasks, self._entries(), len(gc.get_objects()), self.resident_kib()))

    def _forget(self) -> None:
        """Throw away what the harness writes down for tests."""
        self.fleet.launches.clear()
        self.fleet.posted.clear()
        self.fleet.timeline._rows.clear()
        for lead in LEADS:
            if self.fleet.lead(lead).pane is not None:
                self.nudges[lead] += len(self.fleet.lead(lead).nudges)
        for target in self.fleet._agents.keys() - self.alive.keys():
            del self.fleet._agents[target]
        for pane in self.fleet.host._panes.values():
            pane.keys.clear()
            if isinstance(pane.program, ScriptedAgent | LeadAgent):
                pane.program.prompts.clear()
                del pane.program.story.blocks[1:-4]

    def _entries(self) -> dict[str, int]:
        """How much each actor holds, by actor and attribute; resolvers and push loops together."""
        found: Counter[str] = Counter()
        for actor in running():
            owner = actor.name.partition(":")[0]
            for name, value in vars(actor).items():
                if isinstance(value, Sized) and not isinstance(value, str | bytes | tuple):
                    found[f"{owner}.{name}"] += len(value)
        for kind, _ in self.fleet.store._records:
            found[f"store.{kind}"] += 1
        return dict(found)

    def _said(self) -> str:
        last = self.readings[-1]
        return (
            f"hour {len(self.readings)}: {last.tasks} tasks, {sum(last.entries.values())} entries, "
            f"{last.objects} objects, {last.resident_kib / 1024:.1f} MiB; "
            f"{self.sends} sends, {self.spawned} spawned, {self.released} released"
        )

    # -- at the end ----------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        if self.sends != self.ended.total():
            raise Wrong(f"{self.sends} sends and {self.ended.total()} ends: {self.ended}")
        await self._check_members()
        for lead in LEADS:
            loop = await self.fleet.actors.leads.ask(LoopOf(self.fleet.lead(lead).caller.id))
            if loop._nudges < self.nudges[lead]:
                raise Wrong(f"{lead} was nudged {self.nudges[lead]} times, and {loop._nudges} were counted")
        for actor in running():
            if actor.depth:
                raise Wrong(f"{actor!r} has {actor.depth} messages waiting at rest")
        self._check_growth()

    async def _check_members(self) -> None:
        here = self.spawned - self.released
        listed = (await self.fleet.lead().call("fleet_list"))["members"]
        rooms = await self.fleet.actors.launcher.ask(Room())
        taken = sum(room.taken for room in rooms)
        kept = sum(1 for kind, _ in self.fleet.store._records if kind == "member")
        resolvers = sum(1 for actor in running() if actor.name.startswith("resolver:"))
        counted = {"roster": len(listed), "launcher": taken, "journal": kept, "resolvers": resolvers}
        if set(counted.values()) != {here}:
            raise Wrong(f"{self.spawned} spawned less {self.released} released are {here}, and there are {counted}")
        for target in self.alive:
            try:
                self.fleet.host.of(target)
            except PaneGone:
                raise Wrong(f"member {target} has no pane") from None

    def _check_growth(self) -> None:
        """Compare the last hour with the second."""
        if len(self.readings) < 3:
            return
        before, after = self.readings[1], self.readings[-1]
        of_each = self.members  # what there may be one of for each member
        if after.tasks > before.tasks + 16:
            raise Wrong(f"{before.tasks} tasks have become {after.tasks}")
        for name, size in after.entries.items():
            bound = BOUNDS.get(name, max(before.entries.get(name, 0), of_each) + 16)
            if size > bound:
                raise Wrong(f"{name} holds {size}, and {bound} at most were meant: {before.entries} {after.entries}")
        full = [reading for reading in self.readings if reading.entries.get("mail._tickets", 0) >= KEPT_TICKETS]
        if full and after.resident_kib > full[0].resident_kib + GROWTH_KIB:
            raise Wrong(f"{full[0].resident_kib} KiB have become {after.resident_kib}")
        if full and after.objects > full[0].objects * (1 + GROWTH_OBJECTS):
            raise Wrong(f"{full[0].objects} objects have become {after.objects}")


def resident_kib() -> int:
    """This process's resident memory."""
    return int(Path("/proc/self/status").read_text().split("VmRSS:", 1)[1].split()[0])


async def soak(fleet: Fleet, members: int, hours: float, seed: int, progress: Callable[[str], None]) -> Soak:
    """A whole run in a fleet that is not running yet."""
    one = Soak(fleet, members, random.Random(seed), resident_kib=resident_kib)
    async with fleet.running():
        await one.run(hours, progress)
    return one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--hours", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    fleet = Fleet(config(arguments.members))
    logging.getLogger("fleetd").setLevel(logging.CRITICAL)  # failures are what it is about
    begun = time.monotonic()
    try:
        one = trio.run(soak, fleet, arguments.members, arguments.hours, arguments.seed, print, clock=fleet)
    except BaseExceptionGroup as group:
        if not isinstance(wrong := leaf(group), Wrong):
            raise
        print(f"wrong: {wrong}", file=sys.stderr)
        return 1
    print(f"{arguments.members} members for {arguments.hours:g} virtual hours in {time.monotonic() - begun:.0f} s")
    for what in ("ended", "fates", "faults", "refused", "nudges"):
        counts: Counter[str] = getattr(one, what)
        print(f"{what}: " + ", ".join(f"{count} {name}" for name, count in counts.most_common()))
    for before, after in zip(one.readings[1:2], one.readings[-1:], strict=False):
        sizes = [
            f"{name} {before.entries.get(name, 0)} to {size}" for name, size in sorted(after.entries.items()) if size
        ]
        print(f"entries, second hour to last: {', '.join(sizes)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
