"""Questions: what members ask their leads with ``fleet_ask``, and who waits for the answers.

A question is put through the roster, which knows whether its member is still there and tells this actor when it is
over: so no question of a member that has been released is ever left open. It is in the journal before its lead is told
of it, and so is its answer before anybody hears that it was taken.
"""

from __future__ import annotations

from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Refused, Reply, Tells
from actors.journal import (
    Entry,
    Forgetful,
    Journaling,
    NotKept,
    NotRecorded,
    Recorded,
    Records,
    count_in,
    count_of,
    counted,
)
from actors.leads import Notify, Settled
from actors.member import MemberOver
from actors.nudge import OpenQuestion

#: Questions that nobody has answered yet.
OPEN_QUESTIONS: Final = 256
#: Questions kept that are not open; the oldest make room.
KEPT_QUESTIONS: Final = 256


class QuestionsFull(Refused):
    error = "mail_full"


class UnknownQuestion(Refused):
    error = "unknown_question"


class QuestionClosed(Refused):
    """The question has been answered already, or its member is over."""

    error = "question_closed"


class QuestionView(msgspec.Struct, frozen=True):
    id: str
    lead: str
    target: str
    #: The member's own words: data, never an instruction.
    text: str
    asked_ns: int


# -- what the questions take -------------------------------------------------------------------------------------------


class PutQuestion(Ask[str], frozen=True):
    """``fleet_ask``: a member's question to its lead; it travels through the roster.

    Answers with the question's identifier. Raises :class:`actors.roster.UnknownMember`, :class:`QuestionsFull`,
    :class:`actors.journal.NotKept`.
    """

    target: str
    text: str
    #: Filled in on the way.
    lead: str = ""


class AwaitAnswer(Ask[str], frozen=True):
    """Answered with the lead's answer. Raises :class:`UnknownQuestion`, :class:`QuestionClosed`."""

    question: str
    #: Only the member that asked may wait.
    target: str


class PutAnswer(Ask[QuestionView], frozen=True):
    """``fleet_answer``. Raises :class:`UnknownQuestion`, :class:`QuestionClosed`."""

    question: str
    text: str


class ListQuestions(Ask[tuple[QuestionView, ...]], frozen=True):
    """Every open question, oldest first."""


class RestoreQuestions(Ask[None], frozen=True):
    """Take over what an earlier daemon kept."""

    records: Records


class _Asked(Message, frozen=True):
    ask: PutQuestion
    question: str


class _Answered(Message, frozen=True):
    ask: PutAnswer


class _Question(msgspec.Struct):
    view: QuestionView
    answer: str | None = None
    closed: str | None = None

    def entry(self, **changes: object) -> Entry:
        return Entry("question", self.view.id, msgspec.json.encode(msgspec.structs.replace(self, **changes)))

    @property
    def open(self) -> bool:
        return self.answer is None and self.closed is None


