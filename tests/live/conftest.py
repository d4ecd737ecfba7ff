"""A whole daemon on a real terminal, for tests of what only real panes can show."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.host import PaneRef
from actors.panes import Look
from actors.roster import Find
from actors.screen import Frame
from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.config import load
from fleetd.daemon import Daemon
from fleetd.hosts.pty import PtyHost
from fleetd.hosts.tmux import TmuxHost

#: How long anything may take on a noisy machine, in seconds.
PATIENCE_S = 30.0

CONFIG = """
outage: {coolOffSeconds: 6}
quarantineCooldownSeconds: 600
profiles:
  demo-a: {agent: demo, credentialId: shared, capacity: 8, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-b: {agent: demo, credentialId: shared, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-c: {agent: demo, credentialId: other, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""


class Running:
    """A daemon, and a lead's hands on it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.lead = Caller(Role.LEAD, "lead-1", "/")
        #: A lead whose notices nobody counts.
        self.nobody = Caller(Role.LEAD, "lead-1", "/")

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool call, whatever comes of it."""
        return dict((await self.daemon.tools.call(self.lead, tool, arguments)).structured)

    async def spawn(self, profile: str = "demo-a", **more: Any) -> str:
        spawned = await self.call("fleet_spawn", profile=profile, **more)
        assert "error" not in spawned, spawned
        return str(spawned["target"])

    async def send(self, target: str, prompt: str, **more: Any) -> str:
        sent = await self.call("fleet_send", target=target, prompt=prompt, **more)
        assert "ticket" in sent, sent
        return str(sent["ticket"])

    async def result(self, ticket: str) -> dict[str, Any]:
        """The send's end."""
        waited = await self.call("fleet_wait", tickets=[ticket], waitSeconds=PATIENCE_S)
        assert waited["ended"], waited
        return await self.call("fleet_collect", ticket=ticket)

    async def state(self, target: str) -> str:
        members = (await self.call("fleet_list"))["members"]
        return next(row["state"] for row in members if row["target"] == target)

    async def until(self, true: Callable[[], Awaitable[bool]], what: str) -> None:
        with trio.move_on_after(PATIENCE_S):
            while True:
                if await true():
                    return
                await trio.sleep(0.05)
        raise AssertionError(f"not within {PATIENCE_S:g} s: {what}")

    async def until_state(self, target: str, state: str) -> None:
        async def so() -> bool:
            return await self.state(target) == state

        await self.until(so, f"{target} is {state}")

    async def pane(self, target: str) -> PaneRef:
        return (await self.daemon.fleet.roster.ask(Find(target))).identity.pane

    async def screen(self, pane: PaneRef) -> Frame:
        return await self.daemon.fleet.panes.ask(Look(pane))

    async def press(self, target: str, *keys: str) -> None:
        """What a person does who has attached."""
        await self.daemon.host.press(await self.pane(target), *keys)


@pytest.fixture(params=["tmux", "pty"])
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    path = tmp_path / "fleetd.yaml"
    path.write_text(CONFIG)
    config = load(CONFIG, shipped=ADAPTERS)
    host = TmuxHost(directory) if request.param == "tmux" else PtyHost(directory)
    daemon = Daemon(directory, config, path, host)
    async with trio.open_nursery() as nursery:
        await nursery.start(daemon.run)
        running = Running(daemon)
        lead, _ = await daemon.open_lead(ADAPTERS["demo"], str(tmp_path))
        running.lead = Caller(Role.LEAD, lead, str(tmp_path))
        yield running
        if isinstance(host, TmuxHost):
            await host.kill_server()
        daemon.end()
