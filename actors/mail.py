"""Mail: tickets, late replies and questions.

A ticket is the lead's durable handle of a send. Its result is stored here before anybody is told of it, and stays until
it is collected. Nothing is evicted in silence: at the bounds, a new send is refused with the bound in the message.
"""

from __future__ import annotations

from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Refused, Reply, Tells
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


class _Ticket(msgspec.Struct):
    id: str
    lead: str
    target: str
    opened_ns: int
    phase: Phase = Phase.QUEUED
    until_ns: int = 0
    outcome: Outcome | None = None
    collected: bool = False
    late_reply: str | None = None

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
    waiting: list[Reply[str]] = msgspec.field(default_factory=list)

    @property
    def open(self) -> bool:
        return self.answer is None and self.closed is None


class Mail(Actor):
    """Owns tickets and questions, and who waits for them."""

    def __init__(self, *, roster: Tells, leads: Tells) -> None:
        super().__init__("mail")
        self._roster = roster
        self._leads = leads
        self._tickets: dict[str, _Ticket] = {}
        self._questions: dict[str, _Question] = {}
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
                self._ended(ticket, outcome)
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
            case PutAnswer(question=question, text=text):
                return self._answer(question, text)
            case Questions():
                return tuple(question.view for question in self._questions.values() if question.open)
            case _:
                raise self.unknown(message)
        return None

    # -- tickets -------------------------------------------------------------------------------------------------

    def _open(self, send: OpenTicket) -> str:
        if sum(1 for ticket in self._tickets.values() if ticket.outcome is None) >= OPEN_TICKETS:
            raise MailFull(f"{OPEN_TICKETS} sends have not ended, the most that may: wait for one to end")
        self._make_room()
        self._ticket_count += 1
        ticket = _Ticket(f"t-{self._ticket_count}", send.lead, send.target, self.now())
        self._tickets[ticket.id] = ticket
        self._roster.tell(Route(send.target, Deliver(ticket.id, send.prompt, send.timeout_ns)))
        return ticket.id

    def _make_room(self) -> None:
        if len(self._tickets) < KEPT_TICKETS:
            return
        for ticket in self._tickets.values():
            if ticket.collected:
                del self._tickets[ticket.id]
                return
        raise MailFull(
            f"{KEPT_TICKETS} tickets are kept and none has been collected: collect results with fleet_collect"
        )

    def _ended(self, name: str, outcome: Outcome) -> None:
        ticket = self._tickets.get(name)
        if ticket is None or ticket.outcome is not None:
            self.log.error("result of ticket %s has nowhere to go", name, extra={"fleet_ticket": name})
            return
        ticket.outcome = outcome
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
        self._leads.tell(Notify(ticket.lead, LateAnswer(ticket.id, ticket.target)))

    def _member_over(self, target: str, reason: str, *, lost: bool) -> None:
        for question in self._questions.values():
            if question.view.target == target and question.open:
                question.closed = reason
                for reply in question.waiting:
                    reply.refuse(QuestionClosed(f"question {question.view.id} is closed: {reason}"))
                self._leads.tell(Settled(question.view.lead, question.view.id))
        if lost:
            for ticket in list(self._tickets.values()):
                if ticket.target == target and ticket.outcome is None:
                    self._ended(ticket.id, Outcome(Status.LOST, reason=reason))

    # -- questions -----------------------------------------------------------------------------------------------

    def _ask(self, ask: PutQuestion) -> str:
        opened = sum(1 for question in self._questions.values() if question.open)
        if opened >= OPEN_QUESTIONS:
            raise MailFull(f"{OPEN_QUESTIONS} questions are open, the most that may: go on without an answer")
        if len(self._questions) >= OPEN_QUESTIONS + KEPT_QUESTIONS:
            del self._questions[next(name for name, question in self._questions.items() if not question.open)]
        self._question_count += 1
        name = f"q-{self._question_count}"
        self._questions[name] = _Question(QuestionView(name, ask.lead, ask.target, ask.text, self.now()))
        self._leads.tell(Notify(ask.lead, OpenQuestion(name, ask.target)))
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
        question.waiting = [other for other in question.waiting if not other.abandoned]
        question.waiting.append(reply)
        return LATER

    def _answer(self, name: str, text: str) -> QuestionView:
        question = self._question(name)
        if question.answer is not None:
            raise QuestionClosed(f"question {name} has been answered already")
        if question.closed is not None:
            raise QuestionClosed(f"question {name} is closed: {question.closed}")
        question.answer = text
        for reply in question.waiting:
            reply.answer(text)
        question.waiting.clear()
        self._leads.tell(Settled(question.view.lead, name))
        return question.view
