"""Every pair of senders to the mailboxes of a member's life, in every merge: launcher, resolver, roster.

The other mailboxes are in the files beside this one. Each scene quotes what it checks, and each has a broken twin that
some merge must catch.
"""

from __future__ import annotations

from typing import Any

import outcome
import pytest

from actors.actor import Message, Refused
from actors.gate import GateCheck, GateRead
from actors.host import OpenFailed, PaneEnded, PaneRef
from actors.inject import Typed
from actors.launcher import Configure, Launcher, Room, Setup, Spawn
from actors.member import TERMINAL, Blocked, Delivered, Identity, MemberEvent, MemberState, TurnDone
from actors.panes import (
    ClosePane,
    Observed,
    PaneClosed,
    PaneDied,
    PromptNotTyped,
    PromptTyped,
    TypePrompt,
)
from actors.placement import PolicyName
from actors.questions import PutQuestion
from actors.resolver import Resolver
from actors.roster import Find, Members, MemberUp, ReleaseMember, ResolverDown, Roster, Route, SlotFreed
from actors.screen import Sent
from actors.sends import Deliver, Entering, HoldOver, Interrupt, MemberReply, Release, TimedOut
from actors.signal import Signal, What
from actors.spawning import Launched, ProfileRoom, Spawned, SpawnRefused
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.bench import CUSTOM
from tests.actors.recorders import Recorder, TableGrammar, frame
from tests.models.asks import answer
from tests.models.senders import Disk, S, Scene, every_merge, flush, pairs, result
from tests.races.twins import twin


def ended(target: str, ticket: str, status: Status, at_ns: int = 100 * S, **more: Any) -> TurnEnded:
    return TurnEnded(target, ticket, Outcome(status, **more), at_ns)


class RosterScene(Scene):
    """ "RELEASED must never return to the roster. A backend-error member is terminal and cannot accept another
    delivery." "A later normal onTurnComplete cannot change BACKEND_ERROR back to DONE." And of a result: each is
    passed on once, and "only behind that", when the member says so, "does the result reach the ticket"."""

    def __init__(self, made: type[Roster] = Roster) -> None:
        self.order: list[tuple[str, Message]] = []
        names = ("policy", "quarantine", "leads", "mail", "questions", "launcher", "panes")
        self.to = {name: Recorder(name, self.order) for name in names}
        self.disk = Disk()
        super().__init__(made(**self.to, journal=self.disk))
        self.resolvers = {target: Recorder(target) for target in ("m-1", "m-2", "m-3", "m-9")}
        self.states: dict[str, MemberState] = {}
        self.before(*(step for target in ("m-1", "m-2", "m-9") for step in (self.up(target), Delivered(target))))
        #: One is being released already.
        self.early = ReleaseMember("m-9")
        self.before(self.early)
        release = ReleaseMember("m-1")
        self.senders = {
            "the resolver of m-1": (TurnDone("m-1"), ended("m-1", "t-1", Status.BACKEND_ERROR), TurnDone("m-1")),
            "the resolver of m-2": (Blocked("m-2"), ended("m-2", "t-2", Status.EXHAUSTED), Delivered("m-2")),
            "the launcher": (self.up("m-3"), Delivered("m-3"), ended("m-3", "t-3", Status.COMPLETED)),
            "mail": tuple(Route(target, Deliver(f"d-{target}", "p", S)) for target in ("m-1", "m-2")),
            "the lead": (release, Find("m-1"), ReleaseMember("m-1")),
            "the panes": (self.closes, self.closes),
            "the supervisor": (ResolverDown("m-1", "it crashed"), ResolverDown("m-2", "it crashed")),
            "the members": (PutQuestion("m-1", "?"), PutQuestion("m-2", "?")),
            "the disk": (self.disk.safe, self.disk.full),
        }
        self.release = release

    def up(self, target: str) -> MemberUp:
        identity = Identity(target, target, "p", "c", "lead-1", PaneRef("memory", target))
        return MemberUp(identity, self.resolvers[target])  # type: ignore[arg-type]

    def closes(self) -> Message | None:
        asked = self.oldest(self.to["panes"], ClosePane)
        return None if asked is None else PaneClosed(asked.pane)

    def holds(self) -> None:
        views = {view.identity.target: view for view in answer(self.actor, Members())}
        released = self.release in self.told
        assert ("m-1" in views) is not released
        for target, view in views.items():
            was = self.states.get(target)
            assert was not in TERMINAL or view.state is was
            self.states[target] = view.state
        for turn in self.heard(TurnEnded):
            roads = [name for name, told in self.order if turn in (told, getattr(told, "turn", None))]
            assert len(roads) == 1
            if roads[0] in ("policy", "quarantine") and turn is self.told[-1]:
                assert views[turn.target].state in (MemberState.BACKEND_ERROR, MemberState.EXHAUSTED)
        for route in self.heard(Route):
            taken = route.deliver in self.resolvers[route.target].told
            refused = [end for end in self.to["mail"].only(TurnEnded) if end.ticket == route.deliver.ticket]
            assert taken is not bool(refused)
            if route is self.told[-1]:
                assert taken is (route.target in views and views[route.target].state not in TERMINAL)
        asked = [each.target for each in self.to["questions"].only(PutQuestion)]
        for question in self.heard(PutQuestion):
            assert (question.target in asked) is not isinstance(result(question), Refused)
        # A place is given back once, and not before the pane is closed.
        assert len(self.to["launcher"].only(SlotFreed)) == len(self.heard(PaneClosed))

    def over(self) -> None:
        flush(self, self.disk)
        for ask in (self.early, *self.heard(ReleaseMember, Find)):
            assert result(ask) is not None


