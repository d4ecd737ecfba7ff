"""One incident on two roads: the lead's pane, and its next tool result.

The sentence: it is told once, by a nudge that succeeded or with a tool result; whatever the pane answers, whenever it
comes or goes, and however often the incident is put.
"""

from __future__ import annotations

from typing import Final

import pytest

from actors.actor import Message
from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.inject import Typed, Typing
from actors.nudge import Outage
from actors.panes import PromptNotTyped, PromptTyped, TypePrompt
from actors.push import LeadPane, PushLoop, PushSettings, Put, SetPane, TakeNotices, Tick
from actors.screen import Frame, Sent
from fleetd.testing.merges import merges
from tests.actors.recorders import Clock, Recorder, TableGrammar, driven
from tests.races.twins import twin

OUTAGE: Final = Outage("inc-1", "c", ("p",), ("m-1", "m-2"), 60 * NS_PER_S)
PANE: Final = LeadPane(PaneRef("memory", "%1"), TableGrammar(), Typing())
ANSWERS: Final[dict[str, Message]] = {
    "typed": PromptTyped("nudge:lead-1:1", Typed(Sent("", Frame(())), 0)),
    "busy": PromptNotTyped("nudge:lead-1:1", "a turn is running", retry=True),
    "failed": PromptNotTyped("nudge:lead-1:1", "its process has ended"),
}


class GivesAwayWhatItTypes(PushLoop):
    """Hands over with a tool result what is being typed just now."""

    def _notices(self):  # type: ignore[no-untyped-def]
        flight, self._in_flight = self._in_flight, None
        try:
            return super()._notices()
        finally:
            self._in_flight = flight


class Forgets(PushLoop):
    """Does not keep in mind what it has told."""

    def _put(self, item, *, once):  # type: ignore[no-untyped-def]
        self._told_once.clear()
        super()._put(item, once=once)


class Bench:
    def __init__(self, make: type[PushLoop]) -> None:
        self.panes = Recorder("panes")
        self.loop = make("lead-1", PushSettings(max_attempts=1), panes=self.panes)
        driven(self.loop, Clock())
        self.told = 0
        for message in (SetPane(PANE), Put(OUTAGE, once=True), Tick()):
            self.take(message)
        self.compose()

    def take(self, message: Message) -> None:
        self.told += isinstance(message, PromptTyped)
        came = self.loop.handle(message)
        if isinstance(message, TakeNotices):
            self.told += sum("inc-1" in notice for notice in came)  # type: ignore[attr-defined]

    def compose(self) -> str:
        """What the pane would paste."""
        text = self.panes.only(TypePrompt)[-1].text
        return text() if callable(text) else text

    def drain(self) -> None:
        """The pane is there again, what is typed succeeds, and the lead calls a tool."""
        for message in (SetPane(PANE), Tick()):
            self.take(message)
        jobs = self.panes.only(TypePrompt)
        if len(jobs) > 1:
            self.compose()
            self.take(PromptTyped(jobs[-1].job, ANSWERS["typed"].typed))  # type: ignore[attr-defined]
        self.take(TakeNotices())


@pytest.mark.criterion("U3.3")
@pytest.mark.criterion("U3.6")
@pytest.mark.parametrize(
    ("make", "answer"),
    [*((PushLoop, answer) for answer in ANSWERS), twin(GivesAwayWhatItTypes, "typed"), twin(Forgets, "typed")],
)
def test_an_incident_is_told_once_in_its_pane_or_with_a_tool_result_in_every_order(
    make: type[PushLoop], answer: str
) -> None:
    senders: list[tuple[Message, ...]] = [
        (ANSWERS[answer],),
        (SetPane(None), SetPane(PANE)),
        (TakeNotices(), TakeNotices()),
        (Tick(),),
        (Put(OUTAGE, once=True),),
    ]
    for order in merges(*senders):
        bench = Bench(make)
        for message in order:
            bench.take(message)
        bench.drain()
        assert bench.told == 1, order
