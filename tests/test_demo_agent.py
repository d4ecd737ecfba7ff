"""The demo agent: the real program in a terminal of ours, typed to by the product's own injection and read by its
grammar; and the same stories drawn in memory."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from actors.classify import Kind, classify
from actors.host import PaneEnded, PaneHost, PaneRef, PaneSpec
from actors.inject import Injection, Typed
from actors.patterns import Pattern, Patterns
from actors.screen import Frame, Reading, State
from actors.tracker import TurnTracker
from fleetd.agents import ADAPTERS
from fleetd.agents.generic import GenericGrammar
from fleetd.demo_agent import REPORT
from fleetd.demo_mcp import COMMAND_VARIABLE
from fleetd.demo_screen import HINT, Painter, Story, plain, region, transcript
from fleetd.hosts.memory import MemoryHost, ScriptedAgent
from fleetd.hosts.pty import PtyHost
from fleetd.hosts.terminal import Terminal
from fleetd.hosts.tmux import TmuxHost
from tests.hosts.contract import ENV, until

DEMO: Final = ADAPTERS["demo"]
PATTERNS: Final = Patterns((Pattern(DEMO.exhausted_pattern, "@demo"),), (Pattern(DEMO.error_pattern, "@demo"),))

#: A bridge that answers: whoami with its arguments, the first question late, anything else with a refusal.
BRIDGE: Final = """
import json, sys
log = open(sys.argv[1], "a", buffering=1)
for line in sys.stdin:
    log.write(line)
    call = json.loads(line)
    if "id" not in call:
        continue
    params, result = call["params"], {}
    if call["method"] == "initialize":
        result = {"protocolVersion": params["protocolVersion"], "capabilities": {}, "serverInfo": {"name": "b"}}
    elif params["name"] == "fleet_reply":
        result = {"structuredContent": {"ticket": "t-1"}, "content": []}
    elif params["name"] == "fleet_ask" and "text" in params["arguments"]:
        result = {"structuredContent": {"question": "q-1", "stillWaiting": True}, "content": []}
    elif params["name"] == "fleet_ask":
        result = {"structuredContent": {"question": "q-1", "answer": "use the other one"}, "content": []}
    elif params["name"] == "slow":
        continue
    else:
        text = "not allowed: " + json.dumps(params["arguments"])
        result = {"isError": True, "content": [{"type": "text", "text": text}]}
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}), flush=True)
    print(json.dumps({"jsonrpc": "2.0", "id": call["id"], "result": result}), flush=True)
