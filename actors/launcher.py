"""The launcher: capacity, the spawn gate, and both ways to spawn.

Explicit and automatic spawns take the same road: read the gate (:mod:`actors.gate`), choose, *reserve* the place in the
same step, and only then start the process, as an effect. Two spawns that race for the last place are two messages, and
the second finds it taken. A launch that fails gives its place back.
"""

from __future__ import annotations

from typing import Final

import msgspec
import outcome

from actors.actor import LATER, Actor, Ask, Message, Tells
from actors.gate import GateCheck, GateRead
from actors.host import OpenFailed
from actors.journal import Forgetful, Journaling, NotRecorded, Recorded, counted
from actors.leads import Owns
from actors.member import Identity
from actors.openturn import Resumed
from actors.panes import ClosePane, PaneClosed
from actors.placement import Load, PolicyName, choose, exclusion
from actors.resolver import Resolver
from actors.roster import MemberUp, ResolverDown, SlotFreed
from actors.row import StateLeft
from actors.screen import Frame, Reading, Sent, State
from actors.setup import Setup
from actors.spawning import (
    NAME,
    TARGET,
    Launched,
    Launching,
    MemberRecord,
    Order,
    ProfileRoom,
    Spawned,
    SpawnRefused,
    no_candidate,
    refused,
)
from actors.supervise import isolate


class _Unseen:
    """Reads the screen of a member whose pane is gone: there is none."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        return Reading(State.UNKNOWN)


NOTHING: Final = Setup(_Unseen())


# -- what the launcher takes ----------------------------------------------------------------------------------------


class Spawn(Ask[Spawned], frozen=True):
    """Start a member from ``profile``, or by placement when it is ``None``. Raises :class:`SpawnRefused`."""

    lead: str
    profile: str | None = None
    name: str | None = None
    cwd: str = ""
    worktree: bool = False


class Configure(Message, frozen=True):
    """The profiles, in the order of the configuration, and how to choose among them."""

    profiles: tuple[ProfileRoom, ...]
    policy: PolicyName


class Room(Ask[tuple[Load, ...]], frozen=True):
    """Each profile's room, in the order of the configuration."""


class TakeOver(Ask[None], frozen=True):
    """A member that an earlier daemon launched; see :mod:`actors.adoption`."""

    identity: Identity
    #: ``None``: its pane is gone.
    launched: Launched | None
    left: StateLeft
    resumed: Resumed


class CountFrom(Message, frozen=True):
    """Members are numbered from here on, or from further up."""

    number: int


class _Launched(Message, frozen=True):
    ask: Spawn
    order: Order
    credential: str
    result: outcome.Outcome[Launched]


class _Up(Message, frozen=True):
    """A member that runs, and is recorded."""

    done: _Launched
    launched: Launched


class _Place(msgspec.Struct, frozen=True):
    profile: str
    name: str


