"""What mutation testing found that no other test noticed; see ``bench/mutants.md``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from actors.actor import Actor, Message
from actors.clock import NS_PER_S
from actors.health import Health, HealthSettings
from actors.host import PaneRef
from actors.inject import STILL_NS, NotTyped, Typed, Typing
from actors.journal import Journal
from actors.launcher import Launcher
from actors.leads import Leads
from actors.mail import Mail
from actors.nudge import AtDialog, EndedTicket, LateAnswer, OpenQuestion, Outage, Unattributed, compose
from actors.outage import OutagePolicy, OutageSettings
from actors.panes import Panes, PromptNotTyped, PromptTyped, TypePrompt
from actors.push import (
    REMEMBERED,
    STILL_PATIENCE_S,
    Drop,
    LeadPane,
    PushLoop,
    PushSettings,
    Put,
    SetPane,
    StopPush,
    TakeNotices,
    Tick,
)
from actors.quarantine import Quarantine
from actors.questions import Questions
from actors.resolver import Resolver
from actors.roster import Roster
from actors.screen import Frame, Sent
from actors.setup import Setup
from tests.actors.recorders import Clock, Recorder, TableGrammar, answered, driven

S = NS_PER_S


class Stray(Message, frozen=True):
    """Nobody has a case for it."""


async def nothing(*_: object) -> Any:
    """Stands in for what is never called."""


def roster() -> Roster:
    names = ("policy", "quarantine", "leads", "mail", "questions", "launcher", "panes")
    return Roster(**{name: Recorder(name) for name in names})


ACTORS: Mapping[str, Callable[[], Actor]] = {
    "outage": lambda: OutagePolicy(OutageSettings(), leads=Recorder(), mail=Recorder()),
    "quarantine": lambda: Quarantine(S, policy=Recorder(), mail=Recorder()),
    "roster": roster,
    "mail": lambda: Mail(roster=Recorder(), leads=Recorder()),
    "questions": lambda: Questions(leads=Recorder()),
    "leads": lambda: Leads(PushSettings(), panes=Recorder(), mail=Recorder()),
    "push:lead-1": lambda: PushLoop("lead-1", PushSettings(), panes=Recorder()),
    "launcher": lambda: Launcher(
        None,  # type: ignore[arg-type]
        gate=Recorder(),
        roster=Recorder(),
        leads=Recorder(),
        panes=Recorder(),
    ),
    "resolver:m-1": lambda: Resolver("m-1", Setup(TableGrammar())),
    "panes": lambda: Panes({}),
    "health": lambda: Health(HealthSettings(), sample=nothing, post=nothing),
    "journal": lambda: Journal(None),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", ACTORS)
def test_a_message_that_an_actor_has_no_case_for_is_an_error_with_its_name(name: str) -> None:
    with pytest.raises(TypeError, match=f"actor {name} has no case for Stray"):
        ACTORS[name]().handle(Stray())


# -- what a lead is told, and when -------------------------------------------------------------------------------------

PANE = LeadPane(PaneRef("memory", "%9"), TableGrammar(), Typing())
ENDED = EndedTicket("t-1", "m-1", "failed")


class Lead:
    """A push loop whose pane takes what it is given."""

    def __init__(self, settings: PushSettings | None = None) -> None:
        self.clock, self.panes = Clock(), Recorder("panes")
        self.loop = PushLoop("lead-1", settings or PushSettings(), panes=self.panes)
        driven(self.loop, self.clock)
        self.timers: list[int] = []
        self.loop.after = lambda delay_ns, message: self.timers.append(delay_ns)  # type: ignore[assignment,return-value,misc]
        self.loop.handle(SetPane(PANE))

    def job(self) -> TypePrompt | None:
        before = len(self.panes.told)
        self.loop.handle(Tick())
        return next(iter(self.panes.told[before:]), None)  # type: ignore[arg-type]

    def nudge(self) -> str:
        """What a tick types; empty where it types nothing."""
        job = self.job()
        if job is None:
            return ""
        assert callable(job.text)
        text = job.text()
        self.loop.handle(PromptTyped(job.job, Typed(Sent(text, Frame(())), 0)))
        return text

    def fails(self) -> None:
        """A tick types, in vain."""
        job = self.job()
        assert job is not None
        assert callable(job.text)
        job.text()
        self.loop.handle(PromptNotTyped(job.job, "what was pasted does not show"))


def test_by_default_a_lead_is_looked_after_each_second_and_reminded_three_times() -> None:
    lead = Lead()
    lead.loop.handle(Put(ENDED))
    assert lead.timers == [S]
    told = 0
    for _ in range(100):
        told += bool(lead.nudge())
        lead.clock.advance(60)
    assert told == 1 + 3


def test_the_first_reminder_comes_after_a_minute_to_the_nanosecond() -> None:
    lead = Lead()
    lead.loop.handle(Put(ENDED))
    assert lead.nudge()
    lead.clock.ns = 60 * S - 1
    assert not lead.nudge()
    lead.clock.ns = 60 * S
    assert lead.nudge()


def test_a_put_is_reminded_of_unless_it_says_that_it_is_told_once() -> None:
    assert not Put(ENDED).once
    assert LeadPane(PaneRef("memory", "%9"), TableGrammar(), Typing()).patience_s == 0.0


def test_a_nudge_waits_a_second_longer_than_a_screen_must_stand() -> None:
    assert STILL_PATIENCE_S * S == STILL_NS + S


def test_the_last_256_one_shots_are_remembered_as_told() -> None:
    assert REMEMBERED == 256
    lead = Lead()
    for number in range(256):
        lead.loop.handle(Put(AtDialog("m-1", number), once=True))
        assert lead.nudge()
    lead.loop.handle(Put(AtDialog("m-1", 0), once=True))
    assert not lead.nudge()
    lead.loop.handle(Put(AtDialog("m-1", 256), once=True))
    assert lead.nudge()
    lead.loop.handle(Put(AtDialog("m-1", 0), once=True))
    assert lead.nudge()


def test_a_nudge_that_an_attempt_left_in_the_input_line_is_taken_up_and_tells_what_stands_in_it() -> None:
    lead = Lead()
    lead.loop.handle(Put(ENDED))
    first = lead.job()
    assert first is not None
    assert callable(first.text)
    assert first.resume == ""
    text = first.text()
    lead.loop.handle(PromptNotTyped(first.job, "3 Enters did not submit it", left=text))
    lead.loop.handle(Put(OpenQuestion("q-1", "m-2")))
    # It stands there a while, whatever the next attempts would have told.
    for _ in range(2):
        again = lead.job()
        assert again is not None
        assert again.resume == text
        lead.loop.handle(PromptNotTyped(again.job, "a person scrolls in its pane", retry=True, left=text))
    last = lead.job()
    assert last is not None
    lead.loop.handle(PromptTyped(last.job, Typed(Sent(text, Frame(())), 0)))
    # Now only the question is news, and nothing stands in the line.
    behind = lead.job()
    assert behind is not None
    assert behind.resume == ""
    assert callable(behind.text)
    assert behind.text() == "[fleetd] Questions: q-1 (m-2). Use fleet_answer."


def test_a_nudge_that_was_cleared_away_is_followed_by_one_that_tells_everything() -> None:
    lead = Lead()
    lead.loop.handle(Put(ENDED))
    first = lead.job()
    assert first is not None
    assert callable(first.text)
    lead.loop.handle(PromptNotTyped(first.job, "3 Enters did not submit it", left=first.text()))
    lead.loop.handle(Put(OpenQuestion("q-1", "m-2")))
    assert "q-1" in lead.nudge()
    assert not lead.nudge()


def test_what_stands_in_one_pane_is_not_looked_for_in_the_next() -> None:
    lead = Lead()
    lead.loop.handle(Put(ENDED))
    first = lead.job()
    assert first is not None
    lead.loop.handle(PromptNotTyped(first.job, "3 Enters did not submit it", left="[fleetd] Ended"))
    lead.loop.handle(SetPane(PANE))
    again = lead.job()
    assert again is not None
    assert again.resume == ""


def test_a_nudge_of_which_nothing_is_left_says_so_and_costs_no_attempt() -> None:
    lead = Lead(PushSettings(max_attempts=1))
    lead.loop.handle(Put(ENDED))
    job = lead.job()
    assert job is not None
    assert callable(job.text)
    lead.loop.handle(Drop("t-1"))
    with pytest.raises(NotTyped, match="what it would tell has been taken care of") as no:
        job.text()
    assert no.value.retry


# -- the words of a nudge ----------------------------------------------------------------------------------------------


def test_the_words_of_each_kind_of_item() -> None:
    items = (
        Outage("inc-1", "c-a", ("p", "q"), ("m-1", "m-2"), 60 * S),
        Unattributed("m-3"),
        OpenQuestion("q-1", "m-4"),
        AtDialog("m-5", 2),
        LateAnswer("t-2", "m-6"),
        EndedTicket("t-1", "m-7", "failed"),
    )
    text, keys = compose(items, 500_000_000)
    assert text == (
        "[fleetd] Outage inc-1: credential c-a (profiles p, q), no spawns on it for 60 s; members hit: m-1, m-2. "
        "Run fleet_list. Failed on an unknown credential, not correlated: m-3. Run fleet_list. "
        "Questions: q-1 (m-4). Use fleet_answer. Waiting at a dialog: m-5. Use fleet_peek. "
        "Answered late: t-2 (m-6). Use fleet_collect. Ended: t-1 (m-7, failed). Use fleet_collect."
    )
    assert keys == ("inc-1", "unattributed:m-3", "q-1", "dialog:m-5:2", "late:t-2", "t-1")


def test_a_nudge_names_eight_and_counts_the_rest_and_fewer_where_eight_do_not_fit() -> None:
    names = [OpenQuestion(f"q-{number}", "m") for number in range(9)]
    shown = ", ".join(f"q-{number} (m)" for number in range(8))
    assert compose(names, 0)[0] == f"[fleetd] Questions: {shown} and 1 more. Use fleet_answer."
    assert "more" not in compose(names[:8], 0)[0]
    for length, listed in ((60, 8), (80, 4), (200, 2), (400, 1)):
        text, keys = compose([OpenQuestion("q" * length + str(number), "m") for number in range(9)], 0)
        assert (text.count(" (m)"), len(keys)) == (listed, 9)
        assert f" and {9 - listed} more" in text


def test_a_nudge_may_have_six_hundred_characters_and_not_one_more() -> None:
    overhead = len(compose([OpenQuestion("", "m")], 0)[0])
    text, keys = compose([OpenQuestion("q" * (600 - overhead), "m")], 0)
    assert (len(text), len(keys)) == (600, 1)
    assert compose([OpenQuestion("q" * (601 - overhead), "m")], 0) == ("[fleetd]", ())
    # What comes behind a sentence that does not fit is told all the same.
    long, short = OpenQuestion("q" * 600, "m"), EndedTicket("t-1", "m", "failed")
    assert compose([long, short], 0) == ("[fleetd] Ended: t-1 (m, failed). Use fleet_collect.", ("t-1",))


def test_an_outage_that_is_over_says_so() -> None:
    over = Outage("inc-1", "c", ("p",), ("m-1",), 5 * S)
    assert "its cool-off is over" in compose([over], 5 * S)[0]
    assert "no spawns on it for 1 s" in compose([over], 5 * S - 1)[0]


def test_a_loop_that_is_stopped_ends_and_knows_nothing_any_more() -> None:
    lead = Lead()
    told = Put(AtDialog("m-1", 1), once=True)
    lead.loop.handle(told)
    assert lead.nudge()
    lead.loop.handle(StopPush())
    assert lead.loop._stopped
    lead.loop.handle(told)
    assert repr(lead.loop).startswith("<PushLoop lead-1: 1 waiting")


def test_attempts_are_counted_anew_after_each_time_that_an_item_was_told() -> None:
    lead = Lead(PushSettings(max_attempts=2))
    lead.loop.handle(Put(ENDED))
    for _ in range(2):
        lead.fails()
        assert lead.nudge()
        lead.clock.advance(600)
    lead.fails()
    lead.fails()
    assert lead.job() is None
    notices = TakeNotices()
    lead.loop._step(notices)
    assert answered(notices.reply) == ("[fleetd] Ended: t-1 (m-1, failed). Use fleet_collect.",)
