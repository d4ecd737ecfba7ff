"""Where float seconds become integers.

The window of the outage policy is inclusive, and 600 x 0.1 s is not 60 s in floats: everything that is compared or
carried in a message is integer nanoseconds. Only Trio's own calls take float seconds.
"""

from __future__ import annotations

from typing import Final

import trio

NS_PER_S: Final = 1_000_000_000
NS_PER_MS: Final = 1_000_000


def now_ns() -> int:
    """Trio's clock in nanoseconds, from an arbitrary start. Only differences mean anything."""
    return round(trio.current_time() * NS_PER_S)


def from_seconds(seconds: float) -> int:
    return round(seconds * NS_PER_S)


def to_seconds(ns: int) -> float:
    return ns / NS_PER_S


def ceil_seconds(ns: int) -> int:
    """Whole seconds, rounded up: what a view says of a time that is left. Never negative."""
    return max(0, -(-ns // NS_PER_S))


def floor_seconds(ns: int) -> int:
    """Whole seconds, rounded down: what a view says of a time that has passed. Never negative."""
    return max(0, ns // NS_PER_S)
