"""What mutation testing found that no other test of the resolver noticed; see ``bench/mutants.md``."""

from __future__ import annotations

import msgspec
import pytest
import trio

from actors.gate import GateCheck, GateRead
from actors.inject import Typed
from actors.member import Blocked, Delivered, Ready, TurnDone
from actors.openturn import Resumed, TypedTurn
from actors.panes import (
    Bind,
    Observed,
    PromptNotTyped,
    PromptTyped,
    TypePrompt,
    Watch,
)
from actors.screen import Sent
from actors.sends import Deliver, Entering, Examine, HoldOver, Interrupt, MemberReply, NoOpenTurn, TimedOut
from actors.signal import Signal, What
from actors.turn import Phase, Progress, Status, TurnEnded
from tests.actors.bench import S
from tests.actors.recorders import frame
from tests.models.left import BEFORE, PANE, TURN, Left
from tests.models.senders import at_once

# -- what an earlier daemon left ---------------------------------------------------------------------------------------


def test_a_turn_is_written_down_before_its_first_character_and_again_when_it_is_entered() -> None:
    bench = Left()
    job = bench.to_typing()
    assert job.commit is not None
    at_once(job.commit(Sent("Task: the prompt", BEFORE)))  # type: ignore[arg-type]
    bench.disk.safe()
    kept = msgspec.json.decode(bench.disk.body("turn", "t-1") or b"", type=TypedTurn)
    assert kept == TypedTurn("t-1", "m-1", "Task: the prompt", 9 * S, BEFORE.lines, BEFORE.width, 100 * S)
    bench.tell(PromptTyped("t-1", Typed(Sent("Task: the prompt", BEFORE), 101 * S)))
    bench.disk.safe()
    kept = msgspec.json.decode(bench.disk.body("turn", "t-1") or b"", type=TypedTurn)
    assert kept.began_ns == 101 * S


def test_a_turn_that_was_settled_while_it_was_typed_is_not_written_down_again() -> None:
    bench = Left()
    job = bench.to_typing()
    assert job.commit is not None
    at_once(job.commit(Sent("the prompt", BEFORE)))  # type: ignore[arg-type]
    bench.tell(Interrupt(), PromptTyped("t-1", Typed(Sent("the prompt", BEFORE), 101 * S)))
    bench.disk.safe()
    kept = msgspec.json.decode(bench.disk.body("turn", "t-1") or b"", type=TypedTurn)
    assert kept.began_ns is None


@pytest.mark.parametrize(("turn", "left_s"), [(TURN, 11), (msgspec.structs.replace(TURN, began_ns=None), 10)])
async def test_a_resumed_turn_has_the_rest_of_its_time_from_when_it_began(
    nursery: trio.Nursery, turn: TypedTurn, left_s: int
) -> None:
    bench = Left(Resumed(turn))
    nursery.start_soon(bench.resolver.run)
    await trio.testing.wait_all_tasks_blocked()
    assert bench.timers == [(left_s * S, TimedOut("t-1"))]
    assert bench.panes.told == [Bind(PANE, bench.resolver), Watch(PANE, bench.resolver)]


async def test_a_member_without_a_turn_is_bound_and_watched_and_has_no_deadline(nursery: trio.Nursery) -> None:
    bench = Left()
    nursery.start_soon(bench.resolver.run)
    await trio.testing.wait_all_tasks_blocked()
    assert bench.timers == []
    assert bench.panes.told == [Bind(PANE, bench.resolver), Watch(PANE, bench.resolver)]


def test_a_resumed_turn_is_open_and_takes_its_answer() -> None:
    bench = Left(Resumed(TURN))
    assert repr(bench.resolver) == "<Resolver m-1: t-1 running, 0 waiting>"
    assert bench.tell(MemberReply("here")) == "t-1"
    assert (bench.outcome.status, bench.outcome.turn_ns) == (Status.COMPLETED, 39 * S)
    bench.tell(Deliver("t-2", "next", S))
    assert bench.gate.told == []


