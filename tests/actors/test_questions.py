"""Questions of members to their leads."""

from __future__ import annotations

import pytest
import trio

from actors.leads import Notify, Settled
from actors.member import MemberOver
from actors.nudge import OpenQuestion
from actors.questions import (
    OPEN_QUESTIONS,
    AwaitAnswer,
    ListQuestions,
    PutAnswer,
    PutQuestion,
    QuestionClosed,
    Questions,
    QuestionsFull,
    UnknownQuestion,
)
from tests.actors.recorders import Recorder


class Bench:
    def __init__(self) -> None:
        self.leads = Recorder("leads")
        self.questions = Questions(leads=self.leads)


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.questions.run)
    return bench


async def test_a_question_reaches_its_lead_and_the_answer_its_member(bench: Bench, nursery: trio.Nursery) -> None:
    name = await bench.questions.ask(PutQuestion("m-1", "which branch?", "lead-1"))
    answers: list[str] = []

    async def member() -> None:
        answers.append(await bench.questions.ask(AwaitAnswer(name, "m-1")))

    nursery.start_soon(member)
    await trio.testing.wait_all_tasks_blocked()
    assert bench.leads.told == [Notify("lead-1", OpenQuestion("q-1", "m-1"))]
    (question,) = await bench.questions.ask(ListQuestions())
    assert question.text == "which branch?"
    await bench.questions.ask(PutAnswer(name, "main"))
    await trio.testing.wait_all_tasks_blocked()
    assert answers == ["main"]
    assert bench.leads.told[-1] == Settled("lead-1", "q-1")
    assert await bench.questions.ask(ListQuestions()) == ()


async def test_an_answer_that_came_before_the_wait_is_there(bench: Bench) -> None:
    name = await bench.questions.ask(PutQuestion("m-1", "which branch?", "lead-1"))
    await bench.questions.ask(PutAnswer(name, "main"))
    assert await bench.questions.ask(AwaitAnswer(name, "m-1")) == "main"


async def test_a_question_is_answered_once(bench: Bench) -> None:
    name = await bench.questions.ask(PutQuestion("m-1", "which branch?", "lead-1"))
    await bench.questions.ask(PutAnswer(name, "main"))
    with pytest.raises(QuestionClosed, match="answered already"):
        await bench.questions.ask(PutAnswer(name, "other"))


async def test_a_member_cannot_wait_for_the_question_of_another(bench: Bench) -> None:
    name = await bench.questions.ask(PutQuestion("m-1", "which branch?", "lead-1"))
    with pytest.raises(UnknownQuestion):
        await bench.questions.ask(AwaitAnswer(name, "m-2"))


async def test_the_questions_of_a_member_that_is_over_are_closed(bench: Bench, nursery: trio.Nursery) -> None:
    name = await bench.questions.ask(PutQuestion("m-1", "which branch?", "lead-1"))
    refused: list[str] = []

    async def member() -> None:
        try:
            await bench.questions.ask(AwaitAnswer(name, "m-1"))
        except QuestionClosed as closed:
            refused.append(str(closed))

    nursery.start_soon(member)
    await trio.testing.wait_all_tasks_blocked()
    bench.questions.tell(MemberOver("m-1", "member m-1 is released"))
    await trio.testing.wait_all_tasks_blocked()
    assert refused == ["question q-1 is closed: member m-1 is released"]
    with pytest.raises(QuestionClosed):
        await bench.questions.ask(PutAnswer(name, "main"))


async def test_open_questions_are_bounded_and_answered_ones_make_room(bench: Bench) -> None:
    for number in range(OPEN_QUESTIONS):
        await bench.questions.ask(PutQuestion("m-1", f"{number}?", "lead-1"))
    with pytest.raises(QuestionsFull, match="256 questions are open"):
        await bench.questions.ask(PutQuestion("m-1", "?", "lead-1"))
    for number in range(1, OPEN_QUESTIONS + 1):
        await bench.questions.ask(PutAnswer(f"q-{number}", "yes"))
    for _ in range(OPEN_QUESTIONS + 10):
        name = await bench.questions.ask(PutQuestion("m-1", "?", "lead-1"))
        await bench.questions.ask(PutAnswer(name, "yes"))
    assert len(bench.questions._questions) <= 2 * OPEN_QUESTIONS


async def test_a_member_that_asks_the_same_again_is_asking_the_same_question(bench: Bench) -> None:
    """Its call is cut off when the daemon is restarted, and it does what anybody does."""
    first = await bench.questions.ask(PutQuestion("m-1", "which?", "lead-1"))
    assert await bench.questions.ask(PutQuestion("m-1", "which?", "lead-1")) == first
    assert await bench.questions.ask(PutQuestion("m-2", "which?", "lead-1")) != first
    await bench.questions.ask(PutAnswer(first, "this"))
    assert await bench.questions.ask(PutQuestion("m-1", "which?", "lead-1")) != first
