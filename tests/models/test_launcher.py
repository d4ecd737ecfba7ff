"""A model of the launcher: spawns, gates that shut and open, launches that fail, reloads and releases, in any order.

The oracle keeps the places as a list of rows and works each decision out from the configuration, the places and the
gate as they are at that moment. It knows the gate for every credential, not only for those that a check asked for.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.gate import GateCheck, GateRead
from actors.host import OpenFailed, PaneRef
from actors.launcher import Configure, Launcher, Room, Spawn
from actors.leads import Owns
from actors.placement import PolicyName
from actors.roster import MemberUp, ResolverDown, SlotFreed
from actors.setup import Setup
from actors.spawning import Launched, Order, ProfileRoom, SpawnRefused
from tests.actors.recorders import Clock, Recorder, TableGrammar
from tests.models.asks import answer, answered, refused
from tests.models.effort import modest

S = NS_PER_S
NAMES = ("a", "b", "c")
CREDENTIALS = ("x", "y", "z")


@dataclass
class Place:
    """A row of the oracle: who takes up room, from the reservation on."""

    target: str
    name: str
    profile: str


@dataclass
class Check:
    """A spawn at the gate."""

    sent: GateCheck
    spawn: Spawn


@dataclass
class Launch:
    """A process that is being started."""

    spawn: Spawn
    place: Place
    credential: str
    effect: Callable[[], Awaitable[None]]


class Bench:
    """Where the launcher's effects and launches go: they happen when the model says so."""

    def __init__(self) -> None:
        self.started: list[tuple[str, Callable[..., Awaitable[None]], tuple[Any, ...]]] = []
        self.orders: list[Order] = []
        self.fails: Exception | None = None

    def start_soon(self, async_fn: Callable[..., Awaitable[None]], *args: object, name: object = None) -> None:
        self.started.append((str(name), async_fn, args))

    async def launch(self, order: Order) -> Launched:
        self.orders.append(order)
        if self.fails is not None:
            raise self.fails
        return Launched(PaneRef("memory", f"%{order.target}"), Setup(TableGrammar()), order.cwd or "/home")


class LauncherMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(100 * S)
        self.order: list[tuple[str, Message]] = []
        self.bench, self.gate = Bench(), Recorder("gate")
        self.launcher = Launcher(
            self.bench,  # type: ignore[arg-type]
            gate=self.gate,
            roster=Recorder("roster", self.order),
            leads=Recorder("leads", self.order),
            panes=Recorder("panes", self.order),
        )
        self.launcher.effects, self.launcher.now = self.bench, self.clock  # type: ignore[assignment]
        self.profiles: list[ProfileRoom] = []
        self.policy = PolicyName.LEAST_LOADED
        self.exhausted: dict[str, int] = {}
        self.cooling: dict[str, int] = {}
        self.places: list[Place] = []
        self.checks: list[Check] = []
        self.launches: list[Launch] = []
        self.last: str | None = None
        self.count = 0
        self.spawned: list[Spawn] = []
        #: Spawns that must have been answered.
        self.done: list[Spawn] = []

    # -- the oracle ----------------------------------------------------------------------------------------------

    def taken(self, profile: str) -> int:
        return sum(place.profile == profile for place in self.places)

    def shut(self, profile: ProfileRoom) -> tuple[str, int | None] | None:
        """Why a profile takes no spawn: "exhaustion quarantine has priority when both states are active"."""
        if self.exhausted.get(profile.credential, 0) > self.clock.ns:
            return "credential_exhausted", self.exhausted[profile.credential]
        if self.cooling.get(profile.credential, 0) > self.clock.ns:
            return "credential_cooling_off", self.cooling[profile.credential]
        if self.taken(profile.name) >= profile.capacity:
            return "profile_full", None
        return None

    def usable(self) -> list[ProfileRoom]:
        return [profile for profile in self.profiles if self.shut(profile) is None]

    def chosen(self) -> ProfileRoom:
        """Where placement puts a spawn, by what ``placement.policy`` says of each policy."""
        usable, names = self.usable(), [profile.name for profile in self.profiles]
        if self.policy is PolicyName.PRIORITY:
            # "The first usable one in the order of the configuration."
            return usable[0]
        if self.policy is PolicyName.ROUND_ROBIN:
            # "The next usable one after the last that was chosen."
            start = names.index(self.last) + 1 if self.last in names else 0
            around = self.profiles[start:] + self.profiles[:start]
            return next(profile for profile in around if profile in usable)
        # "The smallest share of its capacity in use; the order of the configuration breaks ties."
        shares = [Fraction(self.taken(profile.name), profile.capacity) for profile in usable]
        return usable[shares.index(min(shares))]

    def seconds(self, until: int) -> int:
        """ "Remaining seconds round up." """
        return (until - self.clock.ns + S - 1) // S

    def name_is_taken(self, name: str | None) -> bool:
        return name is not None and any(name == place.name for place in self.places)

    # -- leads ---------------------------------------------------------------------------------------------------

    @initialize(rooms=st.data())
    def begin(self, rooms: st.DataObject) -> None:
        self.a_reload(rooms)

    @rule(data=st.data())
    def a_reload(self, data: st.DataObject) -> None:
        names = data.draw(st.permutations(NAMES))[: data.draw(st.integers(0, 3) if self.profiles else st.just(3))]
        rooms = [
            ProfileRoom(name, data.draw(st.sampled_from(CREDENTIALS)), data.draw(st.integers(1, 2))) for name in names
        ]
        self.profiles, self.policy = rooms, data.draw(st.sampled_from(PolicyName))
        self.launcher._step(Configure(tuple(rooms), self.policy))

    @rule(
        profile=st.none() | st.sampled_from((*NAMES, "nobody")),
        name=st.none() | st.sampled_from(["parser", "lexer", "m-2", "-bad", "Bad", "x" * 65]),
        cwd=st.sampled_from(["", "/src"]),
    )
    def somebody_spawns(self, profile: str | None, name: str | None, cwd: str) -> None:
        spawn = Spawn("lead-1", profile, name, cwd, worktree=bool(cwd))
        self.spawned.append(spawn)
        asked = len(self.gate.told)
        self.launcher._step(spawn)
        known = [room.name for room in self.profiles]
        if profile is not None and profile not in known:
            self.is_refused(spawn, "unknown_profile", profile=profile, alternatives=known)
        elif not known:
            self.is_refused(spawn, "no_candidate", candidates=[])
        elif name in ("m-2", "-bad", "Bad", "x" * 65):
            self.is_refused(spawn, "bad_name")
        elif self.name_is_taken(name):
            self.is_refused(spawn, "name_taken")
        else:
            # Nothing is decided before the gate is read, and it is read for every profile that might be chosen.
            (check,) = self.gate.told[asked:]
            assert isinstance(check, GateCheck)
            assert set(check.credentials) == {room.credential for room in self.profiles}
            assert check.back is self.launcher
            assert check.id not in {other.sent.id for other in self.checks}
            self.checks.append(Check(check, spawn))
            return
        assert len(self.gate.told) == asked

    @precondition(lambda self: self.checks)
    @rule(data=st.data())
    def a_caller_goes(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.checks)).spawn.reply.abandoned = True

    # -- the gate ------------------------------------------------------------------------------------------------

    @rule(
        credential=st.sampled_from(CREDENTIALS),
        which=st.sampled_from(["exhausted", "cooling", "cooling"]),
        length_ns=st.sampled_from([1, S, 60 * S - 1, 60 * S, 1800 * S]),
    )
    def a_credential_shuts(self, credential: str, which: str, length_ns: int) -> None:
        getattr(self, which)[credential] = self.clock.ns + length_ns

    @rule(step_ns=st.sampled_from([1, S, 59 * S, 60 * S, 1800 * S]))
    def time_passes(self, step_ns: int) -> None:
        self.clock.ns += step_ns

    @precondition(lambda self: self.checks)
    @rule(data=st.data())
    def the_gate_is_read(self, data: st.DataObject) -> None:
        check = data.draw(st.sampled_from(self.checks))
        self.checks.remove(check)
        shut = [
            {name: end for name, end in ends.items() if name in check.sent.credentials and end > self.clock.ns}
            for ends in (self.exhausted, self.cooling)
        ]
        started, orders = len(self.bench.started), len(self.bench.orders)
        unchecked = {room.credential for room in self.profiles} - set(check.sent.credentials)
        self.launcher._step(GateRead(check.sent.id, *shut, True, self.clock.ns))
        assert len(self.bench.orders) == orders
        if check.spawn.reply.abandoned:
            # "A spawn whose caller has gone starts nothing."
            assert len(self.bench.started) == started
        elif unchecked:
            # A reload has brought a credential that the gate was not asked about, so it is asked again.
            assert len(self.bench.started) == started
            again = self.gate.told[-1]
            assert isinstance(again, GateCheck)
            assert set(again.credentials) == {room.credential for room in self.profiles}
            self.checks.append(Check(again, check.spawn))
        else:
            self.decide(check.spawn, started)

    def decide(self, spawn: Spawn, started: int) -> None:
        """What must have come of a spawn whose gate has just been read."""
        named = next((room for room in self.profiles if room.name == spawn.profile), None)
        if self.name_is_taken(spawn.name):
            self.is_refused(spawn, "name_taken")
        elif spawn.profile is not None and named is None:
            self.is_refused(spawn, "unknown_profile")
        elif named is not None and (why := self.shut(named)) is not None:
            cause, until = why
            data: dict[str, object] = {"profile": named.name, "credentialId": named.credential}
            if until is not None:
                data["retryAfterSeconds"] = self.seconds(until)
            others = [room.name for room in self.usable() if room is not named]
            self.is_refused(spawn, cause, **data, alternatives=others)
        elif named is None and not self.usable():
            self.is_refused(spawn, "no_candidate", **self.no_candidate())
        else:
            self.reserved(spawn, started, named or self.chosen())
            return
        assert len(self.bench.started) == started

    def no_candidate(self) -> dict[str, object]:
        rows: list[dict[str, object]] = []
        waits: list[int] = []
        for room in self.profiles:
            cause, until = self.shut(room) or ("", None)
            row: dict[str, object] = {"profile": room.name, "cause": cause}
            if until is not None:
                row |= {"credentialId": room.credential, "retryAfterSeconds": self.seconds(until)}
                waits.append(self.seconds(until))
            rows.append(row)
        return {"candidates": rows, **({"retryAfterSeconds": min(waits)} if waits else {})}

    def reserved(self, spawn: Spawn, started: int, room: ProfileRoom) -> None:
        """ "Reserve the place in the same step, and only then start the process." """
        ((name, effect, _),) = self.bench.started[started:]
        self.count += 1
        target = f"m-{self.count}"
        assert name == f"launcher.launch:{target}"
        assert not self.name_is_taken(target)
        place = Place(target, spawn.name or target, room.name)
        self.places.append(place)
        assert self.taken(room.name) <= room.capacity
        self.last = room.name
        self.launches.append(Launch(spawn, place, room.credential, effect))
        assert not spawn.reply.settled

    def is_refused(self, spawn: Spawn, error: str, **data: object) -> None:
        """ "Everything refused says what, why, and what to do, in one sentence plus data." """
        self.done.append(spawn)
        no = refused(spawn.reply)
        assert isinstance(no, SpawnRefused)
        told = no.data()
        message = told.pop("message")
        assert message == str(no)
        assert len(str(no)) > 20
        if data or error not in ("unknown_profile", "bad_name", "name_taken"):
            assert told == {"error": error, **data}
        assert told["error"] == error
        words = {"credential_cooling_off": "cooling off", "credential_exhausted": "exhausted", "profile_full": "places"}
        causes = {row["cause"] for row in data["candidates"]} if error == "no_candidate" else {error}  # type: ignore[attr-defined]
        for cause, word in words.items():
            # An outage's refusal must not say "exhausted", nor the other way round.
            assert (word in str(no)) == (cause in causes)

    # -- launches ------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.launches)
    @rule(data=st.data(), fails=st.sampled_from([None, None, OpenFailed("no such program"), KeyError("bug")]))
    def a_launch_ends(self, data: st.DataObject, fails: Exception | None) -> None:
        launch = data.draw(st.sampled_from(self.launches))
        self.launches.remove(launch)
        self.done.append(launch.spawn)
        self.bench.fails = fails
        self.run(launch.effect)
        order = self.bench.orders[-1]
        place = launch.place
        assert (order.target, order.name, order.profile, order.lead) == (
            place.target,
            place.name,
            place.profile,
            "lead-1",
        )
        assert (order.cwd, order.worktree) == (launch.spawn.cwd, launch.spawn.worktree)
        told, started = len(self.order), len(self.bench.started)
        self.launcher._step(self.launcher._receive.receive_nowait())
        if fails is not None:
            # "A launch that fails gives its place back."
            self.places.remove(place)
            no = refused(launch.spawn.reply)
            assert isinstance(no, SpawnRefused)
            assert (no.data()["error"], no.data()["profile"]) == ("spawn_failed", place.profile)
            assert str(fails) in str(no)
            assert (len(self.order), len(self.bench.started)) == (told, started)
            return
        spawned = answered(launch.spawn.reply)
        assert (spawned.target, spawned.name, spawned.profile) == (place.target, place.name, place.profile)
        assert (spawned.credential, spawned.cwd) == (launch.credential, launch.spawn.cwd or "/home")
        # "The registry and the roster know the member before anything can happen to it."
        (first, owns), (second, up) = self.order[told:]
        assert (first, owns) == ("leads", Owns("lead-1", place.target))
        assert second == "roster"
        assert isinstance(up, MemberUp)
        who = up.identity
        assert (who.target, who.name, who.profile, who.lead) == (place.target, place.name, place.profile, "lead-1")
        # Evidence is charged to the credential that the gate was asked for at launch, whatever a reload says by now.
        assert (who.credential, who.pane) == (launch.credential, PaneRef("memory", f"%{place.target}"))
        ((name, _, arguments),) = self.bench.started[started:]
        assert name == f"resolver:{place.target}"
        assert arguments[0] is up.resolver
        arguments[1]("KeyError: 'x'")
        assert self.order.pop() == ("roster", ResolverDown(place.target, "KeyError: 'x'"))

    @staticmethod
    def run(effect: Callable[[], Awaitable[None]]) -> None:
        """An effect whose launch never waits runs in one go."""
        try:
            effect().__await__().__next__()
        except StopIteration:
            return
        raise AssertionError("the effect waits for something")

    @precondition(lambda self: any(place not in [launch.place for launch in self.launches] for place in self.places))
    @rule(data=st.data(), twice=st.booleans())
    def a_place_is_given_back(self, data: st.DataObject, twice: bool) -> None:
        """Once counts, and once more changes nothing: a lost member's place is given back before its pane is closed."""
        under_way = [launch.place for launch in self.launches]
        place = data.draw(st.sampled_from([place for place in self.places if place not in under_way]))
        self.places.remove(place)
        for _ in range(1 + twice):
            self.launcher._step(SlotFreed(place.target))

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def taken_is_what_is_reserved_and_what_lives(self) -> None:
        loads = answer(self.launcher, Room())
        assert [(load.profile, load.credential, load.capacity, load.taken) for load in loads] == [
            (room.name, room.credential, room.capacity, self.taken(room.name)) for room in self.profiles
        ]
        assert all(load.free == max(0, load.capacity - load.taken) for load in loads)
        waiting = len(self.checks)
        assert repr(self.launcher) == f"<Launcher {len(self.places)} places taken, {waiting} at the gate>"

    @invariant()
    def every_spawn_is_answered_once_and_none_before_its_time(self) -> None:
        for spawn in self.spawned:
            assert spawn.reply.settled == any(spawn is other for other in self.done)

    @invariant()
    def a_name_belongs_to_one_member(self) -> None:
        names = [place.name for place in self.places]
        assert len(set(names)) == len(names)
        assert not {place.target for place in self.places if place.name != place.target} & set(names)


TestLauncher = LauncherMachine.TestCase
TestLauncher.settings = modest(60, steps=40)
