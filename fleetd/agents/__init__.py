"""The agent programs that fleetd knows, by the name that a profile gives as ``agent:``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fleetd.agents.adapter import Adapter
from fleetd.agents.demo import Demo

_KNOWN: Final[tuple[Adapter, ...]] = (Demo(),)

ADAPTERS: Final[Mapping[str, Adapter]] = MappingProxyType({adapter.name: adapter for adapter in _KNOWN})


def by_client(name: str) -> Adapter | None:
    """The adapter of a lead's program, by what its MCP client calls itself; ``None`` for one that is not known."""
    return next((adapter for adapter in ADAPTERS.values() if name in adapter.client_names), None)
