"""A send's way to the pane: the gate, the typing, and what the journal keeps of it from its first character on."""

from __future__ import annotations

from functools import partial
from typing import Final

import msgspec

from actors.actor import Actor, Tells
from actors.gate import GateCheck
from actors.host import PaneRef
from actors.journal import Journaling
from actors.openturn import OpenTurn, TypedTurn
from actors.panes import TypePrompt
from actors.screen import Sent
from actors.sends import Entering
from actors.setup import Setup
from actors.tracker import TurnTracker
from actors.turn import Phase

#: How long a prompt waits for the member's input line to be free (a person's draft, a dialog), in seconds.
PATIENCE_S: Final = 60.0


class Delivery:
    """Brings the sends of one member to its pane, one at a time.

    Args:
        target: the member's address.
        pane: where it runs.
        credential: what the gate is asked about.
        setup: how its program is typed to.
        resolver: whose sends they are: it is told what became of them.
        gate: takes :class:`GateCheck`: the quarantine.
        panes: takes what is to be typed: the pane actor.
        journal: keeps a turn from its first character on.
    """

    def __init__(
        self,
        target: str,
        pane: PaneRef,
        credential: str,
        setup: Setup,
        resolver: Actor,
        *,
        gate: Tells,
        panes: Tells,
        journal: Journaling,
    ) -> None:
        self._target = target
        self._pane = pane
        self._credential = credential
        self._setup = setup
        self._resolver = resolver
        self._gate = gate
        self._panes = panes
        self._journal = journal
        #: What may still stand in the input line if it was never submitted.
        self.last_prompt = ""

    def ask_gate(self, turn: OpenTurn) -> None:
        turn.phase = None
        self._gate.tell(GateCheck(turn.ticket, (self._credential,), self._resolver))

    def type(self, turn: OpenTurn) -> None:
        self._panes.tell(
            TypePrompt(
                self._pane,
                turn.ticket,
                turn.deliver.prompt,
                self._setup.grammar,
                self._setup.typing,
                self._resolver,
                patience_s=PATIENCE_S,
                leftover=self.last_prompt,
                commit=partial(self._commit, turn),
                entering=lambda: self._resolver.tell(Entering(turn.ticket)),
            )
        )
        self.last_prompt = turn.deliver.prompt

    async def _commit(self, turn: OpenTurn, sent: Sent) -> None:
        """From here on the prompt may have arrived: a daemon that comes after this one must never type it again."""
        turn.kept = TypedTurn(
            turn.ticket,
            self._target,
            sent.prompt,
            turn.deliver.timeout_ns,
            sent.before.lines,
            sent.before.width,
            self._resolver.now(),
        )
        await self._journal.keep(turn.kept.entry())

    def typed(self, turn: OpenTurn, sent: Sent, at_ns: int) -> None:
        """Enter has been pressed: the turn runs."""
        turn.phase = Phase.RUNNING
        turn.entered = True
        turn.began_ns = at_ns
        turn.tracker = TurnTracker(sent)
        if turn.kept is not None and not turn.settled:
            self._journal.note(msgspec.structs.replace(turn.kept, began_ns=at_ns).entry())
