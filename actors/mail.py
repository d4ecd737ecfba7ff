"""Mail: tickets and late replies.

A ticket is the lead's durable handle of a send. It is in the journal before it is given out, its result is there before
anybody is told of it, and both stay until they are collected. So each step that somebody may see is taken twice: once
to have it recorded, and then for real. Nothing is evicted in silence: at the bounds, a new send is refused with the
bound in the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Refused, Tells
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
from actors.member import SendsLost
from actors.nudge import EndedTicket, LateAnswer
from actors.roster import Route
from actors.sends import Deliver
from actors.ticket import Ticket, TicketView
from actors.turn import LateReply, Outcome, Phase, Progress, Status, TurnEnded

#: Sends that have not ended yet, of all leads.
OPEN_TICKETS: Final = 512
#: Ended tickets kept; the oldest collected ones make room.
KEPT_TICKETS: Final = 1024


class MailFull(Refused):
    error = "mail_full"


class UnknownTicket(Refused):
    error = "unknown_ticket"


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


class Mail(Actor):
    """Owns the tickets, and who waits for them."""

    def __init__(self, *, roster: Tells, leads: Tells, journal: Journaling | None = None) -> None:
        super().__init__("mail")
        self._roster = roster
        self._leads = leads
        self._journal = journal or Forgetful()
        self._tickets: dict[str, Ticket] = {}
        self._awaiting: list[Await] = []
        self._ticket_count = 0

    def __repr__(self) -> str:
        opened = sum(1 for ticket in self._tickets.values() if ticket.outcome is None)
        return f"<Mail {opened} open of {len(self._tickets)} tickets>"

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
            case SendsLost(target=target, reason=reason):
                self._sends_lost(target, reason)
            case Await():
                return self._await(message)
            case Collect():
                return self._collect(message)
            case Tickets(ids=ids):
                return self._list(ids)
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
            case _:
                raise self.unknown(then)
        return None

    def _not_recorded(self, then: Message, why: str) -> None:
        """The disk refuses: new promises are refused, and what is known already is shown all the same."""
        match then:
            case _Opened(send=send, ticket=ticket):
                del self._tickets[ticket]
                send.reply.refuse(NotKept.because(why))
            case _Ended(ticket=ticket, outcome=outcome):
                self._ended(ticket, outcome)
                self._note(self._tickets[ticket])
            case _:
                raise self.unknown(then)

    def _note(self, ticket: Ticket) -> None:
        self._journal.note(ticket.entry(), Entry("turn", ticket.id, None))

    # -- tickets -------------------------------------------------------------------------------------------------

    def _open(self, send: OpenTicket) -> object:
        if sum(1 for ticket in self._tickets.values() if ticket.outcome is None) >= OPEN_TICKETS:
            raise MailFull(f"{OPEN_TICKETS} sends have not ended, the most that may: wait for one to end")
        self._make_room()
        self._ticket_count += 1
        ticket = Ticket(
            f"t-{self._ticket_count}", send.lead, send.target, self.now(), send.timeout_ns, prompt=send.prompt
        )
        self._tickets[ticket.id] = ticket
        return self._journal.record(
            self, _Opened(send, ticket.id), ticket.entry(), counted("ticket", self._ticket_count)
        )

    def _make_room(self) -> None:
        if len(self._tickets) < KEPT_TICKETS:
            return
        waited_for = {name for wait in self._awaiting if not wait.reply.abandoned for name in wait.tickets}
        for ticket in self._tickets.values():
            if ticket.collected and ticket.id not in waited_for:
                del self._tickets[ticket.id]
                self._journal.note(Entry("ticket", ticket.id, None))
                return
        raise MailFull(
            f"{KEPT_TICKETS} tickets are kept and none has been collected: collect results with fleet_collect"
        )

    def _over_soon(self, name: str, outcome: Outcome) -> None:
        """Have a result recorded; nobody sees it before."""
        ticket = self._tickets.get(name)
        if ticket is None or ticket.outcome is not None or ticket.ending is not None:
            self.log.error("result of ticket %s has nowhere to go", name, extra={"fleet_ticket": name})
            return
        ticket.ending = outcome
        self._journal.record(self, _Ended(name, outcome), ticket.entry(), Entry("turn", name, None))

    def _ended(self, name: str, outcome: Outcome) -> None:
        ticket = self._tickets[name]
        ticket.outcome, ticket.ending, ticket.prompt = outcome, None, ""
        if not self._answer_waiting(ticket):
            self._leads.tell(Notify(ticket.lead, EndedTicket(ticket.id, ticket.target, outcome.status)))

    def _answer_waiting(self, ticket: Ticket) -> bool:
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
            self._settled(view for view in answer if view.id != ticket.id)
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
        if wait.reply.abandoned:  # nobody hears the answer, so its tickets are still to be told
            return LATER
        answer = self._ready(wait)
        if answer is None:
            self._awaiting = [other for other in self._awaiting if not other.reply.abandoned]
            self._awaiting.append(wait)
            return LATER
        self._settled(answer)
        return answer

    def _settled(self, views: Iterable[TicketView]) -> None:
        """Who was answered about a ticket needs no nudge about it."""
        for view in views:
            self._leads.tell(Settled(view.lead, view.id))

    def _collect(self, ask: Collect) -> object:
        ticket = self._find(ask.ticket)
        if ask.reply.abandoned:
            return LATER
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

    def _find(self, name: str) -> Ticket:
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

    def _sends_lost(self, target: str, reason: str) -> None:
        for ticket in list(self._tickets.values()):
            if ticket.target == target and ticket.outcome is None:
                self._over_soon(ticket.id, Outcome(Status.LOST, reason=reason))

    # -- after a restart -----------------------------------------------------------------------------------------

    def _restore(self, records: Records, resumed: frozenset[str], lost: Mapping[str, str]) -> None:
        self._ticket_count = count_in(records, "ticket")
        tickets = [msgspec.json.decode(body, type=Ticket) for body in records.get("ticket", {}).values()]
        for ticket in sorted(tickets, key=lambda ticket: count_of(ticket.id)):
            self._tickets[ticket.id] = ticket
            self._ticket_count = max(self._ticket_count, count_of(ticket.id))
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
