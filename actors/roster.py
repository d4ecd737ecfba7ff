"""The roster: every member's state and reason, and what was stamped on it at launch.

It is the outlet of every resolver. A turn's end comes here first: the member is marked, then the failure goes where it
is evidence (the outage policy, the quarantine), and only behind that does the result reach the ticket. Nobody caches
what stands here; whoever wants to know asks.
"""

from __future__ import annotations

from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Refused, Tells, tell_if_alive
from actors.host import PaneRef
from actors.journal import Entry, Forgetful, Journaling, NotRecorded, Recorded
from actors.leads import Notify, Settled, Unattributable
from actors.member import (
    TERMINAL,
    BackendFailed,
    Blocked,
    Exhausted,
    Identity,
    MemberEvent,
    MemberOver,
    MemberState,
    Released,
    RetryNoted,
    SendsLost,
    TurnFailed,
    step,
)
from actors.nudge import AtDialog
from actors.outage import BackendErrorSeen, Evidence
from actors.panes import ClosePane, PaneClosed, Unbind
from actors.quarantine import ExhaustionSeen
from actors.questions import PutQuestion
from actors.resolver import Resolver
from actors.row import MemberView, Row, StateLeft, state_entry
from actors.sends import Deliver, Release
from actors.turn import LateReply, Outcome, Progress, Status, TurnEnded, clean

#: Released members that are remembered, so that a late message about one is not taken for an unknown target.
TOMBSTONES: Final = 256


class UnknownMember(Refused):
    """No member has that target."""

    error = "unknown_member"


class MemberUp(Message, frozen=True):
    """A member has been launched."""

    identity: Identity
    resolver: Resolver
    #: What an earlier daemon knew of it.
    left: StateLeft | None = None


class Route(Message, frozen=True):
    """A delivery for a member, from mail."""

    target: str
    deliver: Deliver


class Members(Ask[tuple[MemberView, ...]], frozen=True):
    """Every member that is not released, oldest first; with ``released``, also those that are."""

    released: bool = False


class Find(Ask[MemberView], frozen=True):
    """One member, by target or by name. Raises :class:`UnknownMember`."""

    target: str


class ReleaseMember(Ask[str], frozen=True):
    """End a member for good. Answers with its target. Raises :class:`UnknownMember`."""

    target: str


class ResolverDown(Message, frozen=True):
    """A member's resolver has crashed: its turn has no judge any more."""

    target: str
    reason: str


class SlotFreed(Message, frozen=True):
    """A member's place in its profile's capacity is free. Received by the launcher."""

    target: str


class _Released(Message, frozen=True):
    ask: ReleaseMember
    target: str


