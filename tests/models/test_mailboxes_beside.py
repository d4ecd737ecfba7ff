"""Every pair of senders to the other mailboxes, in every merge; see ``test_mailboxes.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import outcome
import pytest

from actors.actor import Message, Refused
from actors.gate import GateCheck, GateRead
from actors.health import Findings, Health, HealthSettings, Sample, Sampled, SetHealth, _Look, _Posted
from actors.host import PaneEnded, PaneRef
from actors.inject import Typing
from actors.journal import Entry, Journal, NotKept, Recorded, StoreRefused, _Again, _Keep, _Note, _Record
from actors.leads import Incident
from actors.member import MemberState
from actors.outage import BackendErrorSeen, Cooling, CoolOffs, Crossing, Evidence, OutagePolicy, OutageSettings, Retune
from actors.panes import (
    Bind,
    ClosePane,
    HostSaw,
    Look,
    PaneClosed,
    PaneDied,
    Panes,
    PressKeys,
    TypePrompt,
    Unbind,
    Unwatch,
    Watch,
    Watched,
    Withdraw,
)
from actors.push import Tick
from actors.quarantine import ExhaustionSeen, Quarantine, Quarantined, SetCooldown
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Recorder, SilentHost, TableGrammar
from tests.models.asks import answer
from tests.models.senders import S, Scene, at_once, every_merge, pairs, result
from tests.races.twins import twin


def ended(target: str, ticket: str, status: Status, at_ns: int = 100 * S, **more: Any) -> TurnEnded:
    return TurnEnded(target, ticket, Outcome(status, **more), at_ns)


class PolicyScene(Scene):
    """ "One active incident per credential. Errors during its cool-off do not extend it and do not create more lead
    notices." "Concurrent second and third errors cannot return two incidents." And of a check (:mod:`actors.gate`):
    one "that was sent after a piece of evidence was told always sees that evidence"."""

    def __init__(self, made: type[OutagePolicy] = OutagePolicy) -> None:
        self.leads, self.mail, self.back = Recorder("leads"), Recorder("mail"), Recorder("back")
        super().__init__(made(OutageSettings(), leads=self.leads, mail=self.mail))
        self.senders = {
            # The roster passes on the errors of several members in whatever order they come.
            "one member": (self.error("m-1", 40), self.error("m-3", 100)),
            "another member": (self.error("m-2", 100), self.error("m-4", 100)),
            "the quarantine": (GateCheck("g-1", ("c", "d"), self.back), GateCheck("g-2", ("c",), self.back)),
            "a reload": (Retune(OutageSettings(cool_off_ns=5 * S)), Retune(OutageSettings(cool_off_ns=90 * S))),
            "a client": (Cooling(), Cooling()),
        }

    @staticmethod
    def error(target: str, at_s: int) -> BackendErrorSeen:
        turn = ended(target, f"t-of-{target}", Status.BACKEND_ERROR, at_s * S)
        return BackendErrorSeen(Evidence("c", target, turn.ticket, "p", "lead-1", turn.at_ns), turn)

    def holds(self) -> None:
        told, incidents = self.heard(BackendErrorSeen), self.leads.only(Incident)
        # All errors are within one window, and all are before the end of the cool-off that two of them bring.
        assert len(incidents) == (len(told) >= 2)
        cooling = {incident.credential: incident.until_ns for incident in incidents}
        assert answer(self.actor, Cooling()) == cooling
        assert [turn.ticket for turn in self.mail.only(TurnEnded)] == [
            each.turn.ticket for number, each in enumerate(told) if number != 1
        ]
        if self.told and isinstance(self.told[-1], GateCheck):
            read = self.back.only(GateRead)[-1]
            assert (read.id, read.cooling_until) == (self.told[-1].id, cooling)


class CountsOn(OutagePolicy):
    """Errors during a cool-off are evidence."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)

        class NeverCools(CoolOffs):
            def record(self, new: Evidence) -> Crossing | None:
                self._credentials.pop(new.credential, None) if self.cooling(new.at_ns) else None
                return super().record(new)

        self._rule = NeverCools(self._rule.settings)


