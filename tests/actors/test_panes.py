"""The pane actor: one queue of keystrokes per pane, and who looks at which."""

from __future__ import annotations

import logging

import pytest
import trio
from trio.testing import MockClock

from actors.actor import Actor, Message
from actors.host import HostError, PaneEnded, PaneRef, PaneSpec
from actors.inject import Typing
from actors.panes import (
    Bind,
    ClosePane,
    HostSaw,
    Look,
    Observed,
    PaneClosed,
    PaneDied,
    PaneMissing,
    Panes,
    PressKeys,
    PromptNotTyped,
    PromptTyped,
    TypePrompt,
    Unbind,
    Unwatch,
    Watch,
)
from actors.screen import Frame, Reading, Sent
from actors.watching import follow, watch
from fleetd.agents import ADAPTERS
from fleetd.hosts.memory import MemoryHost, MemoryPane, Pasted, ScriptedAgent
from tests.actors.recorders import Recorder

DEMO = ADAPTERS["demo"]


class Desk:
    """The pane actor over a memory host with some agents."""

    def __init__(self) -> None:
        self.host = MemoryHost(lambda _: ScriptedAgent())
        self.panes = Panes({"memory": self.host})

    async def open(self, target: str) -> PaneRef:
        return await self.host.open(PaneSpec(target, ("demo",), {}, "/"))

    def at(self, pane: PaneRef) -> MemoryPane:
        return self.host[pane]

    def agent(self, pane: PaneRef) -> ScriptedAgent:
        program = self.host[pane].program
        assert isinstance(program, ScriptedAgent)
        return program

    def type(self, pane: PaneRef, job: str, back: Recorder, grammar: object = DEMO.grammar) -> None:
        self.panes.tell(TypePrompt(pane, job, f"text of {job}", grammar, Typing(), back))  # type: ignore[arg-type]


@pytest.fixture
async def desk(nursery: trio.Nursery) -> Desk:
    desk = Desk()
    nursery.start_soon(desk.panes.run)
    return desk


async def test_two_prompts_for_one_pane_are_typed_one_behind_the_other(desk: Desk, autojump_clock: MockClock) -> None:
    pane, back = await desk.open("m-1"), Recorder()
    desk.type(pane, "one", back)
    desk.type(pane, "two", back)
    await trio.sleep(5)
    assert desk.at(pane).keys == [Pasted("text of one"), "Enter"]
    desk.agent(pane).answers("done")
    await trio.sleep(5)
    assert desk.at(pane).keys == [Pasted("text of one"), "Enter", Pasted("text of two"), "Enter"]
    assert [told.job for told in back.only(PromptTyped)] == ["one", "two"]


async def test_an_escape_waits_for_the_prompt_before_it(desk: Desk, autojump_clock: MockClock) -> None:
    pane = await desk.open("m-1")
    desk.type(pane, "one", Recorder())
    desk.panes.tell(PressKeys(pane, ("Escape",)))
    await trio.sleep(5)
    assert desk.at(pane).keys == [Pasted("text of one"), "Enter", "Escape"]


async def test_panes_do_not_wait_for_each_other(desk: Desk, autojump_clock: MockClock) -> None:
    busy, free, back = await desk.open("m-1"), await desk.open("m-2"), Recorder()
    desk.agent(busy).busy()
    desk.type(busy, "one", back)
    desk.type(free, "two", back)
    await trio.sleep(5)
    assert [told.job for told in back.only(PromptTyped)] == ["two"]


async def test_closing_a_pane_stops_what_is_typed_and_forgets_what_waits(desk: Desk, autojump_clock: MockClock) -> None:
    pane, back = await desk.open("m-1"), Recorder()
    desk.agent(pane).busy()
    desk.type(pane, "one", back)
    desk.type(pane, "two", back)
    await trio.sleep(1)
    desk.panes.tell(ClosePane(pane, back))
    await trio.sleep(1)
    assert back.told == [PaneClosed(pane)]


async def test_a_terminal_that_fails_leaves_the_prompts_fate_open(desk: Desk, autojump_clock: MockClock) -> None:
    pane, back = await desk.open("m-1"), Recorder()
    desk.host.fail_next("press", HostError("no answer within 10 s"))
    desk.type(pane, "one", back)
    await trio.sleep(5)
    (told,) = back.only(PromptNotTyped)
    assert told.unknown
    assert "no answer within 10 s" in told.why


class Broken:
    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        raise ZeroDivisionError("a mistake in a grammar")