class Launcher(Actor):
    """Owns who takes up room, from reservation until the pane is closed.

    Args:
        launching: starts processes.
        gate: takes :class:`GateCheck`: the quarantine.
        next_target: the number of the first member.
    """

    def __init__(
        self,
        launching: Launching,
        *,
        gate: Tells,
        roster: Tells,
        leads: Tells,
        panes: Tells,
        journal: Journaling | None = None,
        next_target: int = 1,
    ) -> None:
        super().__init__("launcher")
        self._journal = journal or Forgetful()
        self._launching = launching
        self._gate, self._roster, self._leads, self._panes = gate, roster, leads, panes
        self._profiles: dict[str, ProfileRoom] = {}
        self._policy = PolicyName.LEAST_LOADED
        self._places: dict[str, _Place] = {}
        #: Spawns at the gate, each with the credentials that it was asked about.
        self._asked: dict[str, tuple[Spawn, frozenset[str]]] = {}
        self._last: str | None = None
        self._next_target = next_target
        self._checks = 0

    def __repr__(self) -> str:
        return f"<Launcher {len(self._places)} places taken, {len(self._asked)} at the gate>"

    def handle(self, message: Message) -> object:
        match message:
            case Spawn():
                return self._spawn(message)
            case GateRead():
                self._gate_read(message)
            case _Launched(result=outcome.Value(value=launched)):
                record = MemberRecord(self._identity(message, launched), launched.cwd, launched.record)
                self._journal.record(
                    self, _Up(message, launched), record.entry(), counted("member", self._next_target - 1)
                )
            case Recorded(then=_Up(done=done, launched=launched)):
                self._up(done, launched)
            case NotRecorded(then=_Up(done=done, launched=launched), why=why):
                self._panes.tell(ClosePane(launched.pane, self))
                self._failed(done, OpenFailed(f"it could not be written down, so a crash would lose it: {why}"))
                if launched.tidy is not None:
                    launched.tidy()
            case PaneClosed(pane=pane):
                self.log.debug("unrecorded member's pane closed", extra={"fleet_pane": pane.id})
            case TakeOver(identity=identity, launched=launched, left=left, resumed=resumed):
                if launched is not None:
                    self._places[identity.target] = _Place(identity.profile, identity.name)
                self._run(identity, launched, left, resumed)
            case CountFrom(number=number):
                self._next_target = max(self._next_target, number)
            case _Launched(result=outcome.Error(error=error)):
                self._failed(message, error)
            case SlotFreed(target=target):
                self._places.pop(target, None)
            case Configure(profiles=profiles, policy=policy):
                self._profiles = {profile.name: profile for profile in profiles}
                self._policy = policy
            case Room():
                return tuple(self._load(profile) for profile in self._profiles.values())
            case _:
                raise self.unknown(message)
        return None

    # -- at the gate ---------------------------------------------------------------------------------------------

    def _spawn(self, spawn: Spawn) -> object:
        if spawn.profile is not None and spawn.profile not in self._profiles:
            known = ", ".join(self._profiles) or "none"
            raise SpawnRefused(
                "unknown_profile",
                f"no profile is called {spawn.profile}; there are: {known}",
                profile=spawn.profile,
                alternatives=list(self._profiles),
            )
        if not self._profiles:
            raise SpawnRefused("no_candidate", "no profile is configured: add one to fleetd.yaml", candidates=[])
        self._check_name(spawn.name)
        self._check_gate(spawn)
        return LATER

    def _check_gate(self, spawn: Spawn) -> None:
        self._checks += 1
        check = f"spawn-{self._checks}"
        credentials = self._credentials()
        self._asked[check] = (spawn, credentials)
        self._gate.tell(GateCheck(check, tuple(credentials), self))

    def _credentials(self) -> frozenset[str]:
        return frozenset(profile.credential for profile in self._profiles.values())

    def _check_name(self, name: str | None) -> None:
        if name is None:
            return
        if not NAME.fullmatch(name):
            raise SpawnRefused(
                "bad_name", "a member's name is 1 to 64 of a-z, 0-9, _ and -, and starts with a letter or digit"
            )
        if TARGET.fullmatch(name):
            raise SpawnRefused("bad_name", f"{name} looks like the targets that fleetd gives: choose another name")
        if any(place.name == name for place in self._places.values()):
            raise SpawnRefused("name_taken", f"a member is called {name} already: choose another name")

    def _gate_read(self, read: GateRead) -> None:
        spawn, checked = self._asked.pop(read.id)
        if spawn.reply.abandoned:
            self.log.info("spawn not started: its caller has gone")
            return
        if not self._credentials() <= checked:
            # A reload has brought a credential that the gate was not asked about.
            self._check_gate(spawn)
            return
        try:
            self._check_name(spawn.name)
            load = self._pick(spawn, read)
        except SpawnRefused as no:
            self.log.info("spawn refused", extra={"fleet_reason": str(no)})
            spawn.reply.refuse(no)
            return
        target = f"m-{self._next_target}"
        self._next_target += 1
        name = spawn.name or target
        self._places[target] = _Place(load.profile, name)
        self._last = load.profile
        recipe = self._profiles[load.profile].recipe
        order = Order(target, name, load.profile, spawn.lead, spawn.cwd, spawn.worktree, recipe)
        self.start(
            lambda: self._launching.launch(order),
            lambda result: _Launched(spawn, order, load.credential, result),
            f"launch:{target}",
        )

    def _pick(self, spawn: Spawn, read: GateRead) -> Load:
        loads = [self._load(profile) for profile in self._profiles.values()]
        out = {load.profile: exclusion(load, read.exhausted_until, read.cooling_until) for load in loads}
        usable = [load for load in loads if out[load.profile] is None]
        if spawn.profile is None:
            if not usable:
                raise no_candidate(loads, out, read.at_ns)
            return choose(self._policy, usable, tuple(self._profiles), self._last)
        load = next((load for load in loads if load.profile == spawn.profile), None)
        if load is None:
            raise SpawnRefused("unknown_profile", f"profile {spawn.profile} has just been removed by a reload")
        if (why := out[load.profile]) is not None:
            raise refused(load, why, [other.profile for other in usable], read.at_ns)
        return load

    def _load(self, profile: ProfileRoom) -> Load:
        taken = sum(1 for place in self._places.values() if place.profile == profile.name)
        return Load(profile.name, profile.credential, profile.capacity, taken)

    # -- after the launch ----------------------------------------------------------------------------------------

    @staticmethod
    def _identity(done: _Launched, launched: Launched) -> Identity:
        order = done.order
        return Identity(order.target, order.name, order.profile, done.credential, order.lead, launched.pane)

    def _up(self, done: _Launched, launched: Launched) -> None:
        order = done.order
        self._run(self._identity(done, launched), launched, None, None)
        self.log.info("member up", extra={"fleet_member": order.target, "fleet_profile": order.profile})
        done.ask.reply.answer(Spawned(order.target, order.name, order.profile, done.credential, launched.cwd))

    def _run(
        self, identity: Identity, launched: Launched | None, left: StateLeft | None, resumed: Resumed | None
    ) -> None:
        """Give a member its resolver. One whose pane is gone (``launched`` is none) has one that only refuses."""
        resolver = Resolver(
            identity.target,
            NOTHING if launched is None else launched.setup,
            pane=identity.pane,
            credential=identity.credential,
            outlet=self._roster,
            gate=self._gate,
            panes=self._panes,
            journal=self._journal,
            resumed=resumed,
        )
        # The registry and the roster know the member before anything can happen to it.
        self._leads.tell(Owns(identity.lead, identity.target))
        self._roster.tell(MemberUp(identity, resolver, left))
        assert self.effects is not None
        self.effects.start_soon(
            isolate,
            resolver,
            lambda reason: self._roster.tell(ResolverDown(identity.target, reason)),
            None if launched is None else launched.watch,
            None if launched is None else launched.tidy,
            name=resolver.name,
        )

    # -- when a launch fails -------------------------------------------------------------------------------------

    def _failed(self, done: _Launched, error: BaseException) -> None:
        self._places.pop(done.order.target, None)
        if not isinstance(error, OpenFailed):
            self.log.error("launch failed", exc_info=error, extra={"fleet_profile": done.order.profile})
        done.ask.reply.refuse(
            SpawnRefused(
                "spawn_failed",
                f"profile {done.order.profile} could not start its program: {error}",
                profile=done.order.profile,
            )
        )
