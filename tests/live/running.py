"""A whole daemon on a real terminal, and a lead's hands on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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


class Running:
    """A daemon, and a lead's hands on it."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.lead = Caller(Role.LEAD, "lead-1", "/")
        #: A lead whose notices nobody counts.
        self.nobody = Caller(Role.LEAD, "lead-1", "/")
        #: What a lead without a pane was told beside its results.
        self.notices: list[str] = []

    async def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        """A tool call, whatever comes of it."""
        structured = dict((await self.daemon.tools.call(self.lead, tool, arguments)).structured)
        self.notices += structured.get("notices", [])
        return structured

    async def spawn(self, profile: str = "demo-a", **more: Any) -> str:
        spawned = await self.call("fleet_spawn", profile=profile, **more)
        assert "error" not in spawned, spawned
        return str(spawned["target"])

    async def send(self, target: str, prompt: str, **more: Any) -> str:
        sent = await self.call("fleet_send", target=target, prompt=prompt, **more)
        assert "ticket" in sent, sent
        return str(sent["ticket"])

    async def result(self, ticket: str, *, within_s: float = PATIENCE_S) -> dict[str, Any]:
        """The send's end."""
        waited = await self.call("fleet_wait", tickets=[ticket], waitSeconds=min(within_s, 50))
        with trio.move_on_after(within_s):
            while not waited["ended"]:
                waited = await self.call("fleet_wait", tickets=[ticket], waitSeconds=50)
        assert waited["ended"], waited
        return await self.call("fleet_collect", ticket=ticket)

    async def state(self, target: str) -> str:
        members = (await self.call("fleet_list"))["members"]
        return next(row["state"] for row in members if row["target"] == target)

    async def until(self, true: Callable[[], Awaitable[bool]], what: str, *, within_s: float = PATIENCE_S) -> None:
        with trio.move_on_after(within_s):
            while True:
                if await true():
                    return
                await trio.sleep(0.05)
        raise AssertionError(f"not within {within_s:g} s: {what}")

    async def until_state(self, target: str, state: str, *, within_s: float = PATIENCE_S) -> None:
        async def so() -> bool:
            return await self.state(target) == state

        try:
            await self.until(so, f"{target} is {state}", within_s=within_s)
        except AssertionError as late:
            shown = "\n".join((await self.screen(await self.pane(target))).lines)
            raise AssertionError(f"{late}; it is {await self.state(target)} and shows:\n{shown}") from None

    async def pane(self, target: str) -> PaneRef:
        return (await self.daemon.fleet.roster.ask(Find(target))).identity.pane

    async def screen(self, pane: PaneRef) -> Frame:
        return await self.daemon.fleet.panes.ask(Look(pane))

    async def press(self, target: str, *keys: str) -> None:
        """What a person does who has attached."""
        await self.daemon.host.press(await self.pane(target), *keys)


@asynccontextmanager
async def serving(directory: Path, text: str, host: TmuxHost | PtyHost) -> AsyncIterator[Running]:
    """A daemon with this configuration; its members end with it.

    Args:
        directory: for its runtime directory's files and for ``fleetd.yaml``.
        text: the configuration.
        host: the members' terminal, in ``directory / "run"``.
    """
    path = directory / "fleetd.yaml"
    path.write_text(text, encoding="utf-8")
    daemon = Daemon(directory / "run", load(text, shipped=ADAPTERS), path, host)
    async with trio.open_nursery() as nursery:
        await nursery.start(daemon.run)
        try:
            yield Running(daemon)
        finally:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + PATIENCE_S):
                if isinstance(host, TmuxHost):
                    await host.kill_server()
            daemon.end()


def private_run(directory: Path) -> Path:
    """A runtime directory for a test's daemon."""
    run = directory / "run"
    run.mkdir(mode=0o700)
    return run
