"""A lead that is busy, at a dialog, has a draft or scrolls, from any moment of its nudge on.

The sentences: one incident is one injection that succeeds; no key goes to a pane whose last look showed a dialog; and
none goes to an input line whose last look showed anything but what fleetd had put there itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, NamedTuple

import pytest
import trio

from actors.clock import now_ns
from actors.inject import Injection
from actors.outage import BackendErrorSeen, Evidence
from actors.push import PushLoop
from actors.turn import Outcome, Status, TurnEnded
from fleetd.testing import Fleet
from tests.races.stage import Key, Stage, on_stage
from tests.races.twins import twin

#: Behind which of the calls that type a nudge something comes up; and two moments before the first.
MOMENTS: Final = {
    "before the incident": -1,
    "before the tick": 0,
    "behind the look": 1,
    "behind the paste": 2,
    "behind the look at what was pasted": 3,
    "behind the last look": 4,
    "behind the Enter": 5,
    "behind the look at the turn": 6,
}
#: How long it lasts, in seconds.
LASTS_S: Final = 5.0
WORDS: Final = "half a line"


def begins_and_ends(event: str, fleet: Fleet) -> tuple[Callable[[], None], Callable[[], None]]:
    lead = fleet.lead()
    assert lead.pane is not None
    pane, agent = lead.pane, lead.agent
    story = agent.story

    def draft(text: str) -> None:
        story.draft = text

    match event:
        case "busy":
            return agent.busy, lambda: agent.answers("Done with something else.")
        case "dialog":
            return agent.asks_permission, agent.idle
        case "draft":
            return lambda: draft(story.draft + WORDS), lambda: draft(story.draft.replace(WORDS, ""))
    return lambda: setattr(pane, "in_mode", True), lambda: setattr(pane, "in_mode", False)


class Came(NamedTuple):
    submitted: list[str]
    keys: list[Key]


async def nudged(event: str, moment: int, fleet: Fleet, stage: Stage, nursery: trio.Nursery) -> Came:
    """Two errors, one lead, and what came of it in the forty seconds after."""
    begin, end = begins_and_ends(event, fleet)

    async def ends() -> None:
        await trio.sleep(LASTS_S)
        end()

    async def happens() -> None:
        begin()
        nursery.start_soon(ends)

    lead = fleet.lead()
    assert lead.pane is not None
    stage.on(lead.pane.ref, moment, happens)
    if moment < 0:
        await happens()
    for target in ("m-1", "m-2"):
        turn = TurnEnded(target, f"t-{target}", Outcome(Status.BACKEND_ERROR), now_ns())
        evidence = Evidence("shared", target, turn.ticket, "demo-a", lead.caller.id, turn.at_ns)
        fleet.actors.outage.tell(BackendErrorSeen(evidence, turn))
    await fleet.advance(0.5)
    if moment == 0:
        await happens()
    await fleet.advance(40)
    return Came(list(lead.agent.prompts), stage.keys)


class Forgets(PushLoop):
    """Does not keep in mind what it has told."""

    def _told(self, key, *, once):  # type: ignore[no-untyped-def]
        self._waiting[key].due_ns = self.now()


class PressesBlindly(Injection):
    """Does not look whether a dialog has come up before it presses Enter."""

    async def _enter(self, *_):  # type: ignore[no-untyped-def]
        seen = await self.look()
        await self._host.press(self._pane, "Enter")
        return seen


def into_anything(*_: object) -> None:
    """Types whatever the pane shows."""


#: Where the composition finds what a twin stands in for.
PLACE: Final = {
    Forgets: "actors.leads.PushLoop",
    PressesBlindly: "actors.panes.Injection",
    into_anything: "actors.inject.injectable",
}


@cache
def story_of(event: str, moment: int, broken: Any) -> Came:
    swap = {} if broken is None else {PLACE[broken]: broken}
    came: Came = on_stage(lambda *stage: nudged(event, moment, *stage), swap)
    return came


@pytest.mark.criterion("U3.4")
@pytest.mark.criterion("U3.6")
@pytest.mark.parametrize(
    ("broken", "event", "moment"),
    [
        *((None, event, moment) for event in ("busy", "dialog", "draft", "scroll") for moment in MOMENTS),
        twin(Forgets, "scroll", "before the tick"),
    ],
)
def test_one_incident_is_one_injection_that_succeeds(broken: Any, event: str, moment: str) -> None:
    came = story_of(event, MOMENTS[moment], broken)
    assert len([prompt for prompt in came.submitted if "inc-1" in prompt]) == 1


@pytest.mark.criterion("U3.4")
@pytest.mark.parametrize(
    ("broken", "moment"),
    [
        *((None, moment) for moment in MOMENTS),
        twin(into_anything, "before the tick"),
        twin(PressesBlindly, "behind the paste"),
    ],
)
def test_no_key_goes_to_a_dialog_that_could_be_seen(broken: Any, moment: str) -> None:
    came = story_of("dialog", MOMENTS[moment], broken)
    assert [key for key in came.keys if key.asking] == []


@pytest.mark.parametrize(
    ("broken", "moment"), [*((None, moment) for moment in MOMENTS), twin(into_anything, "before the tick")]
)
def test_no_key_goes_to_an_input_line_that_showed_a_persons_words(broken: Any, moment: str) -> None:
    came = story_of("draft", MOMENTS[moment], broken)
    assert [key for key in came.keys if WORDS in key.draft] == []
