"""The registry of leads: who leads whom, and the road to each push loop."""

from __future__ import annotations

import logging

import pytest
import trio

from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.inject import Typing
from actors.leads import (
    LEADS,
    Incident,
    Join,
    Leads,
    LeadsNow,
    LoopOf,
    Notify,
    Owns,
    SetLeadPane,
    Settled,
    TooManyLeads,
    Unattributable,
    UnknownLead,
)
from actors.nudge import EndedTicket
from actors.panes import TypePrompt
from actors.push import LeadPane, PushSettings
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Recorder, TableGrammar

CAUSE = TurnEnded("m-2", "t-2", Outcome(Status.BACKEND_ERROR), 0)


def incident(*leads: str) -> Incident:
    return Incident("inc-1", "c", ("m-1", "m-2"), ("p",), leads, 2, 60 * NS_PER_S, CAUSE)


class Bench:
    def __init__(self) -> None:
        self.panes, self.mail = Recorder("panes"), Recorder("mail")
        self.leads = Leads(PushSettings(), panes=self.panes, mail=self.mail)

    async def join(self, key: str, *, pane: str | None = None) -> str:
        lead = await self.leads.ask(Join(key))
        if pane is not None:
            self.leads.tell(SetLeadPane(lead, LeadPane(PaneRef("memory", pane), TableGrammar(), Typing())))
        return lead

    def typed(self) -> dict[str, list[str]]:
        """Texts by pane."""
        found: dict[str, list[str]] = {}
        for job in self.panes.only(TypePrompt):
            found.setdefault(job.pane.id, []).append(job.text() if callable(job.text) else job.text)
        return found


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.leads.run)
    return bench


async def test_a_key_is_always_the_same_lead(bench: Bench, autojump_clock: object) -> None:
    assert [await bench.join(key) for key in ("a", "b", "a")] == ["lead-1", "lead-2", "lead-1"]


@pytest.mark.criterion("U3.2")
async def test_two_workers_of_two_leads_are_one_injection_each(bench: Bench, autojump_clock: object) -> None:
    await bench.join("a", pane="%1")
    await bench.join("b", pane="%2")
    await bench.join("c", pane="%3")
    bench.leads.tell(incident("lead-1", "lead-2"))
    await trio.sleep(1.5)
    assert {pane: len(texts) for pane, texts in bench.typed().items()} == {"%1": 1, "%2": 1}


async def test_the_result_of_the_turn_that_opened_an_incident_follows_to_mail(
    bench: Bench, autojump_clock: object
) -> None:
    await bench.join("a")
    bench.leads.tell(incident("lead-1"))
    await trio.testing.wait_all_tasks_blocked()
    assert bench.mail.told == [CAUSE]


@pytest.mark.criterion("U3.9")
async def test_an_unmapped_target_is_a_direct_warning_to_its_lead(bench: Bench, autojump_clock: object) -> None:
    await bench.join("a", pane="%1")
    bench.leads.tell(Owns("lead-1", "m-7"))
    bench.leads.tell(Unattributable("m-7", "API Error: 529"))
    await trio.sleep(1.5)
    (text,) = bench.typed()["%1"]
    assert "m-7" in text
    assert "not correlated" in text
    assert "API Error" not in text


@pytest.mark.criterion("U3.9")
async def test_without_a_lead_an_unmapped_target_is_a_warning_that_names_target_and_reason(
    bench: Bench, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bench.leads.tell(Unattributable("m-7", "API Error: 529"))
        await trio.testing.wait_all_tasks_blocked()
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "m-7" in record.getMessage()
    assert "API Error: 529" in record.getMessage()


async def test_what_is_settled_is_not_nudged(bench: Bench, autojump_clock: object) -> None:
    await bench.join("a", pane="%1")
    bench.leads.tell(Notify("lead-1", EndedTicket("t-1", "m-1", "completed")))
    bench.leads.tell(Settled("lead-1", "t-1"))
    await trio.sleep(3)
    assert bench.typed() == {}


async def test_a_notice_for_an_unknown_lead_is_logged(
    bench: Bench, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bench.leads.tell(Notify("lead-9", EndedTicket("t-1", "m-1", "completed")))
        await trio.testing.wait_all_tasks_blocked()
    assert [record.fleet_lead for record in caplog.records] == ["lead-9"]  # type: ignore[attr-defined]


async def test_the_257th_lead_takes_the_place_of_the_one_heard_of_longest_ago(
    bench: Bench, autojump_clock: object
) -> None:
    for number in range(LEADS):
        await bench.join(f"key-{number}")
    await trio.sleep(1)
    bench.leads.tell(Owns("lead-1", "m-1"))
    await bench.join("key-2")
    assert await bench.join("one-more") == f"lead-{LEADS + 1}"
    known = await bench.leads.ask(LeadsNow())
    assert len(known) == LEADS
    assert "lead-1" in known
    assert "lead-3" in known
    with pytest.raises(UnknownLead):
        await bench.leads.ask(LoopOf("lead-2"))


async def test_leads_that_own_members_never_make_room(bench: Bench, autojump_clock: object) -> None:
    for number in range(LEADS):
        bench.leads.tell(Owns(await bench.join(f"key-{number}"), f"m-{number}"))
    with pytest.raises(TooManyLeads, match="256 leads own members"):
        await bench.join("one-more")
