"""The roster and the table of member states."""

from __future__ import annotations

import logging
from itertools import permutations

import pytest

import actors.roster as roster_module
from actors.actor import LATER, Message
from actors.host import PaneRef
from actors.leads import Notify, Settled, Unattributable
from actors.member import (
    TABLE,
    TERMINAL,
    BackendFailed,
    Blocked,
    Delivered,
    Exhausted,
    Identity,
    MemberEvent,
    MemberState,
    ProcessGone,
    Ready,
    Released,
    SendsLost,
    TurnDone,
    TurnFailed,
    Unblocked,
    step,
)
from actors.nudge import AtDialog
from actors.outage import BackendErrorSeen
from actors.panes import ClosePane, PaneClosed
from actors.quarantine import ExhaustionSeen
from actors.questions import PutQuestion
from actors.resolver import Resolver
from actors.roster import Find, Members, MemberUp, ReleaseMember, ResolverDown, Roster, Route, SlotFreed, UnknownMember
from actors.row import MemberView
from actors.sends import Deliver, Release
from actors.setup import Setup
from actors.turn import LateReply, Outcome, Phase, Progress, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven

ALL_EVENTS: list[type[MemberEvent]] = [
    Ready,
    Delivered,
    Blocked,
    Unblocked,
    TurnDone,
    TurnFailed,
    BackendFailed,
    Exhausted,
    ProcessGone,
    Released,
]