async def test_a_mistake_of_ours_in_one_pane_is_told_logged_and_touches_nothing_else(
    desk: Desk, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    pane, other, back = await desk.open("m-1"), await desk.open("m-2"), Recorder()
    with caplog.at_level(logging.ERROR):
        desk.type(pane, "one", back, Broken())
        await trio.sleep(5)
    desk.type(pane, "two", back)
    desk.type(other, "three", back)
    await trio.sleep(5)
    assert [(told.job, told.unknown) for told in back.only(PromptNotTyped)] == [("one", True)]
    assert sorted(told.job for told in back.only(PromptTyped)) == ["three", "two"]
    assert "typing crashed" in caplog.text


async def test_a_death_is_told_to_the_owner_also_when_it_came_before_the_owner_was_known(
    desk: Desk, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    nursery.start_soon(follow, desk.panes, desk.host)
    early, late, owner = await desk.open("m-1"), await desk.open("m-2"), Recorder()
    desk.at(early).end(status=3)
    await trio.sleep(1)
    desk.panes.tell(Bind(early, owner))
    desk.panes.tell(Bind(late, owner))
    desk.at(late).end(signal=9)
    await trio.sleep(1)
    assert owner.told == [PaneDied(PaneEnded(early, status=3)), PaneDied(PaneEnded(late, signal=9))]


async def test_deaths_that_nobody_claims_are_bounded(desk: Desk) -> None:
    for number in range(300):
        desk.panes.tell(HostSaw(PaneEnded(PaneRef("memory", f"%{number}"))))
        await trio.lowlevel.checkpoint()
    await trio.testing.wait_all_tasks_blocked()
    assert len(desk.panes._unclaimed) == 256


class Eyes(Actor):
    """Counts what it is shown."""

    def __init__(self) -> None:
        super().__init__("eyes")
        self.frames: list[Frame] = []

    def handle(self, message: Message) -> object:
        assert isinstance(message, Observed)
        self.frames.append(message.frame)
        return None


async def test_a_watched_pane_is_shown_four_times_a_second_until_it_is_not_watched(
    desk: Desk, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    eyes, pane = Eyes(), await desk.open("m-1")
    nursery.start_soon(eyes.run)
    desk.panes.tell(Watch(pane, eyes))
    nursery.start_soon(watch, desk.panes, {"memory": desk.host})
    await trio.sleep(0.9)
    assert len(eyes.frames) == 4
    desk.panes.tell(Unwatch(pane))
    await trio.sleep(5)
    assert len(eyes.frames) == 4


async def test_a_capture_that_fails_says_nothing_about_the_members_and_goes_on(
    desk: Desk, autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    eyes, pane = Eyes(), await desk.open("m-1")
    nursery.start_soon(eyes.run)
    desk.panes.tell(Watch(pane, eyes))
    desk.host.fail_next("capture", HostError("hung"))
    with caplog.at_level(logging.WARNING):
        nursery.start_soon(watch, desk.panes, {"memory": desk.host})
        await trio.sleep(0.9)
    assert len(eyes.frames) == 3
    assert "capture failed" in caplog.text


async def test_an_observer_that_has_ended_is_passed_over(
    desk: Desk, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    gone, eyes = Eyes(), Eyes()
    gone.stop()
    nursery.start_soon(eyes.run)
    desk.panes.tell(Watch(await desk.open("m-1"), gone))
    desk.panes.tell(Watch(await desk.open("m-2"), eyes))
    async with trio.open_nursery() as ended:
        ended.start_soon(gone.run)
    nursery.start_soon(watch, desk.panes, {"memory": desk.host})
    await trio.sleep(0.9)
    assert len(eyes.frames) == 4


async def test_a_look_shows_the_pane_or_says_why_not(desk: Desk, autojump_clock: MockClock) -> None:
    pane = await desk.open("m-1")
    assert (await desk.panes.ask(Look(pane))).lines
    desk.host.fail_next("capture", HostError("hung"))
    with pytest.raises(PaneMissing, match="cannot be captured: hung"):
        await desk.panes.ask(Look(pane))
    await desk.host.close(pane)
    with pytest.raises(PaneMissing, match="is gone"):
        await desk.panes.ask(Look(pane))
    with pytest.raises(PaneMissing, match="no terminal host is called nowhere"):
        await desk.panes.ask(Look(PaneRef("nowhere", "%1")))


async def test_an_unbound_pane_is_forgotten(desk: Desk) -> None:
    owner, pane = Recorder(), await desk.open("m-1")
    desk.panes.tell(Bind(pane, owner))
    desk.panes.tell(Unbind(pane))
    desk.panes.tell(HostSaw(PaneEnded(pane, status=0)))
    await trio.testing.wait_all_tasks_blocked()
    assert owner.told == []
