"""Which panes of the private server are members, by what the panes themselves carry.

A pane option survives what people do to panes (break, swap, rename), and a daemon that dies leaves it behind. It names
the pane's process by pid and start time, so a pane that was respawned, or one of a later server with the same number,
is never taken for the member. A pane that its daemon had no time to tag still says in its command that it is one of
ours: it is named to people, and taken for nobody.
"""

from __future__ import annotations

import logging
import re
from typing import Final

import msgspec

from actors.host import PaneRef
from fleetd.hosts.tmux_control import Control

log = logging.getLogger("fleetd.tmux")

#: Pane option that says whose pane it is.
TAG: Final = "@fleetd_member"
#: What a pane of ours runs: a shim, with the specification that :meth:`fleetd.hosts.launch.Launch.prepare` wrote.
_SPECIFICATION: Final = re.compile(r"/panes/([^/]+)-[0-9a-f]{16}\.spec\b")
_ASK: Final = "#{pane_id} #{window_id} #{pane_pid} #{" + TAG + "}"


class Tag(msgspec.Struct, frozen=True):
    """What the option holds."""

    target: str
    pid: int
    started: int
    #: The file in which the pane's shim says how its program ended.
    status: str


class Tagged(msgspec.Struct, frozen=True):
    """A pane with our tag, as the server has it now."""

    window: str
    pid: int
    tag: Tag

    def is_pane(self, pane: PaneRef, target: str) -> bool:
        """Whether this is still the pane that was opened for this target."""
        there = (self.pid, self.tag.pid, self.tag.started, self.tag.target)
        return there == (pane.pid, pane.pid, pane.started, target)


def encode(tag: Tag) -> str:
    return msgspec.json.encode(tag).decode()


async def tagged(control: Control) -> dict[str, Tagged]:
    """Every pane of the server that carries our tag, by its id."""
    found: dict[str, Tagged] = {}
    for line in await control.run("list-panes", "-a", "-F", _ASK):
        pane, window, pid, text = line.split(" ", 3)
        if not text:
            continue
        try:
            found[pane] = Tagged(window, int(pid), msgspec.json.decode(text, type=Tag))
        except msgspec.MsgspecError:
            log.warning("pane's tag not understood", extra={"fleet_pane": pane})
    return found


async def opened(control: Control) -> dict[str, str]:
    """The target that each pane of ours was opened for, by the pane's id, whether or not it came to be tagged."""
    found: dict[str, str] = {}
    for line in await control.run("list-panes", "-a", "-F", "#{pane_id} #{pane_start_command}"):
        pane, _, started = line.partition(" ")
        if specification := _SPECIFICATION.search(started):
            found[pane] = specification[1]
    return found
