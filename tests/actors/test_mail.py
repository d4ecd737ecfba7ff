"""Mail: tickets and late replies."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
import trio

import actors.mail as mail_module
from actors.actor import Ask, Message
from actors.leads import Notify, Settled
from actors.mail import KEPT_TICKETS, OPEN_TICKETS, Await, Collect, Mail, MailFull, OpenTicket, Tickets, UnknownTicket
from actors.member import SendsLost
from actors.nudge import EndedTicket, LateAnswer
from actors.roster import Route
from actors.ticket import TicketView
from actors.turn import LateReply, Outcome, Phase, Progress, Status, TurnEnded
from tests.actors.recorders import Recorder

DONE = Outcome(Status.COMPLETED, text="the answer")


class Bench:
    def __init__(self) -> None:
        self.roster, self.leads = Recorder("roster"), Recorder("leads")
        self.mail = Mail(roster=self.roster, leads=self.leads)

    def tell(self, message: Message) -> object:
        return self.mail.handle(message)

    async def open(self, target: str = "m-1", lead: str = "lead-1") -> str:
        return await self.mail.ask(OpenTicket(lead, target, "do it", 1))

    def end(self, ticket: str, outcome: Outcome = DONE, target: str = "m-1") -> None:
        self.mail.tell(TurnEnded(target, ticket, outcome, 0))


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.mail.run)
    return bench


async def test_a_send_gets_a_ticket_and_goes_to_the_roster(bench: Bench) -> None:
    assert [await bench.open(), await bench.open("m-2")] == ["t-1", "t-2"]
    assert [(route.target, route.deliver.ticket) for route in bench.roster.only(Route)] == [
        ("m-1", "t-1"),
        ("m-2", "t-2"),
    ]


async def test_a_result_is_stored_before_its_lead_is_told(bench: Bench) -> None:
    ticket = await bench.open()
    bench.end(ticket)
    view = await bench.mail.ask(Collect(ticket))
    assert view.outcome == DONE
    assert bench.leads.told == [Notify("lead-1", EndedTicket("t-1", "m-1", "completed")), Settled("lead-1", "t-1")]


async def test_who_waits_for_a_ticket_is_answered_and_not_nudged(bench: Bench, nursery: trio.Nursery) -> None:
    ticket = await bench.open()
    got: list[tuple[TicketView, ...]] = []

    async def waiter() -> None:
        got.append(await bench.mail.ask(Await((ticket,))))

    nursery.start_soon(waiter)
    await trio.testing.wait_all_tasks_blocked()
    bench.end(ticket)
    await trio.testing.wait_all_tasks_blocked()
    assert [view.id for view in got[0]] == [ticket]
    assert bench.leads.only(Notify) == []


async def test_a_waiter_that_has_gone_does_not_swallow_the_nudge(bench: Bench, autojump_clock: object) -> None:
    ticket = await bench.open()
    with trio.move_on_after(1):
        await bench.mail.ask(Await((ticket,)))
    bench.end(ticket)
    await trio.testing.wait_all_tasks_blocked()
    assert len(bench.leads.only(Notify)) == 1


async def test_waiting_for_all_needs_every_one(bench: Bench, autojump_clock: object) -> None:
    first, second = await bench.open(), await bench.open("m-2")
    bench.end(first)
    assert [view.id for view in await bench.mail.ask(Await((first, second)))] == [first]
    with trio.move_on_after(1) as scope:
        await bench.mail.ask(Await((first, second), all=True))
    assert scope.cancelled_caught
    bench.end(second, target="m-2")
    assert len(await bench.mail.ask(Await((first, second), all=True))) == 2


async def test_a_ticket_ended_while_its_nudge_was_under_way_is_settled_by_who_waits(bench: Bench) -> None:
    ticket = await bench.open()
    bench.end(ticket)
    await bench.mail.ask(Await((ticket,)))
    assert bench.leads.told[-1] == Settled("lead-1", ticket)


async def test_a_second_result_of_one_ticket_changes_nothing_and_is_loud(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    ticket = await bench.open()
    bench.end(ticket)
    bench.end(ticket, Outcome(Status.FAILED, reason="late"))
    with caplog.at_level(logging.ERROR):
        view = await bench.mail.ask(Collect(ticket))
    assert view.outcome == DONE
    assert "t-1" in caplog.text


async def test_progress_is_seen_until_the_end_and_not_after(bench: Bench) -> None:
    ticket = await bench.open()
    bench.mail.tell(Progress(ticket, Phase.HELD, 60))
    (view,) = await bench.mail.ask(Tickets())
    assert (view.phase, view.until_ns) == (Phase.HELD, 60)
    bench.end(ticket)
    bench.mail.tell(Progress(ticket, Phase.RUNNING))
    assert (await bench.mail.ask(Collect(ticket))).phase is Phase.HELD


async def test_an_unknown_ticket_is_refused(bench: Bench) -> None:
    for ask in (Collect("t-9"), Await(("t-9",)), Tickets(("t-9",))):
        with pytest.raises(UnknownTicket, match="no ticket is called t-9"):
            await bench.mail.ask(ask)


async def test_a_collected_ticket_leaves_the_list_and_can_be_collected_again(bench: Bench) -> None:
    ticket = await bench.open()
    bench.end(ticket)
    await bench.mail.ask(Collect(ticket))
    assert await bench.mail.ask(Tickets()) == ()
    assert (await bench.mail.ask(Collect(ticket))).outcome == DONE


async def test_a_late_reply_is_kept_beside_the_result_and_told(bench: Bench) -> None:
    ticket = await bench.open()
    bench.end(ticket, Outcome(Status.TIMED_OUT))
    await bench.mail.ask(Collect(ticket))
    bench.mail.tell(LateReply("m-1", ticket, "finally"))
    (view,) = await bench.mail.ask(Tickets())
    assert view.late_reply == "finally"
    assert Notify("lead-1", LateAnswer(ticket, "m-1")) in bench.leads.told
    await bench.mail.ask(Collect(ticket))
    assert bench.leads.told[-1] == Settled("lead-1", LateAnswer(ticket, "m-1").key)


async def test_the_sends_of_a_crashed_resolver_end_lost(bench: Bench) -> None:
    ticket = await bench.open()
    other = await bench.open("m-2")
    bench.mail.tell(SendsLost("m-1", "its turns have no judge any more"))
    (view,) = await bench.mail.ask(Await((ticket, other)))
    assert view.outcome is not None
    assert (view.id, view.outcome.status) == (ticket, Status.LOST)


async def test_more_open_sends_than_the_bound_are_refused_with_the_bound(bench: Bench) -> None:
    for _ in range(OPEN_TICKETS):
        await bench.open()
        bench.roster.told.clear()
    with pytest.raises(MailFull, match="512 sends have not ended"):
        await bench.open()


async def test_kept_results_make_room_only_once_they_are_collected(bench: Bench) -> None:
    for _ in range(KEPT_TICKETS):
        bench.end(await bench.open())
    with pytest.raises(MailFull, match="none has been collected"):
        await bench.open()
    await bench.mail.ask(Collect("t-5"))
    assert await bench.open() == f"t-{KEPT_TICKETS + 1}"
    with pytest.raises(UnknownTicket):
        await bench.mail.ask(Collect("t-5"))


async def test_who_was_answered_about_a_ticket_is_not_nudged_about_it(bench: Bench, nursery: trio.Nursery) -> None:
    """A wait for all hears of the tickets that ended first too, and their nudges are taken back."""
    tickets = (await bench.open(), await bench.open())
    nursery.start_soon(bench.mail.ask, Await(tickets, all=True))
    await trio.testing.wait_all_tasks_blocked()
    for ticket in tickets:
        bench.end(ticket)
    await trio.testing.wait_all_tasks_blocked()
    assert bench.leads.told == [Notify("lead-1", EndedTicket("t-1", "m-1", "completed")), Settled("lead-1", "t-1")]


async def test_a_wait_for_all_is_answered_though_one_of_its_tickets_was_collected_and_room_is_short(
    bench: Bench, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mail_module, "KEPT_TICKETS", 2)
    tickets = (await bench.open(), await bench.open())
    wait = Await(tickets, all=True)
    nursery.start_soon(bench.mail.ask, wait)
    await trio.testing.wait_all_tasks_blocked()
    bench.end("t-1")
    await bench.mail.ask(Collect("t-1"))
    with pytest.raises(MailFull):
        await bench.open()
    bench.end("t-2")
    await trio.testing.wait_all_tasks_blocked()
    assert wait.reply.settled


@pytest.mark.parametrize("make", [lambda ticket: Await((ticket,)), Collect])
async def test_a_caller_who_has_gone_before_its_answer_takes_nothing_with_it(
    bench: Bench, make: Callable[[str], Ask[object]]
) -> None:
    ticket = await bench.open()
    bench.end(ticket)
    gone = make(ticket)
    gone.reply.abandoned = True
    bench.mail.tell(gone)
    (view,) = await bench.mail.ask(Tickets())
    assert not view.collected
    assert bench.leads.only(Settled) == []
