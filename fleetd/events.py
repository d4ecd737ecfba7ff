"""From an event of a program's hook to its member's resolver."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actors.actor import Refused, tell_if_alive
from actors.resolver import Resolver
from actors.signal import Signal


class NoEvents(Refused):
    """The member's program has no hooks that fleetd knows."""

    error = "not_allowed"


async def take(resolver: Resolver, event: Mapping[str, Any]) -> tuple[Signal, ...]:
    """Tell a resolver what an event says; return that.

    Raises:
        NoEvents: the program has no adapter.
    """
    events = resolver.setup.events
    if events is None:
        raise NoEvents(f"{resolver.target} runs a program without an adapter: it has no events that fleetd knows")
    signals = await events(event, resolver.setup.wall())
    for signal in signals:
        tell_if_alive(resolver, signal)
    return signals
