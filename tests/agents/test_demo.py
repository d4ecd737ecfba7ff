"""The demo grammar, read from screens that the demo agent's own drawing functions make."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from actors.classify import Kind, classify
from actors.patterns import Pattern, Patterns
from actors.screen import Frame, Sent, State
from fleetd.agents import ADAPTERS, by_client
from fleetd.demo_screen import HINT, LIMIT, OVERLOADED, Story, plain, region, transcript

DEMO = ADAPTERS["demo"]
PATTERNS = Patterns((Pattern(DEMO.exhausted_pattern, "@demo"),), (Pattern(DEMO.error_pattern, "@demo"),))


def screen(story: Story, *, now: float = 0.0, width: int = 80, styled: bool = False) -> Frame:
    """What a terminal shows of a story."""
    drawn = [line.rstrip() for line in [*transcript(story, width), *region(story, width, 40, now)]]
    return Frame(
        tuple(plain(line).rstrip() for line in drawn),
        title=story.title,
        width=width,
        height=40,
        styled=tuple(drawn) if styled else (),
    )


def asked(prompt: str = "do it") -> Story:
    """A story whose prompt has just been submitted."""
    story = Story()
    story.draft = prompt
    story.submit()
    story.begin("Working", 0.0)
    return story


def verdict(frame: Frame, sent: Sent | None = None) -> Kind:
    return classify(DEMO.grammar.read(frame, sent), PATTERNS, width=frame.width, fast=False).kind


def test_the_adapter_is_known_by_its_name_and_by_its_client() -> None:
    assert DEMO.name == "demo"
    assert by_client("fleetd-demo") is DEMO
    assert by_client("someone-else") is None


def _fresh(_: Story) -> None:
    return None


def _typed(story: Story) -> None:
    story.draft = "half a line"


def _armed(story: Story) -> None:
    story.armed = True


@pytest.mark.parametrize(
    ("change", "draft"), [(_fresh, ""), (_typed, "half a line"), (_armed, "")], ids=["fresh", "typed", "armed"]
)
def test_a_program_at_rest_is_idle_and_shows_its_draft(change: Callable[[Story], None], draft: str) -> None:
    story = Story()
    change(story)
    for styled in (False, True):
        reading = DEMO.grammar.read(screen(story, styled=styled))
        assert (reading.state, reading.input_open, reading.draft) == (State.IDLE, True, draft)
        assert not reading.echoed


def test_dim_text_in_the_input_box_is_a_suggestion_and_bright_text_is_a_draft() -> None:
    story = Story()
    assert DEMO.grammar.read(screen(story, styled=True)).draft == ""
    story.draft = HINT
    assert DEMO.grammar.read(screen(story, styled=True)).draft == HINT


def test_an_attribute_that_the_terminal_carries_on_from_a_line_above_counts() -> None:
    """tmux says once that text is dim, and not again on the next line."""
    frame = screen(Story(), styled=True)
    box = next(index for index, line in enumerate(frame.styled) if HINT[:10] in line)
    styled = list(frame.styled)
    styled[box - 1] = "\x1b[38;5;2;2m" + styled[box - 1]
    styled[box] = styled[box].replace("\x1b[2m", "").replace("❯", "\x1b[22m❯\x1b[2m")
    carried = Frame(frame.lines, width=80, height=40, styled=tuple(styled))
    assert DEMO.grammar.read(carried).draft == ""


def test_a_colour_number_of_two_is_not_dimness() -> None:
    story = Story()
    story.draft = "green"
    frame = screen(story, styled=True)
    styled = tuple(line.replace("green", "\x1b[38;5;2mgreen\x1b[48;2;2;2;2m.\x1b[0m") for line in frame.styled)
    assert DEMO.grammar.read(Frame(frame.lines, width=80, height=40, styled=styled)).draft == "green."


def test_a_draft_of_several_lines_is_read_as_drawn() -> None:
    story = Story()
    story.draft = "one\n\n  two ──────────"
    assert DEMO.grammar.read(screen(story)).draft == "one\n\n  two ──────────"


def test_a_running_turn_is_busy_and_its_box_may_hold_a_draft() -> None:
    story = asked()
    story.draft = "and then"
    reading = DEMO.grammar.read(screen(story, now=12.5))
    assert (reading.state, reading.input_open, reading.draft) == (State.BUSY, True, "and then")


def test_a_retry_banner_is_working_and_says_how_long() -> None:
    story = asked()
    story.retry(7, 2)
    reading = DEMO.grammar.read(screen(story))
    assert reading.state is State.BUSY
    assert reading.retrying is not None
    assert (reading.retrying.attempt, reading.retrying.wait_s) == (2, 7)
    assert "529" in reading.retrying.line


def test_a_permission_dialog_is_blocked_and_takes_no_prompt() -> None:
    story = asked()
    story.asking = True
    reading = DEMO.grammar.read(screen(story))
    assert (reading.state, reading.input_open, reading.draft) == (State.BLOCKED, False, "")


def test_an_answer_that_shows_a_dialog_a_busy_line_and_an_input_box_is_only_an_answer() -> None:
    story = asked()
    story.say("\n".join(["Look:", "", *map(plain, region(asked(), 60, 40, 3.0)), "Allow this command?", "  1. Yes"]))
    story.rest(3.0)
    reading = DEMO.grammar.read(screen(story))
    assert reading.state is State.IDLE
    assert reading.answer.startswith("Look:\n\n───")
    assert "esc to interrupt" in reading.answer


def test_a_torn_redraw_is_unknown_and_takes_no_prompt() -> None:
    whole = screen(asked())
    for cut in range(len(transcript(asked(), 80)), len(whole.lines)):
        reading = DEMO.grammar.read(Frame(whole.lines[:cut], width=80, height=40))
        assert reading.state is State.UNKNOWN


@pytest.mark.parametrize("width", [24, 40, 80, 160])
def test_the_scope_begins_below_the_last_echo_however_long_the_prompt(width: int) -> None:
    story = asked("first")
    story.say("old answer")
    story.rest(2.0)
    story.draft = (
        "line one is rather long and is wrapped by the program\n\n✗ API Error: 529 in the prompt\n● not an answer"
    )
    story.submit()
    story.say("new answer")
    story.rest(3.0)
    reading = DEMO.grammar.read(screen(story, width=width))
    assert reading.scope == ("● new answer", "", "— done in 3s", "")
    assert (reading.block_at, reading.answer) == (0, "new answer")


def test_the_answer_is_the_last_block_without_its_marks() -> None:
    story = asked()
    story.say("I look first.")
    story.say("The result:\n\n    code\n- item\n● no block of mine\n> no echo")
    story.rest(4.0)
    reading = DEMO.grammar.read(screen(story))
    assert reading.block_at == 2
    assert reading.answer == "The result:\n\n    code\n- item\n● no block of mine\n> no echo"


def test_the_screen_of_another_turn_is_not_this_turns_scope() -> None:
    """The prompt stands in the input box and was not submitted: the old answer is not its answer."""
    story = asked("first")
    story.say("old answer")
    story.rest(2.0)
    before = screen(story)
    story.draft = "second"
    reading = DEMO.grammar.read(screen(story), Sent("second", before))
    assert (reading.scope, reading.answer, reading.echoed) == ((), "", False)
    story.submit()
    assert DEMO.grammar.read(screen(story), Sent("second", before)).echoed


REPORT = f"""The log has these:

