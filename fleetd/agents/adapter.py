"""What fleetd knows about one agent program: how it is started, read and typed to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from actors.inject import Typing
from actors.screen import Grammar


class LaunchPlan(msgspec.Struct, frozen=True):
    """A command with what its adapter adds to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]


class Adapter(Protocol):
    """One agent program. A file of its own in ``fleetd/agents``."""

    #: ``agent:`` in a profile.
    name: str
    #: The program's own command, when the profile gives none.
    command: tuple[str, ...]
    grammar: Grammar
    typing: Typing
    #: What stops a running turn, by tmux key names.
    interrupt_keys: tuple[str, ...]
    #: The shipped patterns behind ``@name``, in RE2's syntax.
    error_pattern: str
    exhausted_pattern: str
    #: ``clientInfo.name`` values by which the program's MCP client is known, for a lead's pane.
    client_names: tuple[str, ...]

    def plan(self, argv: tuple[str, ...], env: Mapping[str, str]) -> LaunchPlan:
        """The command as it is started for a member."""
        ...