class BringsBack(Roster):
    """An event for a released member makes it one again."""

    def apply(self, event: MemberEvent) -> bool:
        if (tomb := self._tombs.pop(event.target, None)) is not None:
            self._members[event.target] = tomb
        return super().apply(event)


class LauncherScene(Scene):
    """Of the launcher: "two spawns racing for the last slot or across a cool-off". Of a shut gate: a spawn "is refused
    before any adapter spawn call". Of the kernel: "An asker always gets an answer or a typed error"."""

    def __init__(self, made: type[Launcher] = Launcher) -> None:
        self.gate, self.roster, self.panes, self.disk = Recorder("gate"), Recorder("roster"), Recorder("panes"), Disk()
        to = {"gate": self.gate, "roster": self.roster, "leads": Recorder("leads"), "panes": self.panes}
        super().__init__(made(None, **to, journal=self.disk))  # type: ignore[arg-type]
        self.launches = self.under_way = 0
        self.freed: list[str] = []
        self.before(Configure((ProfileRoom("p", "c", 1), ProfileRoom("q", "d", 1)), PolicyName.PRIORITY))
        #: Of these the first is being launched and the second is at the gate.
        self.early = [Spawn("lead-0", "q"), Spawn("lead-0", "p")]
        for spawn, step in zip(self.early, (self.opens, None), strict=True):
            self.before(spawn, *filter(None, (step,)))
        self.under_way = 1
        self.senders = {
            "one lead": (Spawn("lead-1", "p"), Spawn("lead-1")),
            "another lead": (Spawn("lead-2", "p"), Spawn("lead-2", "q", name="x")),
            "the gate": (self.opens, self.shuts, self.opens),
            "the launches": (self.starts, self.fails, self.starts),
            "the disk": (self.disk.full, self.disk.safe),
            "the roster": (self.frees, self.frees),
            "a reload": (
                Configure((ProfileRoom("p", "c", 1), ProfileRoom("r", "e", 1)), PolicyName.PRIORITY),
                Configure((ProfileRoom("p", "e", 1),), PolicyName.ROUND_ROBIN),
            ),
            "the panes": (self.closes, self.closes),
        }

    def opens(self, *, shut: bool = False) -> Message | None:
        if (check := self.oldest(self.gate, GateCheck)) is None:
            return None
        return GateRead(check.id, {}, dict.fromkeys(check.credentials, 160 * S) if shut else {}, True, self.clock.ns)

    def shuts(self) -> Message | None:
        return self.opens(shut=True)

    def starts(self, came: outcome.Outcome[Launched] | None = None) -> Message | None:
        if not self.effects:
            return None
        self.launches += 1
        pane = PaneRef("memory", f"%{self.launches}")
        return self.effects.popleft()[1](came or outcome.Value(Launched(pane, Setup(TableGrammar()), "/")))

    def fails(self) -> Message | None:
        return self.starts(outcome.Error(OpenFailed("no such program")))

    def frees(self) -> Message | None:
        up = [each.identity.target for each in self.roster.only(MemberUp) if each.identity.target not in self.freed]
        self.freed += up[:1]
        return SlotFreed(up[0]) if up else None

    def closes(self) -> Message | None:
        asked = self.oldest(self.panes, ClosePane)
        return None if asked is None else PaneClosed(asked.pane)

    def holds(self) -> None:
        for load in answer(self.actor, Room()):
            assert load.taken <= load.capacity
        if isinstance(read := self.told[-1], GateRead) and read.cooling_until:
            assert len(self.effects) == self.under_way
        self.under_way = len(self.effects)

    def over(self) -> None:
        while (message := self.opens() or self.starts() or self.disk.safe()) is not None:
            self.play(message)
        spawned = 0
        for ask in (*self.early, *self.heard(Spawn)):
            assert isinstance(result(ask), Spawned | SpawnRefused)
            spawned += isinstance(result(ask), Spawned)
        assert spawned == len(self.roster.only(MemberUp))
        # Whoever runs has a place, and nobody else: every failed launch has given its place back.
        places = {each.identity.target for each in self.roster.only(MemberUp)} - set(self.freed)
        assert set(self.actor._places) == places