class Roster(Actor):
    """Owns the members; see the module's essay for the order in which a failure travels on."""

    def __init__(
        self,
        *,
        policy: Tells,
        quarantine: Tells,
        leads: Tells,
        mail: Tells,
        questions: Tells,
        launcher: Tells,
        panes: Tells,
        journal: Journaling | None = None,
    ) -> None:
        super().__init__("roster")
        self._journal = journal or Forgetful()
        self._policy, self._quarantine = policy, quarantine
        self._leads, self._mail, self._questions = leads, mail, questions
        self._launcher, self._panes = launcher, panes
        self._members: dict[str, Row] = {}
        self._tombs: dict[str, Row] = {}
        #: Released members whose panes are still open: their places are taken until then.
        self._closing: dict[PaneRef, str] = {}

    def __repr__(self) -> str:
        states: dict[str, int] = {}
        for member in self._members.values():
            states[member.state] = states.get(member.state, 0) + 1
        return f"<Roster {', '.join(f'{count} {state}' for state, count in sorted(states.items())) or 'empty'}>"

    def handle(self, message: Message) -> object:
        match message:
            case MemberUp(identity=identity, resolver=resolver, left=left):
                member = self._members[identity.target] = Row(identity, resolver, self.now())
                if left is not None:
                    member.state, member.reason, member.failure = left.state, left.reason, left.failure
                    self._keep(member)
            case MemberEvent():
                self.apply(message)
            case TurnEnded():
                self._turn_ended(message)
            case RetryNoted(target=target, retrying=retrying):
                if (retrier := self._members.get(target)) is not None:
                    retrier.retry = None if retrying is None else message
            case Progress() | LateReply():
                self._mail.tell(message)
            case Route(target=target, deliver=deliver):
                self._route(target, deliver)
            case Members(released=released):
                rows = [*self._tombs.values(), *self._members.values()] if released else self._members.values()
                return tuple(member.view() for member in rows)
            case Find(target=target):
                return self._find(target).view()
            case PutQuestion(target=target):
                lead = self._find(target).identity.lead
                self._questions.tell(msgspec.structs.replace(message, lead=lead))
                return LATER
            case ReleaseMember(target=target):
                return self._release(message, self._find(target))
            case Recorded(then=_Released(ask=ask, target=target)):
                ask.reply.answer(target)
                return target
            case NotRecorded(then=_Released(ask=ask, target=target)):
                # It is released all the same; the disk is told again when it takes something.
                self._journal.note(state_entry(target, StateLeft(MemberState.RELEASED)))
                ask.reply.answer(target)
            case PaneClosed(pane=pane):
                self._panes.tell(Unbind(pane))
                if (freed := self._closing.pop(pane, None)) is not None:
                    self._launcher.tell(SlotFreed(freed))
                    self._forget(freed)
            case ResolverDown(target=target, reason=reason):
                self.apply(TurnFailed(target, clean(f"internal error: {reason}")))
                self._mail.tell(SendsLost(target, f"its turns have no judge any more: {reason}"))
            case _:
                raise self.unknown(message)
        return None

    # -- states --------------------------------------------------------------------------------------------------

    def apply(self, event: MemberEvent) -> bool:
        """Change a member's state by the table.

        Returns:
            Whether there is such a member and the event was taken. A released member is never brought back.
        """
        member = self._members.get(event.target)
        if member is None:
            self.log.warning(
                "%s for %s, which is %s: nothing changes",
                type(event).__name__,
                event.target,
                "released" if event.target in self._tombs else "unknown",
                extra={"fleet_member": event.target, "fleet_event": type(event).__name__},
            )
            return False
        after = step(member.state, event)
        if after is None:
            self.log.debug(
                "refused by the table", extra={"fleet_member": event.target, "fleet_event": type(event).__name__}
            )
            return False
        if after is not member.state:
            self._enter(member, after, event)
        return True

    def _enter(self, member: Row, state: MemberState, event: MemberEvent) -> None:
        identity, before = member.identity, member.state
        member.state, member.since_ns = state, self.now()
        member.reason = getattr(event, "reason", "")
        if state not in (MemberState.BUSY, MemberState.BLOCKED):
            member.retry = None
        if before is MemberState.BLOCKED:
            self._leads.tell(Settled(identity.lead, AtDialog(identity.target, member.dialogs).key))
        if isinstance(event, Blocked):
            member.dialogs += 1
            self._leads.tell(Notify(identity.lead, AtDialog(identity.target, member.dialogs), once=True))
        if state in TERMINAL:
            self._questions.tell(MemberOver(identity.target, f"member {identity.target} is {state}"))
        self._keep(member)
        if state is MemberState.LOST:
            self._launcher.tell(SlotFreed(identity.target))

    def _keep(self, member: Row) -> None:
        left = StateLeft(member.state, member.reason, member.failure)
        self._journal.note(state_entry(member.identity.target, left))

    def _forget(self, target: str) -> None:
        self._journal.note(Entry("member", target, None), Entry("state", target, None))

    # -- a turn's end --------------------------------------------------------------------------------------------

    def _turn_ended(self, turn: TurnEnded) -> None:
        outcome = turn.outcome
        match outcome.status:
            case Status.BACKEND_ERROR:
                self._backend_error(turn)
            case Status.EXHAUSTED:
                if self.apply(Exhausted(turn.target, outcome.reason)):
                    self._quarantine.tell(ExhaustionSeen(self._members[turn.target].identity.credential, turn))
                else:
                    self._not_evidence(turn)
            case Status.FAILED:
                if self.apply(TurnFailed(turn.target, outcome.reason)):
                    self._members[turn.target].failure = outcome.failure
                    self._keep(self._members[turn.target])
                self._mail.tell(turn)
            case _:
                self._mail.tell(turn)

    def _backend_error(self, turn: TurnEnded) -> None:
        """Mark the member, then charge the credential that was stamped on it, whatever its profile says by now."""
        if not self.apply(BackendFailed(turn.target, turn.outcome.reason)):
            self._not_evidence(turn)
            return
        identity = self._members[turn.target].identity
        evidence = Evidence(identity.credential, turn.target, turn.ticket, identity.profile, identity.lead, turn.at_ns)
        self._policy.tell(BackendErrorSeen(evidence, turn))

    def _not_evidence(self, turn: TurnEnded) -> None:
        """A typed failure that cannot be charged: loud, told to a lead where one is known, and the result goes on."""
        if turn.target in self._tombs:
            self.log.warning("a released member's failure is no evidence", extra={"fleet_member": turn.target})
        elif turn.target not in self._members:
            self.log.error(
                "typed failure of unknown target %s: no credential, so it cannot be correlated (%s)",
                turn.target,
                turn.outcome.reason,
                extra={"fleet_member": turn.target, "fleet_ticket": turn.ticket},
            )
            self._leads.tell(Unattributable(turn.target, turn.outcome.reason))
        self._mail.tell(turn)

    # -- deliveries and releases ---------------------------------------------------------------------------------

    def _route(self, target: str, deliver: Deliver) -> None:
        member = self._members.get(target)
        if member is None:
            self._refuse(target, deliver, f"no member {target}: it was released or never existed")
        elif member.state in TERMINAL:
            detail = f" ({member.reason})" if member.reason else ""
            self._refuse(target, deliver, f"member {target} is {member.state}{detail}: release it and spawn another")
        elif not tell_if_alive(member.resolver, deliver):
            self._refuse(target, deliver, f"member {target} has just failed: release it and spawn another")

    def _refuse(self, target: str, deliver: Deliver, why: str) -> None:
        self._mail.tell(TurnEnded(target, deliver.ticket, Outcome(Status.REFUSED, reason=why), self.now()))

    def _find(self, target: str) -> Row:
        if (member := self._members.get(target)) is not None:
            return member
        # A lost member has given its name back, so another may have taken it since.
        named = [member for member in self._members.values() if member.identity.name == target]
        if named:
            return named[-1]
        known = ", ".join(self._members) or "none"
        raise UnknownMember(f"no member is called {target}; there are: {known}")

    def _release(self, ask: ReleaseMember, member: Row) -> object:
        target = member.identity.target
        self.apply(Released(target))
        self._tombs[target] = self._members.pop(target)
        while len(self._tombs) > TOMBSTONES:
            self._tombs.pop(next(iter(self._tombs)))
        self._closing[member.identity.pane] = target
        tell_if_alive(member.resolver, Release())
        self._panes.tell(ClosePane(member.identity.pane, self))
        return self._journal.record(self, _Released(ask, target), state_entry(target, StateLeft(MemberState.RELEASED)))
