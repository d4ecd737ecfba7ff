"""The agent programs that fleetd knows, by the name that a profile gives as ``agent:``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from fleetd.agents.adapter import Adapter
from fleetd.agents.claude import Claude
from fleetd.agents.codex import Codex
from fleetd.agents.demo import Demo
from fleetd.agents.gemini import Gemini
from fleetd.agents.opencode import OpenCode
from fleetd.agents.qwen import Qwen

_KNOWN: Final[tuple[Adapter, ...]] = (Claude(), Codex(), Gemini(), OpenCode(), Qwen(), Demo())

ADAPTERS: Final[Mapping[str, Adapter]] = MappingProxyType({adapter.name: adapter for adapter in _KNOWN})


def by_client(name: str) -> Adapter | None:
    """The adapter of a lead's program, by what its MCP client calls itself; ``None`` for one that is not known."""
    return next((adapter for adapter in ADAPTERS.values() if name in adapter.client_names), None)