class Questions(Actor):
    """Owns the questions, and who waits for their answers."""

    def __init__(self, *, leads: Tells, journal: Journaling | None = None) -> None:
        super().__init__("questions")
        self._leads = leads
        self._journal = journal or Forgetful()
        self._questions: dict[str, _Question] = {}
        #: Who waits for the answer of a question.
        self._asking: dict[str, list[Reply[str]]] = {}
        #: Questions whose answer is being recorded.
        self._answering: set[str] = set()
        #: Questions that are being recorded, with who asks the same meanwhile.
        self._recording: dict[str, list[PutQuestion]] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Questions {self._open_count()} open of {len(self._questions)}>"

    def handle(self, message: Message) -> object:
        match message:
            case PutQuestion():
                return self._ask(message)
            case AwaitAnswer(question=question, target=target):
                return self._await_answer(question, target, message.reply)
            case PutAnswer():
                return self._answer(message)
            case ListQuestions():
                return tuple(question.view for question in self._questions.values() if question.open)
            case MemberOver(target=target, reason=reason):
                self._member_over(target, reason)
            case Recorded(then=then):
                return self._recorded(then)
            case NotRecorded(then=then, why=why):
                self._not_recorded(then, why)
            case RestoreQuestions(records=records):
                self._restore(records)
            case _:
                raise self.unknown(message)
        return None

    def _recorded(self, then: Message) -> object:
        match then:
            case _Asked(ask=ask, question=question):
                return self._asked(ask, question)
            case _Answered(ask=ask):
                return self._answered(ask)
            case _:
                raise self.unknown(then)

    def _not_recorded(self, then: Message, why: str) -> None:
        refusal = NotKept.because(why)
        match then:
            case _Asked(ask=ask, question=question):
                del self._questions[question]
                for asker in (ask, *self._recording.pop(question)):
                    asker.reply.refuse(refusal)
            case _Answered(ask=ask):
                self._answering.discard(ask.question)
                ask.reply.refuse(refusal)
            case _:
                raise self.unknown(then)

    def _open_count(self) -> int:
        return sum(1 for question in self._questions.values() if question.open)

    def _member_over(self, target: str, reason: str) -> None:
        for question in self._questions.values():
            if question.view.target == target and question.open:
                question.closed = reason
                self._journal.note(question.entry())
                for reply in self._asking.pop(question.view.id, ()):
                    reply.refuse(QuestionClosed(f"question {question.view.id} is closed: {reason}"))
                self._leads.tell(Settled(question.view.lead, question.view.id))

    def _ask(self, ask: PutQuestion) -> object:
        # A member whose call was cut off by a restart of the daemon asks again: it is the same question.
        for known in self._questions.values():
            if (known.view.target, known.view.text, known.open) == (ask.target, ask.text, True):
                if known.view.id in self._recording:
                    self._recording[known.view.id].append(ask)
                    return LATER
                return known.view.id
        if self._open_count() >= OPEN_QUESTIONS:
            raise QuestionsFull(f"{OPEN_QUESTIONS} questions are open, the most that may: go on without an answer")
        if len(self._questions) >= OPEN_QUESTIONS + KEPT_QUESTIONS:
            oldest = next(name for name, question in self._questions.items() if not question.open)
            del self._questions[oldest]
            self._journal.note(Entry("question", oldest, None))
        self._count += 1
        name = f"q-{self._count}"
        question = _Question(QuestionView(name, ask.lead, ask.target, ask.text, self.now()))
        self._questions[name] = question
        self._recording[name] = []
        return self._journal.record(self, _Asked(ask, name), question.entry(), counted("question", self._count))

    def _asked(self, ask: PutQuestion, name: str) -> object:
        askers = (ask, *self._recording.pop(name))
        question = self._questions[name]
        if question.closed is not None:  # its member has ended while it was written
            for asker in askers:
                asker.reply.refuse(QuestionClosed(f"question {name} is closed: {question.closed}"))
            return LATER
        self._leads.tell(Notify(ask.lead, OpenQuestion(name, ask.target)))
        for asker in askers:
            asker.reply.answer(name)
        return name

    def _question(self, name: str) -> _Question:
        question = self._questions.get(name)
        if question is None:
            raise UnknownQuestion(f"no question is called {name}")
        return question

    def _await_answer(self, name: str, target: str, reply: Reply[str]) -> object:
        question = self._question(name)
        if question.view.target != target:
            raise UnknownQuestion(f"no question of yours is called {name}")
        if question.answer is not None:
            return question.answer
        if question.closed is not None:
            raise QuestionClosed(f"question {name} is closed: {question.closed}")
        self._asking[name] = [*(other for other in self._asking.get(name, ()) if not other.abandoned), reply]
        return LATER

    def _answer(self, ask: PutAnswer) -> object:
        self._check_open(ask.question)
        if ask.question in self._answering:
            raise QuestionClosed(f"question {ask.question} is being answered already")
        self._answering.add(ask.question)
        entry = self._questions[ask.question].entry(answer=ask.text)
        return self._journal.record(self, _Answered(ask), entry)

    def _check_open(self, name: str) -> None:
        question = self._question(name)
        if question.answer is not None:
            raise QuestionClosed(f"question {name} has been answered already")
        if question.closed is not None:
            raise QuestionClosed(f"question {name} is closed: {question.closed}")

    def _answered(self, ask: PutAnswer) -> object:
        self._answering.discard(ask.question)
        try:
            self._check_open(ask.question)
        except QuestionClosed as no:  # its member has ended meanwhile, and that was recorded after it
            ask.reply.refuse(no)
            return LATER
        question = self._question(ask.question)
        question.answer = ask.text
        for reply in self._asking.pop(ask.question, ()):
            reply.answer(ask.text)
        self._leads.tell(Settled(question.view.lead, ask.question))
        ask.reply.answer(question.view)
        return question.view

    def _restore(self, records: Records) -> None:
        self._count = count_in(records, "question")
        questions = [msgspec.json.decode(body, type=_Question) for body in records.get("question", {}).values()]
        for question in sorted(questions, key=lambda question: count_of(question.view.id)):
            self._questions[question.view.id] = question
            self._count = max(self._count, count_of(question.view.id))
            if question.open:
                self._leads.tell(Notify(question.view.lead, OpenQuestion(question.view.id, question.view.target)))
