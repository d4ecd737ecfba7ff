"""Looking at panes and at their ends, for as long as a fleet runs: what keeps the pane actor informed."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import aclosing
from typing import Final

import trio
from trio_util import periodic

from actors.actor import ActorDead, Unanswered
from actors.host import HostError, PaneEnded, PaneHost, PaneRef
from actors.panes import HostSaw, Observed, Panes, Watched

log = logging.getLogger("fleetd.watching")

#: Between two captures of a member with an open turn, in seconds.
POLL_S: Final = 0.25


async def watch(panes: Panes, hosts: Mapping[str, PaneHost]) -> None:
    """Capture the watched panes for ever, all of one host in one go, each :data:`POLL_S`."""
    async with aclosing(periodic(POLL_S)) as ticks:
        async for _ in ticks:
            await _look_once(panes, hosts)


async def _look_once(panes: Panes, hosts: Mapping[str, PaneHost]) -> None:
    watched = await panes.ask(Watched())
    by_host: dict[str, list[PaneRef]] = {}
    for pane in watched:
        if pane.host in hosts:
            by_host.setdefault(pane.host, []).append(pane)
        else:
            # An earlier daemon had another kind of terminal: what became of the pane nobody can say.
            panes.tell(HostSaw(PaneEnded(pane)))
    for name, refs in by_host.items():
        try:
            frames = await hosts[name].capture(refs)
        except HostError as broken:
            # No answer from a terminal says nothing about the members in it.
            log.warning("capture failed", extra={"fleet_host": name, "fleet_reason": str(broken)})
            continue
        for pane, frame in frames.items():
            try:
                await watched[pane].ask(Observed(frame))
            except (ActorDead, Unanswered) as gone:
                log.debug("frame not taken", extra={"fleet_pane": pane.id, "fleet_reason": str(gone)})


async def follow(
    panes: Panes, host: PaneHost, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Tell the pane actor of each process that ends in one host, for ever."""
    task_status.started()
    async for ended in host.endings():
        panes.tell(HostSaw(ended))
