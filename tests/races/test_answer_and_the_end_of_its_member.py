"""A question, its answer, and the end of the member that asked.

The sentences: the lead is told that its answer was taken exactly if the member gets it; and when a member is over, none
of its questions stays open.
"""

from __future__ import annotations

import pytest

from actors.member import MemberOver
from actors.questions import AwaitAnswer, ListQuestions, PutAnswer, PutQuestion, QuestionClosed, Questions
from actors.roster import ReleaseMember
from tests.races.interleavings import World, interleavings, result
from tests.races.road import Road
from tests.races.twins import twin


class ClosesWhatIsAnswered(Questions):
    """A member that is over has no questions, answered or not."""

    def _member_over(self, target, reason):  # type: ignore[no-untyped-def]
        for question in self._questions.values():
            question.answer = None
        super()._member_over(target, reason)


@pytest.mark.parametrize("make", [Questions, twin(ClosesWhatIsAnswered)])
def test_an_answer_is_taken_exactly_if_the_member_gets_it_in_every_interleaving(make: type[Questions]) -> None:
    def scene(world: World) -> tuple[AwaitAnswer, PutAnswer]:
        road = Road(world, "questions", questions=make)
        name = road.questions.handle(PutQuestion("m-1", "which branch?", road.lead))
        waits, answers = AwaitAnswer(name, "m-1"), PutAnswer(name, "main")

        for message in (waits, answers, MemberOver("m-1", "member m-1 is released")):
            world.tells(road.questions, message)
        world.run()
        return waits, answers

    outcomes = set()
    for waits, answers in interleavings(scene):
        got, taken = result(waits), not isinstance(result(answers), QuestionClosed)
        assert got == "main" if taken else isinstance(got, QuestionClosed)
        outcomes.add(taken)
    assert outcomes == {True, False}


def test_a_question_that_crosses_the_release_of_its_member_is_not_left_open() -> None:
    """It goes through the roster, so it is refused behind the release, and closed by it before."""

    def scene(world: World) -> Road:
        road = Road(world, "roster questions")
        road.member("m-1")
        world.tells(road.roster, PutQuestion("m-1", "which branch?"))
        world.tells(road.roster, ReleaseMember("m-1"))
        world.run()
        return road

    for road in interleavings(scene):
        assert road.questions.handle(ListQuestions()) == ()
