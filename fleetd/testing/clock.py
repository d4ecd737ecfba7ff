"""Moving Trio's fake clock.

``clock.jump(60)`` is not sixty seconds of life: a loop that ticks each second ticks once in it. So time is moved from
deadline to deadline, and at each of them everything that can happen happens before it moves on.
"""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from actors.clock import NS_PER_S


async def settle() -> None:
    """Until every task waits: every message that can be handled has been handled. No time passes."""
    await wait_all_tasks_blocked()


async def advance(clock: MockClock, seconds: float) -> None:
    """Let ``seconds`` pass, stopping at each deadline on the way.

    Args:
        clock: the clock that the run was started with; it must not jump by itself.
        seconds: rounded to nanoseconds, so that many small steps add up to what they say.
    """
    end = trio.current_time() + round(seconds * NS_PER_S) / NS_PER_S
    await settle()
    while True:
        step = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if trio.current_time() + step > end:
            break
        clock.jump(max(step, 0.0))
        await settle()
    clock.jump(max(end - trio.current_time(), 0.0))
    await settle()