class ReservesLate(Launcher):
    """A place is taken once the process runs."""

    def _gate_read(self, read: GateRead) -> None:
        super()._gate_read(read)
        if self._places:
            self._places.popitem()


class ResolverScene(Scene):
    """ "Reply versus scraped result versus failure: the first message wins, later ones are no-ops that publish
    nothing." "The same match calls BackendErrorSink exactly once after the waiter resolution wins." And "only then",
    when the screen is at rest, "is the next prompt typed"."""

    def __init__(self, made: type[Resolver] = Resolver) -> None:
        self.order: list[tuple[str, Message]] = []
        self.outlet, self.gate = Recorder("outlet", self.order), Recorder("gate", self.order)
        self.panes = Recorder("panes", self.order)
        to: dict[str, Any] = {"outlet": self.outlet, "gate": self.gate, "panes": self.panes}
        super().__init__(made("m-1", Setup(TableGrammar(), CUSTOM), pane=PaneRef("memory", "%1"), credential="c", **to))
        error = ("idle", "> prompt", "* backend down")
        self.before(
            Observed(frame("idle", at_s=99)),
            Deliver("t-1", "prompt", 600 * S),
            GateRead("t-1", {}, {}, True, self.clock.ns),
            Entering("t-1"),
            PromptTyped("t-1", Typed(Sent("prompt", frame("idle")), self.clock.ns)),
            Signal(What.BEGAN, turn="a", text="prompt"),
            Observed(frame(*error, at_s=105)),
            Observed(frame(*error, at_s=106)),
        )
        for recorder in (self.outlet, self.gate, self.panes):
            recorder.told.clear()
        self.senders = {
            "mail": (Deliver("t-2", "second", 600 * S), Deliver("t-3", "third", 600 * S)),
            "the member": (MemberReply("mine"), MemberReply("again")),
            "the lead": (Interrupt(), Interrupt()),
            "the roster": (Release(),),
            "the screen": (Observed(frame(*error, at_s=108)), Observed(frame(*error, at_s=110))),
            "the clock": (TimedOut("t-1"), TimedOut("t-2")),
            "the kernel": (PaneDied(PaneEnded(PaneRef("memory", "%1"), status=1)),),
            "the program": (Signal(What.FAILED, turn="b", text="529"), Signal(What.ENDED, turn="a", text="its own")),
            "the gate": (self.opens, self.opens),
            "the keyboard": (self.types, self.types),
        }

    def opens(self) -> Message | None:
        check = self.oldest(self.gate, GateCheck)
        return None if check is None else GateRead(check.id, {}, {}, True, self.clock.ns)

    def types(self) -> Message | None:
        job = self.oldest(self.panes, TypePrompt)
        return None if job is None else PromptTyped(job.job, Typed(Sent("p", frame("idle", "after")), self.clock.ns))

    #: How the first of these that is handled ends the turn.
    ENDS = (
        (MemberReply, Status.COMPLETED),
        (Interrupt, Status.INTERRUPTED),
        (Release, Status.INTERRUPTED),
        (Observed, Status.BACKEND_ERROR),
        (TimedOut, Status.TIMED_OUT),
        (PaneDied, Status.FAILED),
        (Signal, Status.COMPLETED),
    )

    def holds(self) -> None:
        ends = self.outlet.only(TurnEnded)
        assert len({end.ticket for end in ends}) == len(ends)
        firsts = [
            status
            for message in self.told
            for kind, status in self.ENDS
            if isinstance(message, kind) and getattr(message, "turn", "a") == "a" and message != TimedOut("t-2")
        ]
        assert [end.outcome.status for end in ends if end.ticket == "t-1"] == firsts[:1]
        # The next is typed once this one is over on the screen too, and not at all where it failed.
        over = any(isinstance(told, TurnDone) for told in self.outlet.told)
        assert over or not self.panes.only(TypePrompt)
        if firsts and firsts[0] in (Status.BACKEND_ERROR, Status.FAILED):
            assert not over

    def over(self) -> None:
        self.play(Release())
        delivered = {"t-1", *(message.ticket for message in self.heard(Deliver))}
        assert {end.ticket for end in self.outlet.only(TurnEnded)} == delivered