def test_a_resumed_turn_that_ended_meanwhile_is_judged_by_its_screen() -> None:
    bench = Left(Resumed(TURN))
    for at_s in (101, 101.5):
        bench.shows("idle", "echo", "* the answer", at_s=at_s)
    assert (bench.outcome.status, bench.outcome.text) == (Status.COMPLETED, "the answer")
    assert bench.outlet.told[-1] == TurnDone("m-1")
    # The next prompt of ours finds the old one, where it was left in the line.
    bench.tell(Deliver("t-2", "next", S), GateRead("t-2", {}, {}, True, 0))
    assert bench.panes.only(TypePrompt)[-1].leftover == "the prompt"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        (
            ("idle", "> the pro"),
            "fleetd ended while it typed this prompt, which stands in the input line and was not submitted",
        ),
        (BEFORE.lines, "fleetd ended while it typed this prompt, and nothing shows that it arrived"),
        (("idle", "* x"), "fleetd was away when this turn ended, and its prompt is no longer on the screen"),
    ],
)
def test_a_resumed_turn_whose_end_nobody_can_know_is_lost(lines: tuple[str, ...], why: str) -> None:
    bench = Left(Resumed(TURN))
    bench.shows(*lines, at_s=101)
    bench.shows("busy", "x", at_s=102)
    assert bench.outlet.only(TurnEnded) == []
    for at_s in (103, 103.5, 106):
        bench.shows(*lines, at_s=at_s)
    assert (bench.outcome.status, bench.outcome.reason) == (Status.LOST, why)
    assert bench.outcome.turn_ns == 42_500_000_000
    assert bench.outlet.told[-1] == TurnDone("m-1")
    assert bench.outlet.told.count(TurnDone("m-1")) == 1


def test_a_resumed_turn_that_left_no_mark_is_lost_when_its_screen_has_stood_for_three_seconds() -> None:
    bench = Left(Resumed(TURN))
    bench.shows(*BEFORE.lines, at_s=101)
    bench.shows(*BEFORE.lines, at_s=103.9)
    assert bench.outlet.told == []
    bench.shows(*BEFORE.lines, at_s=104)
    assert bench.outcome.status is Status.LOST


def test_a_resumed_turn_that_a_person_must_answer_is_not_lost() -> None:
    bench = Left(Resumed(TURN))
    for at_s in (101, 105, 109):
        bench.shows("blocked", "allow?", at_s=at_s)
    assert bench.outlet.told == [Blocked("m-1")]


def test_a_resumed_turn_that_was_answered_is_over_when_its_screen_rests_whatever_it_shows() -> None:
    bench = Left(Resumed(TURN))
    bench.tell(MemberReply("here"))
    for at_s in (101, 101.5):
        bench.shows("idle", "* x", at_s=at_s)
    assert bench.outcome.status is Status.COMPLETED
    assert bench.outlet.told[-1] == TurnDone("m-1")


def test_a_member_whose_turn_drains_is_done_and_not_ready_when_it_comes_to_rest() -> None:
    bench = Left(Resumed(draining=True))
    bench.tell(Deliver("t-2", "next", S))
    assert bench.gate.told == []
    bench.shows("idle", at_s=101)
    assert TurnDone("m-1") in bench.outlet.told
    assert Ready("m-1") not in bench.outlet.told
    assert [check.id for check in bench.gate.only(GateCheck)] == ["t-2"]


def test_a_member_that_was_ready_takes_prompts_at_once_and_one_that_was_not_waits_for_its_line() -> None:
    ready, starting = Left(Resumed()), Left(Resumed(ready=False))
    for bench in (ready, starting):
        bench.tell(Deliver("t-2", "next", S))
    assert len(ready.gate.told) == 1
    assert starting.gate.told == []
    starting.shows("idle", at_s=101)
    assert Ready("m-1") in starting.outlet.told


def test_a_member_that_is_over_refuses_and_says_why() -> None:
    bench = Left(Resumed(closed="it is lost"))
    bench.tell(Deliver("t-2", "next", S))
    assert (bench.outcome.status, bench.outcome.reason) == (Status.REFUSED, "member m-1 takes no prompt: it is lost")