class Bench:
    """A roster between recorders, with one member m-1 on credential c."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.order: list[tuple[str, Message]] = []
        names = ("policy", "quarantine", "leads", "mail", "questions", "launcher", "panes")
        self.out = {name: Recorder(name, self.order) for name in names}
        self.roster = Roster(**self.out)
        driven(self.roster, self.clock)
        self.resolver = Resolver("m-1", Setup(TableGrammar()))
        self.pane = PaneRef("memory", "%1", 100, 7)
        self.tell(MemberUp(Identity("m-1", "parser", "p", "c", "lead-1", self.pane), self.resolver))

    def tell(self, message: Message) -> object:
        return self.roster.handle(message)

    def be(self, *events: MemberEvent) -> None:
        for event in events:
            self.tell(event)

    @property
    def state(self) -> MemberState:
        return self.roster.handle(Find("m-1")).state  # type: ignore[attr-defined,no-any-return]

    @property
    def reason(self) -> str:
        return self.roster.handle(Find("m-1")).reason  # type: ignore[attr-defined,no-any-return]


def ended(status: Status, *, target: str = "m-1", reason: str = "API Error: 529 Overloaded") -> TurnEnded:
    return TurnEnded(target, "t-1", Outcome(status, reason=reason), at_ns=5)


@pytest.fixture
def bench() -> Bench:
    return Bench()


# -- the table ------------------------------------------------------------------------------------------------------


def test_every_state_has_a_row_for_release_but_released() -> None:
    for state, rows in TABLE.items():
        assert (rows.get(Released) is MemberState.RELEASED) == (state is not MemberState.RELEASED)


def test_no_event_brings_a_terminal_member_back_to_work() -> None:
    for state in TERMINAL:
        for kind in ALL_EVENTS:
            after = step(state, kind("m-1"))
            assert after is None or after in TERMINAL


@pytest.mark.parametrize("failure", [TurnFailed, BackendFailed, Exhausted])
def test_a_failure_absorbs_a_normal_end_in_both_orders(failure: type[MemberEvent]) -> None:
    """The table is a join: the end of a turn and its classification lead to one state, whichever comes first."""
    ends = set()
    for order in permutations([TurnDone("m-1"), failure("m-1")]):
        state = MemberState.BUSY
        for event in order:
            state = step(state, event) or state
        ends.add(state)
    assert len(ends) == 1
    assert ends < TERMINAL


# -- the actor ------------------------------------------------------------------------------------------------------


@pytest.mark.criterion("U4.1")
def test_a_backend_error_moves_a_busy_member_and_stores_the_reason(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    assert (bench.state, bench.reason) == (MemberState.BACKEND_ERROR, "API Error: 529 Overloaded")


@pytest.mark.criterion("U4.2")
def test_a_backend_error_moves_a_member_that_is_done_already(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"), TurnDone("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    assert bench.state is MemberState.BACKEND_ERROR


@pytest.mark.criterion("U4.3")
def test_a_later_normal_end_cannot_move_a_backend_error_back_to_done(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    bench.be(TurnDone("m-1"))
    assert (bench.state, bench.reason) == (MemberState.BACKEND_ERROR, "API Error: 529 Overloaded")


@pytest.mark.criterion("U4.4")
@pytest.mark.parametrize("released", [True, False])
def test_a_released_or_unknown_member_is_not_recreated(
    bench: Bench, released: bool, caplog: pytest.LogCaptureFixture
) -> None:
    target = "m-1" if released else "m-9"
    if released:
        bench.tell(ReleaseMember("m-1"))
    with caplog.at_level(logging.WARNING):
        assert bench.roster.apply(BackendFailed(target, "late")) is False
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert target in caplog.text
    with pytest.raises(UnknownMember):
        bench.tell(Find(target))


@pytest.mark.criterion("U4.5")
@pytest.mark.parametrize(
    ("status", "state"),
    [
        (Status.BACKEND_ERROR, "backend_error"),
        (Status.FAILED, "failed"),
        (Status.EXHAUSTED, "exhausted"),
    ],
)
def test_a_failed_member_refuses_delivery_and_says_why(bench: Bench, status: Status, state: str) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"))
    bench.tell(ended(status))
    bench.tell(Route("m-1", Deliver("t-2", "again", 1)))
    refused = bench.out["mail"].only(TurnEnded)[-1]
    assert (refused.ticket, refused.outcome.status) == ("t-2", Status.REFUSED)
    assert refused.outcome.reason.startswith(f"member m-1 is {state} (API Error: 529 Overloaded)")
    assert bench.resolver.depth == 0


@pytest.mark.criterion("U4.6")
def test_the_roster_keeps_state_and_reason_after_the_ticket_is_gone(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    (row,) = bench.tell(Members())  # type: ignore[misc,attr-defined]
    assert (row.state, row.reason) == (MemberState.BACKEND_ERROR, "API Error: 529 Overloaded")


@pytest.mark.criterion("U4.7")
def test_an_ordinary_member_has_no_reason(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"), TurnDone("m-1"))
    assert bench.reason == ""


def test_the_result_travels_behind_roster_and_policy(bench: Bench) -> None:
    """Mail hears of a backend error only through the policy, never from the roster itself."""
    bench.be(Ready("m-1"), Delivered("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    (sent,) = bench.out["policy"].only(BackendErrorSeen)
    assert sent.turn.ticket == "t-1"
    assert bench.out["mail"].only(TurnEnded) == []


def test_evidence_is_charged_to_the_credential_stamped_at_launch(bench: Bench) -> None:
    bench.be(Delivered("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    (sent,) = bench.out["policy"].only(BackendErrorSeen)
    evidence = sent.evidence
    assert (evidence.credential, evidence.profile, evidence.lead, evidence.at_ns) == ("c", "p", "lead-1", 5)


def test_exhaustion_goes_to_the_quarantine_and_to_nobody_else(bench: Bench) -> None:
    bench.be(Delivered("m-1"))
    bench.tell(ended(Status.EXHAUSTED))
    (sent,) = bench.out["quarantine"].only(ExhaustionSeen)
    assert sent.credential == "c"
    assert bench.out["policy"].told == []


def test_other_ends_go_straight_to_mail_and_are_no_evidence(bench: Bench) -> None:
    for status in (Status.COMPLETED, Status.TIMED_OUT, Status.INTERRUPTED, Status.REFUSED, Status.LOST):
        bench.tell(ended(status))
    assert len(bench.out["mail"].only(TurnEnded)) == 5
    assert bench.out["policy"].told == bench.out["quarantine"].told == []


@pytest.mark.criterion("U5.3")
def test_a_failure_of_an_unknown_target_is_an_error_log_and_a_notice_and_its_result_goes_on(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        bench.tell(ended(Status.BACKEND_ERROR, target="m-77"))
    assert any(record.levelname == "ERROR" and "m-77" in record.getMessage() for record in caplog.records)
    assert bench.out["leads"].only(Unattributable) == [Unattributable("m-77", "API Error: 529 Overloaded")]
    assert bench.out["policy"].told == []
    assert len(bench.out["mail"].only(TurnEnded)) == 1


def test_a_member_released_between_its_error_and_the_record_of_it_is_no_evidence(bench: Bench) -> None:
    bench.be(Delivered("m-1"))
    bench.tell(ReleaseMember("m-1"))
    bench.tell(ended(Status.BACKEND_ERROR))
    assert bench.out["policy"].told == []
    assert bench.out["leads"].only(Unattributable) == []
    assert len(bench.out["mail"].only(TurnEnded)) == 1


def test_a_release_ends_the_resolver_closes_the_pane_and_frees_the_place_when_it_is_closed(bench: Bench) -> None:
    assert bench.tell(ReleaseMember("parser")) == "m-1"
    assert bench.resolver.depth == 1
    assert bench.out["panes"].only(ClosePane) == [ClosePane(bench.pane, bench.roster)]
    assert bench.out["launcher"].only(SlotFreed) == []
    bench.tell(PaneClosed(bench.pane))
    assert bench.out["launcher"].only(SlotFreed) == [SlotFreed("m-1")]


def test_a_released_member_is_remembered_but_not_listed(bench: Bench) -> None:
    bench.tell(ReleaseMember("m-1"))
    assert bench.tell(Members()) == ()
    (row,) = bench.tell(Members(released=True))  # type: ignore[misc,attr-defined]
    assert row.state is MemberState.RELEASED


def test_a_dialog_is_told_once_each_time_and_taken_back_when_it_is_gone(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"), Blocked("m-1"), Blocked("m-1"), Unblocked("m-1"), Blocked("m-1"))
    told = bench.out["leads"].told
    first, second = AtDialog("m-1", 1), AtDialog("m-1", 2)
    assert told == [
        Notify("lead-1", first, once=True),
        Settled("lead-1", first.key),
        Notify("lead-1", second, once=True),
    ]


def test_a_crashed_resolver_fails_its_member_and_loses_its_sends_loudly(bench: Bench) -> None:
    bench.be(Ready("m-1"), Delivered("m-1"))
    bench.tell(ResolverDown("m-1", "KeyError: 'x'"))
    assert bench.state is MemberState.FAILED
    assert "internal error" in bench.reason
    assert [lost.target for lost in bench.out["mail"].only(SendsLost)] == ["m-1"]


def test_a_delivery_for_a_living_member_reaches_its_resolver(bench: Bench) -> None:
    bench.tell(Route("m-1", Deliver("t-1", "hello", 1)))
    assert bench.resolver.depth == 1


def test_a_delivery_for_nobody_is_refused(bench: Bench) -> None:
    bench.tell(Route("m-9", Deliver("t-1", "hello", 1)))
    (refused,) = bench.out["mail"].only(TurnEnded)
    assert refused.outcome.status is Status.REFUSED
    assert "no member m-9" in refused.outcome.reason


def test_progress_and_late_replies_pass_through_in_order(bench: Bench) -> None:
    messages = [Progress("t-1", Phase.RUNNING), LateReply("m-1", "t-1", "here")]
    for message in messages:
        bench.tell(message)
    assert bench.out["mail"].told == messages


def test_a_lost_member_gives_its_place_back_at_once(bench: Bench) -> None:
    bench.be(Ready("m-1"), ProcessGone("m-1", "its process exited with status 0"))
    assert bench.state is MemberState.LOST
    assert bench.out["launcher"].only(SlotFreed) == [SlotFreed("m-1")]


def test_an_unknown_name_is_refused_with_those_there_are(bench: Bench) -> None:
    with pytest.raises(UnknownMember, match="no member is called nobody; there are: m-1"):
        bench.tell(Find("nobody"))


def test_release_in_the_resolver_ends_its_sends(bench: Bench) -> None:
    bench.tell(ReleaseMember("m-1"))
    assert isinstance(bench.resolver._receive.receive_nowait(), Release)


def test_every_place_is_given_back_however_many_members_are_released_at_once(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is free when the pane is closed, also for a member that is forgotten by then."""
    monkeypatch.setattr(roster_module, "TOMBSTONES", 1)
    targets = ["m-2", "m-3", "m-4"]
    for target in targets:
        who = Identity(target, target, "p", "c", "lead-1", PaneRef("memory", f"%{target}"))
        bench.tell(MemberUp(who, Resolver(target, Setup(TableGrammar()))))
    for target in targets:
        bench.tell(ReleaseMember(target))
    for target in targets:
        bench.tell(PaneClosed(PaneRef("memory", f"%{target}")))
    assert [freed.target for freed in bench.out["launcher"].only(SlotFreed)] == targets


def test_a_name_that_a_lost_member_had_finds_the_member_that_has_it_now(bench: Bench) -> None:
    bench.tell(ProcessGone("m-1", "it exited"))
    who = Identity("m-2", "parser", "p", "c", "lead-1", PaneRef("memory", "%2"))
    bench.tell(MemberUp(who, Resolver("m-2", Setup(TableGrammar()))))
    found = bench.tell(Find("parser"))
    assert isinstance(found, MemberView)
    assert found.identity.target == "m-2"


def test_a_question_is_passed_on_with_its_members_lead_and_refused_for_one_that_is_gone(bench: Bench) -> None:
    assert bench.tell(PutQuestion("m-1", "which?")) is LATER
    (question,) = bench.out["questions"].only(PutQuestion)
    assert (question.target, question.lead) == ("m-1", "lead-1")
    bench.tell(ReleaseMember("m-1"))
    with pytest.raises(UnknownMember):
        bench.tell(PutQuestion("m-1", "which?"))
