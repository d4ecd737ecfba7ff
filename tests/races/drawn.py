"""Races of real tasks: Hypothesis draws the order in which Trio runs them, from the moment of the race on.

A fleet takes some hundred steps to get to where a race begins, and a schedule has only so many choices to spend. So up
to :meth:`Race.begins` the oldest task runs first, and the drawn choices are for what comes then.
"""

from __future__ import annotations

import math
import pkgutil
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import pytest
import trio
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from actors.watching import POLL_S
from fleetd.testing import Fleet, Member, Ticket, no_descriptors
from fleetd.testing.schedule import run_scheduled

R = TypeVar("R")

#: Choices of one schedule, a digit each; zeros follow, and zeros are what a failing one shrinks to.
CHOICES: Final = 60
schedules: Final = st.text("01234567", min_size=CHOICES, max_size=CHOICES)

CONFIG: Final = """
profiles:
  demo-a: {agent: demo, credentialId: shared, capacity: 4, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-b: {agent: demo, credentialId: shared, capacity: 2, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-c: {agent: demo, credentialId: other, capacity: 2, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""


class Race:
    """The drawn choices, kept until the race begins."""

    def __init__(self, choices: str) -> None:
        self._choices = map(int, choices)
        self._begun = False

    def __iter__(self) -> Race:
        return self

    def __next__(self) -> int:
        return next(self._choices, 0) if self._begun else 0

    def begins(self) -> None:
        self._begun = True

    async def dawdle(self) -> None:
        """Come some of Trio's steps late, as many as are drawn: some racers have a longer way than others."""
        for _ in range(next(self._choices, 0)):
            await trio.lowlevel.checkpoint()


async def next_look() -> None:
    """Wait for the instant of the next look at the members' panes."""
    await trio.sleep_until(math.ceil(trio.current_time() / POLL_S) * POLL_S)


async def at_work(
    fleet: Fleet, *profiles: str, lead: str = "lead", first: str = "a"
) -> tuple[list[Member], list[Ticket]]:
    """Members called a, b ... (or from ``first`` on) with a turn that runs, and their sends; in a second and a bit."""
    names, caller = [chr(ord(first) + index) for index in range(len(profiles))], fleet.lead(lead)
    spawned = [
        await caller.call("fleet_spawn", name=name, profile=profile)
        for name, profile in zip(names, profiles, strict=True)
    ]
    await fleet.advance(0.3)
    sent = [await caller.call("fleet_send", target=name, prompt=f"prompt of {name}") for name in names]
    await fleet.advance(0.8)
    targets = [str(each["target"]) for each in spawned]
    members = [Member(fleet, name, target, fleet.host.of(target)) for name, target in zip(names, targets, strict=True)]
    return members, [Ticket(caller, str(each["ticket"])) for each in sent]


async def about_to_fail(*members: Member) -> None:
    """Let their programs show a backend's error; the next look will settle their turns."""
    for member in members:
        member.agent.fails()
    await next_look()
    await trio.sleep(POLL_S + 0.05)


def drawn(
    story: Callable[[Race, trio.Nursery], Awaitable[R]],
    judge: Callable[[R], None],
    *,
    examples: int = 40,
    shrink: bool = True,
) -> None:
    """Judge what a story of some tasks returns, in drawn schedules.

    Args:
        shrink: look for the simplest schedule in which it fails.
    """
    phases = (Phase.explicit, Phase.generate, *((Phase.shrink,) if shrink else ()))

    @settings(max_examples=examples, deadline=None, phases=phases, report_multiple_bugs=False, database=None)
    @given(schedules)
    @example("")
    def judged(choices: str) -> None:
        race = Race(choices)

        async def play(nursery: trio.Nursery) -> R:
            with no_descriptors():
                result = await story(race, nursery)
            nursery.cancel_scope.cancel()
            return result

        judge(run_scheduled(race, play))

    judged()


def drawn_fleet(
    story: Callable[[Fleet, Race], Awaitable[R]],
    judge: Callable[[R], None],
    *,
    config: str = CONFIG,
    swap: Mapping[str, Any] | None = None,
    examples: int = 8,
) -> None:
    """Judge what a story of a whole fleet returns, in drawn schedules.

    Args:
        swap: classes to put in the place of others, by the dotted name under which the composition finds them.
    """

    async def play(race: Race, nursery: trio.Nursery) -> R:
        clock: Any = trio.lowlevel.current_clock()
        fleet = Fleet(config, clock=clock)
        async with fleet.running():
            return await story(fleet, race)

    broken = any(pkgutil.resolve_name(name) is not other for name, other in (swap or {}).items())
    with pytest.MonkeyPatch.context() as patch:
        for name, other in (swap or {}).items():
            patch.setattr(name, other)
        drawn(play, judge, examples=examples, shrink=not broken)
