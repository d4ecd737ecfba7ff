"""What a member is, and the table of its states.

Two rules keep this file honest. Everything that can change a member's state is a row here. And the table is a *join*:
a failure absorbs a normal end, so ``TurnDone`` before ``TurnFailed`` and after it lead to the same state, and the race
between the end of a turn and its classification needs no lock and no order. ``RELEASED`` absorbs everything.

An event without a row for a state is refused, and nothing happens: the roster logs it and answers ``False``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from actors.actor import Message
from actors.host import PaneRef
from actors.screen import Retrying


class MemberState(StrEnum):
    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    #: It waits for a person: a permission dialog, a question on its screen.
    BLOCKED = "blocked"
    #: Its last turn ended normally; it takes the next prompt like an idle one.
    DONE = "done"
    FAILED = "failed"
    BACKEND_ERROR = "backend_error"
    EXHAUSTED = "exhausted"
    RELEASED = "released"
    #: Its process is gone, and not by our release.
    LOST = "lost"


#: No delivery is taken any more; only a release changes these.
TERMINAL: Final = frozenset(
    {MemberState.FAILED, MemberState.BACKEND_ERROR, MemberState.EXHAUSTED, MemberState.RELEASED, MemberState.LOST}
)


class Identity(msgspec.Struct, frozen=True):
    """What is stamped on a member when it is launched. A reload changes none of it."""

    target: str
    name: str
    profile: str
    #: Evidence is charged to this credential, whatever the profile says by then.
    credential: str
    lead: str
    pane: PaneRef


class MemberEvent(Message, frozen=True):
    """Something that may change a member's state. Received by the roster."""

    target: str


class Ready(MemberEvent, frozen=True):
    """Its input line is live for the first time."""


class Delivered(MemberEvent, frozen=True):
    """A prompt has arrived and its turn runs."""


class Blocked(MemberEvent, frozen=True):
    """Its screen shows a dialog."""


class Unblocked(MemberEvent, frozen=True):
    """The dialog is gone and the turn goes on."""


class TurnDone(MemberEvent, frozen=True):
    """The program is at rest again after a turn."""


class TurnFailed(MemberEvent, frozen=True):
    reason: str = ""


class BackendFailed(MemberEvent, frozen=True):
    reason: str = ""


class Exhausted(MemberEvent, frozen=True):
    reason: str = ""


class ProcessGone(MemberEvent, frozen=True):
    """Its process has ended while no turn of ours was open, or nobody can say how."""

    reason: str = ""


class Released(MemberEvent, frozen=True):
    """Its lead has ended it."""


class RetryNoted(Message, frozen=True):
    """A turn only retries by itself, since then in nanoseconds; ``None``: that is over. Changes no state."""

    target: str
    retrying: Retrying | None
    since_ns: int


class MemberOver(Message, frozen=True):
    """A member answers nothing any more: its open questions are moot."""

    target: str
    reason: str


class SendsLost(Message, frozen=True):
    """A member's resolver has crashed, so nobody else will end its sends. Received by mail."""

    target: str
    reason: str


_S = MemberState

#: Rows that hold for each state in which a member can still work.
_LIVE: Final[dict[type[MemberEvent], MemberState]] = {
    TurnFailed: _S.FAILED,
    BackendFailed: _S.BACKEND_ERROR,
    Exhausted: _S.EXHAUSTED,
    ProcessGone: _S.LOST,
    Released: _S.RELEASED,
}

TABLE: Final[dict[MemberState, dict[type[MemberEvent], MemberState]]] = {
    _S.STARTING: {**_LIVE, Ready: _S.IDLE, Blocked: _S.BLOCKED, Delivered: _S.BUSY},
    _S.IDLE: {**_LIVE, Ready: _S.IDLE, Delivered: _S.BUSY, Blocked: _S.BLOCKED, TurnDone: _S.DONE},
    _S.BUSY: {**_LIVE, Delivered: _S.BUSY, Blocked: _S.BLOCKED, Unblocked: _S.BUSY, TurnDone: _S.DONE},
    _S.BLOCKED: {
        **_LIVE,
        Ready: _S.IDLE,
        Blocked: _S.BLOCKED,
        Unblocked: _S.BUSY,
        TurnDone: _S.DONE,
        Delivered: _S.BUSY,
    },
    _S.DONE: {**_LIVE, Delivered: _S.BUSY, Blocked: _S.BLOCKED, TurnDone: _S.DONE},
    _S.FAILED: {Released: _S.RELEASED, TurnDone: _S.FAILED, TurnFailed: _S.FAILED, ProcessGone: _S.FAILED},
    _S.BACKEND_ERROR: {Released: _S.RELEASED, TurnDone: _S.BACKEND_ERROR, ProcessGone: _S.BACKEND_ERROR},
    _S.EXHAUSTED: {Released: _S.RELEASED, TurnDone: _S.EXHAUSTED, ProcessGone: _S.EXHAUSTED},
    _S.LOST: {Released: _S.RELEASED, ProcessGone: _S.LOST},
    _S.RELEASED: {},
}


def step(state: MemberState, event: MemberEvent) -> MemberState | None:
    """The state after an event; ``None`` when the event is refused and nothing happens."""
    return TABLE[state].get(type(event))
