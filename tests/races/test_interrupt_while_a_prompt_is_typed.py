"""Interrupt, release, death and reply at any moment of a prompt's typing.

The sentences: the send ends once, and by what came; a prompt that got through although its send was interrupted is
stopped in its pane; and a member that lives takes the next prompt.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import pytest
import trio

from actors.resolver import Resolver
from actors.sends import NoOpenTurn
from actors.turn import Status, TurnEnded
from fleetd.callers import Caller, Role
from fleetd.testing import Fleet
from tests.races.stage import Stage, on_stage
from tests.races.twins import twin

#: Behind which call: look, paste, look, look, Enter, look; 0 is before the first.
MOMENTS: Final = range(7)
ENTER: Final = 5


class Came(NamedTuple):
    #: How the first send ended, as often as it did; and its text.
    ends: list[str]
    text: str
    submitted: list[str]
    #: The program still works on it five seconds later.
    working: bool
    #: How the second send ended, where there is one.
    followed: str


async def typed(event: str, moment: int, fleet: Fleet, stage: Stage, nursery: trio.Nursery) -> Came:
    member = await fleet.spawn("a", "demo-a")
    lead, agent = fleet.lead(), member.agent

    async def happens() -> None:
        match event:
            case "interrupt":
                await lead.call("fleet_interrupt", target="a")
            case "release":
                await lead.call("fleet_release", target="a")
            case "death":
                member.dies(3)
            case "reply":
                await fleet.tools.call(Caller(Role.MEMBER, member.target, "/"), "fleet_reply", {"text": "the answer"})

    stage.on(member.pane.ref, moment, happens)
    sent = await lead.call("fleet_send", target="a", prompt="first")
    if moment == 0:
        await happens()
    await fleet.advance(5)
    working = agent.story.doing is not None
    agent.answers("the answer on the screen")
    await fleet.advance(2)
    submitted, followed = list(agent.prompts), ""
    if event in ("interrupt", "reply"):
        ticket = await lead.send("a", "second")
        await fleet.advance(3)
        agent.answers("done")
        await fleet.advance(2)
        followed = await ticket.status()
    ends = [
        message.outcome
        for _, name, message in fleet.timeline._rows
        if name == "mail" and isinstance(message, TurnEnded) and message.ticket == sent["ticket"]
    ]
    collected = await lead.call("fleet_collect", ticket=sent["ticket"])
    assert collected["status"] in [each.status for each in ends]
    return Came([str(each.status) for each in ends], collected["text"], submitted, working, followed)


class LetsItRun(Resolver):
    """Ends an interrupted send, and leaves its prompt to itself."""

    def _typed(self, job, sent, at_ns):  # type: ignore[no-untyped-def]
        if self._turn is not None:
            self._turn.interrupted = False
        super()._typed(job, sent, at_ns)


class EndsItAgain(Resolver):
    """Ends what waits at its release, and once more what was typed."""

    def _release(self):  # type: ignore[no-untyped-def]
        if self._turn is not None:
            self._queue.end(self._turn.deliver, Status.INTERRUPTED, "the member was released")
        super()._release()


class NeverMind(Resolver):
    """Refuses what a dead program had, as if it had never been typed."""

    def _died(self, how, *, known):  # type: ignore[no-untyped-def]
        if self._turn is not None:
            self._turn.phase = None
        super()._died(how, known=known)


class BelievesItsEyes(Resolver):
    """Takes no reply, and waits for what the screen says."""

    def _reply(self, text):  # type: ignore[no-untyped-def]
        raise NoOpenTurn("no reply is taken here")


def story_of(event: str, moment: int, make: Any = Resolver) -> Came:
    swap = {"actors.launcher.Resolver": make}
    came: Came = on_stage(lambda *stage: typed(event, moment, *stage), swap, members=True)
    return came


@pytest.mark.parametrize(("make", "moment"), [*((Resolver, moment) for moment in MOMENTS), twin(LetsItRun, 3)])
def test_an_interrupted_prompt_is_not_submitted_or_it_is_stopped_and_the_next_one_goes_on(
    make: Any, moment: int
) -> None:
    came = story_of("interrupt", moment, make)
    assert came.ends == ["interrupted"]
    assert not came.working
    assert came.followed == "completed"


@pytest.mark.parametrize(("make", "moment"), [*((Resolver, moment) for moment in MOMENTS), twin(EndsItAgain, 3)])
def test_a_member_that_is_released_while_its_prompt_is_typed_ends_the_send_once(make: Any, moment: int) -> None:
    assert story_of("release", moment, make).ends == ["interrupted"]


@pytest.mark.parametrize(("make", "moment"), [*((Resolver, moment) for moment in MOMENTS), twin(NeverMind, 6)])
def test_a_prompt_that_was_submitted_before_the_program_died_is_not_called_refused(make: Any, moment: int) -> None:
    came = story_of("death", moment, make)
    assert came.ends in ([["failed"], ["lost"]] if came.submitted else [["refused"], ["failed"]])


@pytest.mark.parametrize(("make", "moment"), [*((Resolver, moment) for moment in MOMENTS), twin(BelievesItsEyes, 6)])
def test_a_reply_answers_a_prompt_only_if_it_comes_behind_its_enter(make: Any, moment: int) -> None:
    came = story_of("reply", moment, make)
    assert came.ends == ["completed"]
    assert came.text == ("the answer" if moment >= ENTER else "the answer on the screen")
    assert came.followed == "completed"
