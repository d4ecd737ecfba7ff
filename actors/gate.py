"""The gate that every path passes which starts or feeds a member.

A check travels as one message: the asker tells the quarantine, which adds its deadlines and passes it to the outage
policy, which adds its own and tells the asker :class:`GateRead`. No actor waits for another, and a check that was sent
after a piece of evidence was told always sees that evidence, because it stands behind it in the same mailboxes.
"""

from __future__ import annotations

from collections.abc import Mapping

from actors.actor import Message, Tells
from actors.clock import ceil_seconds


class GateCheck(Message, frozen=True):
    """Read the gate for some credentials; ``back`` is told :class:`GateRead` with the same ``id``."""

    id: str
    credentials: tuple[str, ...]
    back: Tells
    #: Filled in on the way: credential to the end of its quarantine, in nanoseconds.
    exhausted_until: Mapping[str, int] = {}


class GateRead(Message, frozen=True):
    """What the gate said, as of one step of the outage policy. Only credentials that are shut are in the maps."""

    id: str
    exhausted_until: Mapping[str, int]
    cooling_until: Mapping[str, int]
    #: ``outage.holdSends``: sends to a cooling credential wait for its end.
    hold_sends: bool
    at_ns: int


def cooling_text(credential: str, until_ns: int, now_ns: int) -> str:
    """Why a cooling credential refuses."""
    left = ceil_seconds(until_ns - now_ns)
    return f"credential {credential} is cooling off after repeated backend errors, {left} s remaining"


def exhausted_text(credential: str, until_ns: int, now_ns: int) -> str:
    """Why an exhausted credential refuses."""
    left = ceil_seconds(until_ns - now_ns)
    return f"credential {credential} is exhausted (its quota is used up), quarantined for {left} s more"