class GateScene(ResolverScene):
    """ "Every path that can start or feed a member passes the same gate", and a send ends once, wherever it is when its
    lead, its member's end or a release comes: at the gate, held, in the queue, or under the keys."""

    def __init__(self, made: type[Resolver] = Resolver) -> None:
        super().__init__(made)
        self.before(
            Observed(frame("idle", "> prompt", "* good", at_s=109)),
            Observed(frame("idle", "> prompt", "* good", at_s=110)),
            Observed(frame("idle", "> prompt", "* good", at_s=112)),
            Deliver("t-2", "second", 600 * S),
            Deliver("t-3", "third", 600 * S),
        )
        self.senders = {
            "the gate": (self.opens, self.holds_back, self.opens),
            "the keyboard": (self.types, self.refuses),
            "the timer": (HoldOver("t-2"), HoldOver("t-3")),
            **{name: self.senders[name] for name in ("the member", "the lead", "the roster", "the kernel")},
        }

    def holds_back(self) -> Message | None:
        check = self.oldest(self.gate, GateCheck)
        return None if check is None else GateRead(check.id, {}, {"c": 160 * S}, True, self.clock.ns)

    def refuses(self) -> Message | None:
        job = self.oldest(self.panes, TypePrompt)
        return None if job is None else PromptNotTyped(job.job, "a person types", retry=True)

    def holds(self) -> None:
        ends = [end.ticket for end in self.outlet.only(TurnEnded)]
        assert len(set(ends)) == len(ends)
        opened = [read.id for read in self.heard(GateRead) if not read.cooling_until]
        typed = [job.job for job in self.panes.only(TypePrompt)]
        assert typed == [name for name in opened if name in typed]
        assert len(typed) == len(set(typed))

    def over(self) -> None:
        self.play(Release())
        assert {end.ticket for end in self.outlet.only(TurnEnded)} == {"t-1", "t-2", "t-3"}


class SettlesAgain(Resolver):
    def _settle(self, turn: Any, outcome: Outcome) -> None:
        turn.settled = False
        super()._settle(turn, outcome)


class ForgetsItsTurn(Resolver):
    """One that dies loses what had not been typed."""

    def _died(self, how: str, *, known: bool) -> None:
        self._queue._waiting.clear()
        super()._died(how, known=known)


SCENES = (RosterScene, LauncherScene, ResolverScene, GateScene)


@pytest.mark.parametrize(("scene", "one", "other"), pairs(*SCENES))
def test_what_is_written_of_a_mailbox_is_true_in_every_merge_of_two_senders(scene: Any, one: str, other: str) -> None:
    every_merge(scene, one, other)


@pytest.mark.parametrize(
    ("scene", "broken"),
    [
        twin(RosterScene, BringsBack),
        twin(LauncherScene, ReservesLate),
        twin(ResolverScene, SettlesAgain),
        twin(GateScene, ForgetsItsTurn),
    ],
)
def test_a_mistake_shows_in_some_merge(scene: Any, broken: Any) -> None:
    for _, one, other in pairs(scene):
        every_merge(lambda: scene(broken), one, other)
