"""Starting a member's program: its profile, its agent's adapter and the pane host behind one call."""

from __future__ import annotations

import logging
import os
import secrets
import shutil
import sys
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

import msgspec
import trio

from actors.actor import Tells
from actors.host import HostError, OpenFailed, PaneGone, PaneHost, PaneRef, PaneSpec
from actors.inject import Typing
from actors.member import Identity
from actors.screen import Grammar
from actors.setup import Setup
from actors.spawning import Launched, Order
from fleetd import hook
from fleetd.agents import ADAPTERS
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch, with_shipped
from fleetd.agents.generic import GenericGrammar, generic_typing
from fleetd.environment import MissingVariable, member_environment
from fleetd.hosts.launch import private_directory
from fleetd.profiles import Profile
from fleetd.rundir import socket_path
from fleetd.snapshot import Snapshot, profile_of, taken
from fleetd.worktree import add_worktree

log = logging.getLogger("fleetd.launching")

#: Wide enough that programs wrap little, tall enough that a whole turn stays on the screen.
WIDTH: Final = 160
HEIGHT: Final = 120
#: Members' private files, below the runtime directory.
MEMBERS: Final = "members"


def setup_of(profile: Profile) -> Setup:
    """How the profile's program is read and typed to."""
    grammar, typing, keys = _program(profile)
    patterns = profile.patterns
    if profile.agent is None:
        return Setup(grammar, patterns, typing, profile.min_turn_ns, keys)
    adapter = ADAPTERS[profile.agent]
    return Setup(grammar, with_shipped(patterns, adapter), typing, profile.min_turn_ns, keys, events=adapter.signals)


def _program(profile: Profile) -> tuple[Grammar, Typing, tuple[str, ...]]:
    if profile.agent is not None:
        adapter = ADAPTERS[profile.agent]
        return adapter.grammar, adapter.typing, adapter.interrupt_keys
    grammar = GenericGrammar(profile.idle_pattern, profile.busy_pattern, profile.blocked_pattern, profile.answer_marker)
    return grammar, generic_typing(), ("Escape",)


class ProfileLaunching:
    """Launches members of profiles; see :class:`actors.spawning.Launching`.

    Args:
        host: opens the panes.
        environ: the daemon's own environment.
        runtime_dir: where a member's bridge finds the daemon.
    """

    def __init__(self, host: PaneHost, environ: Mapping[str, str], runtime_dir: Path) -> None:
        self._host = host
        self._environ = environ
        self._runtime_dir = runtime_dir

    async def launch(self, order: Order) -> Launched:
        profile = order.recipe
        assert isinstance(profile, Profile)
        cwd = order.cwd or os.getcwd()
        if not Path(cwd).is_absolute():
            raise OpenFailed(f"the directory {cwd} is relative, and a daemon has none of its own: give an absolute one")
        if not await trio.Path(cwd).is_dir():
            raise OpenFailed(f"there is no directory {cwd}")
        if order.worktree:
            cwd = await add_worktree(cwd, order.target)
        try:
            env = member_environment(
                self._environ,
                profile.env,
                profile.env_from,
                runtime_dir=str(self._runtime_dir),
                target=order.target,
            )
        except MissingVariable as missing:
            raise OpenFailed(str(missing)) from None
        directory = self._runtime_dir / MEMBERS / f"{order.target}-{secrets.token_hex(4)}"
        try:
            plan = self._plan(profile, order.target, env, cwd, directory)
            pane = await self._host.open(PaneSpec(order.target, plan.argv, plan.env, cwd, WIDTH, HEIGHT))
        except BaseException:
            remove(directory)
            raise
        return Launched(
            pane,
            setup_of(profile),
            cwd,
            _beside(plan.watch, pane),
            lambda: remove(directory),
            taken(profile, str(directory)),
        )

    async def adopt(self, identity: Identity, cwd: str, record: bytes) -> Launched:
        """See :meth:`actors.spawning.Launching.adopt`."""
        snapshot = msgspec.json.decode(record, type=Snapshot)
        directory = Path(snapshot.directory)
        try:
            await self._host.adopt(identity.pane, identity.target)
        except PaneGone:
            remove(directory)
            raise
        watch = ADAPTERS[snapshot.agent].resume(directory, cwd) if snapshot.agent is not None else None
        return Launched(
            identity.pane,
            setup_of(profile_of(snapshot)),
            cwd,
            _beside(watch, identity.pane),
            lambda: remove(directory),
            record,
        )

    async def discard(self, identity: Identity, record: bytes) -> None:
        """See :meth:`actors.spawning.Launching.discard`."""
        remove(Path(msgspec.json.decode(record, type=Snapshot).directory))
        try:
            await self._host.close(identity.pane)
        except HostError as broken:
            log.error("pane not closed", extra={"fleet_pane": identity.pane.id, "fleet_reason": str(broken)})

    def _plan(self, profile: Profile, target: str, env: Mapping[str, str], cwd: str, directory: Path) -> LaunchPlan:
        if profile.agent is None:
            return LaunchPlan(profile.command, env)
        adapter = ADAPTERS[profile.agent]
        try:
            private_directory(directory.parent)
            private_directory(directory)
            return adapter.plan(
                LaunchContext(
                    target,
                    profile.command or adapter.command,
                    env,
                    cwd,
                    directory,
                    hook=(sys.executable, "-I", "-S", hook.__file__, str(socket_path(self._runtime_dir))),
                    bridge=(sys.executable, "-m", "fleetd", "--runtime-dir", str(self._runtime_dir), "mcp"),
                    limit_retries=profile.limit_retries,
                )
            )
        except OSError as exc:
            raise OpenFailed(f"its files could not be written: {exc.strerror}: {exc.filename}") from exc


def _beside(watch: Watch | None, pane: PaneRef) -> Callable[[Tells], Awaitable[None]] | None:
    return None if watch is None else lambda resolver: watch(pane, resolver)


def remove(directory: Path) -> None:
    """Remove a member's files. What cannot be removed is left and logged: it stops nobody."""

    def keep(_: object, path: str, exc: BaseException) -> None:
        if not isinstance(exc, FileNotFoundError):
            log.warning("member's file not removed", extra={"fleet_path": path, "fleet_reason": str(exc)})

    shutil.rmtree(directory, onerror=lambda function, path, info: keep(function, path, info[1]))
