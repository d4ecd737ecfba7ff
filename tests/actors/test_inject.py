"""Typing a prompt so that it arrives: in virtual time, on the memory host, against every fault of a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from functools import partial

import pytest
import trio
from hypothesis import example, given
from hypothesis import strategies as st
from trio.testing import MockClock

from actors.host import HostError, PaneRef, PaneSpec
from actors.inject import (
    BEGIN_S,
    BREATH_S,
    ECHO_S,
    ENTERS,
    MODE_S,
    STILL_NS,
    Injection,
    NotTyped,
    Typed,
    Typing,
    injectable,
)
from actors.patterns import Pattern
from actors.prompt import GUARD, guarded, sanitise
from actors.screen import Grammar, Reading, State
from fleetd.agents import ADAPTERS
from fleetd.agents.generic import GenericGrammar, generic_typing
from fleetd.hosts.memory import MemoryHost, MemoryPane, Pasted, ScriptedAgent

DEMO = ADAPTERS["demo"]


class Desk:
    """A scripted agent in a pane, and what is typed into it."""

    def __init__(self, agent: ScriptedAgent) -> None:
        self.agent = agent
        self.host = MemoryHost(lambda _: agent)
        self.grammar: Grammar = DEMO.grammar
        self.typing = DEMO.typing
        self.ref = PaneRef("memory", "none")

    async def open(self) -> Desk:
        self.ref = await self.host.open(PaneSpec("m-1", ("demo",), {}, "/", 100, 40))
        return self

    @property
    def pane(self) -> MemoryPane:
        return self.host[self.ref]

    async def type(
        self,
        text: str | Callable[[], str] = "do it",
        *,
        own: bool = True,
        patience_s: float = 30.0,
        withdrawn: Callable[[], bool] = lambda: False,
    ) -> Typed:
        injection = Injection(self.host, self.ref, self.grammar, self.typing, own=own)
        return await injection.type(text, patience_s=patience_s, withdrawn=withdrawn)

    async def refused(self, text: str = "do it", *, own: bool = True, patience_s: float = 5.0) -> NotTyped:
        with pytest.raises(NotTyped) as refusal:
            await self.type(text, own=own, patience_s=patience_s)
        return refusal.value


@pytest.fixture
async def desk() -> Desk:
    return await Desk(ScriptedAgent()).open()


async def at(seconds: float, act: Callable[[], object]) -> None:
    """Do something in so many seconds."""
    await trio.sleep(seconds)
    act()


# -- a prompt that arrives ------------------------------------------------------------------------------------------


async def test_a_prompt_is_pasted_once_and_submitted_once(autojump_clock: MockClock, desk: Desk) -> None:
    typed = await desk.type("do it\nproperly")
    assert desk.agent.prompts == ["do it\nproperly"]
    assert desk.pane.keys == [Pasted("do it\nproperly"), "Enter"]
    assert typed.sent.prompt == "do it\nproperly"
    assert "do it" not in "\n".join(typed.sent.before.lines)


async def test_enter_comes_a_breath_after_the_paste_and_its_time_is_the_turns_beginning(
    autojump_clock: MockClock, desk: Desk
) -> None:
    typed = await desk.type()
    assert trio.current_time() == pytest.approx(BREATH_S)
    assert typed.at_ns == round(BREATH_S * 1e9)


async def test_a_running_turn_is_waited_for(autojump_clock: MockClock, desk: Desk) -> None:
    desk.agent.busy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 12.0, desk.agent.idle)
        await desk.type()
    assert trio.current_time() > 12.0
    assert desk.agent.prompts == ["do it"]


async def test_what_to_type_is_composed_when_it_can_be_typed(autojump_clock: MockClock, desk: Desk) -> None:
    desk.agent.busy()
    asked_at: list[float] = []

    def compose() -> str:
        asked_at.append(trio.current_time())
        return "47 s remaining"

    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 12.0, desk.agent.idle)
        await desk.type(compose)
    assert len(asked_at) == 1
    assert asked_at[0] >= 12.0
    assert desk.agent.prompts == ["47 s remaining"]


async def test_an_input_line_is_at_rest_for_as_long_as_the_program_wants(autojump_clock: MockClock, desk: Desk) -> None:
    desk.typing = Typing(settle_s=4.0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 2.0, desk.agent.busy)
        nursery.start_soon(at, 3.0, desk.agent.idle)
        await desk.type()
    assert trio.current_time() >= 7.0


async def test_a_placeholder_for_a_long_paste_counts_as_its_arrival(autojump_clock: MockClock, desk: Desk) -> None:
    desk.typing = Typing(placeholders=("[Pasted text",))
    desk.agent.on_paste = lambda _: setattr(desk.agent.story, "draft", "[Pasted text #1 +40 lines]")
    await desk.type("line\n" * 40 + "end")
    assert trio.current_time() < ECHO_S
    assert desk.agent.prompts == ["[Pasted text #1 +40 lines]"]


async def test_a_swallowed_enter_is_pressed_again_and_the_text_is_not_typed_again(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.pane.swallowed["Enter"] = ENTERS - 1
    typed = await desk.type()
    assert desk.agent.prompts == ["do it"]
    assert desk.pane.keys == [Pasted("do it"), *["Enter"] * ENTERS]
    assert typed.at_ns == round((BREATH_S + (ENTERS - 1) * BEGIN_S) * 1e9)


async def test_a_placeholder_that_comes_behind_the_enter_is_no_turn_that_began(
    autojump_clock: MockClock, desk: Desk
) -> None:
    """The program is still busy with the paste, and swallows the key."""
    desk.typing = Typing(placeholders=("[Pasted text",))
    desk.pane.swallowed["Enter"] = 1
    desk.agent.on_paste = lambda _: setattr(desk.agent.story, "draft", "lin")
    shown = partial(setattr, desk.agent.story, "draft", "[Pasted text #1 +40 lines]")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, ECHO_S + BREATH_S + 0.3, shown)
        await desk.type("line\n" * 40 + "end")
    assert desk.agent.prompts == ["[Pasted text #1 +40 lines]"]
    assert desk.pane.keys[1:] == ["Enter", "Enter"]


async def test_a_turn_that_has_come_and_gone_counts_as_begun(autojump_clock: MockClock, desk: Desk) -> None:
    submit = desk.agent.on_key

    def submit_and_answer(key: str) -> None:
        submit(key)
        desk.agent.answers("done")

    desk.agent.on_key = submit_and_answer
    await desk.type()
    assert desk.pane.keys == [Pasted("do it"), "Enter"]


async def test_a_turn_that_begins_with_a_dialog_has_begun(autojump_clock: MockClock, desk: Desk) -> None:
    submit = desk.agent.on_key

    def submit_and_ask(key: str) -> None:
        submit(key)
        desk.agent.asks_permission()

    desk.agent.on_key = submit_and_ask
    await desk.type()
    assert (desk.pane.keys, desk.agent.choices) == ([Pasted("do it"), "Enter"], [])


# -- a prompt that cannot be typed ----------------------------------------------------------------------------------


async def test_three_swallowed_enters_are_the_end_of_it(autojump_clock: MockClock, desk: Desk) -> None:
    desk.pane.swallowed["Enter"] = 100
    refusal = await desk.refused()
    assert "Enters did not submit it" in str(refusal)
    assert not refusal.retry
    assert desk.pane.keys == [Pasted("do it"), *["Enter"] * ENTERS]


async def test_a_paste_that_does_not_show_is_not_pasted_again_and_not_called_typed(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.pane.lost_pastes = 1
    await desk.refused()
    assert desk.agent.prompts == []
    assert desk.pane.keys.count(Pasted("do it")) == 1


async def test_nothing_is_typed_into_a_dialog(autojump_clock: MockClock, desk: Desk) -> None:
    desk.agent.asks_permission()
    refusal = await desk.refused()
    assert "dialog" in str(refusal)
    assert refusal.retry
    assert (desk.pane.keys, desk.agent.choices) == ([], [])


async def test_enter_is_not_pressed_when_a_dialog_comes_up_behind_the_paste(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.agent.on_paste = lambda _: desk.agent.asks_permission()
    refusal = await desk.refused()
    assert "dialog came up" in str(refusal)
    assert (desk.pane.keys, desk.agent.choices) == ([Pasted("do it")], [])


async def test_nothing_is_typed_over_a_draft(autojump_clock: MockClock, desk: Desk) -> None:
    desk.agent.on_paste("half a thought")
    refusal = await desk.refused()
    assert "draft" in str(refusal)
    assert refusal.retry
    assert desk.pane.keys == []
    desk.agent.on_key("C-u")
    await desk.type()


async def test_nothing_is_typed_into_a_running_turn(autojump_clock: MockClock, desk: Desk) -> None:
    desk.agent.busy()
    refusal = await desk.refused()
    assert "a turn is running" in str(refusal)
    assert refusal.retry
    assert desk.pane.keys == []


@pytest.mark.parametrize("text", ["", " \n\t ", "\x1b\x00\x07\x9b"])
async def test_a_prompt_of_nothing_is_refused(autojump_clock: MockClock, desk: Desk, text: str) -> None:
    refusal = await desk.refused(text)
    assert "empty" in str(refusal)
    assert desk.pane.keys == []


async def test_a_prompt_that_was_withdrawn_is_not_typed(autojump_clock: MockClock, desk: Desk) -> None:
    desk.agent.busy()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 3.0, desk.agent.idle)
        with pytest.raises(NotTyped, match="withdrawn"):
            await desk.type(withdrawn=lambda: trio.current_time() >= 2.0)
    assert desk.pane.keys == []


async def test_nothing_is_typed_into_a_dead_pane_nor_into_one_that_is_gone(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.pane.end(status=1)
    refusal = await desk.refused()
    assert "its process has ended" in str(refusal)
    assert not refusal.retry
    assert desk.pane.keys == []
    await desk.host.close(desk.ref)
    refusal = await desk.refused()
    assert "gone" in str(refusal)
    assert not refusal.retry


async def test_enter_is_not_pressed_when_the_process_ends_behind_the_paste(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.agent.on_paste = lambda _: desk.pane.end(status=1)
    refusal = await desk.refused()
    assert "its process has ended" in str(refusal)
    assert desk.pane.keys == [Pasted("do it")]


@pytest.mark.parametrize("call", ["capture", "paste", "press"])
async def test_a_terminal_that_fails_is_not_a_refusal(autojump_clock: MockClock, desk: Desk, call: str) -> None:
    """Whether the prompt arrived is not known then, and the caller must say so."""
    desk.host.fail_next(call, HostError("the terminal does not answer"))  # type: ignore[arg-type]
    with pytest.raises(HostError, match="does not answer"):
        await desk.type()


# -- copy mode ------------------------------------------------------------------------------------------------------


async def test_a_person_who_scrolls_is_left_alone_for_a_while_and_then_not(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.pane.in_mode = True
    await desk.type(patience_s=60.0)
    assert trio.current_time() >= MODE_S
    assert (desk.pane.in_mode, desk.agent.prompts) == (False, ["do it"])


async def test_a_person_who_stops_scrolling_is_not_waited_for_any_longer(autojump_clock: MockClock, desk: Desk) -> None:
    desk.pane.in_mode = True
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 3.0, lambda: setattr(desk.pane, "in_mode", False))
        await desk.type(patience_s=60.0)
    assert 3.0 <= trio.current_time() < MODE_S


async def test_a_leads_person_scrolls_as_long_as_they_like(autojump_clock: MockClock, desk: Desk) -> None:
    desk.pane.in_mode = True
    refusal = await desk.refused(own=False, patience_s=60.0)
    assert "scrolls" in str(refusal)
    assert refusal.retry
    assert (desk.pane.in_mode, desk.pane.keys) == (True, [])


async def test_a_person_who_begins_to_scroll_between_the_look_and_the_paste_keeps_it_out(
    autojump_clock: MockClock, desk: Desk
) -> None:
    def scroll() -> str:
        desk.pane.in_mode = True
        return "do it"

    with pytest.raises(NotTyped, match="scrolls") as refusal:
        await desk.type(scroll)
    assert refusal.value.retry
    assert desk.pane.keys == []


async def test_a_person_who_begins_to_scroll_behind_the_paste_holds_up_the_enter(
    autojump_clock: MockClock, desk: Desk
) -> None:
    paste = desk.agent.on_paste

    def paste_and_scroll(text: str) -> None:
        paste(text)
        desk.pane.in_mode = True

    desk.agent.on_paste = paste_and_scroll
    await desk.type()
    assert trio.current_time() >= MODE_S
    assert desk.pane.keys == [Pasted("do it"), "Enter"]


# -- programs that nobody knows -------------------------------------------------------------------------------------


class Listener:
    """A program that shows its input line by line and nothing else."""

    title = ""

    def __init__(self) -> None:
        self.lines = ["welcome", ">"]
        self.draft = ""

    def draw(self, width: int, height: int) -> Sequence[str]:
        return [*self.lines[:-1], f"> {self.draft}"]

    def on_paste(self, text: str) -> None:
        self.draft += text

    def on_key(self, key: str) -> None:
        if key == "Enter":
            self.lines[-1:] = [f"> {self.draft}", "working", ">"]
            self.draft = ""


async def test_a_program_without_patterns_is_typed_to_once_it_stands_still(autojump_clock: MockClock) -> None:
    program = Listener()
    host = MemoryHost(lambda _: program)
    ref = await host.open(PaneSpec("m-1", ("any",), {}, "/"))
    injection = Injection(host, ref, GenericGrammar(), generic_typing(), own=True)
    typed = await injection.type("do it", patience_s=30.0, withdrawn=lambda: False)
    assert trio.current_time() >= STILL_NS / 1e9
    assert program.lines == ["welcome", "> do it", "working", ">"]
    assert host[ref].keys == [Pasted("do it"), "Enter"]
    assert typed.sent.before.lines == ("welcome", ">")


@pytest.mark.parametrize(("bracketed", "pasted"), [(None, "one two"), (False, "one two"), (True, "one\n\n  two")])
async def test_lines_become_spaces_where_a_paste_of_several_is_not_taken_as_one(
    autojump_clock: MockClock, desk: Desk, bracketed: bool | None, pasted: str
) -> None:
    desk.typing = generic_typing()
    desk.pane.bracketed = bracketed
    await desk.type("one\n\n  two")
    assert desk.pane.keys == [Pasted(pasted), "Enter"]


@pytest.mark.parametrize(
    ("reading", "still_ns", "why"),
    [
        (Reading(State.IDLE, input_open=True), 0, None),
        (Reading(State.UNKNOWN, input_open=True), STILL_NS, None),
        (Reading(State.UNKNOWN, input_open=True), STILL_NS - 1, "still changes"),
        (Reading(State.UNKNOWN), STILL_NS, "dialog"),
        (Reading(State.BUSY, input_open=True), STILL_NS, "running"),
        (Reading(State.BLOCKED), STILL_NS, "dialog"),
        (Reading(State.IDLE), 0, "dialog"),
        (Reading(State.IDLE, input_open=True, draft="x"), 0, "draft"),
    ],
)
def test_a_prompt_can_be_typed_only_into_an_open_empty_input_line_at_rest(
    reading: Reading, still_ns: int, why: str | None
) -> None:
    found = injectable(reading, still_ns)
    assert found is why or (why is not None and found is not None and why in found)


# -- what is typed --------------------------------------------------------------------------------------------------


@given(st.text() | st.text("\x00\t\n\r\x1b[201~\x7f\x80\x85\x9b \\/é😀"))
@example("\x1b[201~rm -rf /\r")
@example("\n \n x \r\n\r \n")
def test_a_cleaned_text_has_no_controls_and_cleaning_it_again_changes_nothing(text: str) -> None:
    cleaned = sanitise(text)
    assert sanitise(cleaned) == cleaned
    assert all(ch in "\n\t" or unicodedata.category(ch) != "Cc" for ch in cleaned)
    assert not cleaned.startswith("\n")
    assert cleaned == cleaned.rstrip()


@given(st.text())
def test_cleaning_takes_nothing_but_controls_and_blank_ends(text: str) -> None:
    def printed(text: str) -> str:
        return "".join(ch for ch in text if not ch.isspace() and unicodedata.category(ch) != "Cc")

    assert printed(sanitise(text)) == printed(text)


async def test_the_end_of_the_bracket_and_what_follows_it_are_only_text(autojump_clock: MockClock, desk: Desk) -> None:
    await desk.type("one\x1b[201~\rtwo\x03\x7f\x9b31m\tthree\r\n")
    assert desk.pane.keys == [Pasted("one[201~\ntwo31m\tthree"), "Enter"]
    assert desk.agent.prompts == ["one[201~\ntwo31m\tthree"]


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        ("/exit", f"{GUARD}/exit"),
        ("!ls", f"{GUARD}!ls"),
        ("# note", f"{GUARD}# note"),
        ("@file", f"{GUARD}@file"),
        ("\\", f"{GUARD}\\ ."),
        ("ends with \\", "ends with \\ ."),
        ("plain", "plain"),
    ],
)
async def test_a_text_that_would_be_a_command_has_a_word_before_it(
    autojump_clock: MockClock, desk: Desk, text: str, typed: str
) -> None:
    assert guarded(text) == typed
    await desk.type(text)
    assert desk.pane.keys == [Pasted(typed), "Enter"]


# -- what was once wrong --------------------------------------------------------------------------------------------


async def test_a_draft_that_looks_busy_is_not_taken_for_a_turn_that_began(
    autojump_clock: MockClock, desk: Desk
) -> None:
    """To a program that is known by its idle line alone, whatever stands in the input line is not idle."""
    desk.grammar, desk.typing = GenericGrammar(Pattern(r"^❯ Ask for", "idlePattern")), generic_typing()
    desk.pane.swallowed["Enter"] = 1
    await desk.type()
    assert desk.agent.prompts == ["do it"]
    assert desk.pane.keys == [Pasted("do it"), "Enter", "Enter"]


async def test_a_program_that_has_not_asked_for_bracketed_paste_gets_one_line(
    autojump_clock: MockClock, desk: Desk
) -> None:
    desk.pane.bracketed = False
    await desk.type("one\ntwo")
    assert desk.agent.prompts == ["one two"]


async def test_after_a_paste_that_shows_nothing_no_enter_is_pressed(autojump_clock: MockClock, desk: Desk) -> None:
    """Enter in an empty box could submit the program's own suggestion."""
    desk.pane.lost_pastes = 1
    refusal = await desk.refused()
    assert "does not show" in str(refusal)
    assert desk.pane.keys == [Pasted("do it")]


async def test_a_lead_who_scrolls_behind_the_paste_holds_the_enter_for_a_minute_and_no_longer(
    autojump_clock: MockClock, desk: Desk
) -> None:
    nap = partial(setattr, desk.pane, "in_mode", True)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(at, 0.1, nap)
        refusal = await desk.refused(own=False)
    assert "scrolls" in str(refusal)
    assert trio.current_time() < 90