# -- to the pane -------------------------------------------------------------------------------------------------------


def test_a_prompt_is_typed_as_its_profile_says_and_tells_when_it_is_entered() -> None:
    bench = Left()
    job = bench.to_typing()
    assert (job.pane, job.job, job.text, job.back) == (PANE, "t-1", "the prompt", bench.resolver)
    assert (job.own, job.patience_s, job.leftover, job.resume) == (True, 60.0, "", "")
    job.entering()
    assert bench.resolver._receive.receive_nowait() == Entering("t-1")
    assert bench.outlet.told[-2:] == [Progress("t-1", Phase.QUEUED), Progress("t-1", Phase.TYPING)]


def test_a_turn_that_begins_is_told_in_order_and_has_its_time() -> None:
    bench = Left()
    bench.to_typing()
    bench.outlet.told.clear()
    bench.tell(PromptTyped("t-1", Typed(Sent("the prompt", BEFORE), 100 * S)))
    assert bench.outlet.told == [Delivered("m-1"), Progress("t-1", Phase.RUNNING)]
    assert bench.timers == [(9 * S, TimedOut("t-1"))]
    assert bench.panes.told[-1] == Watch(PANE, bench.resolver)


def test_a_send_is_held_until_its_credential_has_cooled_off() -> None:
    bench = Left()
    bench.tell(Observed(frame("idle")), Deliver("t-1", "p", S), GateRead("t-1", {}, {"c": 130 * S}, True, 100 * S))
    assert bench.timers == [(30 * S, HoldOver("t-1"))]
    assert repr(bench.resolver) == "<Resolver m-1: t-1 held, 0 waiting>"
    # A gate that was not asked says nothing, and a hold of another send is none.
    bench.tell(GateRead("t-1", {}, {}, True, 100 * S), HoldOver("t-2"))
    assert bench.panes.only(TypePrompt) == []
    assert len(bench.gate.told) == 1
    bench.tell(HoldOver("t-1"))
    assert repr(bench.resolver) == "<Resolver m-1: t-1 gate, 0 waiting>"
    assert bench.gate.told[-1] == GateCheck("t-1", ("c",), bench.resolver)
    assert bench.tell(Examine(frame("idle"))).lost_races == {"gate": 1}


def test_a_refusal_at_the_gate_lets_the_next_send_try() -> None:
    bench = Left()
    bench.tell(Observed(frame("idle")), Deliver("t-1", "p", S), Deliver("t-2", "p", S))
    bench.tell(GateRead("t-1", {"c": 130 * S}, {}, True, 100 * S))
    assert bench.outcome.reason == "credential c is exhausted (its quota is used up), quarantined for 30 s more"
    assert [check.id for check in bench.gate.only(GateCheck)] == ["t-1", "t-2"]


def test_a_prompt_that_was_not_submitted_says_so_and_of_whom_nobody_knows_too() -> None:
    for unknown, status, doubt in (
        (False, Status.REFUSED, "the prompt was not submitted: why"),
        (True, Status.LOST, "it is not known whether the prompt arrived: why"),
    ):
        bench = Left()
        bench.to_typing()
        bench.tell(PromptNotTyped("t-1", "why", unknown=unknown))
        assert (bench.outcome.status, bench.outcome.reason) == (status, doubt)
        assert repr(bench.resolver) == "<Resolver m-1: no turn, 0 waiting>"


def test_what_comes_second_in_a_race_is_counted_by_what_it_was() -> None:
    bench = Left()
    bench.tell(GateRead("t-9", {}, {}, True, 0), TimedOut("t-9"), Signal(What.WORKING))
    bench.tell(PromptTyped("t-9", Typed(Sent("p", BEFORE), 0)), PromptNotTyped("t-9", "why"))
    with pytest.raises(NoOpenTurn, match="member m-1 has no open turn to answer: it has ended already, or nothing"):
        bench.tell(MemberReply("x"))
    seen = bench.tell(Examine(frame("idle")))
    assert seen.lost_races == dict.fromkeys(("gate", "time-out", "signal", "typed", "not typed", "reply"), 1)
