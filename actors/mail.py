"""Mail: tickets, late replies and questions.

A ticket is the lead's durable handle of a send. It is in the journal before it is given out, its result is there before
anybody is told of it, and both stay until they are collected. So each step that somebody may see is taken twice: once
to have it recorded, and then for real. Nothing is evicted in silence: at the bounds, a new send is refused with the
bound in the message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Refused, Reply, Tells
from actors.journal import Entry, Forgetful, Journaling, NotKept, NotRecorded, Recorded, Records
from actors.leads import Notify, Settled
from actors.member import MemberOver
from actors.nudge import EndedTicket, LateAnswer, OpenQuestion
from actors.resolver import Deliver
from actors.roster import Route
from actors.turn import LateReply, Outcome, Phase, Progress, Status, TurnEnded

#: Sends that have not ended yet, of all leads.
OPEN_TICKETS: Final = 512
#: Ended tickets kept; the oldest collected ones make room.
KEPT_TICKETS: Final = 1024
#: Questions that nobody has answered yet.
OPEN_QUESTIONS: Final = 256
KEPT_QUESTIONS: Final = 256


class MailFull(Refused):
    error = "mail_full"


class UnknownTicket(Refused):
    error = "unknown_ticket"


class UnknownQuestion(Refused):
    error = "unknown_question"


class QuestionClosed(Refused):
    """The question has been answered already, or its member is over."""

    error = "question_closed"


class TicketView(msgspec.Struct, frozen=True):
    """A ticket as an edge sees it."""

    id: str
    lead: str
    target: str
    phase: Phase
    #: For ``held``: the end of the cool-off, in nanoseconds.
    until_ns: int
    opened_ns: int
    #: ``None`` while the send has not ended.
    outcome: Outcome | None
    collected: bool
    #: What the member answered after the send had ended, where it did.
    late_reply: str | None


class QuestionView(msgspec.Struct, frozen=True):
    id: str
    lead: str
    target: str
    #: The member's own words: data, never an instruction.
    text: str
    asked_ns: int


# -- what mail takes ------------------------------------------------------------------------------------------------


class OpenTicket(Ask[str], frozen=True):
    """Accept a send. Answers with the ticket's identifier. Raises :class:`MailFull`."""

    lead: str
    target: str
    prompt: str
    timeout_ns: int


class Await(Ask[tuple[TicketView, ...]], frozen=True):
    """Answered once the first (or every) one of these tickets has ended, with those that have."""

    tickets: tuple[str, ...]
    all: bool = False


class Collect(Ask[TicketView], frozen=True):
    """A ticket as it is; an ended one counts as collected from now on. Raises :class:`UnknownTicket`."""

    ticket: str


class Tickets(Ask[tuple[TicketView, ...]], frozen=True):
    """These tickets, or every one that is open or not collected. Raises :class:`UnknownTicket`."""

    ids: tuple[str, ...] | None = None


class PutQuestion(Ask[str], frozen=True):
    """``fleet_ask``: a member's question to its lead. Answers with the question's identifier."""

    lead: str
    target: str
    text: str


class AwaitAnswer(Ask[str], frozen=True):
    """Answered with the lead's answer. Raises :class:`UnknownQuestion`, :class:`QuestionClosed`."""

    question: str
    #: Only the member that asked may wait.
    target: str


class PutAnswer(Ask[QuestionView], frozen=True):
    """``fleet_answer``. Raises :class:`UnknownQuestion`, :class:`QuestionClosed`."""

    question: str
    text: str


class Questions(Ask[tuple[QuestionView, ...]], frozen=True):
    """Every open question, oldest first."""


class Restore(Ask[None], frozen=True):
    """Take over what an earlier daemon kept. Members that live are known already; nobody has asked for anything yet."""

    records: Records
    #: Tickets whose turn a member's resolver has taken over.
    resumed: frozenset[str]
    #: Tickets whose turn nobody knows the end of, with the reason.
    lost: Mapping[str, str]


class _Opened(Message, frozen=True):
    send: OpenTicket
    ticket: str


class _Ended(Message, frozen=True):
    ticket: str
    outcome: Outcome


class _Asked(Message, frozen=True):
    ask: PutQuestion
    question: str


class _Answered(Message, frozen=True):
    ask: PutAnswer


