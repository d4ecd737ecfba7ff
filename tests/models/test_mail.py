"""A model of mail: sends, results, waits, collections, late replies and losses, at bounds that are soon met.

The oracle keeps tickets as plain dicts in a list, and for each who waits a list of the tickets it named. It says who
must have been answered by now, with what, and what the leads must have been told, in which order.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import actors.mail as mail_module
from actors.actor import Message
from actors.clock import NS_PER_S
from actors.leads import Notify, Settled
from actors.mail import (
    Await,
    Collect,
    Mail,
    MailFull,
    OpenTicket,
    Tickets,
    UnknownTicket,
)
from actors.member import SendsLost
from actors.nudge import EndedTicket, LateAnswer
from actors.roster import Route
from actors.sends import Deliver
from actors.turn import LateReply, Outcome, Phase, Progress, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, driven
from tests.models.asks import answer, answered, refusal
from tests.models.effort import modest

S = NS_PER_S
MEMBERS = ("m-1", "m-2")
BOUNDS = {"OPEN_TICKETS": 3, "KEPT_TICKETS": 4}


class MailMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.patch = pytest.MonkeyPatch()
        for name, bound in BOUNDS.items():
            self.patch.setattr(mail_module, name, bound)
        self.clock = Clock(9 * S)
        self.order: list[tuple[str, Message]] = []
        self.mail = Mail(roster=Recorder("roster", self.order), leads=Recorder("leads", self.order))
        driven(self.mail, self.clock)
        #: Every ticket that is kept, oldest first.
        self.tickets: list[dict[str, Any]] = []
        #: Who waits: for which tickets, whether for all, and the slot for the answer.
        self.waits: list[tuple[Await, list[dict[str, Any]]]] = []
        #: Whom the step in hand must answer, with the tickets that ended.
        self.due_answers: list[tuple[Await, list[dict[str, Any]]]] = []
        self.told: list[tuple[str, Message]] = []
        self.opened = 0

    def teardown(self) -> None:
        self.patch.undo()

    def take(self, message: Message) -> None:
        """One step, as the actor's own loop does it."""
        self.mail._step(message)

    # -- the oracle ----------------------------------------------------------------------------------------------

    def open(self) -> list[dict[str, Any]]:
        return [ticket for ticket in self.tickets if ticket["outcome"] is None]

    def view(self, ticket: dict[str, Any]) -> tuple[object, ...]:
        return tuple(
            ticket[key] for key in ("id", "lead", "target", "phase", "until", "opened", "outcome", "collected", "late")
        )

    @staticmethod
    def seen(view: mail_module.TicketView) -> tuple[object, ...]:
        return (
            view.id, view.lead, view.target, view.phase, view.until_ns, view.opened_ns, view.outcome, view.collected,
            view.late_reply,
        )  # fmt: skip

    def end(self, ticket: dict[str, Any], result: Outcome) -> None:
        """ "Its result is stored here before anybody is told of it." """
        ticket["outcome"] = result
        heard = False
        for wait, named in [*self.waits]:
            if wait.reply.abandoned:
                self.waits.remove((wait, named))
                continue
            over = [each for each in named if each["outcome"] is not None]
            # "Answered once the first (or every) one of these tickets has ended, with those that have."
            if len(over) < (len(named) if wait.all else 1):
                continue
            self.waits.remove((wait, named))
            self.due_answers.append((wait, over))
            heard = heard or any(each is ticket for each in named)
            self.told += [("leads", Settled(each["lead"], each["id"])) for each in over if each is not ticket]
        if not heard:
            item = EndedTicket(ticket["id"], ticket["target"], result.status)
            self.told.append(("leads", Notify(ticket["lead"], item)))

    # -- sends ---------------------------------------------------------------------------------------------------

    @rule(lead=st.sampled_from(["lead-1", "lead-2"]), member=st.sampled_from(MEMBERS))
    def a_send_is_accepted(self, lead: str, member: str) -> None:
        """ "Nothing is evicted in silence: at the bounds, a new send is refused with the bound in the message." """
        ask = OpenTicket(lead, member, f"prompt {self.opened}", 77 * S)
        if len(self.open()) >= BOUNDS["OPEN_TICKETS"]:
            no = refusal(self.mail, ask)
            assert isinstance(no, MailFull)
            assert str(BOUNDS["OPEN_TICKETS"]) in str(no)
            return
        if len(self.tickets) >= BOUNDS["KEPT_TICKETS"]:
            awaited = [each for wait, named in self.waits if not wait.reply.abandoned for each in named]
            collected = [ticket for ticket in self.tickets if ticket["collected"] and ticket not in awaited]
            if not collected:
                no = refusal(self.mail, ask)
                assert isinstance(no, MailFull)
                assert str(BOUNDS["KEPT_TICKETS"]) in str(no)
                return
            # "Ended tickets kept; the oldest collected ones make room", but for those that somebody waits for.
            collected[0]["gone"] = True
            self.tickets.remove(collected[0])
        self.opened += 1
        name = f"t-{self.opened}"
        self.tickets.append(
            {
                "id": name,
                "lead": lead,
                "target": member,
                "phase": Phase.QUEUED,
                "until": 0,
                "opened": self.clock.ns,
                "outcome": None,
                "collected": False,
                "late": None,
                "gone": False,
            }
        )
        self.told.append(("roster", Route(member, Deliver(name, f"prompt {self.opened - 1}", 77 * S))))
        assert answer(self.mail, ask) == name

    @initialize()
    def two_sends_are_accepted(self) -> None:
        for member in MEMBERS:
            self.a_send_is_accepted("lead-1", member)

    @precondition(lambda self: self.open())
    @rule(data=st.data(), phase=st.sampled_from(Phase), until=st.integers(0, 9))
    def a_send_moves_on(self, data: st.DataObject, phase: Phase, until: int) -> None:
        ticket = data.draw(st.sampled_from(self.tickets))
        if ticket["outcome"] is None:
            ticket["phase"], ticket["until"] = phase, until
        self.take(Progress(ticket["id"], phase, until))

    @precondition(lambda self: self.open())
    @rule(data=st.data(), status=st.sampled_from(Status))
    def a_send_ends(self, data: st.DataObject, status: Status) -> None:
        ticket = data.draw(st.sampled_from(self.open()))
        result = Outcome(status, text=f"text of {ticket['id']}")
        self.ends(ticket, result, TurnEnded(ticket["target"], ticket["id"], result, self.clock.ns))

    def ends(self, ticket: dict[str, Any], result: Outcome, message: Message) -> None:
        self.due_answers = []
        self.end(ticket, result)
        self.take(message)
        self.check_answers()

    def check_answers(self) -> None:
        for wait, over in self.due_answers:
            assert wait.reply.settled
            kept = [self.view(each) for each in over if not each["gone"]]
            assert [self.seen(view) for view in answered(wait.reply)] == kept  # type: ignore[attr-defined]

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def a_result_comes_a_second_time_or_for_nobody(self, data: st.DataObject) -> None:
        """The first result stands."""
        ended = [ticket["id"] for ticket in self.tickets if ticket["outcome"] is not None]
        name = data.draw(st.sampled_from([*ended, "t-99"]))
        self.take(TurnEnded("m-1", name, Outcome(Status.FAILED, reason="second"), self.clock.ns))

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def a_late_reply_comes(self, data: st.DataObject) -> None:
        """ "A member has answered a send that had ended without it: kept beside the result." """
        ended = [ticket for ticket in self.tickets if ticket["outcome"] is not None]
        if not ended:
            self.take(LateReply("m-1", "t-99", "for nobody"))
            return
        ticket = data.draw(st.sampled_from(ended))
        ticket["late"], ticket["collected"] = f"late {self.clock.ns}", False
        self.told.append(("leads", Notify(ticket["lead"], LateAnswer(ticket["id"], ticket["target"]))))
        self.take(LateReply(ticket["target"], ticket["id"], f"late {self.clock.ns}"))

    @rule(ns=st.integers(1, 60 * S))
    def time_passes(self, ns: int) -> None:
        self.clock.ns += ns

    # -- leads ---------------------------------------------------------------------------------------------------

    @precondition(lambda self: self.tickets)
    @rule(data=st.data(), every=st.booleans())
    def somebody_waits(self, data: st.DataObject, every: bool) -> None:
        named = data.draw(st.lists(st.sampled_from([*self.tickets, *self.open()]), min_size=1, max_size=3))
        wait = Await(tuple(ticket["id"] for ticket in named), every)
        over = [ticket for ticket in named if ticket["outcome"] is not None]
        if len(over) < (len(named) if every else 1):
            self.waits.append((wait, named))
            self.take(wait)
            assert not wait.reply.settled
            return
        # What a lead has been told by a wait, it needs no nudge for.
        self.told += [("leads", Settled(ticket["lead"], ticket["id"])) for ticket in over]
        assert [self.seen(view) for view in answer(self.mail, wait)] == [self.view(ticket) for ticket in over]

    @precondition(lambda self: self.waits)
    @rule(data=st.data())
    def somebody_stops_waiting(self, data: st.DataObject) -> None:
        wait, _ = data.draw(st.sampled_from(self.waits))
        wait.reply.abandoned = True

    @precondition(lambda self: self.tickets)
    @rule(data=st.data())
    def a_ticket_is_collected(self, data: st.DataObject) -> None:
        """ "A ticket as it is; an ended one counts as collected from now on." """
        ticket = data.draw(st.sampled_from(self.tickets))
        if ticket["outcome"] is not None and not ticket["collected"]:
            ticket["collected"] = True
            self.told.append(("leads", Settled(ticket["lead"], ticket["id"])))
        if ticket["late"] is not None:
            self.told.append(("leads", Settled(ticket["lead"], f"late:{ticket['id']}")))
        assert self.seen(answer(self.mail, Collect(ticket["id"]))) == self.view(ticket)

    @rule()
    def what_is_gone_or_never_was_is_refused(self) -> None:
        kept = {ticket["id"] for ticket in self.tickets}
        for name in {f"t-{number}" for number in range(self.opened + 2)} - kept:
            for ask in (Collect(name), Tickets((name,)), Await((name,))):
                assert isinstance(refusal(self.mail, ask), UnknownTicket)

    @rule(member=st.sampled_from(MEMBERS))
    def the_sends_of_a_member_are_lost(self, member: str) -> None:
        """Where nobody else will end them, mail does."""
        self.due_answers = []
        for ticket in self.open():
            if ticket["target"] == member:
                self.end(ticket, Outcome(Status.LOST, reason="it ended"))
        self.take(SendsLost(member, "it ended"))
        self.check_answers()

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def leads_and_roster_are_told_what_and_in_the_order_that_is_written(self) -> None:
        assert self.order == self.told

    @invariant()
    def the_tickets_are_those_of_the_oracle(self) -> None:
        listed = answer(self.mail, Tickets())
        assert [self.seen(view) for view in listed] == [
            self.view(ticket) for ticket in self.tickets if not ticket["collected"]
        ]
        every = answer(self.mail, Tickets(tuple(ticket["id"] for ticket in self.tickets)))
        assert [self.seen(view) for view in every] == [self.view(ticket) for ticket in self.tickets]

    @invariant()
    def who_waits_still_waits(self) -> None:
        assert not any(wait.reply.settled for wait, _ in self.waits)

    @invariant()
    def the_bounds_hold(self) -> None:
        assert len(self.mail._tickets) == len(self.tickets) <= BOUNDS["KEPT_TICKETS"]
        assert len(self.open()) <= BOUNDS["OPEN_TICKETS"]
        assert repr(self.mail) == f"<Mail {len(self.open())} open of {len(self.tickets)} tickets>"


TestMail = MailMachine.TestCase
TestMail.settings = modest(60, steps=50)
