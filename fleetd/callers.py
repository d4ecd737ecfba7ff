"""Who calls, as the rest of the daemon sees it: a role and an identifier."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Role(StrEnum):
    LEAD = "lead"
    MEMBER = "member"


class Caller(msgspec.Struct, frozen=True):
    """A client that the daemon has identified."""

    role: Role
    #: The lead's identifier (``lead-1``) or the member's target (``m-4``).
    id: str
    #: Where the calling process works, by the kernel's word; empty where that is not known.
    cwd: str = ""