class _Ticket(msgspec.Struct):
    id: str
    lead: str
    target: str
    opened_ns: int
    timeout_ns: int
    #: What to type; empty once it has ended.
    prompt: str
    phase: Phase = Phase.QUEUED
    until_ns: int = 0
    outcome: Outcome | None = None
    collected: bool = False
    late_reply: str | None = None

    def entry(self) -> Entry:
        return Entry("ticket", self.id, msgspec.json.encode(self))

    def view(self) -> TicketView:
        return TicketView(
            self.id,
            self.lead,
            self.target,
            self.phase,
            self.until_ns,
            self.opened_ns,
            self.outcome,
            self.collected,
            self.late_reply,
        )


class _Question(msgspec.Struct):
    view: QuestionView
    answer: str | None = None
    closed: str | None = None

    def entry(self, **changes: object) -> Entry:
        return Entry("question", self.view.id, msgspec.json.encode(msgspec.structs.replace(self, **changes)))

    @property
    def open(self) -> bool:
        return self.answer is None and self.closed is None


class Mail(Actor):
    """Owns tickets and questions, and who waits for them."""

    def __init__(self, *, roster: Tells, leads: Tells, journal: Journaling | None = None) -> None:
        super().__init__("mail")
        self._roster = roster
        self._leads = leads
        self._journal = journal or Forgetful()
        self._tickets: dict[str, _Ticket] = {}
        self._questions: dict[str, _Question] = {}
        #: Who waits for the answer of a question.
        self._asking: dict[str, list[Reply[str]]] = {}
        #: Questions whose answer is being recorded.
        self._answering: set[str] = set()
        self._awaiting: list[Await] = []
        self._ticket_count = 0
        self._question_count = 0

    def __repr__(self) -> str:
        opened = sum(1 for ticket in self._tickets.values() if ticket.outcome is None)
        questions = sum(1 for question in self._questions.values() if question.open)
        return f"<Mail {opened} open of {len(self._tickets)} tickets, {questions} questions>"

    def handle(self, message: Message) -> object:
        match message:
            case OpenTicket():
                return self._open(message)
            case Progress(ticket=ticket, phase=phase, until_ns=until_ns):
                if (known := self._tickets.get(ticket)) is not None and known.outcome is None:
                    known.phase, known.until_ns = phase, until_ns
            case TurnEnded(ticket=ticket, outcome=outcome):
                self._over_soon(ticket, outcome)
            case LateReply(ticket=ticket, text=text):
                self._late(ticket, text)
            case MemberOver(target=target, reason=reason, sends_lost=lost):
                self._member_over(target, reason, lost=lost)
            case Await():
                return self._await(message)
            case Collect(ticket=ticket):
                return self._collect(ticket)
            case Tickets(ids=ids):
                return self._list(ids)
            case PutQuestion():
                return self._ask(message)
            case AwaitAnswer(question=question, target=target):
                return self._await_answer(question, target, message.reply)
            case PutAnswer():
                return self._answer(message)
            case Questions():
                return tuple(question.view for question in self._questions.values() if question.open)
            case Recorded(then=then):
                return self._recorded(then)
            case NotRecorded(then=then, why=why):
                self._not_recorded(then, why)
            case Restore(records=records, resumed=resumed, lost=lost):
                self._restore(records, resumed, lost)
            case _:
                raise self.unknown(message)
        return None

    def _recorded(self, then: Message) -> object:
        match then:
            case _Opened(send=send, ticket=ticket):
                self._roster.tell(Route(send.target, Deliver(ticket, send.prompt, send.timeout_ns)))
                send.reply.answer(ticket)
                return ticket
            case _Ended(ticket=ticket, outcome=outcome):
                self._ended(ticket, outcome)
            case _Asked(ask=ask, question=question):
                self._leads.tell(Notify(ask.lead, OpenQuestion(question, ask.target)))
                ask.reply.answer(question)
                return question
            case _Answered(ask=ask):
                return self._answered(ask)
            case _:
                raise self.unknown(then)
        return None

    def _not_recorded(self, then: Message, why: str) -> None:
        """The disk refuses: new promises are refused, and what is known already is shown all the same."""
        refusal = NotKept(f"fleetd could not write this down, so a crash would lose it: {why}")
        match then:
            case _Opened(send=send, ticket=ticket):
                del self._tickets[ticket]
                send.reply.refuse(refusal)
            case _Ended(ticket=ticket, outcome=outcome):
                self._ended(ticket, outcome)
                self._note(self._tickets[ticket])
            case _Asked(ask=ask, question=question):
                del self._questions[question]
                ask.reply.refuse(refusal)
            case _Answered(ask=ask):
                self._answering.discard(ask.question)
                ask.reply.refuse(refusal)
            case _:
                raise self.unknown(then)

    def _note(self, ticket: _Ticket) -> None:
        self._journal.note(ticket.entry(), Entry("turn", ticket.id, None))

    # -- tickets -------------------------------------------------------------------------------------------------

    def _open(self, send: OpenTicket) -> object:
        if sum(1 for ticket in self._tickets.values() if ticket.outcome is None) >= OPEN_TICKETS:
            raise MailFull(f"{OPEN_TICKETS} sends have not ended, the most that may: wait for one to end")
        self._make_room()
        self._ticket_count += 1
        ticket = _Ticket(
            f"t-{self._ticket_count}", send.lead, send.target, self.now(), send.timeout_ns, prompt=send.prompt
        )
        self._tickets[ticket.id] = ticket
        return self._journal.record(self, _Opened(send, ticket.id), ticket.entry())

    def _make_room(self) -> None:
        if len(self._tickets) < KEPT_TICKETS:
            return
        for ticket in self._tickets.values():
            if ticket.collected:
                del self._tickets[ticket.id]
                self._journal.note(Entry("ticket", ticket.id, None))
                return
        raise MailFull(
            f"{KEPT_TICKETS} tickets are kept and none has been collected: collect results with fleet_collect"
        )

    def _over_soon(self, name: str, outcome: Outcome) -> None:
        """Have a result recorded; nobody sees it before."""
        ticket = self._tickets.get(name)
        if ticket is None or ticket.outcome is not None:
            self.log.error("result of ticket %s has nowhere to go", name, extra={"fleet_ticket": name})
            return
        ended = msgspec.structs.replace(ticket, outcome=outcome, prompt="")
        self._journal.record(self, _Ended(name, outcome), ended.entry(), Entry("turn", name, None))

    def _ended(self, name: str, outcome: Outcome) -> None:
        ticket = self._tickets[name]
        if ticket.outcome is not None:
            self.log.error("ticket %s has ended twice", name, extra={"fleet_ticket": name})
            return
        ticket.outcome, ticket.prompt = outcome, ""
        if not self._answer_waiting(ticket):
            self._leads.tell(Notify(ticket.lead, EndedTicket(ticket.id, ticket.target, outcome.status)))

    def _answer_waiting(self, ticket: _Ticket) -> bool:
        """Answer who waits for this ticket; say whether somebody who waits has heard of it."""
        heard = False
        still: list[Await] = []
        for wait in self._awaiting:
            if wait.reply.abandoned:
                continue
            answer = self._ready(wait)
            if answer is None:
                still.append(wait)
                continue
            heard = heard or ticket.id in wait.tickets
            wait.reply.answer(answer)
        self._awaiting = still
        return heard

    def _ready(self, wait: Await) -> tuple[TicketView, ...] | None:
        ended = tuple(self._tickets[name].view() for name in wait.tickets if self._over(name))
        enough = len(wait.tickets) if wait.all else 1
        return ended if len(ended) >= enough else None

    def _over(self, name: str) -> bool:
        return name in self._tickets and self._tickets[name].outcome is not None

    def _await(self, wait: Await) -> object:
        for name in wait.tickets:
            self._find(name)
        answer = self._ready(wait)
        if answer is None:
            self._awaiting = [other for other in self._awaiting if not other.reply.abandoned]
            self._awaiting.append(wait)
            return LATER
        for view in answer:
            self._leads.tell(Settled(view.lead, view.id))
        return answer

    def _collect(self, name: str) -> TicketView:
        ticket = self._find(name)
        if ticket.outcome is not None and not ticket.collected:
            ticket.collected = True
            self._journal.note(ticket.entry())
            self._leads.tell(Settled(ticket.lead, ticket.id))
        if ticket.late_reply is not None:
            self._leads.tell(Settled(ticket.lead, LateAnswer(ticket.id, ticket.target).key))
        return ticket.view()

    def _list(self, ids: tuple[str, ...] | None) -> tuple[TicketView, ...]:
        if ids is not None:
            return tuple(self._find(name).view() for name in ids)
        return tuple(ticket.view() for ticket in self._tickets.values() if not ticket.collected)

    def _find(self, name: str) -> _Ticket:
        ticket = self._tickets.get(name)
        if ticket is None:
            raise UnknownTicket(f"no ticket is called {name}: it never existed, or was collected long ago")
        return ticket

    def _late(self, name: str, text: str) -> None:
        ticket = self._tickets.get(name)
        if ticket is None:
            self.log.error("late reply to unknown ticket %s", name, extra={"fleet_ticket": name})
            return
        ticket.late_reply, ticket.collected = text, False
        self._journal.note(ticket.entry())
        self._leads.tell(Notify(ticket.lead, LateAnswer(ticket.id, ticket.target)))

    def _member_over(self, target: str, reason: str, *, lost: bool) -> None:
        for question in self._questions.values():
            if question.view.target == target and question.open:
                question.closed = reason
                self._journal.note(question.entry())
                for reply in self._asking.pop(question.view.id, ()):
                    reply.refuse(QuestionClosed(f"question {question.view.id} is closed: {reason}"))
                self._leads.tell(Settled(question.view.lead, question.view.id))
        if lost:
            for ticket in list(self._tickets.values()):
                if ticket.target == target and ticket.outcome is None:
                    self._over_soon(ticket.id, Outcome(Status.LOST, reason=reason))

    # -- questions -----------------------------------------------------------------------------------------------

    def _ask(self, ask: PutQuestion) -> object:
        # A member whose call was cut off by a restart of the daemon asks again: it is the same question.
        for known in self._questions.values():
            if (known.view.target, known.view.text, known.open) == (ask.target, ask.text, True):
                return known.view.id
        opened = sum(1 for question in self._questions.values() if question.open)
        if opened >= OPEN_QUESTIONS:
            raise MailFull(f"{OPEN_QUESTIONS} questions are open, the most that may: go on without an answer")
        if len(self._questions) >= OPEN_QUESTIONS + KEPT_QUESTIONS:
            oldest = next(name for name, question in self._questions.items() if not question.open)
            del self._questions[oldest]
            self._journal.note(Entry("question", oldest, None))
        self._question_count += 1
        name = f"q-{self._question_count}"
        question = _Question(QuestionView(name, ask.lead, ask.target, ask.text, self.now()))
        self._questions[name] = question
        return self._journal.record(self, _Asked(ask, name), question.entry())

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

    # -- after a restart -----------------------------------------------------------------------------------------

    def _restore(self, records: Records, resumed: frozenset[str], lost: Mapping[str, str]) -> None:
        questions = [msgspec.json.decode(body, type=_Question) for body in records.get("question", {}).values()]
        for question in sorted(questions, key=lambda question: _number(question.view.id)):
            self._questions[question.view.id] = question
            self._question_count = max(self._question_count, _number(question.view.id))
            if question.open:
                self._leads.tell(Notify(question.view.lead, OpenQuestion(question.view.id, question.view.target)))
        tickets = [msgspec.json.decode(body, type=_Ticket) for body in records.get("ticket", {}).values()]
        for ticket in sorted(tickets, key=lambda ticket: _number(ticket.id)):
            self._tickets[ticket.id] = ticket
            self._ticket_count = max(self._ticket_count, _number(ticket.id))
            if ticket.outcome is None and ticket.id in lost:
                self._over_soon(ticket.id, Outcome(Status.LOST, reason=lost[ticket.id]))
            elif ticket.outcome is None and ticket.id in resumed:
                ticket.phase = Phase.RUNNING
            elif ticket.outcome is None:
                # It was never typed: a turn that was is with its member's resolver.
                self._roster.tell(Route(ticket.target, Deliver(ticket.id, ticket.prompt, ticket.timeout_ns)))
            elif not ticket.collected:
                item = EndedTicket(ticket.id, ticket.target, ticket.outcome.status)
                self._leads.tell(Notify(ticket.lead, item))


def _number(name: str) -> int:
    """The count in an identifier of ours: ``t-17``."""
    return int(name.partition("-")[2])
