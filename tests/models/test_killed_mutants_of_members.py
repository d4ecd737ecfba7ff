"""What mutation testing found that no other test of roster and resolver noticed; see ``bench/mutants.md``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import actors.member as member_module
import actors.roster as roster_module
from actors.actor import Message
from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.journal import NotRecorded, Recorded
from actors.leads import Unattributable
from actors.member import (
    BackendFailed,
    Blocked,
    Delivered,
    Exhausted,
    Identity,
    MemberOver,
    MemberState,
    ProcessGone,
    Ready,
    Released,
    RetryNoted,
    SendsLost,
    TurnDone,
    TurnFailed,
    Unblocked,
    step,
)
from actors.panes import ClosePane, PaneClosed, Unbind
from actors.resolver import Resolver
from actors.roster import Find, Members, MemberUp, ReleaseMember, ResolverDown, Roster, Route, UnknownMember
from actors.row import MemberView, StateLeft
from actors.screen import Retrying
from actors.sends import Deliver
from actors.setup import Setup
from actors.turn import Failure, Outcome, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven
from tests.models.asks import answer, refusal
from tests.models.senders import Disk, result

S = NS_PER_S
PANE = PaneRef("memory", "%1")


class Members1:
    """A roster with a disk, and one member."""

    def __init__(self, left: StateLeft | None = None) -> None:
        names = ("policy", "quarantine", "leads", "mail", "questions", "launcher", "panes")
        self.out = {name: Recorder(name) for name in names}
        self.disk, self.clock = Disk(), Clock(7)
        self.roster = Roster(**self.out, journal=self.disk)
        driven(self.roster, self.clock)
        self.up("m-1", "parser", PANE, left)

    def up(self, target: str, name: str, pane: PaneRef, left: StateLeft | None = None) -> None:
        identity = Identity(target, name, "p", "c", "lead-1", pane)
        self.roster._step(MemberUp(identity, Resolver(target, Setup(TableGrammar())), left))

    def tell(self, *messages: Message) -> None:
        for message in messages:
            self.roster._step(message)

    @property
    def view(self) -> MemberView:
        found: MemberView = answer(self.roster, Find("m-1"))
        return found

    def kept(self) -> StateLeft | None:
        """The member's state as a daemon would find it after a crash."""
        self.disk._next()
        body = self.disk.body("state", "m-1")
        return None if body is None else msgspec.json.decode(body, type=StateLeft)


def test_each_state_that_a_member_enters_is_written_down_with_its_reason() -> None:
    bench = Members1()
    assert bench.kept() is None
    bench.tell(Ready("m-1"))
    assert bench.kept() == StateLeft(MemberState.IDLE)
    bench.tell(Delivered("m-1"), ProcessGone("m-1", "it exited"))
    assert bench.kept() == StateLeft(MemberState.LOST, "it exited")


def test_what_a_turn_failed_of_is_shown_and_written_down() -> None:
    bench = Members1()
    outcome = Outcome(Status.FAILED, reason="401", failure=Failure.AUTH)
    bench.tell(Delivered("m-1"), TurnEnded("m-1", "t-1", outcome, 0))
    assert (bench.view.state, bench.view.failure) == (MemberState.FAILED, Failure.AUTH)
    assert bench.kept() == StateLeft(MemberState.FAILED, "401", Failure.AUTH)
    # A second failure changes nothing of the first, and its result goes on.
    bench.tell(TurnEnded("m-9", "t-2", outcome, 0))
    assert [turn.ticket for turn in bench.out["mail"].only(TurnEnded)] == ["t-1", "t-2"]


def test_a_member_that_is_taken_over_has_the_state_that_it_was_left_in() -> None:
    left = StateLeft(MemberState.FAILED, "401", Failure.AUTH)
    bench = Members1(left)
    assert (bench.view.state, bench.view.reason, bench.view.failure) == (left.state, left.reason, left.failure)
    assert bench.kept() == left


def test_a_release_is_answered_once_it_is_written_down_and_forgotten_once_the_pane_is_closed() -> None:
    bench, ask = Members1(), ReleaseMember("parser")
    bench.tell(ask)
    assert result(ask) is None
    recorded = bench.disk.safe()
    assert isinstance(recorded, Recorded)
    assert bench.kept() == StateLeft(MemberState.RELEASED)
    bench.tell(recorded)
    assert result(ask) == "m-1"
    bench.disk.kept["member", "m-1"] = b"as the launcher wrote it"
    bench.tell(PaneClosed(PANE))
    assert bench.kept() is None
    assert bench.disk.body("member", "m-1") is None
    assert bench.out["panes"].only(Unbind) == [Unbind(PANE)]


