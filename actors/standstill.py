"""Turns that stand still: at a dialog, or with a program that only retries. The roster hears of it."""

from __future__ import annotations

from typing import Final

from actors.actor import Tells
from actors.clock import NS_PER_S
from actors.member import Blocked, RetryNoted, Unblocked
from actors.openturn import OpenTurn
from actors.screen import Retrying, State

#: How long a retry banner may be away before its retrying counts as over, in nanoseconds: it goes with each attempt.
RETRY_GONE_NS: Final = 10 * NS_PER_S


class Standstill:
    """Follows one member's.

    Args:
        outlet: the roster.
    """

    def __init__(self, target: str, outlet: Tells) -> None:
        self._target = target
        self._outlet = outlet
        self._blocked = False
        #: The dialog has been seen, not only announced.
        self._dialog_seen = False

    def forget(self) -> None:
        """The member is at rest."""
        self._blocked = self._dialog_seen = False

    def see(self, state: State) -> None:
        """Follow a dialog on the screen. One that the program has announced may not be drawn yet."""
        if state is State.BLOCKED:
            self._dialog_seen = True
            self.show(True)
        elif self._dialog_seen or state is State.BUSY:
            self.show(False)

    def show(self, blocked: bool) -> None:
        """The member waits for a person, or does not any more."""
        self._dialog_seen = self._dialog_seen and blocked
        if self._blocked != blocked:
            self._blocked = blocked
            self._outlet.tell(Blocked(self._target) if blocked else Unblocked(self._target))

    def note_retry(self, turn: OpenTurn, retrying: Retrying | None, at_ns: int) -> None:
        """Tell the roster that the program only retries, and when that is over."""
        before = turn.retrying
        if retrying is not None:
            turn.retry_seen_ns = at_ns
            turn.retry_since_ns = at_ns if before is None else turn.retry_since_ns
        elif before is None or at_ns - turn.retry_seen_ns < RETRY_GONE_NS:
            return
        turn.retrying = retrying
        if (before and before.attempt) != (retrying and retrying.attempt) or (before is None) != (retrying is None):
            self._outlet.tell(RetryNoted(self._target, retrying, turn.retry_since_ns))