class QuarantineScene(Scene):
    """ "A repeat restarts the one deadline of its credential"; "the spawn gate ... exhaustion wins": a check that comes
    behind an exhaustion carries its deadline on, and the result of the turn goes to mail whatever else happens."""

    def __init__(self, made: type[Quarantine] = Quarantine) -> None:
        self.order: list[tuple[str, Message]] = []
        super().__init__(made(1800 * S, policy=Recorder("policy", self.order), mail=Recorder("mail", self.order)))
        back = Recorder("back")
        self.senders = {
            "the roster": tuple(self.used_up(name, span) for name, span in (("c", None), ("c", 120), ("d", 300))),
            "the launcher": (GateCheck("spawn-1", ("c", "d"), back), GateCheck("spawn-2", ("c",), back)),
            "a resolver": (GateCheck("t-1", ("c",), back), GateCheck("t-2", ("d",), back)),
            "a reload": (SetCooldown(600 * S), SetCooldown(3600 * S)),
            "a client": (Quarantined(), Quarantined()),
        }

    @staticmethod
    def used_up(credential: str, span_s: int | None) -> ExhaustionSeen:
        span = None if span_s is None else span_s * S
        return ExhaustionSeen(credential, ended("m-1", f"t-{span_s}", Status.EXHAUSTED, resets_in_ns=span))

    def holds(self) -> None:
        shut: dict[str, int] = {}
        cooldown, passed = 1800 * S, []
        for message in self.told:
            match message:
                case SetCooldown(cooldown_ns=cooldown_ns):
                    cooldown = cooldown_ns
                case ExhaustionSeen(credential=name, turn=turn):
                    span = turn.outcome.resets_in_ns
                    shut[name] = 100 * S + (cooldown if span is None else span)
                    passed.append(("mail", turn.ticket, {}))
                case GateCheck(id=id, credentials=names):
                    passed.append(("policy", id, {name: end for name, end in shut.items() if name in names}))
        assert answer(self.actor, Quarantined()) == shut
        assert [
            (name, told.ticket, {}) if isinstance(told, TurnEnded) else (name, told.id, told.exhausted_until)  # type: ignore[attr-defined]
            for name, told in self.order
        ] == passed


class FirstDeadlineStays(Quarantine):
    def handle(self, message: Message) -> object:
        before = dict(self._until)
        done = super().handle(message)
        self._until |= before
        return done


class Terminal(SilentHost):
    """Takes every key, and closes every pane."""

    async def press(self, pane: PaneRef, *keys: str) -> None:
        """Nobody reads them."""

    async def close(self, pane: PaneRef) -> None:
        """There was none."""


