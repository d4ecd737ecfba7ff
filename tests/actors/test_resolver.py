"""The resolver: who settles a turn, and what is published when."""

from __future__ import annotations

import pytest

from actors.gate import GateCheck, GateRead
from actors.host import PaneEnded, PaneRef
from actors.inject import Typed
from actors.member import Blocked, Delivered, ProcessGone, Ready, TurnDone, Unblocked
from actors.panes import (
    Observed,
    PaneDied,
    PressKeys,
    PromptNotTyped,
    PromptTyped,
    TypePrompt,
    Unwatch,
    Watch,
    Withdraw,
)
from actors.patterns import LEGACY
from actors.resolver import Resolver
from actors.screen import Sent
from actors.sendqueue import WAITING_SENDS
from actors.sends import Deliver, Entering, Examine, HoldOver, Interrupt, MemberReply, NoOpenTurn, Release, TimedOut
from actors.setup import Setup
from actors.turn import LateReply, Phase, Progress, Source, Status
from tests.actors.bench import Bench, S
from tests.actors.recorders import Clock, TableGrammar, driven, frame


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- classification -------------------------------------------------------------------------------------------------


@pytest.mark.criterion("U1.1")
def test_a_profiles_own_pattern_on_an_answer_block_fails_the_send(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "> prompt", "* the backend down again", after_s=5)
    assert (bench.outcome.status, bench.outcome.source) == (Status.BACKEND_ERROR, Source.BLOCK)
    assert (bench.outcome.reason, bench.outcome.pattern) == ("the backend down again", "errorPattern")


@pytest.mark.criterion("U1.2")
def test_the_typed_event_is_published_exactly_once_and_only_by_who_settled_the_waiter(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "* backend down", after_s=5)
    bench.rests_on("idle", "* backend down", after_s=5)
    bench.tell(TimedOut("t-1"))
    assert [ended.outcome.status for ended in bench.ended()] == [Status.BACKEND_ERROR]


@pytest.mark.criterion("U1.3")
def test_a_classification_that_loses_to_a_reply_publishes_nothing(bench: Bench) -> None:
    bench.begin()
    bench.tell(MemberReply("my answer"))
    bench.rests_on("idle", "* backend down", after_s=5)
    assert [ended.outcome.status for ended in bench.ended()] == [Status.COMPLETED]
    assert bench.outlet.told[-1] == TurnDone("m-1")
    assert bench.resolver._lost_races == {"scrape": 1}


@pytest.mark.criterion("U1.4")
def test_a_line_that_matches_both_patterns_is_exhaustion_only(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "* backend quota is used up", after_s=5)
    assert bench.outcome.status is Status.EXHAUSTED
    assert bench.outcome.pattern == "exhaustedPattern"


@pytest.mark.criterion("U1.5")
def test_a_screen_without_answer_block_takes_the_raw_fallback(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "==== chrome ====", "  backend down (503)", after_s=5)
    assert (bench.outcome.status, bench.outcome.source) == (Status.BACKEND_ERROR, Source.RAW)


@pytest.mark.criterion("U1.6")
def test_a_match_inside_the_floor_is_typed(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "* backend down", after_s=0.4)
    assert bench.outcome.status is Status.BACKEND_ERROR


@pytest.mark.criterion("U1.6")
def test_a_fast_turn_without_a_match_is_a_generic_failure(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "* all good", after_s=0.4)
    assert bench.outcome.status is Status.FAILED
    assert bench.outcome.reason == "it ended after 0.4 s, under the floor of 2 s"


@pytest.mark.parametrize(("after_s", "status"), [(1.99, Status.FAILED), (2.0, Status.COMPLETED)])
def test_the_floor_is_measured_to_the_first_moment_of_rest(bench: Bench, after_s: float, status: Status) -> None:
    bench.begin()
    bench.rests_on("idle", "* all good", after_s=after_s)
    assert bench.outcome.status is status


@pytest.mark.criterion("U1.7")
def test_an_unchanged_baseline_with_old_error_text_is_no_end_and_no_evidence() -> None:
    bench = Bench(Setup(TableGrammar(), LEGACY))
    bench.begin()
    bench.rests_on("idle", "* API Error: 529 from an older turn", after_s=30)
    assert bench.ended() == []
    bench.rests_on("busy", "working", after_s=1)
    bench.rests_on("idle", "* API Error: 529 from an older turn", after_s=30)
    assert bench.ended() == []


