"""The memory host: the contract, played in memory, and the faults that it can have."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from trio.testing import MockClock

from actors.host import HostError, OpenFailed, PaneDead, PaneEnded, PaneInMode, PaneRef, PaneSpec
from fleetd.agents import ADAPTERS
from fleetd.demo_screen import OVERLOADED
from fleetd.hosts.memory import MemoryHost, MemoryPane, Pasted, Program, ScriptedAgent
from fleetd.hosts.terminal import Terminal
from tests.hosts.contract import HostContract

SPEC = PaneSpec("m-1", ("program",), {}, "/")
GRAMMAR = ADAPTERS["demo"].grammar


class Shown:
    """Plays ``show``, ``leave`` and ``reader``: shows lines, and writes down what a terminal would have sent."""

    def __init__(self, lines: Sequence[str], title: str = "") -> None:
        self.lines, self.title = lines, title
        self.received = b""
        self._terminal = Terminal(80, 24)
        self._terminal.feed(b"\x1b[?2004h")

    def draw(self, width: int, height: int) -> Sequence[str]:
        return self.lines

    def on_paste(self, text: str) -> None:
        self.received += self._terminal.pasted(text)

    def on_key(self, key: str) -> None:
        self.received += self._terminal.key(key)


class MemoryStage:
    def __init__(self) -> None:
        self.host = MemoryHost(self._play)
        self.endings: list[PaneEnded] = []
        self._shown: dict[str, Shown] = {}

    async def follow(self) -> None:
        async for ended in self.host.endings():
            self.endings.append(ended)

    def spec(self, program: str, *args: str, target: str = "m-1") -> PaneSpec:
        return PaneSpec(target, (program, *args), {}, "/")

    def received(self, target: str) -> bytes:
        return self._shown[target].received

    def _play(self, pane: MemoryPane) -> Program:
        program, *args = pane.spec.argv
        match program, args:
            case "show", [title, *lines]:
                played = Shown(lines, title)
            case "leave", [how, number]:
                played = Shown(["last words"])
                pane.end(**{"status" if how == "exit" else "signal": int(number)})
            case _:
                played = Shown(["ready"])
        self._shown[pane.spec.target] = played
        return played


@pytest.fixture
async def stage(nursery: trio.Nursery) -> MemoryStage:
    stage = MemoryStage()
    nursery.start_soon(stage.follow)
    return stage


class TestTheMemoryHostKeepsTheContract(HostContract):
    pass


# -- faults ---------------------------------------------------------------------------------------------------------


async def test_a_fault_hits_the_next_call_of_its_kind_and_no_other() -> None:
    host = MemoryHost()
    host.fail_next("open", OpenFailed("no such program"))
    with pytest.raises(OpenFailed, match="no such program"):
        await host.open(SPEC)
    ref = await host.open(SPEC)
    host.fail_next("paste", HostError("one"))
    host.fail_next("paste", HostError("two"))
    await host.press(ref, "Enter")
    for why in ("one", "two"):
        with pytest.raises(HostError, match=why):
            await host.paste(ref, "text")
    assert host[ref].keys == ["Enter"]
    await host.paste(ref, "text")
    assert host[ref].keys == ["Enter", Pasted("text")]


async def test_a_lost_paste_and_a_swallowed_key_are_recorded_and_do_not_reach_the_program() -> None:
    agent = ScriptedAgent()
    host = MemoryHost(lambda _: agent)
    ref = await host.open(SPEC)
    host[ref].lost_pastes = 1
    host[ref].swallowed["Enter"] = 1
    await host.paste(ref, "lost")
    await host.paste(ref, "kept")
    await host.press(ref, "Enter")
    assert agent.prompts == []
    await host.press(ref, "Enter")
    assert agent.prompts == ["kept"]
    assert host[ref].keys == [Pasted("lost"), Pasted("kept"), "Enter", "Enter"]


async def test_a_person_who_scrolls_keeps_keys_out_until_the_mode_is_left() -> None:
    host = MemoryHost()
    ref = await host.open(SPEC)
    host[ref].in_mode = True
    assert (await host.capture([ref]))[ref].in_mode
    with pytest.raises(PaneInMode):
        await host.paste(ref, "text")
    with pytest.raises(PaneInMode):
        await host.press(ref, "Enter")
    await host.leave_mode(ref)
    await host.press(ref, "Enter")


async def test_a_screen_that_the_test_sets_is_captured_as_it_is(mock_clock: MockClock) -> None:
    host = MemoryHost()
    ref = await host.open(SPEC)
    pane = host.of("m-1")
    pane.screen, pane.title = ["plain  ", "\x1b[2mdim\x1b[0m", "", "\x1b[2m \x1b[0m"], "title"
    mock_clock.jump(2.0)
    frame = (await host.capture([ref], styled=True))[ref]
    assert frame.lines == ("plain", "dim")
    assert frame.styled == ("plain", "\x1b[2mdim\x1b[0m")
    assert (frame.title, frame.at_ns) == ("title", 2_000_000_000)


async def test_a_pane_ends_once() -> None:
    host = MemoryHost()
    ref = await host.open(SPEC)
    host[ref].end(status=3)
    host[ref].end(status=4)
    with pytest.raises(PaneDead):
        await host.press(ref, "Enter")
    await host.close(ref)
    other = await host.open(SPEC)
    await host.close(other)
    endings = host.endings()
    assert [await anext(endings), await anext(endings)] == [PaneEnded(ref, 3), PaneEnded(other, None, 1)]


# -- the scripted agent ---------------------------------------------------------------------------------------------


@pytest.fixture
def agent() -> ScriptedAgent:
    return ScriptedAgent()


async def reading(host: MemoryHost, ref: PaneRef) -> tuple[str, str, str]:
    """State, draft and answer as the demo grammar reads them."""
    read = GRAMMAR.read((await host.capture([ref], styled=True))[ref])
    return read.state, read.draft, read.answer


async def test_a_scripted_turn_is_read_by_the_demo_grammar(agent: ScriptedAgent, mock_clock: MockClock) -> None:
    host = MemoryHost(lambda _: agent)
    ref = await host.open(SPEC)
    assert await reading(host, ref) == ("idle", "", "")
    await host.paste(ref, "do it")
    assert await reading(host, ref) == ("idle", "do it", "")
    await host.press(ref, "Enter")
    assert agent.prompts == ["do it"]
    assert await reading(host, ref) == ("busy", "", "")
    mock_clock.jump(7.5)
    agent.busy("thinking")
    frame = (await host.capture([ref]))[ref]
    assert "* Thinking… (7s · esc to interrupt)" in frame.lines
    assert frame.title == "demo: working"
    agent.says("half")
    agent.retries(5, 2)
    assert await reading(host, ref) == ("busy", "", "half")
    agent.answers("whole")
    assert await reading(host, ref) == ("idle", "", "whole")
    assert "— done in 7s" in (await host.capture([ref]))[ref].lines


async def test_a_scripted_agent_fails_and_is_exhausted_as_the_program_does(agent: ScriptedAgent) -> None:
    host = MemoryHost(lambda _: agent)
    ref = await host.open(SPEC)
    for end, line in ((agent.fails, f"✗ {OVERLOADED}"), (agent.exhausts, "✗ Usage limit reached · resets in 3h 20m")):
        agent.on_paste("go")
        agent.on_key("Enter")
        end()
        read = GRAMMAR.read((await host.capture([ref]))[ref])
        assert line in read.ending
        assert read.block_at is None


@pytest.mark.parametrize(("key", "allowed", "state"), [("y", True, "busy"), ("Escape", False, "idle")])
async def test_a_scripted_dialog_takes_only_its_own_keys(
    agent: ScriptedAgent, key: str, allowed: bool, state: str
) -> None:
    host = MemoryHost(lambda _: agent)
    ref = await host.open(SPEC)
    agent.asks_permission()
    assert await reading(host, ref) == ("blocked", "", "")
    await host.paste(ref, "text")
    await host.press(ref, "C-u", "x")
    assert agent.choices == []
    await host.press(ref, key)
    assert agent.choices == [allowed]
    assert await reading(host, ref) == (state, "", "")


async def test_escape_interrupts_a_scripted_turn_and_typed_text_stays(agent: ScriptedAgent) -> None:
    host = MemoryHost(lambda _: agent)
    ref = await host.open(SPEC)
    await host.press(ref, "g", "o", "Enter", "x", "Enter", "Escape")
    read = GRAMMAR.read((await host.capture([ref]))[ref])
    assert (agent.prompts, read.interrupted, read.draft) == (["go"], True, "x")
    await host.press(ref, "C-u")
    assert (await reading(host, ref))[1] == ""
