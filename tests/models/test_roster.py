"""A model of the roster: any events, ends, routes, releases and crashes of a few members, in any order.

The oracle knows no table. It says in a few sentences what each kind of event means, keeps its members in plain dicts,
and predicts, message by message, what the roster tells to whom and in which order.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.leads import Notify, Settled, Unattributable
from actors.member import (
    BackendFailed,
    Blocked,
    Delivered,
    Exhausted,
    Identity,
    MemberEvent,
    MemberOver,
    ProcessGone,
    Ready,
    Released,
    RetryNoted,
    SendsLost,
    TurnDone,
    TurnFailed,
    Unblocked,
)
from actors.nudge import AtDialog
from actors.outage import BackendErrorSeen, Evidence
from actors.panes import ClosePane, PaneClosed, Unbind
from actors.quarantine import ExhaustionSeen
from actors.resolver import Resolver
from actors.roster import Find, Members, MemberUp, ReleaseMember, ResolverDown, Roster, Route, SlotFreed, UnknownMember
from actors.row import MemberView
from actors.screen import Retrying
from actors.sends import Deliver, Release
from actors.setup import Setup
from actors.turn import Failure, LateReply, Outcome, Phase, Progress, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven
from tests.models.effort import modest

S = NS_PER_S
TERMINAL = {"failed", "backend_error", "exhausted", "lost"}
TARGETS = ("m-1", "m-2", "m-3")
#: Also somebody who never was.
ANYBODY = st.sampled_from((*TARGETS, *TARGETS, "m-9"))


def after(state: str, event: MemberEvent) -> str | None:
    """The state after an event, in sentences; ``None`` where it is refused."""
    kind = type(event)
    if state == "released":
        return None  # "RELEASED must never return to the roster."
    if kind is Released:
        return "released"
    if state in TERMINAL:
        # "A failure absorbs a normal end": what ends anyway changes nothing. All else is refused; and a program that
        # is gone ends no turn.
        absorbed = (
            kind is ProcessGone or (kind is TurnDone and state != "lost") or (kind is TurnFailed and state == "failed")
        )
        return state if absorbed else None
    if (failed := FAILURES.get(kind)) is not None:
        # "BUSY -> BACKEND_ERROR", "DONE -> BACKEND_ERROR": from whatever state it can still work in.
        return failed
    if kind is Delivered:
        return "busy"
    if kind is Blocked:
        return "blocked"
    if kind is Ready:
        return "idle" if state in ("starting", "idle", "blocked") else None
    if kind is Unblocked:
        return "busy" if state in ("busy", "blocked") else None
    # "A normal boundary moves BUSY to DONE"; before its first open input line there is no turn that could end.
    assert kind is TurnDone
    return None if state == "starting" else "done"


FAILURES: dict[type[MemberEvent], str] = {
    TurnFailed: "failed",
    BackendFailed: "backend_error",
    Exhausted: "exhausted",
    ProcessGone: "lost",
}
EVENTS: list[Callable[[str], MemberEvent]] = [
    Ready,
    Delivered,
    Delivered,
    Blocked,
    Unblocked,
    TurnDone,
    lambda target: TurnFailed(target, "it broke"),
    lambda target: BackendFailed(target, "529"),
    lambda target: Exhausted(target, "limit"),
    lambda target: ProcessGone(target, "it exited"),
]


class Oracle:
    """Members in dicts, and everything that the roster must have told so far."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.members: dict[str, dict[str, Any]] = {}
        self.released: dict[str, dict[str, Any]] = {}
        self.told: list[tuple[str, Message]] = []

    def up(self, identity: Identity) -> None:
        self.members[identity.target] = {
            "identity": identity, "state": "starting", "reason": "", "since": self.clock.ns, "dialogs": 0,
            "retry": None, "failure": None,
        }  # fmt: skip

    def apply(self, event: MemberEvent) -> bool:
        member = self.members.get(event.target)
        state = None if member is None else after(member["state"], event)
        if member is None or state is None:
            return False  # "A released or unknown member is not recreated."
        if state == member["state"]:
            return True
        lead, target, before = member["identity"].lead, event.target, member["state"]
        member.update(state=state, reason=getattr(event, "reason", ""), since=self.clock.ns)
        if state not in ("busy", "blocked"):
            member["retry"] = None  # who does not work does not retry either
        if before == "blocked":
            self.told.append(("leads", Settled(lead, f"dialog:{target}:{member['dialogs']}")))
        if state == "blocked":
            member["dialogs"] += 1  # "each is told once"
            self.told.append(("leads", Notify(lead, AtDialog(target, member["dialogs"]), once=True)))
        if state in TERMINAL | {"released"}:
            # "A member answers nothing any more: its open questions are moot."
            self.told.append(("questions", MemberOver(target, f"member {target} is {state}")))
        if state == "lost":
            self.told.append(("launcher", SlotFreed(target)))
        return True

    def ended(self, turn: TurnEnded) -> None:
        """ "Marks the member, then the failure goes where it is evidence, and only behind that does the result reach
        the ticket." """
        outcome = turn.outcome
        if outcome.status is Status.BACKEND_ERROR and self.apply(BackendFailed(turn.target, outcome.reason)):
            # "Evidence is charged to this credential, whatever the profile says by then."
            who = self.members[turn.target]["identity"]
            evidence = Evidence(who.credential, turn.target, turn.ticket, who.profile, who.lead, turn.at_ns)
            self.told.append(("policy", BackendErrorSeen(evidence, turn)))
        elif outcome.status is Status.EXHAUSTED and self.apply(Exhausted(turn.target, outcome.reason)):
            credential = self.members[turn.target]["identity"].credential
            self.told.append(("quarantine", ExhaustionSeen(credential, turn)))
        else:
            typed = outcome.status in (Status.BACKEND_ERROR, Status.EXHAUSTED)
            if typed and turn.target not in self.members and turn.target not in self.released:
                # "If target metadata cannot be resolved ... call the Unit 3 unmapped-target notice."
                self.told.append(("leads", Unattributable(turn.target, outcome.reason)))
            if outcome.status is Status.FAILED and self.apply(TurnFailed(turn.target, outcome.reason)):
                self.members[turn.target]["failure"] = outcome.failure
            self.told.append(("mail", turn))

    def release(self, target: str) -> None:
        self.apply(Released(target))
        self.released[target] = self.members.pop(target)


class RosterMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(3 * S)
        self.order: list[tuple[str, Message]] = []
        names = ("policy", "quarantine", "leads", "mail", "questions", "launcher", "panes")
        self.roster = Roster(**{name: Recorder(name, self.order) for name in names})
        driven(self.roster, self.clock)
        self.oracle = Oracle(self.clock)
        self.resolvers: dict[str, Resolver] = {}
        self.dead: set[str] = set()
        #: What each living resolver must have in its mailbox.
        self.inbox: dict[str, list[Message]] = {}
        self.turns: list[TurnEnded] = []
        self.closing: set[str] = set()
        self.tickets = 0

    def take(self, message: Message) -> object:
        self.clock.ns += 1
        return self.roster.handle(message)

    @initialize()
    def a_member_is_launched(self) -> None:
        self.launch("m-1")

    @precondition(lambda self: len(self.resolvers) < len(TARGETS))
    @rule()
    def another_member_is_launched(self) -> None:
        self.launch(TARGETS[len(self.resolvers)])

    def launch(self, target: str) -> None:
        number = TARGETS.index(target)
        pane = PaneRef("memory", f"%{number}")
        who = Identity(target, f"name-{number}", f"p-{number % 2}", f"c-{number % 2}", f"lead-{number % 2}", pane)
        self.resolvers[target] = Resolver(target, Setup(TableGrammar()))
        self.inbox[target] = []
        self.clock.ns += 1
        self.oracle.up(who)
        self.roster.handle(MemberUp(who, self.resolvers[target]))

    # -- what happens --------------------------------------------------------------------------------------------

    @rule(whom=ANYBODY, make=st.sampled_from(EVENTS))
    def an_event(self, whom: str, make: Callable[[str], MemberEvent]) -> None:
        self.clock.ns += 1
        event = make(whom)
        assert self.roster.apply(event) is self.oracle.apply(event)

    @rule(
        whom=ANYBODY,
        status=st.sampled_from([*Status, Status.BACKEND_ERROR, Status.EXHAUSTED]),
        kind=st.none() | st.sampled_from(Failure),
    )
    def a_turn_ends(self, whom: str, status: Status, kind: Failure | None) -> None:
        outcome = Outcome(status, reason=f"reason of {status}", failure=kind if status is Status.FAILED else None)
        turn = TurnEnded(whom, f"t-{len(self.turns)}", outcome, self.clock.ns - 5)
        self.turns.append(turn)
        self.clock.ns += 1
        self.oracle.ended(turn)
        self.roster.handle(turn)

    @rule(whom=ANYBODY)
    def a_delivery_is_routed(self, whom: str) -> None:
        """ "A backend-error member is terminal and cannot accept another delivery"; neither does one that is gone."""
        self.tickets += 1
        deliver = Deliver(f"d-{self.tickets}", "prompt", 5)
        told = len(self.order)
        self.take(Route(whom, deliver))
        member = self.oracle.members.get(whom)
        if member is not None and member["state"] not in TERMINAL and whom not in self.dead:
            self.inbox[whom].append(deliver)
            return
        ((name, refusal),) = self.order[told:]
        assert name == "mail"
        assert isinstance(refusal, TurnEnded)
        self.oracle.told.append((name, refusal))
        assert (refusal.target, refusal.ticket, refusal.at_ns) == (whom, deliver.ticket, self.clock.ns)
        assert refusal.outcome.status is Status.REFUSED
        if member is not None and member["state"] in TERMINAL:
            assert f"member {whom} is {member['state']}" in refusal.outcome.reason
            assert member["reason"] in refusal.outcome.reason

    @rule(whom=ANYBODY, by_name=st.booleans())
    def a_release(self, whom: str, by_name: bool) -> None:
        member = self.oracle.members.get(whom)
        if member is None:
            with pytest.raises(UnknownMember):
                self.take(ReleaseMember(whom))
            return
        self.clock.ns += 1
        self.oracle.release(whom)
        self.oracle.told.append(("panes", ClosePane(member["identity"].pane, self.roster)))
        if whom not in self.dead:
            self.inbox[whom].append(Release())
        self.closing.add(whom)
        assert self.roster.handle(ReleaseMember(member["identity"].name if by_name else whom)) == whom

    @precondition(lambda self: self.closing)
    @rule(data=st.data())
    def a_pane_is_closed(self, data: st.DataObject) -> None:
        """The place is free when nothing of the member runs any more."""
        target = data.draw(st.sampled_from(sorted(self.closing)))
        self.closing.remove(target)
        pane = self.oracle.released[target]["identity"].pane
        self.oracle.told += [("panes", Unbind(pane)), ("launcher", SlotFreed(target))]
        self.take(PaneClosed(pane))

    @rule(whom=st.sampled_from(TARGETS))
    def a_resolver_crashes(self, whom: str) -> None:
        """Its turn has no judge any more: the member has failed, and its sends end lost."""
        if whom not in self.resolvers or whom in self.dead:
            return
        self.dead.add(whom)
        self.resolvers[whom]._dismiss(None)
        self.clock.ns += 1
        self.oracle.apply(TurnFailed(whom, "internal error: KeyError: 'x'"))
        over = SendsLost(whom, "its turns have no judge any more: KeyError: 'x'")
        self.oracle.told.append(("mail", over))
        self.roster.handle(ResolverDown(whom, "KeyError: 'x'"))

    @rule(whom=ANYBODY, which=st.booleans())
    def progress_or_a_late_reply_passes_through(self, whom: str, which: bool) -> None:
        message: Message = Progress("t-0", Phase.RUNNING) if which else LateReply(whom, "t-0", "late")
        self.oracle.told.append(("mail", message))
        self.take(message)

    @rule(whom=ANYBODY, over=st.booleans())
    def a_retry_is_noted(self, whom: str, over: bool) -> None:
        note = RetryNoted(whom, None if over else Retrying(2, "retrying in 5 s", 5), self.clock.ns)
        if whom in self.oracle.members:
            self.oracle.members[whom]["retry"] = None if over else note
        self.take(note)

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def everybody_is_told_what_and_in_the_order_that_is_written(self) -> None:
        assert self.order == self.oracle.told

    @invariant()
    def the_rows_are_those_of_the_oracle(self) -> None:
        rows = self.roster.handle(Members(released=True))
        assert [self.row(row) for row in rows] == [  # type: ignore[attr-defined]
            (who["identity"], who["state"], who["reason"], who["since"], who["retry"], who["failure"])
            for who in (*self.oracle.released.values(), *self.oracle.members.values())
        ]
        assert self.roster.handle(Members()) == rows[len(self.oracle.released) :]  # type: ignore[index]

    @staticmethod
    def row(row: MemberView) -> tuple[object, ...]:
        assert row.terminal == (str(row.state) in TERMINAL | {"released"})
        return row.identity, str(row.state), row.reason, row.since_ns, row.retry, row.failure

    @invariant()
    def who_was_released_never_comes_back(self) -> None:
        for target in self.oracle.released:
            with pytest.raises(UnknownMember):
                self.roster.handle(Find(target))

    @invariant()
    def every_end_is_passed_on_once_and_evidence_only_behind_policy_or_quarantine(self) -> None:
        ends = {turn.ticket: 0 for turn in self.turns}
        for name, message in self.order:
            if isinstance(message, BackendErrorSeen | ExhaustionSeen):
                assert (name, message.turn.outcome.status) in {
                    ("policy", Status.BACKEND_ERROR),
                    ("quarantine", Status.EXHAUSTED),
                }
                ends[message.turn.ticket] += 1
            elif isinstance(message, TurnEnded) and message.ticket in ends:
                assert name == "mail"
                ends[message.ticket] += 1
        assert set(ends.values()) <= {1}

    @invariant()
    def each_resolver_has_what_was_routed_to_it_and_a_place_is_given_back_at_most_once_a_cause(self) -> None:
        for target, expected in self.inbox.items():
            if target not in self.dead:
                assert self.resolvers[target].depth == len(expected)
        for target in self.resolvers:
            freed = sum(message == SlotFreed(target) for _, message in self.order)
            assert freed <= 2  # once when its process is lost, once when its pane is closed

    def teardown(self) -> None:
        for target, expected in self.inbox.items():
            if target not in self.dead:
                found = [self.resolvers[target]._receive.receive_nowait() for _ in expected]
                assert found == expected


TestRoster = RosterMachine.TestCase
TestRoster.settings = modest(60, steps=40)