"""


class Desk:
    """One demo agent in a pane, and what a test does with it."""

    def __init__(self, host: PaneHost, pane: PaneRef) -> None:
        self.host, self.pane = host, pane
        self.endings: list[PaneEnded] = []
        #: Every reading of the last turn.
        self.readings: list[Reading] = []
        self.titles: set[str] = set()

    async def follow(self) -> None:
        async for ended in self.host.endings():
            self.endings.append(ended)

    async def look(self) -> tuple[Frame, Reading]:
        frame = (await self.host.capture([self.pane], styled=True))[self.pane]
        return frame, DEMO.grammar.read(frame)

    async def see(self, seen: Callable[[Frame, Reading], object]) -> tuple[Frame, Reading]:
        with trio.fail_after(20):
            while True:
                frame, reading = await self.look()
                if seen(frame, reading):
                    return frame, reading
                await trio.sleep(0.02)

    async def type(self, prompt: str) -> Typed:
        injection = Injection(self.host, self.pane, DEMO.grammar, DEMO.typing, own=True)
        return await injection.type(prompt, patience_s=20, withdrawn=lambda: False)

    async def turn(self, prompt: str) -> tuple[Frame, Reading]:
        """Type a prompt and follow its turn to the end, as the resolver does."""
        typed = await self.type(prompt)
        self.readings, self.titles = [], set()
        tracker = TurnTracker(typed.sent)
        with trio.fail_after(30):
            while True:
                frame = (await self.host.capture([self.pane]))[self.pane]
                reading = DEMO.grammar.read(frame, typed.sent)
                self.readings.append(reading)
                self.titles.add(frame.title)
                if tracker.note(frame, reading) is not None:
                    return frame, reading
                await trio.sleep(0.02)

    async def press(self, *keys: str) -> None:
        await self.host.press(self.pane, *keys)

    @property
    def states(self) -> set[State]:
        return {reading.state for reading in self.readings}


def kind(frame: Frame, reading: Reading) -> Kind:
    return classify(reading, PATTERNS, width=frame.width, fast=False).kind


async def start(host: PaneHost, tmp_path: Path, *, width: int = 100, height: int = 40) -> PaneRef:
    bridge = tmp_path / "bridge.py"
    bridge.write_text(BRIDGE)
    env = {**ENV, COMMAND_VARIABLE: json.dumps([sys.executable, "-I", str(bridge), str(tmp_path / "calls")])}
    return await host.open(PaneSpec("m-1", DEMO.command, env, str(tmp_path), width, height))


@pytest.fixture
async def desk(tmp_path: Path, nursery: trio.Nursery) -> Desk:
    host = PtyHost(tmp_path / "host")
    await nursery.start(host.run)
    desk = Desk(host, await start(host, tmp_path))
    nursery.start_soon(desk.follow)
    return desk


@pytest.fixture
async def tmux_desk(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Desk]:
    host = TmuxHost(tmp_path / "host")
    await nursery.start(host.run)
    yield Desk(host, await start(host, tmp_path))
    await host.kill_server()


# -- turns ----------------------------------------------------------------------------------------------------------


@pytest.mark.live
async def test_it_is_on_the_screen_at_once_and_shows_a_suggestion_that_is_no_draft(desk: Desk) -> None:
    with trio.fail_after(10):
        frame, reading = await desk.see(lambda _, reading: reading.state is State.IDLE)
    assert any(HINT in line for line in frame.lines)
    assert (reading.draft, reading.input_open, frame.title, frame.bracketed) == ("", True, "demo: ready", True)


@pytest.mark.live
async def test_any_prompt_is_worked_on_and_answered_with_its_first_line(desk: Desk) -> None:
    began = trio.current_time()
    frame, reading = await desk.turn("tell me\nabout the second line")
    assert trio.current_time() - began > 2.5
    assert reading.answer == "You said: tell me"
    assert desk.states == {State.BUSY, State.IDLE}
    assert desk.titles == {"demo: working", "demo: ready"}
    assert "  about the second line" in frame.lines
    assert any(re.fullmatch(r"— done in \d+s", line) for line in frame.lines)


@pytest.mark.live
async def test_a_fast_turn_is_over_without_a_busy_line(desk: Desk) -> None:
    typed_at = trio.current_time()
    _, reading = await desk.turn("demo: fast")
    assert reading.answer == "You said: demo: fast"
    assert State.BUSY not in desk.states
    assert trio.current_time() - typed_at < 5


SCRIPTS: Final = [
    ("work 0.3; say one; with a semicolon; say two", Kind.COMPLETED, "two"),
    ("fast; quote", Kind.COMPLETED, REPORT),
    ("fast; fail", Kind.BACKEND_ERROR, ""),
    ("fast; say I look; fail API Error: 500 {}", Kind.BACKEND_ERROR, "I look"),
    ("fast; fail Something else broke", Kind.EMPTY, ""),
    ("fast; exhaust", Kind.EXHAUSTED, ""),
    ("fast; exhaust Usage limit reached for this week", Kind.EXHAUSTED, ""),
    ("fast; call x {", Kind.EMPTY, ""),
    ("fast; work soon", Kind.EMPTY, ""),
    ("dance; work 0", Kind.EMPTY, ""),
]


@pytest.mark.live
async def test_each_script_is_performed(desk: Desk, tmp_path: Path) -> None:
    """All at once, each in a pane of its own."""
    ends: dict[str, tuple[Kind, str, bool]] = {}

    async def perform(script: str) -> None:
        own = Desk(desk.host, await start(desk.host, tmp_path))
        frame, reading = await own.turn(f"Do what the script says.\ndemo: {script}")
        bad = any(line.startswith("✗ Bad script: ") for line in reading.ending)
        ends[script] = kind(frame, reading), reading.answer, bad

    async with trio.open_nursery() as nursery:
        for script, *_ in SCRIPTS:
            nursery.start_soon(perform, script)
    assert ends == {
        script: (verdict, answer, script.startswith(("fast; call x {", "fast; work soon", "dance")))
        for script, verdict, answer in SCRIPTS
    }


@pytest.mark.live
async def test_the_next_turn_is_read_without_the_failure_before_it(desk: Desk) -> None:
    assert kind(*await desk.turn("demo: fast; fail")) is Kind.BACKEND_ERROR
    assert kind(*await desk.turn("demo: fast; say fine")) is Kind.COMPLETED


@pytest.mark.live
async def test_a_long_answer_scrolls_away_and_is_read_whole(desk: Desk) -> None:
    _, reading = await desk.turn("demo: fast; lines 500")
    lines = reading.answer.split("\n")
    assert (len(lines), lines[0], lines[-1]) == (500, "line 1 of a long answer", "line 500 of a long answer")


@pytest.mark.live
async def test_a_retry_banner_counts_down_and_the_work_goes_on(desk: Desk) -> None:
    _, reading = await desk.turn("demo: work 0.1; retry 2; retry 1; say done")
    seen = {(one.retrying.attempt, one.retrying.wait_s) for one in desk.readings if one.retrying is not None}
    assert seen == {(1, 2), (1, 1), (2, 1)}
    assert reading.answer == "done"


@pytest.mark.live
@pytest.mark.parametrize(("key", "verdict"), [("1", Kind.COMPLETED), ("Escape", Kind.INTERRUPTED)])
async def test_a_permission_dialog_waits_for_a_key(desk: Desk, key: str, verdict: Kind) -> None:
    typed = await desk.type("demo: work 0.1; permission; say after it")
    frame, reading = await desk.see(lambda _, reading: reading.state is State.BLOCKED)
    assert (frame.title, reading.input_open) == ("demo: waiting", False)
    await desk.press("x", key)
    frame, _ = await desk.see(lambda _, reading: reading.state is State.IDLE)
    assert kind(frame, DEMO.grammar.read(frame, typed.sent)) is verdict


@pytest.mark.live
async def test_escape_stops_a_turn_that_hangs_and_what_was_typed_meanwhile_stays(desk: Desk) -> None:
    await desk.type("demo: hang")
    await desk.see(lambda frame, reading: reading.state is State.BUSY and "(1s" in "".join(frame.lines))
    await desk.press(*"later", "Enter")
    await desk.see(lambda _, reading: reading.draft == "later" and reading.state is State.BUSY)
    await desk.press("Escape")
    _, reading = await desk.see(lambda _, reading: reading.state is State.IDLE)
    assert (reading.interrupted, reading.draft) == (True, "later")
    await desk.press("C-u")
    await desk.see(lambda _, reading: reading.draft == "")


@pytest.mark.live
@pytest.mark.parametrize(("script", "status"), [("demo: work 0.2; die", 1), ("demo: work 0.2; die 7", 7)])
async def test_it_can_die_in_mid_turn(desk: Desk, script: str, status: int) -> None:
    await desk.type(script)
    await until(lambda: desk.endings)
    assert desk.endings == [PaneEnded(desk.pane, status)]


@pytest.mark.live
@pytest.mark.parametrize("keys", [("C-c", "C-c"), (*"/exit", "Enter")])
async def test_it_ends_when_it_is_told_to(desk: Desk, keys: Sequence[str]) -> None:
    await desk.see(lambda _, reading: reading.state is State.IDLE)
    await desk.press(*keys)
    await until(lambda: desk.endings)
    assert desk.endings == [PaneEnded(desk.pane, 0)]


@pytest.mark.live
async def test_one_control_c_clears_the_draft_and_is_forgotten_after_a_while(desk: Desk) -> None:
    await desk.see(lambda _, reading: reading.state is State.IDLE)
    await desk.press("a", "Up", "b", "BSpace", "C-c")
    await desk.see(lambda frame, reading: "ctrl-c again" in frame.lines[-1] and reading.draft == "")
    await desk.see(lambda frame, _: "ready" in frame.lines[-1])
    await desk.press("C-c")
    await desk.see(lambda frame, _: "ctrl-c again" in frame.lines[-1])
    assert desk.endings == []


@pytest.mark.live
async def test_it_draws_itself_anew_for_another_size(desk: Desk) -> None:
    assert isinstance(desk.host, PtyHost)
    await desk.turn(f"demo: fast; say {'word ' * 30}")
    async with await desk.host.attach(desk.pane) as attachment:
        await attachment.resize(50, 20)
        frame, _ = await desk.see(lambda frame, _: "─" * 50 in frame.lines and "─" * 100 not in frame.lines)
        assert max(map(len, frame.lines)) == 50
        assert sum(line.startswith("> demo:") for line in frame.lines) == 1
    frame, reading = await desk.see(lambda frame, _: "─" * 100 in frame.lines)
    assert reading.answer.replace("\n", " ") == ("word " * 30).strip()


@pytest.mark.live
async def test_the_tmux_host_shows_the_same(tmux_desk: Desk) -> None:
    _, reading = await tmux_desk.turn("demo: fast; quote")
    assert reading.answer == REPORT
    frame, reading = await tmux_desk.look()
    assert (reading.state, reading.draft, frame.title) == (State.IDLE, "", "demo: ready")


@pytest.mark.live
async def test_the_generic_grammar_reads_it_too_with_four_patterns(desk: Desk) -> None:
    generic = GenericGrammar(
        Pattern(r"^  ready ·", "idle"), Pattern(r"^\* .*esc to", "busy"), Pattern(r"^Allow this", "blocked"), "● "
    )
    typed = await desk.type("demo: work 0.3; say the answer; permission; say more; fail")
    for state in (State.BUSY, State.BLOCKED):
        await desk.see(lambda frame, _, state=state: generic.read(frame, typed.sent).state is state)
    await desk.press("1")
    frame, _ = await desk.see(lambda frame, _: generic.read(frame, typed.sent).state is State.IDLE)
    reading = generic.read(frame, typed.sent)
    assert (reading.input_open, reading.echoed) == (True, True)
    assert "● the answer" in reading.scope
    assert kind(frame, reading) is Kind.BACKEND_ERROR


# -- the tools ------------------------------------------------------------------------------------------------------


@pytest.mark.live
async def test_it_replies_asks_and_calls_through_one_bridge(desk: Desk, tmp_path: Path) -> None:
    _, reading = await desk.turn("demo: fast; reply all is well")
    assert reading.answer == "Answered with fleet_reply."
    _, reading = await desk.turn("demo: work 0.1; ask which one; or none?")
    assert reading.answer == "The lead says: use the other one"
    _, reading = await desk.turn('demo: fast; call fleet_spawn {"profile": "a; b"}')
    assert reading.answer == '"not allowed: {\\"profile\\": \\"a; b\\"}"'
    calls = [json.loads(line) for line in (tmp_path / "calls").read_text().splitlines()]
    assert [call["method"] for call in calls] == ["initialize", "notifications/initialized", *["tools/call"] * 4]
    assert calls[0]["params"]["protocolVersion"] == "2025-11-25"
    assert calls[0]["params"]["clientInfo"]["name"] in DEMO.client_names
    assert [call["params"]["arguments"] for call in calls[2:]] == [
        {"text": "all is well"},
        {"text": "which one; or none?"},
        {"question": "q-1"},
        {"profile": "a; b"},
    ]


@pytest.mark.live
async def test_a_call_that_is_interrupted_is_hung_up(desk: Desk, tmp_path: Path) -> None:
    await desk.type("demo: work 0.1; call slow")
    await until(lambda: (tmp_path / "calls").exists() and "slow" in (tmp_path / "calls").read_text())
    await desk.press("Escape")
    await desk.see(lambda _, reading: reading.interrupted)
    _, reading = await desk.turn("demo: fast; reply again")
    assert reading.answer == "Answered with fleet_reply."
    assert (tmp_path / "calls").read_text().count('"initialize"') == 2


@pytest.mark.live
async def test_a_bridge_that_ends_is_trouble_and_the_next_call_starts_another(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    host = PtyHost(tmp_path / "host")
    await nursery.start(host.run)
    env = {**ENV, COMMAND_VARIABLE: json.dumps(["true"])}
    desk = Desk(host, await host.open(PaneSpec("m-1", DEMO.command, env, "/")))
    for _ in range(2):
        _, reading = await desk.turn("demo: fast; reply hello")
        assert any(line.startswith("✗ No tools: the bridge") for line in reading.ending)


# -- one truth ------------------------------------------------------------------------------------------------------

WORDS: Final = st.text("abc xyz-> ●✗─❯漢字é😀", min_size=1, max_size=120).map(str.strip).filter(bool)
SAYS: Final = st.lists(WORDS, max_size=3)
ENDS: Final = st.sampled_from(["answers", "fails", "exhausts"])


def drawn(story: Story, width: int, height: int) -> list[str]:
    lines = [line.rstrip() for line in [*transcript(story, width), *region(story, width, height, 0.0)]]
    while lines and not plain(lines[-1]):
        lines.pop()
    return lines


@given(
    sizes=st.lists(st.tuples(st.integers(30, 100), st.integers(12, 40)), min_size=1, max_size=3),
    turns=st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=12), SAYS, ENDS), max_size=4),
)
@settings(deadline=None)
def test_a_painted_terminal_shows_what_is_drawn(
    sizes: list[tuple[int, int]], turns: list[tuple[list[str], list[str], str]]
) -> None:
    """At every step, also when the terminal changes its size between two of them."""
    story, painter = Story(), Painter()
    terminal = Terminal(*sizes[0])
    steps = 0

    def check() -> None:
        nonlocal steps
        steps += 1
        width, height = sizes[steps % len(sizes)]
        if terminal.size != (width, height):
            terminal.resize(width, height)
        terminal.feed(painter.paint(story, width, height, 0.0).encode())
        wanted = drawn(story, width, height)
        assert terminal.lines() == tuple(plain(line).rstrip() for line in wanted)
        rows = min(height, len(region(story, width, height, 0.0)))
        assert terminal.styled()[-rows:] == tuple(wanted[-rows:])
        assert terminal.title == story.title
        assert painter.paint(story, width, height, 0.0) == ""

    check()
    for prompt, says, end in turns:
        story.draft = "\n".join(prompt)
        check()
        story.submit()
        story.begin("Working", 0.0)
        check()
        for text in says:
            story.say(text)
            check()
        story.asking = True
        check()
        story.asking = False
        if end != "answers":
            story.trouble(end)
        story.rest(0.0)
        check()


def _scripted(turns: list[tuple[list[str], str]], prompts: list[str], width: int) -> Frame:
    """The story's last frame, told to a scripted agent."""
    agent = ScriptedAgent()

    async def tell() -> Frame:
        host = MemoryHost(lambda _: agent)
        pane = await host.open(PaneSpec("m-1", ("demo",), {}, "/", width, 40))
        for (says, end), prompt in zip(turns, prompts, strict=True):
            await host.paste(pane, prompt)
            await host.press(pane, "Enter")
            for text in says:
                agent.says(text)
            {"answers": lambda: agent.answers("the end"), "fails": agent.fails, "exhausts": agent.exhausts}[end]()
        return (await host.capture([pane], styled=True))[pane]

    return trio.run(tell)


