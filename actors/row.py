"""A member's row in the roster: as an edge sees it, and as the journal keeps it."""

from __future__ import annotations

import msgspec

from actors.journal import Entry
from actors.member import TERMINAL, Identity, MemberState, RetryNoted
from actors.resolver import Resolver
from actors.turn import Failure


class MemberView(msgspec.Struct, frozen=True):
    """One row of the roster."""

    identity: Identity
    state: MemberState
    #: Why, where there is a reason; empty otherwise.
    reason: str
    #: When the state was entered, in nanoseconds.
    since_ns: int
    resolver: Resolver
    #: The program only retries by itself.
    retry: RetryNoted | None = None
    #: What a failed turn failed of, where that is known and no matter of the credential.
    failure: Failure | None = None

    @property
    def terminal(self) -> bool:
        return self.state in TERMINAL


class StateLeft(msgspec.Struct, frozen=True):
    """A member's state as the journal keeps it."""

    state: MemberState
    reason: str = ""
    failure: Failure | None = None


class Row(msgspec.Struct):
    identity: Identity
    resolver: Resolver
    since_ns: int
    state: MemberState = MemberState.STARTING
    reason: str = ""
    dialogs: int = 0
    retry: RetryNoted | None = None
    failure: Failure | None = None

    def view(self) -> MemberView:
        return MemberView(
            self.identity, self.state, self.reason, self.since_ns, self.resolver, self.retry, self.failure
        )


def state_entry(target: str, left: StateLeft) -> Entry:
    return Entry("state", target, msgspec.json.encode(left))
