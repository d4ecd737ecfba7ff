"""Spawns against the incident that shuts their credential, the end of its cool-off, and each other.

The sentences: a spawn is judged at one moment, the one at which its check passes the policy, and evidence that was told
before the check always counts. What is refused starts no process. A place that one spawn has got no other one gets.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec
import pytest
import trio

from actors.clock import to_seconds
from actors.gate import GateCheck, GateRead
from actors.launcher import Configure, Launcher, Room, Spawn, _Place
from actors.outage import BackendErrorSeen, Cooling, CoolOffs, OutagePolicy
from actors.panes import PaneClosed
from actors.placement import PolicyName
from actors.quarantine import Quarantine
from actors.roster import Members, ReleaseMember, SlotFreed
from actors.spawning import ProfileRoom, SpawnRefused
from fleetd.testing import Fleet
from tests.races.drawn import CONFIG, Race, drawn_fleet
from tests.races.interleavings import Script, World, interleavings, is_answered, result, told
from tests.races.road import OpenGate, Road, S, evidence, pane_of, seen
from tests.races.stage import Stage, on_stage
from tests.races.twins import twin


def answer(spawn: Spawn) -> str:
    """``spawned``, or the refusal's stable word."""
    came = result(spawn)
    return came.error if isinstance(came, SpawnRefused) else "spawned"


class RemembersTheGate(Launcher):
    """Goes by what the gate said the last time."""

    _read: GateRead | None = None

    def _spawn(self, spawn):  # type: ignore[no-untyped-def]
        later = super()._spawn(spawn)
        if self._read is not None:
            super()._gate_read(msgspec.structs.replace(self._read, id=f"spawn-{self._checks}"))
        return later

    def _gate_read(self, read):  # type: ignore[no-untyped-def]
        self._read = read
        if read.id in self._asked:
            super()._gate_read(read)


class ReadsInsteadOfAsking(Quarantine):
    """Takes the policy's word from its state, and not from behind its mailbox."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        if isinstance(message, GateCheck):
            self._policy._read_gate(message)  # type: ignore[attr-defined]
            return None
        return super().handle(message)


# -- the start, and a second one ------------------------------------------------------------------------------------


@pytest.mark.criterion("U5.6")
@pytest.mark.parametrize(
    ("broken", "after_ns"),
    [(None, None), (None, 60 * S - 1), (None, 60 * S), (None, 60 * S + 1), twin(RemembersTheGate, None)],
)
def test_a_spawn_is_refused_exactly_if_its_check_passes_the_policy_behind_the_incident(
    broken: Any, after_ns: int | None
) -> None:
    """Two errors and two spawns, one behind the other; all of it at a time after an earlier incident, if there was one.

    Errors from before the end of that cool-off open no other incident, and until its end every spawn is refused.
    """

    def scene(world: World) -> tuple[Road, list[Spawn]]:
        road = Road(world, "policy quarantine launcher", launcher=broken or Launcher)
        if after_ns is not None:
            for target in ("m-8", "m-9"):
                road.policy.handle(seen(evidence(target, 0)))
            world.ns = after_ns
        spawns = [Spawn(road.lead, "p"), Spawn(road.lead, "p")]

        def lead() -> Script:
            for spawn in spawns:
                road.launcher.tell(spawn)
                yield partial(is_answered, spawn)

        world.client(lead())
        for target in ("m-1", "m-2"):
            world.tells(road.policy, seen(evidence(target, world.ns)))
        world.run()
        return road, spawns

    outcomes = set()
    for road, spawns in interleavings(scene):
        errors, expected = 0, []
        for message in road.world.order("outage", BackendErrorSeen, GateCheck):
            errors += isinstance(message, BackendErrorSeen)
            if isinstance(message, GateCheck):
                shut = errors == 2 or after_ns == 60 * S - 1
                expected.append("credential_cooling_off" if shut else "spawned")
        came = [answer(spawn) for spawn in spawns]
        assert came == expected
        assert len(road.starts.orders) == came.count("spawned")
        outcomes.add(tuple(came))
    # Both got in, only the first did, neither did; or the gate was shut all the time.
    assert len(outcomes) == (1 if after_ns == 60 * S - 1 else 3)


@pytest.mark.parametrize("make", [Quarantine, twin(ReadsInsteadOfAsking)])
def test_evidence_that_is_told_before_a_spawn_is_asked_for_always_counts(make: type[Quarantine]) -> None:
    """It stands in the policy's mailbox, and nobody has looked at it yet."""

    def scene(world: World) -> tuple[Road, Spawn]:
        road = Road(world, "policy quarantine launcher", quarantine=make)
        for target in ("m-1", "m-2"):
            road.policy.tell(seen(evidence(target, 0)))
        spawn = Spawn(road.lead, "p")
        road.launcher.tell(spawn)
        world.run()
        return road, spawn

    for road, spawn in interleavings(scene, every=True):
        assert answer(spawn) == "credential_cooling_off"
        assert road.starts.orders == []


