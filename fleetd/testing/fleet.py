"""A whole fleet in memory, and its clock: the real actors, tools and door over scripted panes.

What a test holds is a :class:`Fleet`. It *is* the clock of the test's run, so that time is the test's to move; it has
leads and members by name, whose panes show what the test says; and it keeps a timeline of every message that an actor
handled, which a failing story prints.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
import trio
from trio.testing import MockClock

from actors.actor import observer
from actors.host import PaneRef, PaneSpec
from actors.leads import Join, SetLeadPane
from actors.member import Identity
from actors.push import LeadPane
from actors.roster import Find, Members
from actors.spawning import Launched, Order
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.config import Config, load
from fleetd.connection import Connection, UnknownMethod
from fleetd.coverage import by_profile, report
from fleetd.door import Door
from fleetd.fleet import Fleet as Actors
from fleetd.hosts.memory import MemoryHost, MemoryPane, Program, ScriptedAgent
from fleetd.instructions import INSTRUCTIONS
from fleetd.launching import setup_of
from fleetd.lead_tools import Facts, Tooling
from fleetd.peer import Peer
from fleetd.profiles import Profile
from fleetd.recovery import recover
from fleetd.reload import ReloadPlan, plan
from fleetd.snapshot import Snapshot, profile_of, taken
from fleetd.testing.clock import advance
from fleetd.testing.people import Lead, LeadAgent, Member, Typewriter
from fleetd.testing.store import MemoryStore
from fleetd.testing.timeline import Timeline
from fleetd.tools import Tools


class Fleet(trio.abc.Clock):
    """A fleet for one test.

    Args:
        config: the text of a ``fleetd.yaml``.
        clock: the clock of the run where it is not this fleet; it must then be the one that the run was started with.

    Raises:
        fleetd.config.ConfigError: the configuration is refused.
    """

    def __init__(self, config: str, *, clock: MockClock | None = None) -> None:
        self.config: Config = load(config, shipped=ADAPTERS)
        self.timeline = Timeline()
        self.host = MemoryHost(self._play)
        #: What the journal wrote; it survives :meth:`restart`.
        self.store = MemoryStore()
        #: What went to the webhook: URL and event.
        self.posted: list[tuple[str, Mapping[str, object]]] = []
        #: Launches that got their place, in order: processes that would have been started.
        self.launches: list[Order] = []
        self._clock = clock or MockClock()
        self._agents: dict[str, str | None] = {}
        self._leads: dict[str, Lead] = {}
        self._members: dict[str, Member] = {}

    # -- the run's clock -----------------------------------------------------------------------------------------

    def start_clock(self) -> None:
        self._clock.start_clock()

    def current_time(self) -> float:
        return self._clock.current_time()

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return self._clock.deadline_to_sleep_time(deadline)

    # -- its life ------------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Fleet]:
        """Run the actors. A lead called ``lead``, with a pane of its own, is there from the start."""
        with self._observed():
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                await nursery.start(self._live)
                await self.add_lead("lead")
                yield self
                nursery.cancel_scope.cancel()

    async def _live(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """One life of the daemon: from the recovery of what the store holds to :meth:`restart` or the end."""
        # Channels are made inside the run that uses them.
        self.actors = Actors(self.config, {self.host.name: self.host}, self, self._post, self.store)
        self.tools = Tools(Tooling(self.actors, self._facts()))
        self.door = Door(self.tools, self, self._identify, instructions=INSTRUCTIONS)
        self._ended = trio.Event()
        with trio.CancelScope() as self._life:
            async with trio.open_nursery() as nursery:
                await nursery.start(self.actors.run)
                await recover(self.actors, self.store.load(), self)
                task_status.started()
        self._ended.set()

    async def restart(self, *, members_live: bool = True) -> None:
        """Kill the daemon, as ``kill -9`` does, and start another one on what its journal holds.

        Args:
            members_live: the members live on, as they do in tmux; else their panes end with the daemon.
        """
        self._life.cancel()
        await self._ended.wait()
        self.host.outlives_daemon = members_live
        await self._nursery.start(self._live)
        for lead in self._leads.values():
            if lead.pane is not None:
                self._reads_in(lead.caller.id, lead.pane.ref)

    @contextmanager
    def _observed(self) -> Iterator[None]:
        token = observer.set(self.timeline.note)
        try:
            yield
        finally:
            observer.reset(token)

    # -- people --------------------------------------------------------------------------------------------------

    def lead(self, name: str = "lead") -> Lead:
        """A lead that is there."""
        return self._leads[name]

    async def add_lead(self, name: str, *, pane: bool = True) -> Lead:
        """Another lead, with a pane of its own or without."""
        id = await self.actors.leads.ask(Join(name))
        shown: MemoryPane | None = None
        if pane:
            adapter = ADAPTERS["demo"]
            ref = await self.host.open(PaneSpec(id, adapter.command, {}, "/"))
            shown = self.host[ref]
            shown.program = LeadAgent()
            self._reads_in(id, ref)
        self._leads[name] = Lead(self, Caller(Role.LEAD, id, "/"), shown)
        return self._leads[name]

    def _reads_in(self, id: str, pane: PaneRef) -> None:
        adapter = ADAPTERS["demo"]
        self.actors.leads.tell(SetLeadPane(id, LeadPane(pane, adapter.grammar, adapter.typing)))

    def member(self, name: str) -> Member:
        """A member that was spawned, by its name."""
        return self._members[name]

    async def spawn(self, name: str, profile: str | None = None, *, lead: str = "lead") -> Member:
        """Spawn a member as a lead does.

        A program whose screen shows an open input line from the start (the demo agent) is ready when this returns;
        any other is ready once it shows one.

        Raises:
            AssertionError: the spawn was refused; the message is fleetd's.
        """
        arguments = {"name": name} if profile is None else {"name": name, "profile": profile}
        spawned = await self.lead(lead).call("fleet_spawn", **arguments)
        assert "error" not in spawned, spawned["message"]
        target = str(spawned["target"])
        self._members[name] = Member(self, name, target, self.host.of(target))
        await self.advance(seconds=1)
        return self._members[name]

    # -- time ----------------------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass, from deadline to deadline; at each, everything that can happen happens."""
        await advance(self._clock, seconds)

    async def reload(self, config: str) -> ReloadPlan:
        """Put another configuration in force, as ``fleetd reload`` does; what is deferred stays as it was."""
        planned = plan(self.config, load(config, shipped=ADAPTERS))
        self.config = planned.config
        self.actors.configure(planned.config)
        return planned

    # -- what the actors need from the world ---------------------------------------------------------------------

    def _play(self, pane: MemoryPane) -> Program:
        return ScriptedAgent() if self._agents.get(pane.spec.target) == "demo" else Typewriter()

    async def launch(self, order: Order) -> Launched:
        """See :class:`actors.spawning.Launching`."""
        self.launches.append(order)
        profile = order.recipe
        assert isinstance(profile, Profile)
        self._agents[order.target] = profile.agent
        argv = profile.command or ADAPTERS[str(profile.agent)].command
        pane = await self.host.open(PaneSpec(order.target, argv, dict(profile.env), order.cwd or "/"))
        return Launched(pane, setup_of(profile), order.cwd or "/", record=taken(profile, ""))

    async def adopt(self, identity: Identity, cwd: str, record: bytes) -> Launched:
        """See :class:`actors.spawning.Launching`."""
        await self.host.adopt(identity.pane, identity.target)
        snapshot = msgspec.json.decode(record, type=Snapshot)
        return Launched(identity.pane, setup_of(profile_of(snapshot)), cwd, record=record)

    async def discard(self, identity: Identity, record: bytes) -> None:
        """See :class:`actors.spawning.Launching`."""
        await self.host.close(identity.pane)

    async def control(self, caller: Caller, method: str, params: Mapping[str, Any], connection: Connection) -> object:
        """See :class:`fleetd.connection.Controls`: a fleet in memory has no methods beside its tools."""
        raise UnknownMethod

    async def _identify(self, peer: Peer) -> Caller:
        raise AssertionError(f"a real process has connected to a fleet in memory: {peer}")

    async def _post(self, url: str, event: Mapping[str, object]) -> None:
        self.posted.append((url, event))

    def _facts(self) -> Facts:
        return Facts(
            0,
            "test",
            0,
            self.host.name,
            lambda: {name: profile.agent for name, profile in self.config.profiles.items()},
            lambda: by_profile(self.config),
            lambda: report(self.config),
            lambda: str(self.config.health.coverage),
            list,
            list,
        )

    # -- for handles ---------------------------------------------------------------------------------------------

    async def pane_of(self, target: str) -> PaneRef:
        return (await self.actors.roster.ask(Find(target))).identity.pane

    async def state_of(self, target: str) -> tuple[str, str]:
        """A member's state and reason; ``released`` for one that is gone."""
        for row in await self.actors.roster.ask(Members(released=True), math.inf):
            if row.identity.target == target:
                return str(row.state), row.reason
        raise AssertionError(f"there is no member {target}")