def _performed(prompts: list[str], width: int, directory: Path) -> Frame:
    """The story's last frame, performed by the program."""

    async def perform() -> Frame:
        async with trio.open_nursery() as nursery:
            host = PtyHost(directory)
            await nursery.start(host.run)
            pane = await host.open(PaneSpec("m-1", DEMO.command, ENV, "/", width, 40))
            desk = Desk(host, pane)
            await desk.see(lambda _, reading: reading.state is State.IDLE)
            for number, prompt in enumerate(prompts, 1):
                await host.paste(pane, prompt)
                await host.press(pane, "Enter")
                done = number
                await desk.see(lambda frame, _, done=done: sum("— done in" in line for line in frame.lines) == done)
            frame, _ = await desk.see(lambda _, reading: reading.state is State.IDLE)
            nursery.cancel_scope.cancel()
        return frame

    return trio.run(perform)


@pytest.mark.live
@given(turns=st.lists(st.tuples(SAYS, ENDS), min_size=1, max_size=3), width=st.sampled_from([40, 80, 160]))
@settings(deadline=None, max_examples=4)
def test_the_program_and_the_scripted_agent_draw_the_same_story(
    tmp_path_factory: pytest.TempPathFactory, turns: list[tuple[list[str], str]], width: int
) -> None:
    steps = {"answers": "say the end", "fails": "fail", "exhausts": "exhaust"}
    prompts = ["demo: fast; " + "; ".join([*(f"say {text}" for text in says), steps[end]]) for says, end in turns]
    scripted = _scripted(turns, prompts, width)
    performed = _performed(prompts, width, tmp_path_factory.mktemp("host"))

    def timeless(lines: Sequence[str]) -> list[str]:
        return [re.sub(r"done in \d+s", "done in 0s", line) for line in lines]

    assert timeless(performed.lines) == timeless(scripted.lines)
    assert performed.styled[-5:] == scripted.styled[-5:]
    assert DEMO.grammar.read(performed).ending != ()
    assert performed.title == scripted.title
