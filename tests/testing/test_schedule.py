"""Schedules and merges: every order is reached, and a failing one prints by task names."""

from __future__ import annotations

from collections import Counter
from itertools import permutations, product

import pytest
import trio
from hypothesis import find, given, settings
from hypothesis import strategies as st

from fleetd.testing.merges import TooManyMerges, count, merges
from fleetd.testing.schedule import run_scheduled, scheduled, schedules


async def three(nursery: trio.Nursery) -> list[str]:
    """Three tasks that write their names."""
    written: list[str] = []

    async def write(name: str) -> None:
        written.append(name)

    for name in "abc":
        nursery.start_soon(write, name, name=name)
    return written


def test_canary_all_orders_of_three_tasks_are_reached() -> None:
    """If Trio changes how it orders a batch, this is the test that says so."""
    reached = {tuple(run_scheduled(choices, three)) for choices in product(range(3), repeat=4)}
    assert reached == set(permutations("abc"))


def test_all_zeros_is_the_oldest_task_first() -> None:
    assert run_scheduled([], three) == ["a", "b", "c"]


def test_the_same_choices_give_the_same_order() -> None:
    assert {tuple(run_scheduled([2, 1, 5], three)) for _ in range(5)} == {tuple(run_scheduled([2, 1, 5], three))}


def test_a_wrong_order_shrinks_to_the_fewest_deviations_and_prints_by_task_names() -> None:
    choices = find(schedules, lambda drawn: run_scheduled(drawn, three)[0] != "a")
    assert sum(choices) == 1
    with scheduled(choices) as schedule:
        trio.run(_nothing)
    assert "main" not in str(schedule)


async def _nothing() -> None:
    async with trio.open_nursery() as nursery:
        await three(nursery)


@given(schedules)
def test_hypothesis_draws_orders_and_each_is_one_that_may_happen(choices: list[int]) -> None:
    assert sorted(run_scheduled(choices, three)) == ["a", "b", "c"]


def test_a_story_that_hangs_ends_at_its_deadline_and_not_in_ci() -> None:
    async def story(nursery: trio.Nursery) -> None:
        with trio.fail_after(5):
            await trio.sleep_forever()

    with pytest.RaisesGroup(trio.TooSlowError):
        run_scheduled([], story)


# -- merges ---------------------------------------------------------------------------------------------------------

senders = st.lists(st.lists(st.integers(), max_size=4), min_size=1, max_size=3)


@settings(max_examples=50)
@given(senders)
def test_every_merge_keeps_each_senders_order_and_there_are_as_many_as_there_should_be(drawn: list[list[int]]) -> None:
    tagged = [[(sender, index) for index in range(len(each))] for sender, each in enumerate(drawn)]
    found = list(merges(*tagged))
    assert len(found) == len(set(found)) == count(*tagged)
    for merged in found:
        for sender, each in enumerate(tagged):
            assert [item for item in merged if item[0] == sender] == each


def test_three_senders_of_three_messages_are_1680_merges() -> None:
    assert Counter(len(merged) for merged in merges("abc", "def", "ghi")) == {9: 1680}


def test_too_many_merges_are_refused_with_their_number() -> None:
    with pytest.raises(TooManyMerges, match="5717712 interleavings"):
        next(merges("abcdef", "ghijkl", "mnopq"))