✗ {OVERLOADED}
- ✗ {LIMIT}

```
✗ {OVERLOADED}
```"""


def _fails(story: Story) -> None:
    story.trouble(OVERLOADED)


def _fails_after_a_word(story: Story) -> None:
    story.say("I look into it.")
    story.trouble(OVERLOADED)


def _goes_on_after_an_error(story: Story) -> None:
    story.trouble(OVERLOADED)
    story.say("It works again.")


def _is_exhausted(story: Story) -> None:
    story.trouble(LIMIT)


def _fails_in_its_own_words(story: Story) -> None:
    story.trouble("Something broke")


def _quotes(story: Story) -> None:
    story.say(REPORT)


def _says_nothing(_: Story) -> None:
    return None


@pytest.mark.parametrize("width", [30, 80, 160])
@pytest.mark.parametrize(
    ("tell", "kind"),
    [
        (_fails, Kind.BACKEND_ERROR),
        (_fails_after_a_word, Kind.BACKEND_ERROR),
        (_goes_on_after_an_error, Kind.COMPLETED),
        (_is_exhausted, Kind.EXHAUSTED),
        (_fails_in_its_own_words, Kind.EMPTY),
        (_quotes, Kind.COMPLETED),
        (_says_nothing, Kind.EMPTY),
    ],
)
def test_a_turns_end_is_classified_by_what_stands_in_column_0(
    tell: Callable[[Story], None], kind: Kind, width: int
) -> None:
    """The done line below it proves nothing, and quoted error lines are indented."""
    story = asked()
    tell(story)
    story.rest(3.0)
    assert verdict(screen(story, width=width)) is kind


def test_an_interrupted_turn_says_so_and_the_next_one_does_not() -> None:
    story = asked()
    story.interrupt()
    assert verdict(screen(story)) is Kind.INTERRUPTED
    story.draft = "again"
    story.submit()
    story.say("done")
    story.rest(2.0)
    assert verdict(screen(story)) is Kind.COMPLETED
