"""What fleetd knows about one agent program: how it is started, read and typed to, and what it reports by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from actors.actor import Tells
from actors.host import PaneRef
from actors.inject import Typing
from actors.patterns import Pattern, Patterns
from actors.screen import Grammar
from actors.signal import Signal

#: Follows what a program records of its turns, and tells :class:`actors.signal.Signal` to the member's resolver, until
#: it is cancelled.
Watch = Callable[[PaneRef, Tells], Awaitable[None]]


class LaunchContext(msgspec.Struct, frozen=True):
    """A member that is about to be launched."""

    target: str
    #: The profile's command, or the agent's own.
    argv: tuple[str, ...]
    #: The whole environment that it would get.
    env: Mapping[str, str]
    cwd: str
    #: For this member's files: its own, mode 0700, removed when the member has ended.
    directory: Path
    #: Hands a JSON object on standard input to the daemon; for a program's hooks.
    hook: tuple[str, ...]
    #: fleetd's MCP server, for the program's configuration.
    bridge: tuple[str, ...]
    #: Whether the program's own silent retries may be cut short.
    limit_retries: bool = True


class LaunchPlan(msgspec.Struct, frozen=True):
    """A command with what its adapter adds to it."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    watch: Watch | None = None


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
    #: In force for every profile of the agent, in RE2's syntax; empty for none. A key or login that is not accepted;
    #: a request that the backend refuses; any other line by which the program says that the turn failed.
    auth_pattern: str
    request_pattern: str
    failed_pattern: str
    #: ``clientInfo.name`` values by which the program's MCP client is known, for a lead's pane.
    client_names: tuple[str, ...]

    def plan(self, context: LaunchContext) -> LaunchPlan:
        """The command as it is started for a member. May write files into the member's directory.

        Raises:
            OpenFailed: the profile's command or environment cannot be combined with what a member needs.
        """
        ...

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        """What follows the records of a member that runs on from an earlier daemon; ``None`` where nothing does.

        Args:
            directory: the member's, as :meth:`plan` had it.
            cwd: where the program runs.
        """
        ...

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        """What an event of the program's hooks says.

        Args:
            event: as the program gave it to the hook.
            now: the present by the wall clock, for the reset times in it.
        """
        ...


def with_shipped(patterns: Patterns, adapter: Adapter) -> Patterns:
    """A profile's patterns with those that an adapter has in force for each of its profiles."""

    def shipped(text: str) -> tuple[Pattern, ...]:
        return (Pattern(text, f"@{adapter.name}"),) if text else ()

    return msgspec.structs.replace(
        patterns,
        auth=shipped(adapter.auth_pattern),
        request=shipped(adapter.request_pattern),
        failed=shipped(adapter.failed_pattern),
    )
