"""What goes into a spawn and what comes of it: a profile's room, the order, the launched program, a refusal."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, Protocol

import msgspec

from actors.actor import Refused, Tells
from actors.clock import ceil_seconds
from actors.gate import cooling_text, exhausted_text
from actors.host import PaneRef
from actors.journal import Entry
from actors.member import Identity
from actors.placement import Cause, Exclusion, Load
from actors.setup import Setup

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
#: What a target looks like. No name may: a target that is given later would be taken for it.
TARGET: Final = re.compile(r"m-[0-9]+")


class ProfileRoom(msgspec.Struct, frozen=True):
    """What the launcher knows of a profile."""

    name: str
    credential: str
    capacity: int
    #: What :class:`Launching` starts it by. It goes with the order, so that a member is started by the configuration
    #: that it was judged and stamped by, whatever a reload has brought since.
    recipe: object = None


class Order(msgspec.Struct, frozen=True):
    """A launch that has its place."""

    target: str
    name: str
    profile: str
    lead: str
    #: The directory to work in; empty for the daemon's own.
    cwd: str
    #: Work in a fresh git worktree of ``cwd``.
    worktree: bool
    #: The profile's; see :class:`ProfileRoom`.
    recipe: object


class Launched(msgspec.Struct, frozen=True):
    """The process runs."""

    pane: PaneRef
    setup: Setup
    cwd: str
    #: Runs beside the member's resolver, to which it tells what the program records of its turns; it is cancelled when
    #: the member ends.
    watch: Callable[[Tells], Awaitable[None]] | None = None
    #: Removes what was made for the member; called when it has ended.
    tidy: Callable[[], None] | None = None
    #: What :meth:`Launching.adopt` needs to find all this again; no secret is in it.
    record: bytes = b""


class Launching(Protocol):
    """What starts processes: the agent's adapter and the pane host behind one call."""

    async def launch(self, order: Order) -> Launched:
        """Start the order's program.

        Raises:
            OpenFailed: it could not be started; nothing is left behind.
        """
        ...

    async def adopt(self, identity: Identity, cwd: str, record: bytes) -> Launched:
        """Take over a member that an earlier daemon launched, by what that one recorded.

        Raises:
            PaneGone: its pane is gone; the message says what became of it.
        """
        ...

    async def discard(self, identity: Identity, record: bytes) -> None:
        """End what is left of a member that had been released when the earlier daemon ended."""
        ...


class SpawnRefused(Refused):
    """A spawn that started no process."""

    def __init__(self, error: str, message: str, **data: object) -> None:
        super().__init__(message)
        self.error = error
        self._data = data

    def data(self) -> dict[str, object]:
        return {"error": self.error, **self._data, "message": str(self)}


class Spawned(msgspec.Struct, frozen=True):
    target: str
    name: str
    profile: str
    credential: str
    cwd: str


class MemberRecord(msgspec.Struct, frozen=True):
    """A member as the journal keeps it until its pane is closed."""

    identity: Identity
    cwd: str
    #: The launching's own; see :attr:`Launched.record`.
    record: bytes

    def entry(self) -> Entry:
        return Entry("member", self.identity.target, msgspec.json.encode(self))


def refused(load: Load, why: Exclusion, alternatives: list[str], now_ns: int) -> SpawnRefused:
    """The refusal of the profile that was asked for, with those that would take a spawn."""
    message = f"profile {load.profile} refused: {_why(load, why, now_ns)}"
    data: dict[str, object] = {"profile": load.profile, "credentialId": load.credential}
    if why.until_ns is not None:
        data["retryAfterSeconds"] = ceil_seconds(why.until_ns - now_ns)
    return SpawnRefused(str(why.cause), message, **data, alternatives=alternatives)


def no_candidate(loads: list[Load], out: Mapping[str, Exclusion | None], now_ns: int) -> SpawnRefused:
    """The refusal where no profile takes a spawn, with each one's own cause."""
    candidates: list[dict[str, object]] = []
    sentences: list[str] = []
    waits: list[int] = []
    for load in loads:
        why = out[load.profile]
        assert why is not None
        row: dict[str, object] = {"profile": load.profile, "cause": str(why.cause)}
        if why.until_ns is not None:
            row["credentialId"] = load.credential
            row["retryAfterSeconds"] = ceil_seconds(why.until_ns - now_ns)
            waits.append(ceil_seconds(why.until_ns - now_ns))
        candidates.append(row)
        sentences.append(f"{load.profile}: {_why(load, why, now_ns)}")
    data: dict[str, object] = {"candidates": candidates}
    if waits:
        data["retryAfterSeconds"] = min(waits)
    return SpawnRefused("no_candidate", "no profile takes a spawn now: " + "; ".join(sentences), **data)


def _why(load: Load, why: Exclusion, now_ns: int) -> str:
    match why.cause:
        case Cause.EXHAUSTED:
            return exhausted_text(load.credential, why.until_ns or now_ns, now_ns)
        case Cause.COOLING:
            return cooling_text(load.credential, why.until_ns or now_ns, now_ns)
        case Cause.FULL:
            return f"all {load.capacity} of its places are taken: release a member or raise its capacity"
