"""``fleetd init``: a first ``fleetd.yaml``, with a profile for each agent program that is installed here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from fleetd.agents import ADAPTERS
from fleetd.agents.adapter import Adapter

_HEAD: Final = """\
# fleetd.yaml: profiles that members are started from. Every key is explained in fleetd.example.yaml; an agent's own
# traits, and what fleetd adds to its start, in docs/profiles.md.
#
# Profiles that use one account must have one credentialId: an outage of it is seen across them.
profiles:
"""
_PROFILE: Final = """\
  {name}:
    agent: {name}
    credentialId: {name}-account
    capacity: 2
    errorPattern: "@{name}"
    exhaustedPattern: "@{name}"
"""


def first_config(
    find: Callable[[str], str | None] = shutil.which, adapters: Mapping[str, Adapter] = ADAPTERS
) -> tuple[str, tuple[str, ...]]:
    """The file's text, and the agents in it: those that are installed, else the scripted one.

    Args:
        find: where a program is, by its name.
    """
    installed = tuple(name for name, adapter in adapters.items() if name != "demo" and find(adapter.command[0]))
    agents = installed or ("demo",)
    return _HEAD + "\n".join(_PROFILE.format(name=name) for name in agents), agents


def write_first(path: Path) -> tuple[str, ...]:
    """Write a first configuration; return its agents.

    Raises:
        FileExistsError: there is one already.
        OSError: it cannot be written.
    """
    text, agents = first_config()
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    return agents
