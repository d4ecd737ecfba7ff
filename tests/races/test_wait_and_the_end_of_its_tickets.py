"""Tickets that end while somebody waits for them, begins to, or gives up.

The sentence: a lead hears of an ended ticket exactly once, with what it waits for or by a nudge; never twice, and never
not at all.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from actors.mail import Await, Mail, OpenTicket
from actors.turn import Status
from tests.actors.recorders import Recorder
from tests.races.interleavings import Script, World, interleavings, result
from tests.races.road import Road
from tests.races.twins import twin


class NeverSettles(Mail):
    """Answers who waits, and leaves the nudge for what it said as it is."""

    def _await(self, wait):  # type: ignore[no-untyped-def]
        leads, self._leads = self._leads, Recorder("nobody")
        try:
            return super()._await(wait)
        finally:
            self._leads = leads


class SwallowsTheNudge(Mail):
    """Takes somebody who has given up for one who waits."""

    def _answer_waiting(self, ticket):  # type: ignore[no-untyped-def]
        for wait in self._awaiting:
            wait.reply.abandoned = False
        return super()._answer_waiting(ticket)


class Came(NamedTuple):
    """What came of one interleaving."""

    #: The tickets that the wait was answered with; none where its caller had gone.
    heard: list[str]
    #: The tickets that the lead is still to be nudged of.
    nudged: list[str]
    gone: bool


def ends_while_waited_for(make: type[Mail], tickets: int, *, every: bool = False, gives_up: bool = False) -> list[Came]:
    def scene(world: World) -> Came:
        road = Road(world, "leads mail", mail=make)
        names = [str(road.mail.handle(OpenTicket(road.lead, "m-1", "do it", 1))) for _ in range(tickets)]
        wait, gone = Await(tuple(names), every), False

        def lead() -> Script:
            nonlocal gone
            road.mail.tell(wait)
            yield None
            if gives_up:
                world.look()
                gone = wait.reply.abandoned = not wait.reply.settled

        for name in names:
            world.tells(road.mail, road.fails("m-1", name, Status.COMPLETED))
        world.client(lead())
        world.run()
        return Came([] if gone else [view.id for view in result(wait)], sorted(road.loop._waiting), gone)

    return list(interleavings(scene))


@pytest.mark.parametrize(
    ("make", "every"),
    [pytest.param(Mail, False, id="first"), pytest.param(Mail, True, id="all"), twin(NeverSettles, False)],
)
def test_what_a_wait_was_answered_with_is_not_nudged_and_everything_else_is(make: type[Mail], every: bool) -> None:
    for came in ends_while_waited_for(make, 2, every=every):
        assert sorted([*came.heard, *came.nudged]) == ["t-1", "t-2"]


@pytest.mark.parametrize("make", [Mail, twin(SwallowsTheNudge)])
def test_who_gives_up_waiting_at_the_instant_of_the_end_is_nudged(make: type[Mail]) -> None:
    outcomes = set()
    for came in ends_while_waited_for(make, 1, gives_up=True):
        assert sorted([*came.heard, *came.nudged]) == ["t-1"]
        outcomes.add(came.gone)
    assert outcomes == {True, False}
