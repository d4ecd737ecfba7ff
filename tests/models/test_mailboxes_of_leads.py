"""Every pair of senders to the mailboxes of what leads are told, in every merge; see ``test_mailboxes.py``."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec
import pytest

from actors.actor import Message, Refused
from actors.host import PaneRef
from actors.inject import NotTyped, Typed, Typing
from actors.leads import (
    Incident,
    Join,
    Leads,
    LeadsNow,
    LoopOf,
    Notify,
    Owns,
    SetLeadPane,
    SetPushAll,
    Settled,
    Unattributable,
)
from actors.mail import Await, Collect, Mail, OpenTicket, Tickets
from actors.member import MemberOver, SendsLost
from actors.nudge import AtDialog, EndedTicket, LateAnswer, OpenQuestion, Outage, Unattributed
from actors.panes import PromptNotTyped, PromptTyped, TypePrompt
from actors.push import Drop, LeadPane, PushLoop, PushSettings, Put, SetPane, SetPush, TakeNotices, Tick
from actors.questions import AwaitAnswer, ListQuestions, PutAnswer, PutQuestion, Questions
from actors.screen import Sent
from actors.turn import LateReply, Outcome, Phase, Progress, Status, TurnEnded
from tests.actors.recorders import Recorder, TableGrammar, frame
from tests.models.asks import answer
from tests.models.senders import Disk, S, Scene, every_merge, flush, pairs, result
from tests.races.twins import twin


def ended(target: str, ticket: str, status: Status) -> TurnEnded:
    return TurnEnded(target, ticket, Outcome(status), 100 * S)


class MailScene(Scene):
    """ "A result is stored before anyone is told of it", and of several the first stands: for who waits, for who
    collects, and for the lead, who hears of each ended ticket once. Where the disk is full, what is known is shown."""

    NAMES = ("t-1", "t-2", "t-3")

    def __init__(self, made: type[Mail] = Mail) -> None:
        self.disk, self.leads = Disk(), Recorder("leads")
        super().__init__(made(roster=Recorder("roster"), leads=self.leads, journal=self.disk))
        for number in (1, 2, 3):
            self.before(OpenTicket("lead-1", f"m-{number}", "p", 9 * S), self.disk.safe)
        self.wait = Await(("t-1", "t-2"))
        failed = ended("m-2", "t-2", Status.BACKEND_ERROR)
        self.senders = {
            "a client": (self.wait, Collect("t-1"), OpenTicket("lead-1", "m-4", "p", 9 * S)),
            "the roster": (
                Progress("t-1", Phase.RUNNING),
                ended("m-1", "t-1", Status.COMPLETED),
                SendsLost("m-2", "its resolver crashed"),
            ),
            "the policy": (failed, ended("m-1", "t-1", Status.FAILED)),
            "the registry of leads": (failed, ended("m-3", "t-3", Status.BACKEND_ERROR)),
            "the quarantine": (ended("m-3", "t-3", Status.EXHAUSTED), LateReply("m-3", "t-3", "late")),
            "the disk": (self.disk.safe, self.disk.full, self.disk.safe),
        }

    def first_ends(self) -> dict[str, Status]:
        """How each send has ended, by whoever said so first."""
        ends: dict[str, Status] = {}
        for message in self.told:
            match message:
                case TurnEnded(ticket=ticket, outcome=outcome):
                    ends.setdefault(ticket, outcome.status)
                case SendsLost():
                    ends.setdefault("t-2", Status.LOST)
        return ends

    def on_disk(self, ticket: str) -> str | None:
        body = self.disk.body("ticket", ticket)
        kept = None if body is None else msgspec.json.decode(body)["outcome"]
        return None if kept is None else kept["status"]

    def holds(self) -> None:
        firsts = self.first_ends()
        shown = {view.id: view.outcome.status for view in answer(self.actor, Tickets(self.NAMES)) if view.outcome}
        nudged = Counter(each.item.key for each in self.leads.only(Notify) if isinstance(each.item, EndedTicket))
        for name, status in shown.items():
            assert status is firsts[name]
            assert self.disk.refused or self.on_disk(name) == status
        assert set(nudged) <= set(shown)
        assert all(times == 1 for times in nudged.values())
        if self.wait in self.told:
            assert self.wait.reply.settled is bool(shown.keys() & set(self.wait.tickets))

    def over(self) -> None:
        flush(self, self.disk)
        self.disk.safe()
        told = {each.item.key for each in self.leads.only(Notify)} | {view.id for view in result(self.wait) or ()}
        for name, status in self.first_ends().items():
            assert name in told
            (view,) = answer(self.actor, Tickets((name,)))
            assert view.outcome.status is status
        for ask in self.heard(Collect, OpenTicket):
            assert result(ask) is not None


class LastResultStands(Mail):
    def _over_soon(self, name: str, outcome: Outcome) -> None:
        self._tickets[name].outcome = self._tickets[name].ending = None
        super()._over_soon(name, outcome)


class QuestionsScene(Scene):
    """ "No question of a member that has been released is ever left open"; an answer is taken once, and who waits has
    it. "An asker always gets an answer or a typed error"."""

    def __init__(self, made: type[Questions] = Questions) -> None:
        self.disk, self.leads = Disk(), Recorder("leads")
        super().__init__(made(leads=self.leads, journal=self.disk))
        for number in (1, 2):
            self.before(PutQuestion(f"m-{number}", "?", "lead-1"), self.disk.safe)
        self.senders = {
            "the roster": (PutQuestion("m-1", "and?", "lead-1"), MemberOver("m-1", "it was released")),
            "the members": (AwaitAnswer("q-1", "m-1"), AwaitAnswer("q-2", "m-2"), AwaitAnswer("q-2", "m-1")),
            "a lead": (PutAnswer("q-1", "yes"), PutAnswer("q-2", "no"), PutAnswer("q-1", "again")),
            "another lead": (PutAnswer("q-2", "its own"), ListQuestions()),
            "the disk": (self.disk.safe, self.disk.full, self.disk.safe),
        }

    def holds(self) -> None:
        listed = [view.id for view in answer(self.actor, ListQuestions())]
        if self.heard(MemberOver):
            assert set(listed) <= {"q-2"}
        taken = [ask for ask in self.heard(PutAnswer) if not isinstance(result(ask), Refused | None)]
        assert len({ask.question for ask in taken}) == len(taken)
        answers = {ask.question: ask.text for ask in taken}
        for wait in self.heard(AwaitAnswer):
            if (wait.question, wait.target) == ("q-2", "m-1") or wait.question not in [*listed, *answers]:
                assert isinstance(result(wait), Refused)
            else:
                assert result(wait) == answers.get(wait.question)
        over: set[str] = set()
        for each in self.leads.told:
            if isinstance(each, Settled):
                over.add(each.key)
            elif isinstance(each, Notify):
                assert each.item.key not in over
        settled = Counter(each.key for each in self.leads.only(Settled))
        assert all(times == 1 for times in settled.values())
        assert not set(settled) & set(listed)
        assert set(settled) >= {"q-1", "q-2"} - set(listed)

    def over(self) -> None:
        flush(self, self.disk)
        for ask in self.heard(PutQuestion, PutAnswer):
            assert result(ask) is not None


class ClosesNothing(Questions):
    def _member_over(self, target: str, reason: str) -> None:
        """The questions of a member that is over stay open."""


class LeadsScene(Scene):
    """ "This is one notice per event per lead, not one notice per member." "An unmapped target produces a direct
    warning notice when a lead is known." And of the order of publication: "a result reaches the ticket only after the
    roster, the policy and the push loop have been told"."""

    def __init__(self, made: type[Leads] = Leads) -> None:
        self.disk = Disk()
        self.order: list[tuple[str, Message]] = []
        super().__init__(
            made(PushSettings(), panes=Recorder("panes"), mail=Recorder("mail", self.order), journal=self.disk)
        )
        for key in "ab":
            self.before(Join(key), self.disk.safe)
        for lead in ("lead-1", "lead-2"):
            answer(self.actor, LoopOf(lead)).tell = Recorder(lead, self.order).tell
        self.before(Join("early"))
        both = ("lead-1", "lead-2")
        pane = LeadPane(PaneRef("memory", "%1"), TableGrammar(), Typing())
        self.senders = {
            "the clients": (Join("a"), Join("c"), Join("c"), LeadsNow()),
            "the launcher": (Owns("lead-1", "m-1"), Owns("lead-2", "m-9")),
            "the policy": (
                self.incident("inc-1", ("m-1", "m-2", "m-3"), both),
                self.incident("inc-2", ("m-1",), both[:1]),
            ),
            "the roster": (
                Unattributable("m-9", "API Error"),
                Notify("lead-1", AtDialog("m-1", 1), once=True),
                Settled("lead-1", "dialog:m-1:1"),
            ),
            "mail": (Notify("lead-2", EndedTicket("t-1", "m-1", "failed")), Settled("lead-2", "t-1")),
            "the questions": (Notify("lead-1", OpenQuestion("q-1", "m-1")), Settled("lead-1", "q-1")),
            "a reload": (SetPushAll(PushSettings(reminders=1)), SetPushAll(PushSettings(reminders=2))),
            "the door": (
                SetLeadPane("lead-2", pane),
                SetLeadPane("lead-2", None),
                Notify("lead-7", OpenQuestion("q", "m")),
            ),
            "the disk": (self.disk.full, self.disk.safe),
        }

    @staticmethod
    def incident(name: str, targets: tuple[str, ...], leads: tuple[str, ...]) -> Incident:
        cause = ended(targets[-1], f"t-of-{name}", Status.BACKEND_ERROR)
        return Incident(name, "c", targets, ("p",), leads, len(targets), 160 * S, cause)

    def holds(self) -> None:
        told = [(name, message.item.key) for name, message in self.order if isinstance(message, Put)]
        assert len(set(told)) == len(told)
        for incident in self.heard(Incident):
            assert {name for name, key in told if key == incident.id} == set(incident.leads)
            mailed = self.order.index(("mail", incident.cause))
            later = [message.item.key for _, message in self.order[mailed:] if isinstance(message, Put)]
            assert incident.id not in later
        known = self.heard(Unattributable) and any(
            owns.target == "m-9" and self.told.index(owns) < self.told.index(self.heard(Unattributable)[0])
            for owns in self.heard(Owns)
        )
        assert ("lead-2", Unattributed("m-9").key) in told if known else not any("m-9" in key for _, key in told)
        for name, lead in (("t-1", "lead-2"), ("q-1", "lead-1"), ("dialog:m-1:1", "lead-1")):
            # An item and what takes it back come to the lead that they are for, in this order.
            came = [(where, type(message)) for where, message in self.order if name in (key_of(message),)]
            assert came in ([], [(lead, Put)], [(lead, Put), (lead, Drop)])

    def over(self) -> None:
        flush(self, self.disk)
        joined = [(ask.key, result(ask)) for ask in self.heard(Join)]
        assert all(lead == "lead-1" for key, lead in joined if key == "a")
        assert len({lead for key, lead in joined if key == "c"}) <= 1
        for lead in ("lead-1", "lead-2"):
            settings = [message for name, message in self.order if name == lead and isinstance(message, SetPush)]
            assert [each.settings for each in settings] == [each.settings for each in self.heard(SetPushAll)]