@pytest.mark.criterion("U1.8")
def test_a_turn_that_matches_nothing_completes_with_its_text_unchanged(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "> prompt", "* line one", "  line two", after_s=5)
    assert (bench.outcome.status, bench.outcome.text) == (Status.COMPLETED, "line one\n  line two")
    assert bench.outcome.turn_ns == 5 * S


@pytest.mark.criterion("U1.9")
def test_a_resolver_without_patterns_has_the_legacy_default_and_publishes_nowhere() -> None:
    resolver = Resolver("m-1", Setup(TableGrammar()))
    clock = Clock()
    driven(resolver, clock)
    resolver.handle(Observed(frame("idle")))
    resolver.handle(Deliver("t-1", "hello", S))
    resolver.handle(GateRead("t-1", {}, {}, True, 0))
    resolver.handle(PromptTyped("t-1", Typed(Sent("hello", frame("idle")), 0)))
    verdict = resolver.handle(Examine(frame("idle", "* API Error: 529 Overloaded"))).verdict  # type: ignore[attr-defined]
    assert (verdict.kind, verdict.pattern) == ("backend_error", "legacy")
    for at_s in (5.0, 5.5):
        clock.ns = round(at_s * S)
        resolver.handle(Observed(frame("idle", "* API Error: 529 Overloaded", at_s=at_s)))
    assert repr(resolver) == (
        "<Resolver m-1: no turn, 0 waiting, closed: its turn ended backend_error; release it and spawn another>"
    )


def test_a_turn_without_an_answer_is_a_failure_and_not_a_finished_one(bench: Bench) -> None:
    bench.begin()
    bench.shows("busy", at_s=1)
    bench.rests_on("idle", after_s=5)
    assert (bench.outcome.status, bench.outcome.reason) == (Status.FAILED, "the turn ended without an answer")


