"""Trio's clock in the daemon: one that also runs while the machine sleeps.

Two errors eight hours apart across a laptop's sleep must not look ten seconds apart, and a cool-off must not freeze
with the lid. The wall clock decides nothing.
"""

from __future__ import annotations

import time

import trio


class BootClock(trio.abc.Clock):
    """CLOCK_BOOTTIME as Trio's clock."""

    def start_clock(self) -> None:
        """Nothing to start: the kernel's clock runs."""

    def current_time(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