def test_a_reload_while_a_spawn_is_at_the_gate_does_not_smuggle_it_past_a_cool_off() -> None:
    def scene(world: World) -> tuple[Road, Spawn]:
        road = Road(world, "roster policy quarantine launcher", rooms=(ProfileRoom("p", "open", 9),))
        for target in ("m-1", "m-2"):
            road.policy.handle(seen(evidence(target, 0, "shut")))
        spawn = Spawn(road.lead, "p")

        road.launcher.tell(spawn)
        world.tells(road.launcher, Configure((ProfileRoom("p", "shut", 9),), PolicyName.LEAST_LOADED))
        world.run()
        return road, spawn

    for road, spawn in interleavings(scene):
        started = [row.identity.credential for row in road.roster.handle(Members())]
        assert started == (["open"] if answer(spawn) == "spawned" else [])
        assert len(road.starts.orders) == len(started)


# -- the end --------------------------------------------------------------------------------------------------------


class EndsLate(CoolOffs):
    def until(self, credential, now_ns):  # type: ignore[no-untyped-def]
        return super().until(credential, now_ns - 1)


class Inclusive(OutagePolicy):
    """Is cool at its deadline still."""

    def __init__(self, settings, **more):  # type: ignore[no-untyped-def]
        super().__init__(settings, **more)
        self._rule = EndsLate(settings)


@pytest.mark.criterion("U5.13")
@pytest.mark.parametrize(
    ("make", "off_ns"), [(OutagePolicy, -1), (OutagePolicy, 0), (OutagePolicy, 1), twin(Inclusive, 0)]
)
def test_the_cool_off_ends_with_its_last_nanosecond(make: type[OutagePolicy], off_ns: int) -> None:
    """Three spawns wait for the instant and come together."""

    async def story(fleet: Fleet, stage: Stage, nursery: trio.Nursery) -> tuple[list[dict[str, Any]], int]:
        await fleet.advance(12.3456789)
        for target in ("m-1", "m-2"):
            fleet.actors.outage.tell(seen(evidence(target, fleet.actors.outage.now(), "shared")))
        until = (await fleet.actors.outage.ask(Cooling()))["shared"]
        came: list[dict[str, Any]] = []

        async def spawn() -> None:
            await trio.sleep_until(to_seconds(until + off_ns))
            came.append(await fleet.lead().call("fleet_spawn", profile="demo-a"))

        for _ in range(3):
            nursery.start_soon(spawn)
        await fleet.advance(61)
        return came, len(fleet.launches)

    came, launches = on_stage(story, {"fleetd.fleet.OutagePolicy": make})
    refusals = [each for each in came if "error" in each]
    assert len(came) == 3
    assert launches == 3 - len(refusals) == (0 if off_ns < 0 else 3)
    assert {(each["error"], each["retryAfterSeconds"]) for each in refusals} <= {("credential_cooling_off", 1)}


# -- each other -----------------------------------------------------------------------------------------------------