class PanesScene(Scene):
    """Of the pane host: "order of keystrokes per pane". "Whatever types into a pane goes through one queue per pane",
    what was queued for a pane that is closed "is not typed", and its owner hears of its end once, whoever of the two
    comes first."""

    ONE, TWO = PaneRef("memory", "%1"), PaneRef("memory", "%2")

    def __init__(self, made: type[Panes] = Panes) -> None:
        super().__init__(made({"memory": Terminal()}))  # type: ignore[dict-item]
        self.owner, self.back, self.began = Recorder("owner"), Recorder("back"), list[tuple[PaneRef, Any]]()
        type_ = lambda pane, job: TypePrompt(pane, job, job, TableGrammar(), Typing(), self.back)  # noqa: E731
        self.senders = {
            "a resolver": (
                type_(self.ONE, "t-1"),
                PressKeys(self.ONE, ("Escape",)),
                Withdraw(self.ONE, "t-2"),
                type_(self.ONE, "t-2"),
            ),
            "the registry": (Bind(self.ONE, self.owner), Watch(self.ONE, self.actor), Unwatch(self.ONE)),
            "a push loop": (type_(self.TWO, "nudge-1"), type_(self.ONE, "nudge-2"), type_(self.TWO, "nudge-3")),
            "the roster": (ClosePane(self.ONE, self.back), Unbind(self.ONE)),
            "the host": (HostSaw(PaneEnded(self.ONE, status=0)), HostSaw(PaneEnded(self.TWO, signal=9))),
            "the jobs": (self.done, self.done, self.done),
            "a client": (Watched(), Look(PaneRef("tmux", "%1"))),
        }

    def done(self) -> Message | None:
        """The oldest job that runs has ended."""
        if not self.effects:
            return None
        work, then = self.effects.popleft()
        job: Any = work.__self__  # type: ignore[attr-defined]
        if job.prompt is None:
            at_once(job._work())
        return then(outcome.Value(None))

    def holds(self) -> None:
        under_way = [then(outcome.Value(None)).pane for _, then in self.effects]
        assert len(under_way) == len(set(under_way))
        for work, then in self.effects:
            entry = then(outcome.Value(None)).pane, work.__self__  # type: ignore[attr-defined]
            if entry not in self.began:
                self.began.append(entry)
        for pane in (self.ONE, self.TWO):
            typed = [job.prompt for where, job in self.began if where == pane and job.prompt is not None]
            wanted = [message for message in self.heard(TypePrompt) if message.pane == pane]
            assert typed == [prompt for prompt in wanted if prompt in typed]
        told = self.heard(Bind, HostSaw)
        both = {type(message) for message in told if getattr(message, "ended", None) != PaneEnded(self.TWO, signal=9)}
        released = bool(self.heard(Unbind))
        assert len(self.owner.only(PaneDied)) <= 1
        if not released:
            assert len(self.owner.only(PaneDied)) == (len(both) == 2)

    def over(self) -> None:
        while (message := self.done()) is not None:
            self.play(message)
        assert self.actor._jobs == {}
        typed = [job.prompt for _, job in self.began]
        for close in self.heard(ClosePane):
            assert self.back.only(PaneClosed) == [PaneClosed(close.pane)]
            # Only what was told before it, and had not begun, is not typed.
            behind = self.told[self.told.index(close) + 1 :]
            assert all(prompt in typed for prompt in behind if isinstance(prompt, TypePrompt))
        if not self.heard(ClosePane):
            assert all(prompt in typed for prompt in self.heard(TypePrompt))
        for look in self.heard(Look):
            assert isinstance(result(look), Refused)


class TypesAtOnce(Panes):
    def _queue(self, pane: PaneRef, job: Any) -> None:
        super()._queue(pane, job)
        if len(self._jobs[pane]) > 1:
            self._next(pane)


