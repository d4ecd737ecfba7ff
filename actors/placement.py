"""Which profile a spawn without a name goes to.

Exhausted and cooling are two exclusions, not one: a refusal must say which of them it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec


class PolicyName(StrEnum):
    """``placement.policy``."""

    #: The smallest share of its capacity in use; the order of the configuration breaks ties.
    LEAST_LOADED = "least-loaded"
    #: The next usable one after the last that was chosen.
    ROUND_ROBIN = "round-robin"
    #: The first usable one in the order of the configuration.
    PRIORITY = "priority"


class Cause(StrEnum):
    """Why a profile takes no spawn; in this order where several hold."""

    EXHAUSTED = "credential_exhausted"
    COOLING = "credential_cooling_off"
    FULL = "profile_full"


class Load(msgspec.Struct, frozen=True):
    """A profile's room. ``taken`` counts members and launches under way."""

    profile: str
    credential: str
    capacity: int
    taken: int

    @property
    def free(self) -> int:
        return max(0, self.capacity - self.taken)


class Exclusion(msgspec.Struct, frozen=True):
    """Why one profile is out, and until when (nanoseconds) where that is known."""

    cause: Cause
    until_ns: int | None = None


def exclusion(load: Load, exhausted_until: Mapping[str, int], cooling_until: Mapping[str, int]) -> Exclusion | None:
    """Why this profile takes no spawn now; ``None`` when it does."""
    if (until := exhausted_until.get(load.credential)) is not None:
        return Exclusion(Cause.EXHAUSTED, until)
    if (until := cooling_until.get(load.credential)) is not None:
        return Exclusion(Cause.COOLING, until)
    return None if load.free else Exclusion(Cause.FULL)


def choose(policy: PolicyName, usable: Sequence[Load], order: Sequence[str], last: str | None) -> Load:
    """One of the usable profiles (at least one), given all profiles in the order of the configuration."""
    match policy:
        case PolicyName.LEAST_LOADED:
            return min(usable, key=lambda load: (load.taken / load.capacity, order.index(load.profile)))
        case PolicyName.PRIORITY:
            return min(usable, key=lambda load: order.index(load.profile))
        case PolicyName.ROUND_ROBIN:
            after = order.index(last) + 1 if last in order else 0
            return min(usable, key=lambda load: (order.index(load.profile) - after) % len(order))