def key_of(message: Message) -> str | None:
    return message.item.key if isinstance(message, Put) else message.key if isinstance(message, Drop) else None


class OneForEachMember(Leads):
    def _incident(self, incident: Incident) -> None:
        self._mail.tell(incident.cause)
        for lead in incident.leads:
            item = Outage(incident.id, "c", incident.profiles, incident.targets, incident.until_ns)
            self._tell(lead, Put(item, once=True))


class PushScene(Scene):
    """ "After one successful injection, later ticks do not mention that incident again." "Repeating the same incident
    id is idempotent." "A successful retry still gives only one successful send." "One combined nudge, never two
    competing turns" - and nothing that a lead must be told is lost."""

    PANE = LeadPane(PaneRef("memory", "%1"), TableGrammar(), Typing())

    def __init__(self, made: type[PushLoop] = PushLoop) -> None:
        self.panes = Recorder("panes")
        super().__init__(made("lead-1", PushSettings(max_attempts=2), panes=self.panes))
        self.typed: list[str] = []
        outage = Put(Outage("inc-1", "c", ("p",), ("m-1", "m-2"), 160 * S), once=True)
        self.before(SetPane(self.PANE), outage, Put(EndedTicket("t-1", "m-1", "failed")), Tick())
        self.senders = {
            "the policy's incidents": (outage, outage),
            "mail": (Put(LateAnswer("t-1", "m-1")), Drop("t-1"), Put(EndedTicket("t-2", "m-2", "failed"))),
            "the keyboard": (self.is_typed, self.fails, self.is_typed),
            "a busy lead": (self.is_busy, self.is_typed),
            "the timer": (Tick(), Tick(), Tick()),
            "the door": (SetPane(None), SetPane(self.PANE)),
            "a client": (TakeNotices(), TakeNotices()),
            "a reload": (SetPush(PushSettings(max_attempts=1)), SetPush(PushSettings(max_attempts=5))),
        }

    def is_typed(self) -> Message | None:
        job = self.oldest(self.panes, TypePrompt)
        if job is None:
            return None
        assert callable(job.text)
        try:
            text = job.text()
        except NotTyped as no:
            return PromptNotTyped(job.job, str(no), retry=no.retry)
        self.typed.append(text)
        return PromptTyped(job.job, Typed(Sent(text, frame("idle")), self.clock.ns))

    def fails(self) -> Message | None:
        job = self.oldest(self.panes, TypePrompt)
        return None if job is None else PromptNotTyped(job.job, "what was pasted does not show")

    def is_busy(self) -> Message | None:
        job = self.oldest(self.panes, TypePrompt)
        return None if job is None else PromptNotTyped(job.job, "a turn is running", retry=True)

    def told_of(self, name: str) -> int:
        notices = [notice for ask in self.heard(TakeNotices) for notice in result(ask)]
        return sum(name in text for text in (*self.typed, *notices))

    def holds(self) -> None:
        assert len(self.panes.told) - len(self.heard(PromptTyped, PromptNotTyped)) <= 1
        assert self.told_of("inc-1") <= 1

    def over(self) -> None:
        for _ in range(3):
            self.play(Tick())
            self.play(self.is_typed)
        self.play(TakeNotices())
        assert self.told_of("inc-1") == 1
        wanted = {"Outage": "inc-1", "LateAnswer": "late", "EndedTicket": "t-2"}
        for put in self.heard(Put):
            assert self.told_of(wanted[type(put.item).__name__])


class TellsAgain(PushLoop):
    def _told(self, key: str, *, once: bool) -> None:
        super()._told(key, once=once)
        self._told_once.clear()


SCENES = (MailScene, QuestionsScene, LeadsScene, PushScene)


@pytest.mark.parametrize(("scene", "one", "other"), pairs(*SCENES))
def test_what_is_written_of_a_mailbox_is_true_in_every_merge_of_two_senders(scene: Any, one: str, other: str) -> None:
    every_merge(scene, one, other)


@pytest.mark.parametrize(
    ("scene", "broken"),
    [
        twin(MailScene, LastResultStands),
        twin(QuestionsScene, ClosesNothing),
        twin(LeadsScene, OneForEachMember),
        twin(PushScene, TellsAgain),
    ],
)
def test_a_mistake_shows_in_some_merge(scene: Any, broken: Any) -> None:
    for _, one, other in pairs(scene):
        every_merge(lambda: scene(broken), one, other)