def test_a_turn_that_was_cut_short_in_its_pane_is_interrupted(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("interrupted", "* half an ans", after_s=5)
    assert bench.outcome.status is Status.INTERRUPTED


def test_a_turn_seen_busy_is_not_over_while_its_screen_changes(bench: Bench) -> None:
    bench.begin()
    bench.shows("busy", at_s=1)
    bench.shows("idle", "* a", at_s=2)
    bench.shows("idle", "* a b", at_s=2.4)
    bench.shows("idle", "* a b c", at_s=2.8)
    assert bench.ended() == []
    bench.shows("idle", "* a b c", at_s=3.3)
    assert bench.outcome.text == "a b c"


def test_a_program_without_idle_pattern_is_at_rest_when_its_screen_has_stood_for_three_seconds(bench: Bench) -> None:
    bench.begin()
    bench.shows("unknown", "* answer", at_s=4)
    bench.shows("unknown", "* answer", at_s=6.9)
    assert bench.ended() == []
    bench.shows("unknown", "* answer", at_s=7)
    assert (bench.outcome.status, bench.outcome.turn_ns) == (Status.COMPLETED, 4 * S)


# -- the way to the pane --------------------------------------------------------------------------------------------


def test_nothing_is_typed_before_the_input_line_is_live_for_the_first_time() -> None:
    bench = Bench(ready=False)
    bench.deliver()
    bench.shows("busy")
    bench.shows("blocked")
    assert bench.gate.told == []
    assert bench.outlet.told == [Progress("t-1", Phase.QUEUED), Blocked("m-1")]
    bench.shows("idle")
    assert bench.outlet.told[-1] == Ready("m-1")
    assert [check.credentials for check in bench.gate.only(GateCheck)] == [("c",)]


def test_a_send_passes_the_gate_before_it_is_typed(bench: Bench) -> None:
    bench.deliver()
    assert bench.panes.only(TypePrompt) == []
    bench.gate_says()
    (job,) = bench.panes.only(TypePrompt)
    assert (job.job, job.text, job.own) == ("t-1", "prompt of t-1", True)
    bench.typed()
    assert bench.outlet.told[-2:] == [Delivered("m-1"), Progress("t-1", Phase.RUNNING)]


def test_a_send_to_a_cooling_credential_is_held_until_the_cool_off_ends(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says(cooling={"c": 60 * S})
    assert bench.outlet.told[-1] == Progress("t-1", Phase.HELD, 60 * S)
    assert bench.panes.only(TypePrompt) == []
    bench.clock.ns = 60 * S
    bench.tell(HoldOver("t-1"))
    assert len(bench.gate.only(GateCheck)) == 2
    bench.gate_says()
    assert len(bench.panes.only(TypePrompt)) == 1


def test_without_hold_sends_a_send_to_a_cooling_credential_is_typed_at_once(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says(cooling={"c": 60 * S}, hold=False)
    assert len(bench.panes.only(TypePrompt)) == 1


def test_a_send_to_an_exhausted_credential_is_refused_with_the_seconds_left(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says(exhausted={"c": 90 * S}, cooling={"c": 60 * S})
    assert bench.outcome.status is Status.REFUSED
    assert "exhausted" in bench.outcome.reason
    assert "90 s" in bench.outcome.reason


def test_a_send_to_a_busy_member_waits_its_turn(bench: Bench) -> None:
    bench.begin("t-1")
    bench.deliver("t-2")
    assert len(bench.gate.only(GateCheck)) == 1
    bench.rests_on("idle", "* done", after_s=5)
    assert [check.id for check in bench.gate.only(GateCheck)] == ["t-1", "t-2"]


def test_the_ninth_waiting_send_is_refused_with_the_bound(bench: Bench) -> None:
    bench.begin("t-0")
    for number in range(1, WAITING_SENDS + 2):
        bench.deliver(f"t-{number}")
    assert bench.ended()[0].ticket == "t-9"
    assert "8 sends waiting, the most that may" in bench.outcome.reason
    assert bench.outlet.only(Progress)[-1].ticket == "t-8"


def test_a_prompt_that_was_not_submitted_is_refused_and_the_next_one_goes_on(bench: Bench) -> None:
    bench.deliver("t-1")
    bench.deliver("t-2")
    bench.gate_says("t-1")
    bench.tell(PromptNotTyped("t-1", "somebody has typed a draft into it", retry=True))
    assert bench.outcome.status is Status.REFUSED
    assert "draft" in bench.outcome.reason
    assert [check.id for check in bench.gate.only(GateCheck)] == ["t-1", "t-2"]


def test_a_prompt_of_unknown_fate_is_lost_and_never_completed(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    bench.tell(PromptNotTyped("t-1", "the terminal failed", unknown=True))
    assert bench.outcome.status is Status.LOST


def test_a_failed_member_refuses_what_waits(bench: Bench) -> None:
    bench.begin("t-1")
    bench.deliver("t-2")
    bench.rests_on("idle", "* backend down", after_s=5)
    assert [(ended.ticket, ended.outcome.status) for ended in bench.ended()] == [
        ("t-1", Status.BACKEND_ERROR),
        ("t-2", Status.REFUSED),
    ]
    bench.deliver("t-3")
    assert bench.ended()[-1].outcome.status is Status.REFUSED


# -- reply, interrupt, time-out, release, death ---------------------------------------------------------------------


def test_a_reply_settles_and_the_turn_drains_before_the_next_prompt(bench: Bench) -> None:
    bench.begin("t-1")
    bench.deliver("t-2")
    bench.clock.advance(7)
    assert bench.tell(MemberReply("the answer")) == "t-1"
    assert (bench.outcome.text, bench.outcome.source, bench.outcome.turn_ns) == ("the answer", Source.REPLY, 7 * S)
    bench.shows("busy")
    assert len(bench.gate.only(GateCheck)) == 1
    bench.rests_on("idle", "* closing words", after_s=1)
    assert len(bench.gate.only(GateCheck)) == 2


def test_a_reply_that_comes_before_the_enter_belongs_to_no_turn_of_ours(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    with pytest.raises(NoOpenTurn):
        bench.tell(MemberReply("of something before"))
    bench.typed()
    assert bench.ended() == []


def test_a_reply_that_comes_before_the_typing_is_confirmed_counts(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    bench.tell(Entering("t-1"))
    bench.tell(MemberReply("quick"))
    bench.typed()
    assert bench.outcome.status is Status.COMPLETED
    bench.rests_on("idle", "* quick", after_s=1)
    assert bench.outlet.told[-1] == TurnDone("m-1")


def test_a_reply_without_an_open_turn_is_refused(bench: Bench) -> None:
    with pytest.raises(NoOpenTurn):
        bench.tell(MemberReply("nobody asked"))
    bench.begin()
    bench.rests_on("idle", "* done", after_s=5)
    with pytest.raises(NoOpenTurn):
        bench.tell(MemberReply("too late"))


def test_a_time_out_ends_the_send_and_a_later_reply_is_kept_beside_it(bench: Bench) -> None:
    bench.begin(timeout_s=60)
    bench.clock.advance(60)
    bench.tell(TimedOut("t-1"))
    assert bench.outcome.status is Status.TIMED_OUT
    assert bench.tell(MemberReply("sorry, here")) == "t-1"
    assert bench.outlet.only(LateReply) == [LateReply("m-1", "t-1", "sorry, here")]
    assert len(bench.ended()) == 1


def test_a_time_out_of_another_send_settles_nothing(bench: Bench) -> None:
    bench.begin("t-1")
    bench.tell(TimedOut("t-0"))
    assert bench.ended() == []


def test_an_interrupt_settles_first_and_then_presses_the_key(bench: Bench) -> None:
    bench.begin()
    assert bench.tell(Interrupt()) == ("t-1",)
    assert bench.outcome.status is Status.INTERRUPTED
    assert bench.panes.only(PressKeys) == [PressKeys(PaneRef("memory", "%1"), ("Escape",))]
    bench.rests_on("idle", "* backend down", after_s=5)
    assert len(bench.ended()) == 1
    assert bench.outlet.told[-1] == TurnDone("m-1")


def test_an_interrupt_while_the_prompt_is_typed_takes_it_back_or_stops_it(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    assert bench.tell(Interrupt()) == ("t-1",)
    assert len(bench.panes.only(Withdraw)) == 1
    bench.typed()
    assert len(bench.panes.only(PressKeys)) == 1


def test_an_interrupt_of_a_held_send_takes_it_back(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says(cooling={"c": 60 * S})
    assert bench.tell(Interrupt()) == ("t-1",)
    bench.tell(HoldOver("t-1"))
    assert len(bench.gate.only(GateCheck)) == 1


def test_an_interrupt_with_nothing_to_stop_is_refused(bench: Bench) -> None:
    with pytest.raises(NoOpenTurn):
        bench.tell(Interrupt())


def test_a_release_ends_every_send_once(bench: Bench) -> None:
    bench.begin("t-1")
    bench.deliver("t-2")
    bench.tell(Release())
    assert [(ended.ticket, ended.outcome.status) for ended in bench.ended()] == [
        ("t-1", Status.INTERRUPTED),
        ("t-2", Status.INTERRUPTED),
    ]


@pytest.mark.parametrize(
    ("end", "status"),
    [
        (PaneEnded(PaneRef("memory", "%1"), status=3), Status.FAILED),
        (PaneEnded(PaneRef("memory", "%1"), signal=9), Status.FAILED),
        (PaneEnded(PaneRef("memory", "%1")), Status.LOST),
    ],
)
def test_a_death_in_mid_turn_ends_the_send_with_how(bench: Bench, end: PaneEnded, status: Status) -> None:
    bench.begin()
    bench.tell(PaneDied(end))
    assert bench.outcome.status is status
    assert end.how() in bench.outcome.reason
    assert bench.outlet.only(ProcessGone) == [ProcessGone("m-1", end.how())]


def test_a_death_between_turns_is_told_and_refuses_what_waits(bench: Bench) -> None:
    bench.tell(PaneDied(PaneEnded(PaneRef("memory", "%1"), status=0)))
    assert bench.outlet.told == [ProcessGone("m-1", "its process exited with status 0")]
    bench.deliver()
    assert bench.outcome.status is Status.REFUSED


# -- what is shown --------------------------------------------------------------------------------------------------


def test_a_dialog_in_mid_turn_is_shown_and_no_end(bench: Bench) -> None:
    bench.begin()
    bench.shows("busy", at_s=1)
    bench.rests_on("blocked", "allow?", after_s=5)
    bench.shows("busy", at_s=10)
    assert bench.ended() == []
    assert [type(told) for told in bench.outlet.told if isinstance(told, Blocked | Unblocked)] == [Blocked, Unblocked]


def test_a_member_at_rest_is_not_captured(bench: Bench) -> None:
    assert isinstance(bench.panes.told[-1], Unwatch)
    bench.begin()
    assert isinstance(bench.panes.told[-1], Watch)
    bench.rests_on("idle", "* done", after_s=5)
    assert isinstance(bench.panes.told[-1], Unwatch)


def test_a_reason_is_one_clean_line_of_at_most_200_characters(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "* backend down \x1b[31m\x07 " + "x" * 500, after_s=5)
    assert len(bench.outcome.reason) == 200
    assert bench.outcome.reason.isprintable()


def test_a_huge_answer_is_cut_and_says_so(bench: Bench) -> None:
    bench.begin()
    bench.rests_on("idle", "* " + "é" * 300_000, after_s=5)
    assert bench.outcome.truncated
    assert len(bench.outcome.text.encode()) <= 256 * 1024
