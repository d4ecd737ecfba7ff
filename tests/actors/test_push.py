"""The push loop and the words of a nudge."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.inject import NotTyped, Typed, Typing
from actors.nudge import (
    NUDGE_CHARS,
    AtDialog,
    EndedTicket,
    Item,
    LateAnswer,
    OpenQuestion,
    Outage,
    Unattributed,
    compose,
)
from actors.panes import PromptNotTyped, PromptTyped, TypePrompt
from actors.push import (
    REMIND_NS,
    Drop,
    LeadPane,
    PushLoop,
    PushSettings,
    Put,
    SetPane,
    StopPush,
    TakeNotices,
    Tick,
)
from actors.screen import Frame, Sent
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven

S = NS_PER_S
PANE = LeadPane(PaneRef("memory", "%9"), TableGrammar(), Typing())
OUTAGE = Outage("inc-1", "anthropic-a", ("claude-a", "claude-b"), ("m-1", "m-2"), 60 * S)


class Bench:
    """A push loop whose pane answers as the test says."""

    def __init__(self, *, pane: LeadPane | None = PANE, settings: PushSettings | None = None) -> None:
        self.clock = Clock()
        self.panes = Recorder("panes")
        self.loop = PushLoop("lead-1", settings or PushSettings(), panes=self.panes)
        driven(self.loop, self.clock)
        self.loop.handle(SetPane(pane))

    def put(self, *items: Item, once: bool = False) -> None:
        for item in items:
            self.loop.handle(Put(item, once))

    def tick(self) -> TypePrompt | None:
        """One tick; what it typed."""
        before = len(self.panes.told)
        self.loop.handle(Tick())
        typed = self.panes.told[before:]
        assert len(typed) <= 1
        return typed[0] if typed else None  # type: ignore[return-value]

    def typed(self, job: TypePrompt) -> str:
        """The job succeeds; the text that was typed."""
        text = job.text() if callable(job.text) else job.text
        self.loop.handle(PromptTyped(job.job, Typed(Sent(text, Frame(())), 0)))
        return text

    def nudge(self) -> str | None:
        job = self.tick()
        return None if job is None else self.typed(job)

    def fails(self, job: TypePrompt, *, busy: bool = False) -> None:
        if callable(job.text) and not busy:
            job.text()
        self.loop.handle(PromptNotTyped(job.job, "a reason", retry=busy))

    def notices(self) -> tuple[str, ...]:
        return self.loop.handle(TakeNotices())  # type: ignore[return-value]


@pytest.fixture
def bench() -> Bench:
    return Bench()


@pytest.mark.criterion("U3.1")
def test_one_incident_of_two_workers_is_one_injection(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    assert bench.nudge() is not None
    assert bench.nudge() is None


@pytest.mark.criterion("U3.3")
def test_the_same_incident_again_changes_nothing_before_and_after_it_was_told(bench: Bench) -> None:
    bench.put(OUTAGE, OUTAGE, once=True)
    assert bench.nudge() is not None
    bench.put(OUTAGE, once=True)
    assert bench.nudge() is None


@pytest.mark.criterion("U3.4")
def test_a_busy_lead_costs_no_attempt_however_long_it_is_busy(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    for _ in range(100):
        job = bench.tick()
        assert job is not None
        bench.fails(job, busy=True)
        bench.clock.advance(1)
    assert bench.nudge() is not None


@pytest.mark.criterion("U3.4")
def test_a_lead_without_a_known_pane_is_not_injected_and_the_item_waits() -> None:
    bench = Bench(pane=None)
    bench.put(OUTAGE, once=True)
    assert bench.tick() is None
    bench.loop.handle(SetPane(PANE))
    assert bench.nudge() is not None


@pytest.mark.criterion("U3.5")
def test_after_one_injection_no_later_nudge_mentions_the_incident(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    bench.nudge()
    bench.put(EndedTicket("t-9", "m-1", "completed"))
    bench.clock.advance(3600)
    text = bench.nudge()
    assert text is not None
    assert "inc-1" not in text


@pytest.mark.criterion("U3.6")
def test_a_failed_typing_is_tried_again_and_a_success_is_still_one_nudge(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    for _ in range(4):
        job = bench.tick()
        assert job is not None
        bench.fails(job)
    assert bench.nudge() is not None
    assert bench.nudge() is None


@pytest.mark.criterion("U3.6")
def test_when_the_attempts_are_used_up_the_item_goes_with_the_next_tool_result(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    for _ in range(5):
        job = bench.tick()
        assert job is not None
        bench.fails(job)
    assert bench.tick() is None
    (notice,) = bench.notices()
    assert "inc-1" in notice
    assert bench.notices() == ()


@pytest.mark.criterion("U3.7")
def test_an_incident_and_a_ticket_come_in_one_nudge(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    bench.put(EndedTicket("t-2", "m-2", "backend_error"))
    text = bench.nudge()
    assert text is not None
    assert "inc-1" in text
    assert "t-2 (m-2, backend_error)" in text
    assert bench.nudge() is None


@pytest.mark.criterion("U3.8")
def test_the_text_names_credential_profiles_workers_remaining_seconds_and_fleet_list(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    bench.clock.ns = 12 * S + 1
    text = bench.nudge()
    assert text == (
        "[fleetd] Outage inc-1: credential anthropic-a (profiles claude-a, claude-b), no spawns on it for 48 s; "
        "members hit: m-1, m-2. Run fleet_list."
    )


def test_the_seconds_are_those_of_the_moment_it_is_typed(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    job = bench.tick()
    assert job is not None
    bench.clock.ns = 59 * S
    assert "for 1 s;" in bench.typed(job)


def test_a_nudge_that_comes_after_the_cool_off_says_that_it_is_over(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    bench.clock.ns = 90 * S
    assert "its cool-off is over" in str(bench.nudge())


@pytest.mark.criterion("U3.10")
def test_stop_forgets_incidents_with_all_other_state(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    bench.put(EndedTicket("t-1", "m-1", "completed"))
    job = bench.tick()
    assert job is not None
    bench.loop.handle(StopPush())
    assert repr(bench.loop) == "<PushLoop lead-1: 0 waiting, 1 nudges>"
    assert bench.notices() == ()


@pytest.mark.criterion("U3.11")
@pytest.mark.parametrize(
    "item",
    [EndedTicket("t-1", "m-1", "completed"), LateAnswer("t-1", "m-1"), OpenQuestion("q-1", "m-1")],
)
def test_tickets_late_answers_and_questions_are_reminded_of_ever_more_rarely(bench: Bench, item: Item) -> None:
    bench.put(item)
    told_at = []
    for second in range(0, 600, 5):
        bench.clock.ns = second * S
        if bench.nudge() is not None:
            told_at.append(second)
    assert told_at == [0, 60, 180, 420]


@pytest.mark.criterion("U3.11")
def test_what_is_taken_care_of_is_not_mentioned_again(bench: Bench) -> None:
    bench.put(EndedTicket("t-1", "m-1", "completed"), OpenQuestion("q-1", "m-2"))
    bench.nudge()
    bench.loop.handle(Drop("t-1"))
    bench.clock.ns = REMIND_NS
    text = bench.nudge()
    assert text is not None
    assert "t-1" not in text
    assert "q-1" in text


def test_each_item_counts_its_own_reminders(bench: Bench) -> None:
    bench.put(EndedTicket("t-1", "m-1", "completed"))
    bench.nudge()
    bench.clock.ns = 30 * S
    bench.put(EndedTicket("t-2", "m-2", "completed"))
    assert bench.nudge() == "[fleetd] Ended: t-2 (m-2, completed). Use fleet_collect."
    bench.clock.ns = 60 * S
    assert bench.nudge() == "[fleetd] Ended: t-1 (m-1, completed). Use fleet_collect."


def test_only_one_nudge_is_under_way_at_a_time(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    job = bench.tick()
    assert job is not None
    bench.put(EndedTicket("t-1", "m-1", "completed"))
    assert bench.tick() is None
    bench.typed(job)
    assert bench.tick() is not None


def test_an_item_taken_care_of_while_its_nudge_is_typed_is_not_reminded_of(bench: Bench) -> None:
    bench.put(EndedTicket("t-1", "m-1", "completed"))
    job = bench.tick()
    assert job is not None
    assert callable(job.text)
    job.text()
    bench.loop.handle(Drop("t-1"))
    bench.loop.handle(PromptTyped(job.job, Typed(Sent("", Frame(())), bench.clock.ns)))
    bench.clock.ns = REMIND_NS
    assert bench.tick() is None


def test_what_is_taken_care_of_before_its_nudge_is_composed_is_not_told(bench: Bench) -> None:
    bench.put(EndedTicket("t-1", "m-1", "completed"), EndedTicket("t-2", "m-2", "completed"))
    job = bench.tick()
    assert job is not None
    bench.loop.handle(Drop("t-1"))
    text = bench.typed(job)
    assert "t-2" in text
    assert "t-1" not in text


def test_a_nudge_of_which_nothing_is_left_is_not_typed_and_costs_no_attempt(bench: Bench) -> None:
    bench.put(EndedTicket("t-1", "m-1", "completed"))
    job = bench.tick()
    assert job is not None
    bench.loop.handle(Drop("t-1"))
    assert callable(job.text)
    with pytest.raises(NotTyped, match="taken care of") as nothing:
        job.text()
    assert nothing.value.retry


def test_a_one_shot_that_was_dropped_while_it_was_typed_and_is_put_again_is_not_told_twice(bench: Bench) -> None:
    dialog = AtDialog("m-1", 1)
    bench.put(dialog, once=True)
    job = bench.tick()
    assert job is not None
    assert callable(job.text)
    assert "m-1" in job.text()
    bench.loop.handle(Drop(dialog.key))
    bench.loop.handle(PromptTyped(job.job, Typed(Sent("", Frame(())), 0)))
    bench.put(dialog, once=True)
    assert bench.tick() is None


def test_notices_whose_caller_has_gone_are_kept_for_the_next_one() -> None:
    bench = Bench(pane=None)
    bench.put(OpenQuestion("q-1", "m-3"))
    gone = TakeNotices()
    gone.reply.abandoned = True
    bench.loop.handle(gone)
    assert "q-1" in bench.notices()[0]


def test_a_lead_without_a_pane_gets_everything_with_its_next_tool_result() -> None:
    bench = Bench(pane=None)
    bench.put(OUTAGE, once=True)
    bench.put(OpenQuestion("q-1", "m-3"))
    (notice,) = bench.notices()
    assert "inc-1" in notice
    assert "q-1 (m-3)" in notice
    assert bench.notices() == ()
    bench.clock.ns = REMIND_NS
    assert "q-1" in bench.notices()[0]


def test_a_lead_with_a_pane_gets_no_notices(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    assert bench.notices() == ()


def test_items_that_are_being_typed_are_not_given_away_as_notices(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    job = bench.tick()
    assert job is not None
    bench.loop.handle(SetPane(None))
    assert bench.notices() == ()


# -- the words ------------------------------------------------------------------------------------------------------

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}", fullmatch=True)
numbers = st.integers(1, 10**9)
targets = numbers.map("m-{}".format)
tickets = numbers.map("t-{}".format)
statuses = st.sampled_from(["completed", "failed", "backend_error", "backend_exhausted", "timed_out", "lost"])
items = st.one_of(
    st.builds(
        Outage,
        numbers.map("inc-{}".format),
        names,
        st.lists(names, min_size=1, max_size=20).map(tuple),
        st.lists(targets, min_size=1, max_size=50).map(tuple),
        st.integers(0, 10**18),
    ),
    st.builds(Unattributed, targets),
    st.builds(EndedTicket, tickets, targets, statuses),
    st.builds(LateAnswer, tickets, targets),
    st.builds(OpenQuestion, numbers.map("q-{}".format), targets),
    st.builds(AtDialog, targets, numbers),
)


@given(st.lists(items, min_size=1, max_size=40, unique_by=lambda item: item.key), st.integers(0, 10**18))
def test_any_nudge_is_one_bounded_paragraph_that_tells_at_least_one_item(waiting: list[Item], now_ns: int) -> None:
    text, told = compose(waiting, now_ns)
    assert len(text) <= NUDGE_CHARS
    assert text.isprintable()
    assert told
    assert set(told) <= {item.key for item in waiting}


def test_what_does_not_fit_is_left_for_the_next_nudge() -> None:
    bench = Bench()
    waiting = [Outage(f"inc-{n}", "c" * 64, ("p" * 64,), ("m-1",), 60 * S) for n in range(5)]
    bench.put(*waiting, once=True)
    text = ""
    nudges = 0
    while (more := bench.nudge()) is not None:
        text += more
        nudges += 1
    assert nudges == 3
    assert all(text.count(item.incident) == 1 for item in waiting)


def test_messages_of_another_job_are_ignored(bench: Bench) -> None:
    bench.put(OUTAGE, once=True)
    stale: Message = PromptTyped("nudge:lead-1:99", Typed(Sent("", Frame(())), 0))
    bench.loop.handle(stale)
    bench.loop.handle(PromptNotTyped("nudge:lead-1:99", "old"))
    assert bench.nudge() is not None
