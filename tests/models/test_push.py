"""A model of the push loop: items come, are told, reminded of and dropped, while typing succeeds, fails or must wait.

The oracle keeps one record per item, with the times at which it was told, and derives from it what is due. What a nudge
told is read from its text alone: the identifiers that stand in it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import pytest
import trio
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.inject import NotTyped, Typed, Typing
from actors.nudge import AtDialog, EndedTicket, Item, LateAnswer, OpenQuestion, Outage, Unattributed
from actors.panes import PromptNotTyped, PromptTyped, TypePrompt
from actors.push import Drop, LeadPane, PushLoop, PushSettings, Put, SetPane, SetPush, TakeNotices, Tick
from actors.screen import Frame, Sent
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven
from tests.models.effort import modest

S = NS_PER_S
PANES = [LeadPane(PaneRef("memory", f"%{number}"), TableGrammar(), Typing(), patience_s=number) for number in (1, 2)]
LONG = "x" * 60
#: Each item with the words that name it in a nudge, and whether it is told once.
ITEMS: list[tuple[Item, str, bool]] = [
    (Outage("inc-1", "anthropic-a", ("p-a",), ("w-1", "w-2"), 60 * S), "Outage inc-1:", True),
    (Outage("inc-2", LONG, (LONG, LONG), ("w-1", LONG), 90 * S), "Outage inc-2:", True),
    (Outage("inc-3", LONG, (LONG, LONG), ("w-3", LONG), 90 * S), "Outage inc-3:", True),
    (Unattributed("w-4"), "w-4", True),
    (AtDialog("w-5", 1), "w-5", True),
    (EndedTicket("t-1", "w-6", "completed"), "t-1 (w-6, completed)", False),
    (EndedTicket("t-2", LONG, "backend_error"), f"t-2 ({LONG}, backend_error)", False),
    (LateAnswer("t-3", "w-7"), "t-3 (w-7)", False),
    (OpenQuestion("q-1", "w-8"), "q-1 (w-8)", False),
    (OpenQuestion("q-2", LONG), f"q-2 ({LONG})", False),
]
#: How the one sentence of a kind begins. It names all that it tells, or names some and counts the others.
SENTENCES: dict[type[Item], str] = {
    Unattributed: "not correlated: ",
    AtDialog: "Waiting at a dialog: ",
    EndedTicket: "Ended: ",
    LateAnswer: "Answered late: ",
    OpenQuestion: "Questions: ",
}


def told_by(text: str, offered: list[str]) -> set[str]:
    """Which of the offered items a nudge tells, read from its words; it may tell or count no other."""
    told: set[str] = set()
    for item, words, _ in ITEMS:
        if isinstance(item, Outage) and words in text:
            told.add(item.key)
    for kind, beginning in SENTENCES.items():
        if beginning not in text:
            continue
        sentence = text.split(beginning, 1)[1].split(". Use ", 1)[0].split(". Run ", 1)[0]
        named = {item.key for item, words, _ in ITEMS if isinstance(item, kind) and words in sentence}
        counted = re.search(r" and (\d+) more$", sentence)
        these = {item.key for item, _, _ in ITEMS if isinstance(item, kind) and item.key in offered}
        assert named <= these
        assert named
        assert len(these) == len(named) + (int(counted[1]) if counted else 0)
        told |= these
    assert told <= set(offered)
    return told


@dataclass
class Record:
    """An item that waits."""

    due: int
    once: bool
    told: int = 0
    failures: int = 0


@dataclass
class Flight:
    """A nudge that is being typed."""

    job: TypePrompt
    #: What was due at the tick.
    keys: list[str]
    #: What its text told, once it is composed.
    told: list[str] | None = None
    #: What was taken care of before the text was composed.
    dropped: set[str] = field(default_factory=set)


class PushMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock(5 * S)
        self.panes = Recorder("panes")
        self.settings = PushSettings()
        self.loop = PushLoop("lead-1", self.settings, panes=self.panes)
        driven(self.loop, self.clock)
        self.loop.after = self.set_timer  # type: ignore[method-assign]
        self.timers: list[int] = []
        self.pane: LeadPane | None = None
        self.records: dict[str, Record] = {}
        self.flight: Flight | None = None
        #: How often each item was told since it was put.
        self.times_told: dict[str, int] = {}
        self.one_shots_told: set[str] = set()

    def set_timer(self, delay_ns: int, message: Message) -> trio.CancelScope:
        assert message == Tick()
        self.timers.append(self.clock.ns + delay_ns)
        assert delay_ns == self.settings.tick_ns
        return trio.CancelScope()

    @initialize(pane=st.sampled_from([None, *PANES, *PANES]))
    def begin(self, pane: LeadPane | None) -> None:
        self.set_pane(pane)

    # -- what happens --------------------------------------------------------------------------------------------

    @rule(number=st.integers(0, len(ITEMS) - 1))
    def an_item_is_put(self, number: int) -> None:
        """ "An item with a key that waits, or a one-shot that was told, is known: nothing happens." """
        item, _, once = ITEMS[number]
        if item.key not in self.records and item.key not in self.one_shots_told:
            self.records[item.key] = Record(self.clock.ns, once)
            self.times_told[item.key] = 0
            if self.flight is not None:  # it waits again, so the nudge that is on its way may tell it
                self.flight.dropped.discard(item.key)
        self.loop.handle(Put(item, once))

    @precondition(lambda self: self.records)
    @rule(data=st.data())
    def an_item_is_taken_care_of(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.records)))
        del self.records[key]
        if self.flight is not None and self.flight.told is None:
            self.flight.dropped.add(key)
        self.loop.handle(Drop(key))

    @rule(pane=st.sampled_from([None, *PANES]))
    def set_pane(self, pane: LeadPane | None) -> None:
        self.pane = pane
        self.loop.handle(SetPane(pane))

    @rule(attempts=st.integers(1, 3), reminders=st.integers(0, 3), tick_s=st.integers(1, 5))
    def the_settings_are_reloaded(self, attempts: int, reminders: int, tick_s: int) -> None:
        self.settings = PushSettings(tick_s * S, attempts, reminders)
        self.loop.handle(SetPush(self.settings))

    @rule(seconds=st.sampled_from([1, 10, 59, 60, 61, 120, 240]))
    def time_passes(self, seconds: int) -> None:
        self.clock.ns += seconds * S

    @precondition(lambda self: self.timers)
    @rule()
    def the_timer_rings(self) -> None:
        self.clock.ns = max(self.clock.ns, self.timers.pop())
        due = [key for key, record in self.due().items() if record.failures < self.settings.max_attempts]
        told = len(self.panes.told)
        self.loop.handle(Tick())
        if self.flight is not None or self.pane is None or not due:
            # "Two sources can never type two competing turns": one nudge at a time, and none into no pane.
            assert len(self.panes.told) == told
            return
        (job,) = self.panes.told[told:]
        assert isinstance(job, TypePrompt)
        assert (job.pane, job.grammar, job.typing) == (self.pane.pane, self.pane.grammar, self.pane.typing)
        assert (job.own, job.patience_s, job.back) == (False, self.pane.patience_s, self.loop)
        assert job.job not in {other.job for other in self.panes.only(TypePrompt)[:-1]}
        self.flight = Flight(job, due)

    @precondition(lambda self: self.flight is not None and self.flight.told is None)
    @rule()
    def the_leads_input_line_is_open(self) -> None:
        """ "The text is composed at the moment it is typed." """
        assert self.flight is not None
        assert callable(self.flight.job.text)
        if self.flight.dropped >= set(self.flight.keys):
            with pytest.raises(NotTyped) as nothing:
                self.flight.job.text()
            self.loop.handle(PromptNotTyped(self.flight.job.job, str(nothing.value), retry=nothing.value.retry))
            self.flight = None
            return
        text = self.flight.job.text()
        assert len(text) <= 600
        told = told_by(text, [key for key in self.flight.keys if key not in self.flight.dropped])
        assert told
        for end in re.findall(r"no spawns on it for (\d+) s", text):
            assert 0 < int(end) <= 90
        self.flight.told = [key for key in self.flight.keys if key in told]

    @precondition(lambda self: self.flight is not None)
    @rule()
    def the_nudge_is_typed(self) -> None:
        assert self.flight is not None
        if self.flight.told is None:
            self.the_leads_input_line_is_open()
        if self.flight is None:
            return
        flight, self.flight = self.flight, None
        for key in flight.told or ():
            self.is_told(key)
        self.loop.handle(PromptTyped(flight.job.job, Typed(Sent("", Frame(())), self.clock.ns)))

    @precondition(lambda self: self.flight is not None)
    @rule(busy=st.booleans(), unknown=st.booleans())
    def the_nudge_is_not_typed(self, busy: bool, unknown: bool) -> None:
        """ "A busy lead costs nothing, however long it is busy: only a failed typing uses up an attempt." """
        assert self.flight is not None
        flight, self.flight = self.flight, None
        tried = flight.keys if flight.told is None else flight.told
        for key in tried:
            if not busy and key in self.records:
                self.records[key].failures += 1
        self.loop.handle(PromptNotTyped(flight.job.job, "why", retry=busy, unknown=unknown and not busy))

    @rule(typed=st.booleans())
    def a_message_of_an_old_job_comes(self, typed: bool) -> None:
        old = "nudge:lead-1:0"
        self.loop.handle(
            PromptTyped(old, Typed(Sent("", Frame(())), 0)) if typed else PromptNotTyped(old, "why", retry=False)
        )

    @rule()
    def a_tool_result_takes_the_notices(self) -> None:
        """ "When the attempts are used up, or where a lead has no pane, the items are handed over as notices." """
        flying = [] if self.flight is None else self.flight.keys if self.flight.told is None else self.flight.told
        expected = {
            key
            for key, record in self.due().items()
            if (self.pane is None or record.failures >= self.settings.max_attempts) and key not in flying
        }
        notices = self.loop.handle(TakeNotices())
        assert isinstance(notices, tuple)
        left = sorted(expected)
        found: list[str] = []
        for text in notices:
            assert len(text) <= 600
            told = told_by(text, left)
            assert told
            found += told
            left = [key for key in left if key not in told]
        assert not left
        for key in found:
            self.is_told(key)

    # -- the oracle ----------------------------------------------------------------------------------------------

    def due(self) -> dict[str, Record]:
        return {key: record for key, record in self.records.items() if record.due <= self.clock.ns}

    def is_told(self, key: str) -> None:
        once = next(once for item, _, once in ITEMS if item.key == key)
        record = self.records.get(key)
        if once:
            # "After one successful injection, later ticks do not mention that incident again."
            assert key not in self.one_shots_told, f"{key} is told twice"
            self.one_shots_told.add(key)
        if record is None:
            return
        record.told += 1
        record.failures = 0
        self.times_told[key] += 1
        # "Tickets, late answers and questions are reminded of, ever more rarely": after 60 s, 120 s, 240 s.
        if record.once or record.told > self.settings.reminders:
            del self.records[key]
        else:
            record.due = self.clock.ns + [60, 120, 240][record.told - 1] * S

    # -- what must hold ------------------------------------------------------------------------------------------

    @invariant()
    def while_something_waits_there_is_one_timer(self) -> None:
        assert len(self.timers) <= 1
        if self.records:
            assert self.timers

    @invariant()
    def its_repr_is_its_state(self) -> None:
        flight = ", typing" if self.flight else ""
        nudges = len(self.panes.told)
        assert repr(self.loop) == f"<PushLoop lead-1: {len(self.records)} waiting, {nudges} nudges{flight}>"

    def teardown(self) -> None:
        """Nothing is lost: with a pane that takes everything, whatever still waits is told."""
        if self.flight is not None:
            self.the_nudge_is_not_typed(busy=True, unknown=False)
        self.a_tool_result_takes_the_notices()
        self.set_pane(PANES[0])
        never = {key for key in self.records if not self.times_told[key]}
        for _ in range(2 * len(ITEMS)):
            if not never or not self.timers:
                break
            self.the_timer_rings()
            if self.flight is not None:
                self.the_nudge_is_typed()
            never = {key for key in never if key in self.records and not self.times_told[key]}
        assert not never


TestPush = PushMachine.TestCase
TestPush.settings = modest(60, steps=40)
