"""What mutation testing found that no other test of the end of a turn noticed; see ``bench/mutants.md``."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import ClassVar

import pytest

from actors.classify import Kind
from actors.gate import GateCheck, GateRead
from actors.host import PaneEnded, PaneRef
from actors.inject import Typed
from actors.member import Blocked, ProcessGone, Ready, RetryNoted, TurnDone, Unblocked
from actors.openturn import Resumed
from actors.panes import (
    Confirm,
    Observed,
    PaneDied,
    PressKeys,
    PromptTyped,
    Unwatch,
    Watch,
    Withdraw,
)
from actors.resolver import Resolver
from actors.screen import Frame, Reading, Retrying, Sent, State
from actors.sends import (
    Deliver,
    Entering,
    Examination,
    Examine,
    Interrupt,
    MemberReply,
    NoOpenTurn,
    Release,
    StartTimer,
    TimedOut,
)
from actors.setup import Setup
from actors.signal import Signal, What
from actors.tracker import SETTLE_NS, TurnTracker
from actors.turn import LateReply, Phase, Progress, Source, Status, TurnEnded
from tests.actors.bench import S
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven, frame
from tests.models.left import BEFORE, PANE, TURN, Left

# -- what ends a turn --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "first"), [(("Escape", "Escape"), ("Escape",)), (("C-c", "Escape", "Escape"), ("C-c", "Escape"))]
)
def test_a_second_escape_comes_a_moment_later(keys: tuple[str, ...], first: tuple[str, ...]) -> None:
    bench = Left(interrupt_keys=keys)
    bench.runs()
    bench.tell(Interrupt())
    second = PressKeys(PANE, ("Escape",))
    assert bench.panes.told[-1] == PressKeys(PANE, first)
    assert bench.timers[-1] == (400_000_000, second)
    bench.panes.told.clear()
    bench.tell(second)
    assert bench.panes.told == [second]


def test_what_a_member_shows_that_ended_while_it_started_is_nothing() -> None:
    bench = Left()
    bench.tell(PaneDied(PaneEnded(PANE, 1)))
    told = len(bench.outlet.told)
    bench.shows("idle", at_s=101)
    assert len(bench.outlet.told) == told


def test_a_dialog_is_told_anew_after_each_rest() -> None:
    bench = Left()
    bench.shows("blocked", at_s=98)
    bench.runs()
    for at_s in (101, 102):
        bench.shows("blocked", at_s=at_s)
    assert len(bench.outlet.only(Blocked)) == 2


def test_a_screen_is_read_against_what_was_typed() -> None:
    class Notes(TableGrammar):
        read_with: ClassVar[list[Sent | None]] = []

        def read(self, shown: Frame, sent: Sent | None = None) -> Reading:
            self.read_with.append(sent)
            return super().read(shown, sent)

    bench = Left(grammar=Notes())
    bench.runs()
    bench.shows("busy", at_s=101)
    assert Notes.read_with == [None, Sent("the prompt", BEFORE)]


def test_an_interrupt_ends_what_there_is_and_names_it() -> None:
    bench = Left()
    with pytest.raises(NoOpenTurn, match="member m-1 has no open turn to stop and no send waiting"):
        bench.tell(Interrupt())
    bench.tell(Deliver("t-1", "p", S), Deliver("t-2", "p", S))  # it has not started yet
    assert bench.tell(Interrupt()) == ("t-1", "t-2")
    assert [end.outcome.reason for end in bench.outlet.only(TurnEnded)] == [
        "its lead took it back before it was typed"
    ] * 2


def test_an_interrupt_at_the_gate_lets_the_next_send_try_and_one_under_the_keys_takes_the_prompt_back() -> None:
    bench = Left()
    bench.tell(Observed(frame("idle")), Deliver("t-1", "p", S), Deliver("t-2", "p", S))
    assert bench.tell(Interrupt()) == ("t-1",)
    assert [check.id for check in bench.gate.only(GateCheck)] == ["t-1", "t-2"]
    bench.tell(GateRead("t-2", {}, {}, True, 0))
    bench.panes.told.clear()
    assert bench.tell(Interrupt()) == ("t-2",)
    assert bench.panes.told == [Withdraw(PANE, "t-2")]
    # It came too late: what has been typed after all is stopped, and nobody is told that it runs.
    bench.tell(PromptTyped("t-2", Typed(Sent("p", BEFORE), 0)))
    assert bench.panes.told[1:] == [Watch(PANE, bench.resolver), PressKeys(PANE, ("Escape",))]
    assert Progress("t-2", Phase.RUNNING) not in bench.outlet.told
    assert bench.timers == []


def test_an_interrupt_of_a_turn_that_was_answered_ends_no_send_and_stops_the_program() -> None:
    bench = Left(interrupt_keys=("C-c", "C-c"))
    bench.runs()
    bench.clock.ns = 103 * S
    bench.tell(MemberReply("mine"))
    assert bench.tell(Interrupt()) == ()
    assert bench.panes.told[-1] == PressKeys(PANE, ("C-c", "C-c"))
    assert (bench.outcome.status, bench.outcome.turn_ns) == (Status.COMPLETED, 3 * S)


def test_an_interrupt_says_who_stopped_the_turn_and_how_long_it_ran() -> None:
    bench = Left()
    bench.runs()
    bench.clock.ns = 104 * S
    bench.tell(Interrupt())
    assert (bench.outcome.reason, bench.outcome.turn_ns) == ("its lead stopped the turn", 4 * S)


def test_a_time_out_says_how_long_it_waited() -> None:
    bench = Left()
    bench.runs()
    bench.tell(TimedOut("t-1"))
    assert bench.outcome.reason == "no end of the turn within 9 s; the member may still be working"
    assert bench.outcome.turn_ns == 9 * S
    bench.tell(
        MemberReply("late"),
    )
    assert bench.outlet.only(LateReply) == [LateReply("m-1", "t-1", "late")]
    with pytest.raises(NoOpenTurn):
        bench.tell(MemberReply("later still"))
    bench.tell(Signal(What.BEGAN, text="the prompt"), Signal(What.ENDED, text="and again"))
    assert len(bench.outlet.only(LateReply)) == 1


async def test_a_turn_that_has_ended_leaves_no_deadline_running() -> None:
    bench = Left()
    bench.runs()
    assert not bench.deadline.cancel_called
    bench.tell(MemberReply("mine"))
    assert bench.deadline.cancel_called


def test_a_death_says_whether_a_turn_ran_and_refuses_what_had_not_begun() -> None:
    died = PaneDied(PaneEnded(PANE, status=3))
    for prepare, status, reason in (
        (Left.runs, Status.FAILED, "its process exited with status 3, in mid-turn"),
        (Left.to_typing, Status.FAILED, "its process exited with status 3, in mid-turn"),
    ):
        bench = Left()
        prepare(bench)
        bench.clock.ns = 105 * S
        bench.panes.told.clear()
        bench.tell(died)
        assert (bench.outcome.status, bench.outcome.reason) == (status, reason)
        assert bench.outcome.turn_ns == (5 * S if prepare is Left.runs else 0)
        assert bench.panes.told[-1] == Unwatch(PANE)
        assert bench.outlet.only(ProcessGone) == [ProcessGone("m-1", "its process exited with status 3")]
        bench.tell(died)
        assert bench.tell(Examine(frame("idle"))).lost_races["death"] == 1
        assert len(bench.outlet.only(ProcessGone)) == 1
    bench = Left()
    bench.tell(Observed(frame("idle")), Deliver("t-1", "p", S), Deliver("t-2", "p", S))
    bench.panes.told.clear()
    bench.tell(died)
    assert bench.panes.told == [Unwatch(PANE)]
    assert [(end.ticket, end.outcome.reason) for end in bench.outlet.only(TurnEnded)] == [
        ("t-1", "member m-1 is gone: its process exited with status 3"),
        ("t-2", "member m-1 takes no prompt: its process exited with status 3"),
    ]


def test_a_release_says_what_it_ended_and_ends_the_resolver() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Deliver("t-2", "p", S))
    bench.clock.ns = 105 * S
    bench.tell(Release())
    assert [(end.ticket, end.outcome.reason, end.outcome.turn_ns) for end in bench.outlet.only(TurnEnded)] == [
        ("t-1", "the member was released", 5 * S),
        ("t-2", "the member was released before it was typed", 0),
    ]
    assert bench.panes.told[-1] == Unwatch(PANE)
    assert bench.resolver._stopped
    assert repr(bench.resolver) == "<Resolver m-1: no turn, 0 waiting, closed: it was released>"


def test_a_failed_turn_closes_the_member_and_leaves_its_pane_alone() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Deliver("t-2", "p", S))
    bench.shows("idle", "* backend down", at_s=105)
    bench.shows("idle", "* backend down", at_s=105.5)
    first, second = bench.outlet.only(TurnEnded)
    assert (first.target, first.ticket, first.at_ns) == ("m-1", "t-1", 105_500_000_000)
    assert second.outcome.reason == (
        "member m-1 takes no prompt: its turn ended backend_error; release it and spawn another"
    )
    assert bench.panes.told[-1] == Unwatch(PANE)
    assert TurnDone("m-1") not in bench.outlet.told


# -- dialogs, retries and what the program says ------------------------------------------------------------------------


def test_a_dialog_that_is_over_when_the_turn_ends_leaves_nothing_behind() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Signal(What.BEGAN, text="the prompt"), Signal(What.WAITING))
    bench.shows("idle", "* not drawn yet", at_s=101)
    assert Unblocked("m-1") not in bench.outlet.told
    bench.shows("blocked", "?", at_s=102)
    bench.shows("idle", "* gone", at_s=103)
    assert [type(told) for told in bench.outlet.told if isinstance(told, Blocked | Unblocked)] == [Blocked, Unblocked]
    bench.tell(Signal(What.WAITING), Signal(What.WORKING), Signal(What.WORKING))
    kinds = [type(told) for told in bench.outlet.told if isinstance(told, Blocked | Unblocked)]
    assert kinds == [Blocked, Unblocked, Blocked, Unblocked]
    # One that was seen to go says nothing of the next, which is not drawn yet.
    bench.shows("blocked", "?", at_s=103.1)
    bench.shows("idle", "* gone", at_s=103.2)
    bench.tell(Signal(What.WAITING))
    bench.shows("idle", "* still not drawn", at_s=103.3)
    assert bench.outlet.told[-1] == Blocked("m-1")


def test_a_dialog_at_the_start_is_shown_and_forgotten_with_the_first_open_line() -> None:
    bench = Left()
    bench.shows("busy", "loading", at_s=100)
    assert bench.outlet.told == []
    bench.shows("blocked", "trust?", at_s=101)
    bench.shows("blocked", "trust?", at_s=102)
    bench.shows("unknown", "welcome", at_s=103)
    bench.shows("unknown", "welcome", at_s=105.9)
    assert bench.outlet.told == [Blocked("m-1")]
    bench.shows("unknown", "welcome", at_s=106)
    assert bench.outlet.told == [Blocked("m-1"), Ready("m-1")]


def test_retries_are_told_when_they_begin_count_up_and_end() -> None:
    bench = Left()
    bench.runs()
    bench.shows("busy", "wait 5", at_s=101)
    bench.shows("busy", "wait 6", at_s=102)
    bench.shows("busy", "x", at_s=111.9)
    assert bench.outlet.only(RetryNoted) == [RetryNoted("m-1", Retrying(1, "wait 5", 5), 101 * S)]
    bench.shows("busy", "x", at_s=112)
    assert bench.outlet.only(RetryNoted)[1:] == [RetryNoted("m-1", None, 101 * S)]
    bench.shows("busy", "wait 5", at_s=120)
    assert bench.outlet.only(RetryNoted)[2:] == [RetryNoted("m-1", Retrying(1, "wait 5", 5), 120 * S)]


def test_a_program_that_only_waits_for_its_quota_is_exhausted() -> None:
    bench = Left()
    bench.runs()
    bench.shows("busy", "wait 7200", at_s=101)
    assert (bench.outcome.status, bench.outcome.resets_in_ns) == (Status.EXHAUSTED, 7200 * S)
    assert bench.outcome.turn_ns == S
    # Not one that had its answer already.
    bench = Left()
    bench.runs()
    bench.tell(MemberReply("mine"))
    bench.shows("busy", "wait 7200", at_s=101)
    assert bench.outcome.status is Status.COMPLETED


def test_a_retry_that_the_program_reports_is_told_and_may_end_the_turn() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Signal(What.BEGAN, text="the prompt"))
    bench.tell(Signal(What.RETRYING, text=" again \x1b", attempt=2, wait_s=4))
    assert bench.outlet.only(RetryNoted) == [RetryNoted("m-1", Retrying(2, "again", 4), 100 * S)]
    bench.tell(Signal(What.RETRYING, text="in hours", attempt=2, wait_s=4000, pattern="usage_limit"))
    assert (bench.outcome.status, bench.outcome.resets_in_ns) == (Status.EXHAUSTED, 4000 * S)
    assert (bench.outcome.pattern, bench.outcome.source) == ("usage_limit", Source.HOOK)


def test_a_turn_that_the_program_reports_ends_as_it_says() -> None:
    for kind, status, reason in (
        (Kind.AUTH, Status.FAILED, "its words"),
        (Kind.BACKEND_ERROR, Status.BACKEND_ERROR, "its words"),
        (Kind.EXHAUSTED, Status.EXHAUSTED, "its words"),
    ):
        bench = Left()
        bench.runs()
        bench.clock.ns = 104 * S
        bench.tell(Signal(What.BEGAN, turn="a", text="the prompt"))
        bench.tell(Signal(What.FAILED, turn="a", text=" its \n words ", kind=kind, source=Source.TRANSCRIPT))
        assert (bench.outcome.status, bench.outcome.reason, bench.outcome.text) == (status, reason, "")
        assert (bench.outcome.turn_ns, bench.outcome.source) == (4 * S, Source.TRANSCRIPT)
        assert not bench.outcome.truncated
    for pattern, reason in (("stop:500", "the program reported stop:500"), ("", "the program reported failed")):
        bench = Left()
        bench.runs()
        bench.tell(Signal(What.FAILED, pattern=pattern))
        assert bench.outcome.reason == reason


def test_an_end_that_is_reported_of_a_turn_that_was_answered_comes_second() -> None:
    bench = Left()
    bench.runs()
    bench.tell(MemberReply("mine"), Signal(What.ENDED, text="its own"))
    assert bench.outcome.text == "mine"
    assert bench.tell(Examine(frame("idle"))).lost_races == {"signal": 1}
    assert bench.outlet.told[-1] == TurnDone("m-1")


def test_a_report_of_another_turn_is_a_strangers_until_its_end() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Signal(What.BEGAN, turn="other", text="a person's words"))
    bench.tell(Signal(What.ENDED, turn="other", text="not ours"))
    assert bench.outlet.only(TurnEnded) == []
    bench.tell(Signal(What.BEGAN, turn="a", text="the prompt"), Signal(What.BEGAN, turn="a", text="the prompt"))
    bench.tell(Signal(What.BEGAN, turn="b", text="the prompt"), Signal(What.ENDED, turn="b", text="not ours"))
    assert bench.outlet.only(TurnEnded) == []
    assert bench.tell(Examine(frame("idle"))).lost_races == {"signal": 4}
    bench.tell(Signal(What.ENDED, turn="never announced", text="not ours"))
    assert bench.tell(Examine(frame("idle"))).lost_races == {"signal": 5}
    bench.tell(Signal(What.ENDED, turn="a", text="ours"))
    assert bench.outcome.text == "ours"


def test_a_start_is_confirmed_only_while_the_prompt_is_typed() -> None:
    bench = Left()
    bench.to_typing()
    bench.tell(Signal(What.ENDED, text="of something before"))
    assert bench.outlet.only(TurnEnded) == []
    assert bench.tell(Examine(frame("idle"))).lost_races == {"signal": 1}
    bench.tell(Signal(What.BEGAN, text="the prompt"))
    assert bench.panes.told[-1] == Confirm(PANE, "t-1")
    bench.tell(PromptTyped("t-1", Typed(Sent("the prompt", BEFORE), 0)))
    asked = len(bench.panes.only(Confirm))
    bench.tell(Signal(What.BEGAN, text="the prompt"))
    assert len(bench.panes.only(Confirm)) == asked


def test_a_screen_at_rest_waits_a_second_and_a_half_for_the_programs_own_word() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Signal(What.BEGAN, text="the prompt"))
    for at_s in (105, 105.5, 106, 106.9):
        bench.shows("idle", "* fine", at_s=at_s)
    assert bench.outlet.only(TurnEnded) == []
    # Rest that is interrupted counts anew.
    bench.shows("busy", "* fine", at_s=107)
    for at_s in (108, 108.5, 109, 109.9):
        bench.shows("idle", "* fine", at_s=at_s)
    assert bench.outlet.only(TurnEnded) == []
    bench.shows("idle", "* fine", at_s=110)
    assert (bench.outcome.text, bench.outcome.turn_ns) == ("fine", 8 * S)


def test_a_frame_is_explained_as_the_resolver_reads_it() -> None:
    bench = Left(wall=lambda: datetime(2026, 11, 30, 12, tzinfo=UTC))
    seen: Examination = bench.tell(Examine(frame("idle", "* quota is used up, resets in 2 hours")))
    assert (seen.target, seen.ticket, seen.phase, seen.lost_races) == ("m-1", None, None, {})
    assert (seen.verdict.kind, seen.verdict.resets_in_ns) == (Kind.EXHAUSTED, 7200 * S)
    bench.runs()
    seen = bench.tell(Examine(frame("idle", "before")))
    assert (seen.ticket, seen.phase, seen.verdict.kind) == ("t-1", Phase.RUNNING, Kind.COMPLETED)
    assert bench.tell(Examine(frame("busy", "wait 7200"))).verdict.kind is Kind.EXHAUSTED


def test_its_repr_says_where_its_turn_is() -> None:
    bench = Left()
    assert repr(bench.resolver) == "<Resolver m-1: no turn, 0 waiting>"
    bench.runs()
    bench.tell(Deliver("t-2", "p", S), MemberReply("mine"))
    assert repr(bench.resolver) == "<Resolver m-1: t-1 running settled, 1 waiting>"


# -- the tracker -------------------------------------------------------------------------------------------------------


def test_rest_is_settled_after_half_a_second_and_measured_to_its_first_frame() -> None:
    assert SETTLE_NS == S // 2
    tracker = TurnTracker(Sent("p", BEFORE))
    read = TableGrammar().read

    def note(*lines: str, at_s: float) -> int | None:
        shown = frame(*lines, at_s=at_s)
        return tracker.note(shown, read(shown))

    assert note("idle", "before", at_s=2) is None
    assert note("idle", "before", at_s=9) is None
    assert note("idle", "* a", at_s=10) is None
    assert note("idle", "* a", at_s=10.499) is None
    assert note("idle", "* a", at_s=10.5) == 10 * S
    assert note("idle", "* b", at_s=11) is None
    assert note("idle", "* b", at_s=11.5) == 11 * S
    tracker.unsettle()
    assert note("idle", "* b", at_s=12) is None
    assert note("blocked", "* b", at_s=12.2) is None
    assert note("idle", "* b", at_s=12.5) is None
    assert not tracker.seen_busy
    assert note("busy", "* b", at_s=13) is None
    assert tracker.seen_busy
    # After a busy screen, also the screen from before the prompt is an end.
    assert note("idle", "before", at_s=14) is None
    assert note("idle", "before", at_s=14.5) == 14 * S


def test_two_drafts_are_two_rests() -> None:
    tracker = TurnTracker(Sent("p", BEFORE))

    def note(draft: str, at_s: float) -> int | None:
        return tracker.note(frame("x", at_s=at_s), Reading(State.IDLE, scope=("x",), draft=draft))

    assert note("", 10) is None
    assert note("a person", 10.5) is None
    assert note("a person", 11) == round(10.5 * S)


def test_a_turn_that_was_over_before_its_enter_was_noted_took_no_time() -> None:
    bench = Left()
    bench.to_typing()
    bench.tell(PromptTyped("t-1", Typed(Sent("the prompt", BEFORE), 105 * S)))
    for at_s in (103, 103.5):
        bench.shows("idle", "* fine", at_s=at_s)
    assert (bench.outcome.status, bench.outcome.turn_ns) == (Status.FAILED, 0)


def test_a_rest_on_the_screen_from_before_the_prompt_is_none_and_the_next_is_measured_anew() -> None:
    bench = Left()
    bench.runs()
    bench.shows("busy", "x", at_s=101)
    for at_s in (102, 102.5):
        bench.shows(*BEFORE.lines, at_s=at_s)
    # The same scope on another screen.
    bench.shows("rest", "before", at_s=103)
    assert bench.outlet.only(TurnEnded) == []
    bench.shows("rest", "before", at_s=103.5)
    assert bench.outcome.turn_ns == 3 * S


# -- odds and ends -----------------------------------------------------------------------------------------------------


def test_a_resolver_that_was_given_no_address_has_one_of_its_own() -> None:
    gate, panes = Recorder(), Recorder()
    resolver = Resolver("m-1", Setup(TableGrammar()), gate=gate, panes=panes)
    driven(resolver, Clock())
    resolver.handle(Observed(frame("idle")))
    resolver.handle(Deliver("t-1", "p", S))
    assert gate.told == [GateCheck("t-1", ("",), resolver)]
    assert panes.told == [Unwatch(PaneRef("none", "m-1"))]
    assert NoOpenTurn.error == "no_open_turn"


def test_a_report_that_names_a_turn_is_of_ours_where_the_program_has_announced_none() -> None:
    bench = Left()
    bench.runs()
    bench.tell(Signal(What.ENDED, turn="a", text="ours"))
    assert bench.outcome.text == "ours"


@pytest.mark.parametrize(("shown", "ours"), [(64, True), (63, False), (100, True)])
def test_the_first_sixty_four_letters_tell_whose_prompt_it_is(shown: int, ours: bool) -> None:
    prompt = "".join(chr(ord("a") + number % 26) + str(number) for number in range(60))[:100]
    bench = Left()
    bench.tell(Observed(frame("idle", at_s=99)), Deliver("t-1", prompt, 9 * S), GateRead("t-1", {}, {}, True, 0))
    bench.tell(Signal(What.BEGAN, text=prompt[:shown]))
    assert bool(bench.panes.only(Confirm)) is ours


def test_a_dialog_that_a_resumed_turn_has_announced_is_there_until_it_was_seen_to_go() -> None:
    bench = Left(Resumed(TURN))
    bench.tell(Signal(What.WAITING))
    bench.shows("idle", "echo", "* not drawn yet", at_s=101)
    assert bench.outlet.told == [Blocked("m-1")]


def test_an_enter_of_another_send_opens_no_turn() -> None:
    bench = Left()
    bench.to_typing()
    bench.tell(Entering("t-9"))
    with pytest.raises(NoOpenTurn):
        bench.tell(MemberReply("x"))
    Left().tell(Entering("t-9"))


def test_only_an_open_turn_that_was_resumed_gets_the_rest_of_its_time() -> None:
    bench = Left(Resumed(TURN))
    bench.tell(StartTimer("t-9", S))
    assert bench.timers == []
    bench.tell(MemberReply("here"), StartTimer("t-1", S))
    assert bench.timers == []
    idle = Left()
    idle.tell(StartTimer("t-1", S))
    assert idle.timers == []
