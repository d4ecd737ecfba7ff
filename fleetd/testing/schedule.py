"""Drawn schedules: Hypothesis chooses the order in which Trio runs tasks.

Trio sorts each batch of runnable tasks by age and asks a random number generator to shuffle it. Without help a test
therefore sees few orders, and a plain ``@given`` test sees one: Hypothesis reseeds that generator for each example.
Here the generator is replaced by a list of choices that Hypothesis has drawn *before* the run. All zeros is the oldest
task first; each other number is one deviation from it, so a failing schedule shrinks towards the usual one, and what is
left prints by task names.

This leans on one private name of Trio. A canary in the tests sees that all orders of three tasks are still reached.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

import trio
from hypothesis import note
from hypothesis import strategies as st
from trio.testing import MockClock

T = TypeVar("T")

#: Choices of one run. A shorter list is continued with zeros.
CHOICES: Final = 60
schedules: Final[st.SearchStrategy[list[int]]] = st.lists(st.integers(0, 7), max_size=CHOICES)


class Schedule(random.Random):
    """Stands in for Trio's scheduler's random numbers."""

    def __init__(self, choices: Iterable[int]) -> None:
        super().__init__(0)
        self._choices = iter(choices)
        #: The tasks of each batch in which there was something to choose, in the order in which they ran.
        self.batches: list[tuple[str, ...]] = []

    def shuffle(self, x: Any) -> None:
        """Order a batch; ``x`` is a list of tasks, oldest first, and Trio runs it from its end."""
        for index in range(len(x) - 1):
            chosen = index + next(self._choices, 0) % (len(x) - index)
            x[index], x[chosen] = x[chosen], x[index]
        if len(x) > 1:
            self.batches.append(tuple(task.name.rsplit(".", 1)[-1] for task in x))
        x.reverse()

    def random(self) -> float:
        """Trio asks for one number a batch, whether to run it backwards; the order is decided in :meth:`shuffle`."""
        return 0.0

    def __str__(self) -> str:
        return " | ".join(", ".join(batch) for batch in self.batches) or "nothing to choose"


@contextmanager
def scheduled(choices: Iterable[int]) -> Iterator[Schedule]:
    """Let the runs inside take their order from ``choices``."""
    core: Any = trio._core._run
    saved = core._r, core._ALLOW_DETERMINISTIC_SCHEDULING
    schedule = Schedule(choices)
    core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = schedule, True
    try:
        yield schedule
    finally:
        core._r, core._ALLOW_DETERMINISTIC_SCHEDULING = saved


def run_scheduled(choices: Iterable[int], story: Callable[[trio.Nursery], Awaitable[T]]) -> T:
    """Run a story on a fake clock in the order that ``choices`` give; what it returns once its tasks have ended.

    The schedule is noted, so that Hypothesis prints it with a failing example. The clock jumps when all tasks wait, so
    a story that hangs ends at once with :class:`trio.TooSlowError` where it has a deadline.
    """

    async def main() -> T:
        async with trio.open_nursery() as nursery:
            return await story(nursery)

    with scheduled(choices) as schedule:
        try:
            return trio.run(main, clock=MockClock(autojump_threshold=0))
        finally:
            with contextlib.suppress(Exception):  # outside a Hypothesis test there is nobody to note it
                note(f"schedule: {schedule}")
