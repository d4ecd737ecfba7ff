"""Who a process is to this daemon: a member by its pane, else a lead by its pane or its terminal session."""

from __future__ import annotations

import os
from pathlib import Path

from actors.host import PaneHost, PaneRef, PaneSpec
from actors.leads import Join, SetLeadPane
from actors.push import LeadPane
from actors.roster import Members
from fleetd.agents.adapter import Adapter
from fleetd.callers import Caller, Role
from fleetd.environment import member_environment
from fleetd.fleet import Fleet
from fleetd.launching import HEIGHT, WIDTH
from fleetd.peer import Peer, locate, session_key
from fleetd.strays import refuse_strays


class Identities:
    """Makes callers of processes.

    Args:
        host: where leads' panes are opened.
        directory: this daemon's runtime directory.
    """

    def __init__(self, fleet: Fleet, host: PaneHost, directory: Path) -> None:
        self._fleet = fleet
        self._host = host
        self._directory = directory
        #: Lead panes that fleetd itself opened: pid and start time to lead, and lead to pane.
        self._roots: dict[tuple[int, int], str] = {}
        self._panes: dict[str, PaneRef] = {}

    async def identify(self, peer: Peer) -> Caller:
        """The caller behind a process: the member whose pane it runs in, else the lead of its terminal session."""
        members = await self._fleet.roster.ask(Members(released=True))
        panes = {member.identity.target: member.identity.pane for member in members}
        roots = {(pane.pid, pane.started): target for target, pane in panes.items()}
        cwd = _cwd(peer.pid)
        if (target := locate(peer.ancestry, roots)) is not None:
            return Caller(Role.MEMBER, target, cwd)
        if (lead := locate(peer.ancestry, self._roots)) is not None:
            return Caller(Role.LEAD, lead, cwd)
        refuse_strays(peer.ancestry, roots, str(self._directory))
        return Caller(Role.LEAD, await self._fleet.leads.ask(Join(session_key(peer.ancestry))), cwd)

    async def open_lead(self, adapter: Adapter, cwd: str) -> tuple[str, PaneRef]:
        """Start a lead's program in a pane of ours; it is nudged there, and its pane is its identity.

        Raises:
            OpenFailed: it could not be started.
        """
        env = member_environment(os.environ, {}, (), runtime_dir=str(self._directory))
        pane = await self._host.open(PaneSpec("lead", adapter.command, env, cwd, WIDTH, HEIGHT))
        lead = await self._fleet.leads.ask(Join(f"pane:{pane.pid}.{pane.started}"))
        self._roots[(pane.pid, pane.started)] = lead
        self._panes[lead] = pane
        self._fleet.leads.tell(SetLeadPane(lead, LeadPane(pane, adapter.grammar, adapter.typing)))
        return lead, pane

    def lead_pane(self, lead: str) -> PaneRef | None:
        """The pane of a lead that fleetd itself has opened."""
        return self._panes.get(lead)


def _cwd(pid: int) -> str:
    """The caller's directory: what a spawn without ``cwd`` means. Empty where it cannot be read, or is no UTF-8."""
    try:
        return os.readlink(os.fsencode(f"/proc/{pid}/cwd")).decode()
    except (OSError, UnicodeDecodeError):
        return ""
