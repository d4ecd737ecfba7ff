"""Starting a member's program: its profile, its agent's adapter and the pane host behind one call."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import trio

from actors.host import OpenFailed, PaneHost, PaneSpec
from actors.inject import Typing
from actors.launcher import Launched, Order
from actors.resolver import Setup
from actors.screen import Grammar
from fleetd.agents import ADAPTERS
from fleetd.agents.generic import GenericGrammar, generic_typing
from fleetd.config import Config
from fleetd.environment import MissingVariable, member_environment
from fleetd.profiles import Profile
from fleetd.worktree import add_worktree

#: Wide enough that programs wrap little, tall enough that a whole turn stays on the screen.
WIDTH: Final = 160
HEIGHT: Final = 120


def setup_of(profile: Profile) -> Setup:
    """How the profile's program is read and typed to."""
    grammar, typing, keys = _program(profile)
    return Setup(grammar, profile.patterns, typing, profile.min_turn_ns, keys)


def _program(profile: Profile) -> tuple[Grammar, Typing, tuple[str, ...]]:
    if profile.agent is not None:
        adapter = ADAPTERS[profile.agent]
        return adapter.grammar, adapter.typing, adapter.interrupt_keys
    grammar = GenericGrammar(profile.idle_pattern, profile.busy_pattern, profile.blocked_pattern, profile.answer_marker)
    return grammar, generic_typing(), ("Escape",)


class ProfileLaunching:
    """Launches from the profiles in force; see :class:`actors.launcher.Launching`.

    Args:
        host: opens the panes.
        environ: the daemon's own environment.
        runtime_dir: where a member's bridge finds the daemon.
    """

    def __init__(self, config: Config, host: PaneHost, environ: Mapping[str, str], runtime_dir: Path) -> None:
        self.config = config
        self._host = host
        self._environ = environ
        self._runtime_dir = runtime_dir

    async def launch(self, order: Order) -> Launched:
        profile = self.config.profiles.get(order.profile)
        if profile is None:
            raise OpenFailed(f"profile {order.profile} has just been removed by a reload")
        cwd = order.cwd or os.getcwd()
        if not Path(cwd).is_absolute():
            raise OpenFailed(f"the directory {cwd} is relative, and a daemon has none of its own: give an absolute one")
        if not await trio.Path(cwd).is_dir():
            raise OpenFailed(f"there is no directory {cwd}")
        if order.worktree:
            cwd = await add_worktree(cwd, order.target)
        argv = profile.command
        try:
            env = member_environment(self._environ, profile.env, profile.env_from, runtime_dir=str(self._runtime_dir))
        except MissingVariable as missing:
            raise OpenFailed(str(missing)) from None
        if profile.agent is not None:
            adapter = ADAPTERS[profile.agent]
            plan = adapter.plan(argv or adapter.command, env)
            argv, env = plan.argv, dict(plan.env)
        pane = await self._host.open(PaneSpec(order.target, argv, env, cwd, WIDTH, HEIGHT))
        return Launched(pane, setup_of(profile), cwd)