def test_a_release_that_the_disk_refuses_is_one_all_the_same_and_the_disk_is_told_again() -> None:
    bench, ask = Members1(), ReleaseMember("m-1")
    bench.tell(ask)
    refused = bench.disk.full()
    assert isinstance(refused, NotRecorded)
    bench.tell(refused)
    assert result(ask) == "m-1"
    assert bench.kept() == StateLeft(MemberState.RELEASED)


def test_a_pane_that_nobody_is_released_from_frees_no_place() -> None:
    bench = Members1()
    bench.tell(PaneClosed(PANE))
    assert bench.out["launcher"].told == []
    assert bench.out["panes"].told == [Unbind(PANE)]


def test_retrying_is_shown_while_the_turn_lasts() -> None:
    bench, note = Members1(), RetryNoted("m-1", Retrying(2, "retrying"), 5)
    bench.tell(Delivered("m-1"), note)
    assert bench.view.retry == note
    bench.tell(Blocked("m-1"), Unblocked("m-1"))
    assert bench.view.retry == note
    bench.tell(RetryNoted("m-1", None, 5))
    assert bench.view.retry is None
    bench.tell(note, TurnDone("m-1"))
    assert bench.view.retry is None
    bench.tell(RetryNoted("m-9", Retrying(2, "retrying"), 5))
    assert len(answer(bench.roster, Members())) == 1


def test_a_state_counts_from_when_it_was_entered() -> None:
    bench = Members1()
    assert bench.view.since_ns == 7
    bench.clock.ns = 9
    bench.tell(Ready("m-1"))
    assert bench.view.since_ns == 9
    bench.clock.ns = 11
    bench.tell(Ready("m-1"))
    assert bench.view.since_ns == 9


def test_who_is_over_has_no_open_questions_and_is_terminal() -> None:
    bench = Members1()
    bench.tell(Ready("m-1"))
    assert bench.out["questions"].told == []
    assert not bench.view.terminal
    bench.tell(BackendFailed("m-1", "529"))
    assert bench.out["questions"].told == [MemberOver("m-1", "member m-1 is backend_error")]
    assert bench.view.terminal


def test_members_are_listed_oldest_first_and_the_released_before_them() -> None:
    bench = Members1()
    bench.up("m-2", "lexer", PaneRef("memory", "%2"))
    bench.tell(ReleaseMember("m-1"))
    listed = [view.identity.target for view in answer(bench.roster, Members())]
    assert listed == ["m-2"]
    both = [view.identity.target for view in answer(bench.roster, Members(released=True))]
    assert both == ["m-1", "m-2"]


def test_so_many_released_members_are_remembered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert roster_module.TOMBSTONES == 256
    monkeypatch.setattr(roster_module, "TOMBSTONES", 2)
    bench = Members1()
    for number in (2, 3, 4):
        bench.up(f"m-{number}", f"n-{number}", PaneRef("memory", f"%{number}"))
    for number in (2, 3, 4):
        bench.tell(ReleaseMember(f"m-{number}"))
    both = [view.identity.target for view in answer(bench.roster, Members(released=True))]
    assert both == ["m-3", "m-4", "m-1"]


def test_a_refused_delivery_says_why() -> None:
    def reasons(bench: Members1) -> list[str]:
        return [turn.outcome.reason for turn in bench.out["mail"].only(TurnEnded)]

    bench = Members1()
    bench.tell(
        Route("m-9", Deliver("t-1", "p", S)), TurnFailed("m-1", "it broke"), Route("m-1", Deliver("t-2", "p", S))
    )
    assert reasons(bench) == [
        "no member m-9: it was released or never existed",
        "member m-1 is failed (it broke): release it and spawn another",
    ]
    bench = Members1()
    bench.tell(TurnFailed("m-1"), Route("m-1", Deliver("t-1", "p", S)))
    assert reasons(bench) == ["member m-1 is failed: release it and spawn another"]
    bench = Members1()
    bench.roster._members["m-1"].resolver._dismiss(None)
    bench.tell(Route("m-1", Deliver("t-1", "p", S)))
    assert reasons(bench) == ["member m-1 has just failed: release it and spawn another"]


