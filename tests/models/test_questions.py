"""A model of the questions: asked, answered, waited for and closed, at bounds that are soon met."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

import actors.questions as questions_module
from actors.actor import Message
from actors.clock import NS_PER_S
from actors.leads import Notify, Settled
from actors.member import MemberOver
from actors.nudge import OpenQuestion
from actors.questions import (
    AwaitAnswer,
    ListQuestions,
    PutAnswer,
    PutQuestion,
    QuestionClosed,
    Questions,
    QuestionsFull,
    UnknownQuestion,
)
from tests.actors.recorders import Clock, Recorder, driven
from tests.models.asks import answer, answered, refusal
from tests.models.effort import modest

S = NS_PER_S
MEMBERS = ("m-1", "m-2")
BOUNDS = {"OPEN_QUESTIONS": 3, "KEPT_QUESTIONS": 2}


class QuestionsMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, bound in BOUNDS.items():
            self.patch.setattr(questions_module, name, bound)
        self.clock = Clock(9 * S)
        self.order: list[tuple[str, Message]] = []
        self.actor = Questions(leads=Recorder("leads", self.order))
        driven(self.actor, self.clock)
        self.questions: list[dict[str, Any]] = []
        self.listeners: list[tuple[AwaitAnswer, dict[str, Any]]] = []
        self.told: list[tuple[str, Message]] = []
        self.asked = 0

    def teardown(self) -> None:
        self.patch.undo()

    @rule(ns=st.integers(1, 60 * S))
    def time_passes(self, ns: int) -> None:
        self.clock.ns += ns

    @rule()
    def what_never_was_is_refused(self) -> None:
        for name in ("q-0", f"q-{self.asked + 1}"):
            assert isinstance(refusal(self.actor, AwaitAnswer(name, "m-1")), UnknownQuestion)
            assert isinstance(refusal(self.actor, PutAnswer(name, "?")), UnknownQuestion)

    def open_questions(self) -> list[dict[str, Any]]:
        return [question for question in self.questions if question["answer"] is None and question["closed"] is None]

    @rule(member=st.sampled_from(MEMBERS))
    def a_question_is_asked(self, member: str) -> None:
        ask = PutQuestion(member, f"question {self.asked}?", "lead-1")
        if len(self.open_questions()) >= BOUNDS["OPEN_QUESTIONS"]:
            no = refusal(self.actor, ask)
            assert isinstance(no, QuestionsFull)
            assert str(BOUNDS["OPEN_QUESTIONS"]) in str(no)
            return
        if len(self.questions) >= BOUNDS["OPEN_QUESTIONS"] + BOUNDS["KEPT_QUESTIONS"]:
            still = self.open_questions()
            self.questions.remove(next(question for question in self.questions if question not in still))
        self.asked += 1
        name = f"q-{self.asked}"
        self.questions.append(
            {"id": name, "target": member, "text": ask.text, "asked": self.clock.ns, "answer": None, "closed": None}
        )
        self.told.append(("leads", Notify("lead-1", OpenQuestion(name, member))))
        assert answer(self.actor, ask) == name

    @precondition(lambda self: self.questions)
    @rule(data=st.data(), own=st.booleans())
    def a_member_waits_for_its_answer(self, data: st.DataObject, own: bool) -> None:
        """ "Only the member that asked may wait." """
        question = data.draw(st.sampled_from(self.questions))
        ask = AwaitAnswer(question["id"], question["target"] if own else "m-9")
        if not own:
            assert isinstance(refusal(self.actor, ask), UnknownQuestion)
        elif question["answer"] is not None:
            assert answer(self.actor, ask) == question["answer"]
        elif question["closed"] is not None:
            no = refusal(self.actor, ask)
            assert isinstance(no, QuestionClosed)
            assert question["closed"] in str(no)
        else:
            self.actor._step(ask)
            assert not ask.reply.settled
            self.listeners.append((ask, question))

    @precondition(lambda self: self.listeners)
    @rule(data=st.data())
    def a_member_stops_waiting(self, data: st.DataObject) -> None:
        ask, _ = data.draw(st.sampled_from(self.listeners))
        ask.reply.abandoned = True

    @precondition(lambda self: self.questions)
    @rule(data=st.data())
    def a_question_is_answered(self, data: st.DataObject) -> None:
        question = data.draw(st.sampled_from(self.questions))
        ask = PutAnswer(question["id"], f"answer {self.clock.ns}")
        if question["answer"] is not None or question["closed"] is not None:
            assert isinstance(refusal(self.actor, ask), QuestionClosed)
            return
        question["answer"] = ask.text
        self.told.append(("leads", Settled("lead-1", question["id"])))
        view = answer(self.actor, ask)
        assert (view.id, view.lead, view.target, view.text, view.asked_ns) == (
            question["id"], "lead-1", question["target"], question["text"], question["asked"],
        )  # fmt: skip

    @rule(member=st.sampled_from(MEMBERS))
    def a_member_is_over(self, member: str) -> None:
        """ "Its open questions are moot." """
        for question in self.open_questions():
            if question["target"] == member:
                question["closed"] = "it ended"
                self.told.append(("leads", Settled("lead-1", question["id"])))
        self.actor._step(MemberOver(member, "it ended"))

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def the_leads_are_told_what_and_in_the_order_that_is_written(self) -> None:
        assert self.order == self.told

    @invariant()
    def who_listens_for_an_answer_has_it_once_it_is_there(self) -> None:
        for ask, question in self.listeners:
            if ask.reply.abandoned:
                continue  # who has stopped waiting may be told or not
            if question["answer"] is not None:
                assert answered(ask.reply) == question["answer"]
            elif question["closed"] is not None:
                with pytest.raises(QuestionClosed, match=question["closed"]):
                    answered(ask.reply)
            else:
                assert not ask.reply.settled

    @invariant()
    def the_bounds_hold(self) -> None:
        listed = [view.id for view in answer(self.actor, ListQuestions())]
        assert listed == [question["id"] for question in self.open_questions()]
        assert len(self.actor._questions) == len(self.questions) <= sum(BOUNDS.values())
        assert repr(self.actor) == f"<Questions {len(listed)} open of {len(self.questions)}>"


TestQuestions = QuestionsMachine.TestCase
TestQuestions.settings = modest(60, steps=50)
