"""Where leads read: finding the pane of a lead's program, and never typing into anything else.

A lead that speaks MCP from a pane of its person's own tmux server is nudged there. Which pane that is, is the kernel's
and the tmux server's word: one of the caller's ancestors is the pane's root process. The environment only hints at
which server to ask. The pane is the lead's for as long as its connection stands, and only while its program has the
terminal: a shell that has it back would run a nudge as a command.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from actors.actor import Tells, tell_if_alive
from actors.host import HostError
from actors.leads import SetLeadPane
from actors.push import STILL_PATIENCE_S, LeadPane
from actors.screen import Frame, Grammar, Reading, Sent, State
from fleetd.agents import by_client
from fleetd.agents.generic import GenericGrammar, generic_typing
from fleetd.callers import Caller, Role
from fleetd.hosts.user_tmux import UserTmuxHost
from fleetd.peer import Peer, PeerRefused, ancestry, in_foreground, tmux_hints

log = logging.getLogger("fleetd.leadpanes")

_GENERIC: Final = GenericGrammar()


class Attentive:
    """A grammar that sees a busy program while ``listens`` says that the terminal is somebody else's."""

    def __init__(self, grammar: Grammar, listens: Callable[[], bool]) -> None:
        self._grammar = grammar
        self._listens = listens

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        return self._grammar.read(frame, sent) if self._listens() else Reading(State.BUSY)


def lead_pane_grammar(client: str) -> tuple[Grammar, float]:
    """How a lead's program is read, by its MCP client's name, and how long a nudge waits for it in one go."""
    adapter = by_client(client)
    return (_GENERIC, STILL_PATIENCE_S) if adapter is None else (adapter.grammar, 0.0)


class LeadPanes:
    """Follows the MCP connections of leads to the panes they read in."""

    def __init__(self, leads: Tells, user_tmux: UserTmuxHost) -> None:
        self._leads = leads
        self._user_tmux = user_tmux
        #: Which connection's process brought a lead's pane.
        self._bound: dict[str, int] = {}

    async def client_known(self, caller: Caller, peer: Peer, client: str) -> None:
        """A lead's program has said its name: find its pane."""
        if caller.role is not Role.LEAD:
            return
        pids = [process.pid for process in peer.ancestry]
        for socket in tmux_hints(peer.ancestry):
            try:
                pane = await self._user_tmux.pane_of(socket, pids)
            except HostError as broken:
                log.debug("tmux server not asked", extra={"fleet_socket": socket, "fleet_reason": str(broken)})
                continue
            if pane is not None:
                break
        else:
            log.info("lead has no pane", extra={"fleet_lead": caller.id, "fleet_client": client})
            return
        grammar, patience_s = lead_pane_grammar(client)
        adapter = by_client(client)
        typing = generic_typing() if adapter is None else adapter.typing
        self._bound[caller.id] = peer.pid
        attentive = Attentive(grammar, lambda: _listens(peer.pid))
        self._leads.tell(SetLeadPane(caller.id, LeadPane(pane, attentive, typing, patience_s)))
        log.info("lead reads in a pane", extra={"fleet_lead": caller.id, "fleet_pane": pane.id})

    def client_gone(self, caller: Caller, peer: Peer) -> None:
        """A connection has ended; the lead's pane goes with the one that brought it."""
        if self._bound.get(caller.id) == peer.pid:
            del self._bound[caller.id]
            tell_if_alive(self._leads, SetLeadPane(caller.id, None))  # at the end the leads go first


def _listens(pid: int) -> bool:
    try:
        return in_foreground(ancestry(pid))
    except PeerRefused:
        return False
