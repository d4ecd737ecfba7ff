"""A whole fleet in memory: the real actors, the real tools, scripted programs in memory panes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import trio
from trio.testing import MockClock

from actors.host import PaneRef, PaneSpec
from actors.launcher import Launched, Order
from actors.leads import Join, SetLeadPane
from actors.push import LeadPane
from actors.roster import Find
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.config import Config, load
from fleetd.connection import Connection, UnknownMethod
from fleetd.coverage import by_profile, report
from fleetd.door import Door
from fleetd.fleet import Fleet
from fleetd.hosts.memory import MemoryHost, MemoryPane, ScriptedAgent
from fleetd.instructions import INSTRUCTIONS
from fleetd.launching import setup_of
from fleetd.lead_tools import Facts, Tooling
from fleetd.peer import Peer
from fleetd.testing.clock import advance
from fleetd.toolbox import ToolResult
from fleetd.tools import Tools


class LeadAgent(ScriptedAgent):
    """A lead's program: it takes note of what is typed to it and is at rest again."""

    def on_key(self, key: str) -> None:
        known = len(self.prompts)
        super().on_key(key)
        if len(self.prompts) > known:
            self.answers("Noted.")


class Lead:
    """A lead with a pane of its own, in which a scripted agent waits for prompts."""

    def __init__(self, fleet: FleetInMemory, id: str, pane: MemoryPane | None) -> None:
        self._fleet = fleet
        self.caller = Caller(Role.LEAD, id, "/")
        self.pane = pane

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """Call a tool; what it came to, refused or not."""
        return dict((await self.result(tool, **arguments)).structured)

    async def result(self, tool: str, **arguments: Any) -> ToolResult:
        return await self._fleet.tools.call(self.caller, tool, arguments)

    @property
    def agent(self) -> ScriptedAgent:
        """The program in its pane."""
        assert self.pane is not None, "this lead has no pane"
        return agent_in(self.pane)

    @property
    def nudges(self) -> list[str]:
        """What fleetd has typed into its pane and submitted."""
        return [prompt for prompt in self.agent.prompts if prompt.startswith("[fleetd]")]


def agent_in(pane: MemoryPane) -> ScriptedAgent:
    """The scripted agent that plays in a pane."""
    assert isinstance(pane.program, ScriptedAgent), f"no scripted agent plays in {pane!r}"
    return pane.program


class FleetInMemory:
    """The actors, the tools and a memory host. Made by :func:`fleet_in_memory`."""

    def __init__(self, config: Config, clock: MockClock) -> None:
        self.config = config
        self.host = MemoryHost(lambda _: ScriptedAgent())
        self.posted: list[tuple[str, Mapping[str, object]]] = []
        self.fleet = Fleet(config, {self.host.name: self.host}, self, self._post)
        self.tools = Tools(Tooling(self.fleet, self._facts()))
        self.door = Door(self.tools, self, self._identify, instructions=INSTRUCTIONS)
        self.launches: list[Order] = []
        self._clock = clock
        self._leads = 0

    async def launch(self, order: Order) -> Launched:
        """See :class:`actors.launcher.Launching`."""
        self.launches.append(order)
        profile = self.config.profiles[order.profile]
        argv = profile.command or ADAPTERS[str(profile.agent)].command
        pane = await self.host.open(PaneSpec(order.target, argv, dict(profile.env), order.cwd or "/"))
        return Launched(pane, setup_of(profile), order.cwd or "/")

    async def control(self, caller: Caller, method: str, params: Mapping[str, Any], connection: Connection) -> object:
        """See :class:`fleetd.connection.Controls`: a fleet in memory has no methods beside its tools."""
        raise UnknownMethod

    async def _identify(self, peer: Peer) -> Caller:
        """Clients in memory come with their caller: no process is ever looked at."""
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
        )

    # -- for stories ---------------------------------------------------------------------------------------------

    async def advance(self, seconds: float) -> None:
        """Let virtual time pass, deadline by deadline."""
        await advance(self._clock, seconds)

    async def lead(self, *, pane: bool = True) -> Lead:
        """Another lead, with a pane or without."""
        self._leads += 1
        id = await self.fleet.leads.ask(Join(f"lead {self._leads}"))
        if not pane:
            return Lead(self, id, None)
        adapter = ADAPTERS["demo"]
        ref = await self.host.open(PaneSpec(id, adapter.command, {}, "/"))
        self.host[ref].program = LeadAgent()
        self.fleet.leads.tell(SetLeadPane(id, LeadPane(ref, adapter.grammar, adapter.typing)))
        return Lead(self, id, self.host[ref])

    async def spawn(self, lead: Lead, profile: str | None = None, **more: Any) -> str:
        """A member that is ready; its target."""
        target = await self.spawn_at_once(lead, profile, **more)
        await self.advance(1)
        return target

    async def spawn_at_once(self, lead: Lead, profile: str | None = None, **more: Any) -> str:
        """A member that has just been started; its target."""
        arguments = more if profile is None else {"profile": profile, **more}
        spawned = await lead.call("fleet_spawn", **arguments)
        assert "error" not in spawned, spawned["message"]
        return str(spawned["target"])

    def agent(self, target: str) -> ScriptedAgent:
        """The program in a member's pane."""
        return agent_in(self.host.of(target))

    def pane(self, target: str) -> MemoryPane:
        return self.host.of(target)

    async def ref(self, target: str) -> PaneRef:
        return (await self.fleet.roster.ask(Find(target))).identity.pane

    async def send(self, lead: Lead, target: str, prompt: str = "do it", **more: Any) -> str:
        """A send whose prompt has arrived, if the member is free; its ticket."""
        sent = await lead.call("fleet_send", target=target, prompt=prompt, **more)
        assert "ticket" in sent, sent
        await self.advance(1)
        return str(sent["ticket"])

    async def fails(self, lead: Lead, target: str, *, after_s: float = 3.0, text: str | None = None) -> str:
        """A turn whose backend fails, from the prompt to the end; its ticket."""
        ticket = await self.send(lead, target)
        await self.advance(after_s)
        self.agent(target).fails(*([] if text is None else [text]))
        await self.advance(1)
        return ticket

    async def completes(self, lead: Lead, target: str, text: str = "done", *, after_s: float = 3.0) -> str:
        """A turn that ends well; its ticket."""
        ticket = await self.send(lead, target)
        await self.advance(after_s)
        self.agent(target).answers(text)
        await self.advance(1)
        return ticket


@asynccontextmanager
async def fleet_in_memory(text: str, clock: MockClock) -> AsyncIterator[FleetInMemory]:
    """A running fleet.

    Args:
        text: a ``fleetd.yaml``.
        clock: the clock of this run.
    """
    fleet = FleetInMemory(load(text, shipped=ADAPTERS), clock)
    async with trio.open_nursery() as nursery:
        await nursery.start(fleet.fleet.run)
        yield fleet
        nursery.cancel_scope.cancel()