class ReservesLate(Launcher):
    """Takes the place once the process runs."""

    def _gate_read(self, read):  # type: ignore[no-untyped-def]
        known = dict(self._places)
        super()._gate_read(read)
        self._places = known

    def _up(self, done, launched):  # type: ignore[no-untyped-def]
        self._places[done.order.target] = _Place(done.order.profile, done.order.name)
        super()._up(done, launched)


@pytest.mark.parametrize("make", [Launcher, twin(ReservesLate)])
def test_the_last_place_goes_to_one_spawn_in_every_interleaving(make: type[Launcher]) -> None:
    """One names its profile and one does not. A member leaves at the same time: its place may come too late."""

    def scene(world: World) -> tuple[Road, list[Spawn]]:
        road = Road(world, "roster launcher", launcher=make, quarantine=OpenGate, rooms=(ProfileRoom("p", "c", 2),))
        road.launcher.tell(old := Spawn(road.lead, "p"))
        world.run()
        world.handled.clear()
        target = result(old).target
        spawns = [Spawn(road.lead, "p"), Spawn(road.lead)]

        def leaves() -> Script:
            release = told(road.roster, ReleaseMember(target))
            yield lambda: release.reply.settled
            road.roster.tell(PaneClosed(pane_of(target)))

        for spawn in spawns:
            world.tells(road.launcher, spawn)
        world.client(leaves())
        world.run()
        return road, spawns

    outcomes = set()
    for road, spawns in interleavings(scene):
        reads = road.world.order("launcher", GateRead, SlotFreed)
        free_in_time = isinstance(reads[0], SlotFreed) or isinstance(reads[1], SlotFreed)
        came = [answer(spawn) for spawn in spawns]
        assert came.count("spawned") == (2 if free_in_time else 1)
        assert set(came) <= {"spawned", "profile_full", "no_candidate"}
        (load,) = road.launcher.handle(Room())
        assert load.taken == len(road.starts.orders) - 1 == came.count("spawned")
        outcomes.add(free_in_time)
    assert outcomes == {True, False}


ONE = CONFIG.replace("capacity: 4", "capacity: 1")


@pytest.mark.parametrize("make", [Launcher, twin(ReservesLate)])
def test_real_tasks_that_race_for_the_last_place_get_it_once(make: type[Launcher]) -> None:
    async def story(fleet: Fleet, race: Race) -> list[str]:
        came: list[str] = []

        async def spawn() -> None:
            await race.dawdle()
            came.append(str((await fleet.lead().call("fleet_spawn", profile="demo-a")).get("error", "spawned")))

        race.begins()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(spawn, name="spawn")
        came.append(f"{len(fleet.launches)} launched")
        return came

    def judge(came: list[str]) -> None:
        assert sorted(came) == ["1 launched", "profile_full", "profile_full", "spawned"]

    drawn_fleet(story, judge, config=ONE, swap={"fleetd.fleet.Launcher": make}, examples=15)


class LooksAtNobody(Launcher):
    """Starts what was asked for, whoever is still there."""

    def _gate_read(self, read):  # type: ignore[no-untyped-def]
        self._asked[read.id][0].reply.abandoned = False
        super()._gate_read(read)


@pytest.mark.parametrize("make", [Launcher, twin(LooksAtNobody)])
def test_a_spawn_whose_caller_goes_starts_nothing_or_a_member_that_everybody_sees(make: type[Launcher]) -> None:
    def scene(world: World) -> tuple[Road, bool]:
        road = Road(world, "roster launcher", launcher=make, quarantine=OpenGate)
        spawn = Spawn(road.lead, "p")
        gone_before_the_gate = False

        def lead() -> Script:
            nonlocal gone_before_the_gate
            road.launcher.tell(spawn)
            yield None
            world.look()
            spawn.reply.abandoned = True
            gone_before_the_gate = not world.order("launcher", GateRead)

        world.client(lead())
        world.run()
        return road, gone_before_the_gate

    outcomes = set()
    for road, gone in interleavings(scene):
        members = road.roster.handle(Members())
        (load,) = road.launcher.handle(Room())
        assert len(road.starts.orders) == len(members) == load.taken == (0 if gone else 1)
        outcomes.add(gone)
    assert outcomes == {True, False}