class HealthScene(Scene):
    """ "What it finds goes to the webhook where one is configured, once when it begins and once when it is over", and a
    webhook that fails changes nothing. "It is never evidence": it tells no other actor anything."""

    def __init__(self, made: type[Health] = Health) -> None:
        self.posted: list[tuple[str, str]] = []
        super().__init__(made(HealthSettings(webhook="http://x"), sample=self.sample, post=self.post))
        old, other = Sample("m-1", MemberState.LOST, 0), Sample("m-2", MemberState.LOST, 0)
        young = Sample("m-1", MemberState.BUSY, 99 * S)
        self.senders = {
            "the timer": (_Look(), _Look()),
            "a look": (Sampled((old,)), Sampled((old, other)), Sampled((young, other))),
            "a late look": (Sampled((other,)), Sampled(())),
            "a reload": (SetHealth(HealthSettings(enabled=False)), SetHealth(HealthSettings(webhook="http://y"))),
            "the webhook": (_Posted(outcome.Error(OSError("no route"))), self.is_posted, self.is_posted),
            "a client": (Findings(), Findings()),
        }

    async def sample(self) -> tuple[Sample, ...]:
        return ()

    async def post(self, url: str, event: Mapping[str, object]) -> None:
        self.posted.append((str(event["event"]), str(event["target"])))

    def is_posted(self) -> Message | None:
        if not self.effects:
            return None
        work, then = self.effects.popleft()
        return then(at_once(work()))

    def holds(self) -> None:
        looks = [sampled.samples for sampled in self.heard(Sampled)]
        found = {sample.target for sample in (looks[-1] if looks else ()) if sample.state is MemberState.LOST}
        assert {finding.target for finding in answer(self.actor, Findings())} == found

    def over(self) -> None:
        while (message := self.is_posted()) is not None:
            self.play(message)
        if self.heard(SetHealth):
            return  # what begins while no webhook is configured is told to nobody
        for target in ("m-1", "m-2"):
            events = [event for event, whose in self.posted if whose == target]
            assert events == ["begun", "over"] * (len(events) // 2) + ["begun"] * (len(events) % 2)
            assert (len(events) % 2 == 1) is any(each.target == target for each in answer(self.actor, Findings()))


class SaysItEachTime(Health):
    def _judge(self, samples: tuple[Sample, ...]) -> None:
        self._findings = {}
        super()._judge(samples)


class JournalScene(Scene):
    """ "All of one order, because they are one mailbox"; each who waits is answered once it is known; and what the disk
    refused and nobody could take back "goes with each later write until one succeeds, newest form only"."""

    def __init__(self, made: type[Journal] = Journal) -> None:
        self.backs = {name: Recorder(name) for name in ("mail", "roster")}
        self.on_disk: dict[str, bytes | None] = {}
        self.accepts = True
        super().__init__(made(self))
        self.before(self.note("early", b"under way"))
        self.senders = {
            "mail": (
                self.record("mail", "t-1", b"open"),
                self.note("t-1", b"told"),
                self.record("mail", "t-1", b"ended"),
            ),
            "the roster": (self.note("m-1", b"busy"), self.note("m-1", b"done"), self.record("roster", "m-1", None)),
            "an effect": (self.keep("turn", b"typed"), self.keep("turn", b"entered")),
            "the disk": (self.written, self.refuses, self.written),
            "a full disk": (self.refuses, self.refuses),
            "the timer": (_Again(), _Again()),
        }

    async def write(self, entries: Sequence[Entry]) -> None:
        if not self.accepts:
            raise StoreRefused("no space left")
        self.on_disk |= {entry.id: entry.body for entry in entries}

    def record(self, who: str, id: str, body: bytes | None) -> Message:
        return _Record((Entry("x", id, body),), Tick(), self.backs[who])

    def note(self, id: str, body: bytes | None) -> Message:
        return _Note((Entry("x", id, body),))

    def keep(self, id: str, body: bytes | None) -> Message:
        return _Keep((Entry("x", id, body),))

    def written(self, *, accepts: bool = True) -> Message | None:
        if not self.effects:
            return None
        self.accepts = accepts
        work, then = self.effects.popleft()
        return then(at_once(work()))

    def refuses(self) -> Message | None:
        return self.written(accepts=False)

    def holds(self) -> None:
        assert len(self.effects) <= 1
        for name, back in self.backs.items():
            asked = [each for each in self.heard(_Record) if each.back is back]
            assert len(back.told) <= len(asked), name

    def over(self) -> None:
        for _ in range(4):
            self.play(_Again())
            self.play(self.written)
        #: What each id was given, in the order of the mailbox, without what its sender was told is not kept.
        expected: dict[str, bytes | None] = {"early": b"under way"}
        answers = {name: iter(back.told) for name, back in self.backs.items()}
        for message in self.heard(_Record, _Note, _Keep):
            (entry,) = message.entries
            if isinstance(message, _Record):
                kept = isinstance(next(answers[message.back.name]), Recorded)
            elif isinstance(message, _Keep):
                assert message.reply.settled
                kept = not isinstance(result(message), NotKept)
            else:
                kept = True
            if kept:
                expected[entry.id] = entry.body
        assert self.on_disk == expected
        assert not any(list(left) for left in answers.values())


class OwesNothing(Journal):
    def _refused(self, batch: tuple[Message, ...], why: str) -> None:
        super()._refused(batch, why)
        self._owed_records.clear()


SCENES = (PolicyScene, QuarantineScene, PanesScene, HealthScene, JournalScene)


@pytest.mark.parametrize(("scene", "one", "other"), pairs(*SCENES))
def test_what_is_written_of_a_mailbox_is_true_in_every_merge_of_two_senders(scene: Any, one: str, other: str) -> None:
    every_merge(scene, one, other)


@pytest.mark.parametrize(
    ("scene", "broken"),
    [
        twin(PolicyScene, CountsOn),
        twin(QuarantineScene, FirstDeadlineStays),
        twin(PanesScene, TypesAtOnce),
        twin(HealthScene, SaysItEachTime),
        twin(JournalScene, OwesNothing),
    ],
)
def test_a_mistake_shows_in_some_merge(scene: Any, broken: Any) -> None:
    for _, one, other in pairs(scene):
        every_merge(lambda: scene(broken), one, other)