def test_a_crashed_resolver_says_what_it_was() -> None:
    bench = Members1()
    bench.tell(ResolverDown("m-1", "KeyError: 'x'"))
    assert bench.view.reason == "internal error: KeyError: 'x'"
    assert bench.out["mail"].told == [SendsLost("m-1", "its turns have no judge any more: KeyError: 'x'")]


def test_a_name_that_nobody_has_is_refused_with_those_there_are_or_none() -> None:
    bench = Members1()
    bench.up("m-2", "lexer", PaneRef("memory", "%2"))
    no = refusal(bench.roster, Find("nobody"))
    assert isinstance(no, UnknownMember)
    assert (no.error, str(no)) == ("unknown_member", "no member is called nobody; there are: m-1, m-2")
    bench.tell(ReleaseMember("m-1"), ReleaseMember("m-2"))
    assert str(refusal(bench.roster, Find("m-1"))) == "no member is called m-1; there are: none"


def test_a_released_member_that_fails_is_no_evidence_and_nobody_is_told_that_it_is_unknown() -> None:
    bench = Members1()
    bench.tell(ReleaseMember("m-1"))
    for status in (Status.BACKEND_ERROR, Status.EXHAUSTED):
        turn = TurnEnded("m-1", f"t-{status}", Outcome(status, reason="529"), 0)
        bench.tell(turn)
        assert bench.out["mail"].told[-1] == turn
    for name in ("policy", "quarantine"):
        assert bench.out[name].told == []
    assert bench.out["leads"].only(Unattributable) == []
    assert bench.out["panes"].only(ClosePane) == [ClosePane(PANE, bench.roster)]


def test_evidence_is_of_the_member_and_its_send() -> None:
    bench = Members1()
    turn = TurnEnded("m-1", "t-1", Outcome(Status.BACKEND_ERROR, reason="529"), 5)
    bench.tell(turn)
    (seen,) = bench.out["policy"].told
    found: Any = seen
    assert found.turn == turn
    assert msgspec.structs.astuple(found.evidence) == ("c", "m-1", "t-1", "p", "lead-1", 5)
    # A member that has failed already is charged with nothing more, and it is no stranger.
    bench.tell(turn)
    assert len(bench.out["policy"].told) == 1
    assert bench.out["leads"].told == []


#: What each event makes of each state; a dash where it is refused.
TABLE = """
              Ready  Delivered  Blocked  Unblocked  TurnDone       TurnFailed  BackendFailed  Exhausted  ProcessGone
starting      idle   busy       blocked  -          -              failed      backend_error  exhausted  lost
idle          idle   busy       blocked  -          done           failed      backend_error  exhausted  lost
busy          -      busy       blocked  busy       done           failed      backend_error  exhausted  lost
blocked       idle   busy       blocked  busy       done           failed      backend_error  exhausted  lost
done          -      busy       blocked  -          done           failed      backend_error  exhausted  lost
failed        -      -          -        -          failed         failed      -              -          failed
backend_error -      -          -        -          backend_error  -           -              -          backend_error
exhausted     -      -          -        -          exhausted      -           -              -          exhausted
lost          -      -          -        -          -              -           -              -          lost
"""


def test_each_event_makes_of_each_state_what_the_table_says() -> None:
    events, *rows = (line.split() for line in TABLE.strip().splitlines())
    kinds = [getattr(member_module, name) for name in events]
    for state, *afters in rows:
        found = [step(MemberState(state), kind("m-1")) or "-" for kind in kinds]
        assert (state, *map(str, found)) == (state, *afters)
        assert step(MemberState(state), Released("m-1")) is MemberState.RELEASED
    assert all(step(MemberState.RELEASED, kind("m-1")) is None for kind in (*kinds, Released))


def test_an_event_without_a_reason_gives_none() -> None:
    for kind in (TurnFailed, BackendFailed, Exhausted, ProcessGone):
        assert kind("m-1").reason == ""


def test_its_repr_counts_the_members_by_their_state() -> None:
    bench = Members1()
    bench.up("m-2", "lexer", PaneRef("memory", "%2"))
    bench.up("m-3", "linker", PaneRef("memory", "%3"))
    bench.tell(Ready("m-3"))
    assert repr(bench.roster) == "<Roster 1 idle, 2 starting>"
