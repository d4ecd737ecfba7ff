"""OpenCode's adapter: its screen's traps, what its events say, and how it is started."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio

from actors.actor import Message
from actors.classify import Kind, classify, hopeless, word
from actors.clock import NS_PER_S
from actors.host import OpenFailed
from actors.panes import PressKeys
from actors.resolver import ESCAPE_GAP_NS
from actors.screen import Frame, Reading, Sent, State
from actors.sends import Interrupt
from actors.signal import Signal, What
from fleetd.agents import ADAPTERS, by_client, opencode_record
from fleetd.agents.adapter import LaunchContext
from fleetd.agents.opencode import CONTENT, TUI_CONFIG, OpenCode
from fleetd.agents.opencode_plugin import EVENTS, PLUGIN, RECORD, source
from fleetd.agents.opencode_record import OVERFLOWS, Turns
from fleetd.replay import shipped_setup
from tests.agents.corpus import CORPUS
from tests.models.left import PANE, Left

OPENCODE = ADAPTERS["opencode"]
SETUP = shipped_setup(OPENCODE)
NOW = datetime(2026, 11, 29, 19, 1, 40, tzinfo=UTC)
OVERLOADED = "The engine is currently overloaded, please try again later"
AT_REST = "   ~/work                                    1.3K (1%)  ctrl+p commands"
BUSY = "   ⬝⬝⬝⬝■■■⬝  esc interrupt                   1.3K (1%)  ctrl+p commands"
DONE = "     ▣  Build · Fake Model · 3.5s"
STOPPED = "     ▣  Build · Fake Model · interrupted"
OPEN = "     ▣  Build · Fake Model"


# -- the screen -----------------------------------------------------------------------------------------------------


def block(*rows: str) -> list[str]:
    """A prompt, a tool's output or an error."""
    return ["", "  ┃", *(f"  ┃  {row}".rstrip() for row in rows), "  ┃"]


def says(*rows: str) -> list[str]:
    """The assistant's words."""
    return ["", *(f"     {row}".rstrip() for row in rows)]


def screen(*transcript: str, draft: str = "", footer: str = AT_REST, width: int = 80, sidebar: bool = False) -> Frame:
    """A transcript above the input box."""
    edge = width - 44 if sidebar else width - 2
    box = ["  ┃", f"  ┃  {draft}".rstrip(), "  ┃", "  ┃  Build · Fake Model Fake", "  ╹" + "▀" * (edge - 3)]
    lines = [*transcript, "", *box, footer]
    if sidebar:
        words = ["Fake title", "", "Context", "API Error: 503", "┃ Rate limit reached", "▣  Build · Fake Model"]
        lines = [line.ljust(edge + 2) + words[n % len(words)] for n, line in enumerate(lines)]
    return Frame(tuple(line.rstrip() for line in lines), width=width, height=len(lines))


def toasted(frame: Frame, *text: str) -> Frame:
    """The frame with a toast over its top right corner."""
    left = max(4, frame.width - 62)
    rows = ["", *text, ""]
    lines = list(frame.lines)
    for n, row in enumerate(rows, start=2):
        lines[n] = lines[n].ljust(left)[:left] + "┃" + f"  {row}".ljust(58) + "┃"
    return Frame(tuple(lines), width=frame.width, height=frame.height)


def read(frame: Frame, sent: Sent | None = None) -> Reading:
    return OPENCODE.grammar.read(frame, sent)


def verdict(frame: Frame) -> str:
    reading = read(frame)
    return word(reading, hopeless(reading.retrying) or classify(reading, SETUP.patterns, width=frame.width, fast=False))


@pytest.mark.parametrize("width", [80, 118])
@pytest.mark.parametrize(
    ("transcript", "found"),
    [
        ([*block("Do it."), *block(OVERLOADED), "", OPEN], "backend_error"),
        ([*block("Do it."), *says("Half an"), *block("The socket connection was closed."), "", OPEN], "backend_error"),
        ([*block("Do it."), *block("You exceeded your current quota."), "", OPEN], "exhausted"),
        ([*block("Do it."), *block("Free usage exceeded, subscribe to Go"), "", OPEN], "exhausted"),
        ([*block("Do it."), *block("Incorrect API key provided: sk-dummy."), "", OPEN], "auth"),
        ([*block("Do it."), *block("The model `x` does not exist"), "", OPEN], "request"),
        ([*block("Do it."), *block("The response was blocked by the content filter"), "", DONE], "request"),
        ([*block("Do it."), *block("Something that nobody foresaw"), "", OPEN], "failed"),
        ([*block("Do it."), *says("$ touch it"), "", OPEN], "failed"),
        ([*block("Do it."), "", DONE], "failed"),
        ([*block("Do it."), *says("Half an"), "", STOPPED], "interrupted"),
        ([*block("Do it."), *block("The operation was aborted."), "", OPEN], "interrupted"),
        ([*block("Do it."), *says("It is done."), "", DONE], "completed"),
        ([*block("Old."), *block(OVERLOADED), *block("Do it."), *says("It is done."), "", DONE], "completed"),
        ([*block("Old."), *says("Old."), "", DONE, *block("Do it."), *block(OVERLOADED), "", OPEN], "backend_error"),
        ([*block("Do it."), *block("$ make", "", OVERLOADED), *says("It is done."), "", DONE], "completed"),
        ([*says("The end of a long answer."), "", DONE], "completed"),
        ([*says("Half an"), *block(OVERLOADED), "", OPEN], "backend_error"),
    ],
)
def test_a_turns_end_is_told_by_the_order_of_blocks_and_marks(
    transcript: Sequence[str], found: str, width: int
) -> None:
    assert verdict(screen(*transcript, width=width)) == found
    if width > 100:
        assert verdict(screen(*transcript, width=160, sidebar=True)) == found


def test_a_prompt_that_quotes_an_error_is_none() -> None:
    quoted = [*block("Why does it say", "", OVERLOADED), *says("Because it was busy."), "", DONE]
    assert verdict(screen(*quoted)) == "completed"
    assert verdict(screen(*block(OVERLOADED), "", OPEN, footer=BUSY)) == "working"
    assert verdict(screen(*block(OVERLOADED), *says("Yes."), "", DONE)) == "completed"


def test_an_answer_that_quotes_errors_footers_and_dialogs_is_an_answer() -> None:
    quotes = [
        "Look:",
        "┃  " + OVERLOADED,
        "▣  Build · Fake Model · interrupted",
        "⬝⬝⬝⬝■■■⬝  esc interrupt",
        f"{OVERLOADED} [retrying in 6h 2m attempt #4]",
        "△ Permission required",
        "Allow once   Allow always   Reject    ⇆ select  enter confirm",
    ]
    frame = screen(*block("Do it."), *says(*quotes), "", DONE, width=118)
    assert verdict(frame) == "completed"
    reading = read(frame)
    assert (reading.state, reading.retrying, reading.finished) == (State.IDLE, None, True)
    assert reading.answer == "\n".join(quotes)


@pytest.mark.parametrize("width", [80, 118])
def test_an_error_is_read_whole_behind_the_toast_that_repeats_it(width: int) -> None:
    error = "You exceeded your current quota, please check your plan"
    frame = toasted(screen(*block("Do."), *block(error), "", OPEN, width=width), error, "and billing details.")
    assert verdict(frame) == "exhausted"
    assert read(frame).judged == (f"  ┃  {error} and billing details.",)


def test_a_toast_that_comes_before_its_error_says_what_it_is() -> None:
    frame = screen(*block("Do it."), "", OPEN, "", "", "")
    assert verdict(toasted(frame, "The engine is currently overloaded,", "please try again later")) == "backend_error"


def test_a_toast_over_a_good_answer_is_nothing() -> None:
    frame = toasted(screen(*block("Do it."), *says("It is done."), "", DONE, "", width=118), "Copied: rate limit")
    assert (verdict(frame), read(frame).answer) == ("completed", "It is done.")


@pytest.mark.parametrize(
    ("footer", "attempt", "wait_s"),
    [
        (f"   ⬝⬝⬝⬝■■■⬝ {OVERLOADED} [retrying in 24s attempt #5]   esc interrupt", 5, 24),
        (f"   ⬝⬝⬝⬝■■■⬝ {OVERLOADED} [retrying in 2m 5s attempt #3]   esc", 3, 125),
        (f"   ⬝⬝⬝⬝■■■⬝ {OVERLOADED} [retrying attempt #1]   esc interrupt", 1, None),
        (f"   ⬝The■{OVERLOADED[4:]} [retrying attempt\n    #1]", 1, None),
        (f"   [⋯] {OVERLOADED}… (click to expand) [retrying in 3s attempt #2]  esc interrupt", 2, 3),
    ],
)
def test_a_retry_is_working_and_says_how_long(footer: str, attempt: int, wait_s: int | None) -> None:
    bare = screen(*block("Do it."), "", OPEN, footer="")
    frame = Frame((*bare.lines[:-1], *footer.split("\n")), width=80, height=20)
    reading = read(frame)
    assert reading.state is State.BUSY
    assert reading.retrying is not None
    assert (reading.retrying.attempt, reading.retrying.wait_s) == (attempt, wait_s)
    assert "overloaded" in reading.retrying.line
    assert verdict(frame) == "working"


def test_a_retry_after_hours_is_an_exhausted_quota() -> None:
    footer = "   ⬝⬝⬝⬝■■■⬝ 5 hour usage limit reached [retrying in 2h 5m attempt #1]   esc interrupt"
    assert verdict(screen(*block("Do it."), "", OPEN, footer=footer)) == "exhausted"


def test_a_permission_and_a_question_stand_in_the_boxs_place_and_take_no_prompt() -> None:
    for asks in (
        (
            "△ Permission required",
            "# Shell command",
            "",
            " Allow once   Allow always   Reject   ⇆ select  enter confirm",
        ),
        ("Which one?", "", "1. A", "2. B", "", "↑↓ select  enter submit  esc dismiss"),
    ):
        reading = read(Frame((*block("Do it."), "", OPEN, *block(*asks)), width=80, height=24))
        assert (reading.state, reading.input_open, reading.draft) == (State.BLOCKED, False, "")


def test_a_dialog_over_the_screen_takes_no_prompt() -> None:
    under = screen(*block("Do it."), *says("It is done."), "", DONE, *[""] * 6)
    for title, state in (("Commands", State.BLOCKED), ("Free limit reached", State.IDLE)):
        lines = list(under.lines)
        lines[-12:-9] = ["", f"{'':14}{title.ljust(48)}esc", f"{'':14}Search"]
        reading = read(Frame(tuple(lines), width=80, height=30))
        assert (reading.state, reading.input_open) == (state, False)


def test_what_stands_in_the_box_is_a_draft_and_its_suggestion_is_none() -> None:
    assert read(screen(*block("Do it."), draft="half a line")).draft == "half a line"
    assert read(screen(*block("Do it."))).draft == ""
    bar, grey, white = "\x1b[38;2;92;156;245m┃", "\x1b[38;2;128;128;128m", "\x1b[38;2;238;238;238m"
    text = 'Ask anything... "Fix broken tests"'
    lines = (f"{'':20}┃", f"{'':20}┃  {text}", f"{'':20}┃", f"{'':20}┃  Build · Fake Model Fake", f"{'':20}╹{'▀' * 60}")
    assert read(Frame(lines, width=80)).draft == ""
    for colour, draft in ((grey, ""), (white, text)):
        styled = [line.replace("┃", bar) for line in lines]
        styled[1] = styled[1].replace("Ask", colour + "Ask")
        styled[3] = styled[3].replace("Fake Model Fake", f"{white}Fake Model {grey}Fake")
        reading = read(Frame(lines, width=80, styled=tuple(styled)))
        assert (reading.state, reading.input_open, reading.draft, reading.echoed) == (State.IDLE, True, draft, False)


def test_colours_tell_an_error_from_a_prompt_where_the_order_does_not() -> None:
    """A turn that was refused leaves no mark: the block below it may be the next prompt or an error."""
    frame = screen(*block("Do it."), *says("$ touch it"), *block("Rate limit"), "", OPEN)
    bar, grey, white = "\x1b[38;5;75m┃\x1b[39m", "\x1b[38;5;8m", "\x1b[38;5;255m"
    for colour, found in ((grey, "backend_error"), (white, "failed")):
        styled = [line.replace("┃", bar) for line in frame.lines]
        styled = [line.replace("Rate", colour + "Rate").replace("Model Fake", f"Model {grey}Fake") for line in styled]
        styled = [line.replace("Do it", white + "Do it") for line in styled]
        coloured = Frame(frame.lines, width=80, height=frame.height, styled=tuple(styled))
        assert verdict(coloured) == found


def test_a_turn_of_ours_that_has_left_no_end_yet_is_not_at_rest() -> None:
    """The program draws the prompt, then the mark, then the text, and is idle in between."""
    before = screen(*block("Old."), *says("Old."), "", DONE)
    sent = Sent("Do it.", before)
    old = [*block("Old."), *says("Old."), "", DONE]
    for drawn in ((), block("Do it.")):
        assert read(screen(*old, *drawn, footer=AT_REST.replace("1%", "2%")), sent).state is State.BUSY
    for drawn in ([*block("Do it."), "", OPEN], [*block("Do it."), "", DONE], [*block("Do it."), *says("New.")]):
        assert read(screen(*old, *drawn), sent).state is State.UNKNOWN
    assert read(screen(*old, draft="Do it."), sent).state is State.UNKNOWN
    assert read(before, sent).state is State.UNKNOWN
    assert read(screen(*old, *block("Do it."), *says("New."), "", DONE), sent).state is State.IDLE
    assert read(screen(*old, *block("Do it."), *block("No."), "", OPEN), sent).state is State.IDLE
    home = Frame((f"{'':20}┃", f"{'':20}┃", f"{'':20}┃  Build · Fake Model Fake", f"{'':20}╹{'▀' * 60}"), width=80)
    for shown in (Frame(()), screen(""), msgspec.structs.replace(home, lines=("", *home.lines))):
        assert read(shown, Sent("Do it.", home)).state is State.BUSY


def test_another_turns_answer_is_not_ours_though_its_toast_has_gone() -> None:
    old = [*block("Old."), *says("Old."), "", DONE, "", ""]
    now = screen(*old, footer=BUSY)
    reading = read(now, Sent("Do it.", toasted(screen(*old), "Copied to clipboard")))
    assert (reading.scope, reading.answer, reading.echoed) == ((), "", False)


def test_another_turns_answer_is_not_ours_though_it_is_drawn_late() -> None:
    """The program draws an answer's text after the mark below it, and the same prompt may be sent twice."""
    drawn = [*block("Go on."), *says("Old."), "", DONE]
    for before in ([*block("Go on."), "", OPEN], [*block("Go on."), "", DONE], drawn):
        sent = Sent("Go on.", screen(*before))
        assert (read(screen(*drawn, footer=""), sent).state, read(screen(*drawn), sent).answer) == (State.BUSY, "")
    sent = Sent("Go on.", screen(*drawn))
    assert read(screen(*drawn, *block("Go on."), *says("New."), "", DONE), sent).answer == "New."
    assert read(screen(*block("Go on."), *says("New."), "", DONE), sent).answer == "New."
    assert read(screen(*block("Go on."), *says("Old."), "", DONE.replace("3.5", "4.5")), sent).answer == "Old."


def test_what_follows_a_summary_is_the_answer() -> None:
    rule = "  " + "─" * 30 + " Compaction " + "─" * 30
    summary = ["", rule, *says("A summary."), "", "     ▣  Compaction · Fake Model · 1.2s"]
    reading = read(screen(*block("Do it."), *summary, *says("It is done."), "", DONE))
    assert reading.answer == "It is done."
    assert verdict(screen(*block("Do it."), *summary, *block(OVERLOADED), "", OPEN)) == "backend_error"


# -- its events -----------------------------------------------------------------------------------------------------


def events(name: str) -> list[dict[str, Any]]:
    """The program's own events, from its event stream."""
    text = (CORPUS / "opencode" / "signals" / "hooks" / name).read_text(encoding="utf-8")
    if name.endswith(".json"):
        return list(json.loads(text))
    lines = (line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: "))
    return [event for event in map(_decoded, lines) if event.get("type") in EVENTS]


def _decoded(line: str) -> dict[str, Any]:
    try:
        return dict(json.loads(line))
    except ValueError:
        return {}  # the stream was cut here


def told(stream: Iterable[Mapping[str, Any]]) -> list[Signal]:
    turns = Turns()
    return [signal for event in stream for signal in turns.take(event, NOW)]


def event(kind: str, **properties: Any) -> dict[str, Any]:
    return {"type": kind, "properties": properties}


def asked(message: str, text: str, session: str = "s", **part: Any) -> list[dict[str, Any]]:
    words = {"id": f"p-{message}", "sessionID": session, "messageID": message, "type": "text", "text": text, **part}
    info = {"id": message, "sessionID": session, "role": "user"}
    return [event("message.updated", info=info), event("message.part.updated", part=words)]


def answered(
    message: str, parent: str, text: str, finish: str | None = "stop", session: str = "s", **info: Any
) -> list[dict[str, Any]]:
    head = {"id": message, "sessionID": session, "role": "assistant", "parentID": parent, **info}
    words = {"id": f"p-{message}", "sessionID": session, "messageID": message, "type": "text", "text": text}
    return [
        event("message.updated", info=head),
        event("message.part.updated", part=words),
        event("message.updated", info={**head, "finish": finish}),
    ]


def failed(name: str, session: str = "s", **data: Any) -> dict[str, Any]:
    return event("session.error", sessionID=session, error={"name": name, "data": {"message": name, **data}})


IDLE = event("session.idle", sessionID="s")


def test_the_programs_own_stream_is_told_as_turns() -> None:
    signals = told(events("sse-80.txt"))
    began = [signal for signal in signals if signal.what is What.BEGAN]
    ends = [signal for signal in signals if signal.what in (What.ENDED, What.FAILED, What.STOPPED)]
    assert [signal.turn for signal in began][: len(ends)] == [signal.turn for signal in ends]
    assert began[0].text == "Please review w80-normal"
    assert ends[0].what is What.ENDED
    assert ends[0].text.startswith("I reviewed src/app.py")
    assert {signal.kind for signal in ends if signal.what is What.FAILED} >= {Kind.AUTH}


def test_each_error_of_the_program_is_of_its_kind() -> None:
    kinds = {
        401: Kind.AUTH,
        503: Kind.BACKEND_ERROR,
        429: Kind.EXHAUSTED,
        500: Kind.BACKEND_ERROR,
        529: Kind.BACKEND_ERROR,
        404: Kind.REQUEST,
        400: Kind.REQUEST,
    }
    seen = 0
    for each in events("sse-examples.json"):
        if each["type"] != "session.error":
            continue
        session, error = each["properties"]["sessionID"], each["properties"]["error"]
        end = told([*asked("m", "Do it.", session), each, event("session.idle", sessionID=session)])[-1]
        if error["name"] == "MessageAbortedError":
            assert end.what is What.STOPPED
            continue
        assert end.what is What.FAILED
        assert end.kind is (
            Kind.REQUEST if error["name"] == "ContextOverflowError" else kinds[error["data"]["statusCode"]]
        )
        assert end.text == error["data"]["message"]
        seen += 1
    assert seen == 8


@pytest.mark.parametrize(
    ("name", "data", "kind"),
    [
        ("APIError", {"message": "Slow down", "statusCode": 429}, Kind.BACKEND_ERROR),
        ("APIError", {"message": "No", "statusCode": 402}, Kind.EXHAUSTED),
        (
            "APIError",
            {"message": "No", "statusCode": 429, "responseBody": '{"code":"insufficient_quota"}'},
            Kind.EXHAUSTED,
        ),
        ("APIError", {"message": "Your credit balance is too low", "statusCode": 400}, Kind.EXHAUSTED),
        ("APIError", {"message": "Cannot connect to API: Unable to connect."}, Kind.BACKEND_ERROR),
        ("APIError", {"message": "limited (not your usage limit)", "statusCode": 529}, Kind.BACKEND_ERROR),
        ("ProviderAuthError", {"message": "x"}, Kind.AUTH),
        ("MessageOutputLengthError", {}, Kind.REQUEST),
        ("UnknownError", {"message": '{"code":"server_is_overloaded","message":"Overloaded"}'}, Kind.BACKEND_ERROR),
        ("UnknownError", {"message": "TypeError: undefined is not a function"}, Kind.FAILED),
        ("Newer", {}, Kind.FAILED),
    ],
)
def test_the_status_decides_and_the_words_where_there_is_none(name: str, data: dict[str, Any], kind: Kind) -> None:
    end = told([*asked("m", "Do it."), failed(name, **data), IDLE])[-1]
    assert (end.what, end.kind, end.turn) == (What.FAILED, kind, "m")


@pytest.mark.parametrize(
    ("data", "seconds"),
    [
        ({"responseBody": '{"error":{"resets_in_seconds": 5400}}'}, 5400),
        ({"responseBody": f'{{"error":{{"resets_at": {int(NOW.timestamp()) + 60}}}}}'}, 60),
        ({"responseHeaders": {"retry-after": "7200"}}, 7200),
        ({"message": "Usage limit reached, resets in 2 hours"}, 7200),
        ({"responseHeaders": {"retry-after": "soon"}}, None),
    ],
)
def test_a_used_up_quota_says_when_it_comes_back(data: dict[str, Any], seconds: int | None) -> None:
    error = failed("APIError", **{"message": "The usage limit has been reached", "statusCode": 429, **data})
    end = told([*asked("m", "Do it."), error, IDLE])[-1]
    assert (end.kind, end.resets_in_ns) == (Kind.EXHAUSTED, None if seconds is None else seconds * NS_PER_S)


def test_an_answer_is_the_last_messages_text_since_its_last_attempt() -> None:
    """A dropped stream leaves what it brought in the same message, and a tool's call has a message of its own."""
    again = event("message.part.updated", part={"id": "p", "sessionID": "s", "messageID": "b", "type": "step-start"})
    stream = [*asked("m", "Do it."), *answered("a", "m", "I look.", "tool-calls")]
    stream += [*answered("b", "m", "Half an", None), again, *answered("b", "m", "It is done."), IDLE]
    assert told(stream)[-1] == Signal(What.ENDED, "m", "It is done.", pattern="session.idle")


@pytest.mark.parametrize(
    ("finish", "text", "what", "kind"),
    [
        ("stop", "It is done.", What.ENDED, Kind.FAILED),
        ("other", "It is done.", What.ENDED, Kind.FAILED),
        ("stop", "", What.ENDED, Kind.FAILED),
        ("length", "It is", What.FAILED, Kind.REQUEST),
        ("content-filter", "It is", What.FAILED, Kind.REQUEST),
        ("tool-calls", "I run it.", What.FAILED, Kind.FAILED),
        (None, "Half an", What.FAILED, Kind.FAILED),
    ],
)
def test_only_a_model_that_stopped_by_itself_has_answered(finish: str, text: str, what: What, kind: Kind) -> None:
    end = told([*asked("m", "Do it."), *answered("a", "m", text, finish), IDLE])[-1]
    assert (end.what, end.kind) == (what, kind)


def test_helpers_and_titles_are_no_turns_and_their_questions_are_ours() -> None:
    child = event("session.created", info={"id": "c", "parentID": "s"})
    done = event("session.idle", sessionID="c")
    asks, reply = event("permission.asked", sessionID="c"), event("permission.replied", sessionID="c")
    stream = [*asked("m", "Do it."), child, *asked("n", "Help.", "c"), asks, reply]
    stream += [*answered("a", "n", "Helped.", session="c"), failed("APIError", "c"), done]
    stream += [*answered("b", "m", "It is done."), IDLE, IDLE]
    assert [(signal.what, signal.turn) for signal in told(stream)] == [
        (What.BEGAN, "m"),
        (What.WAITING, "m"),
        (What.WORKING, "m"),
        (What.ENDED, "m"),
    ]


def test_a_prompt_that_waited_behind_ours_is_a_turn_of_its_own() -> None:
    stream = [*asked("m", "Ours."), *asked("n", "A person's."), *answered("a", "m", "Ours is done.")]
    stream += [*answered("b", "n", "Theirs is done."), IDLE]
    assert [(signal.what, signal.turn, signal.text) for signal in told(stream)] == [
        (What.BEGAN, "m", "Ours."),
        (What.ENDED, "m", "Ours is done."),
        (What.BEGAN, "n", "A person's."),
        (What.ENDED, "n", "Theirs is done."),
    ]


def test_a_summary_is_part_of_the_turn_that_needs_it() -> None:
    """The program asks for it itself, and repeats the prompt or tells the model to go on."""
    summed = [*answered("a", "x", "A summary.", summary=True)]
    for again in (asked("n", "Do it."), asked("n", "Continue.", synthetic=True)):
        stream = [*asked("m", "Do it."), failed("ContextOverflowError"), *summed, *again]
        stream += [*answered("b", "n", "It is done."), IDLE]
        assert [(signal.what, signal.turn) for signal in told(stream)] == [(What.BEGAN, "m"), (What.ENDED, "m")]


def test_a_conversation_that_stays_too_long_is_a_request_that_failed() -> None:
    """The plugin stops it, as the program would go on for ever; a person who stops it sooner has stopped it."""
    for times, what in ((OVERFLOWS, What.FAILED), (OVERFLOWS - 1, What.STOPPED)):
        stream = asked("m", "Do it.")
        for n in range(times):
            stream += [*answered(f"a{n}", "m", "", None), failed("ContextOverflowError")]
        stream += [*answered("z", "m", "", None, error={"name": "MessageAbortedError", "data": {}}), IDLE]
        end = told(stream)[-1]
        assert (end.what, end.kind) == (what, Kind.REQUEST if what is What.FAILED else Kind.FAILED)


def test_a_retry_is_told_with_its_wait() -> None:
    status = {"type": "retry", "attempt": 2, "message": "Overloaded", "next": (NOW.timestamp() + 30) * 1000}
    signal = told([*asked("m", "Do it."), event("session.status", sessionID="s", status=status)])[-1]
    assert (signal.what, signal.turn, signal.text) == (What.RETRYING, "m", "Overloaded")
    assert (signal.attempt, signal.wait_s) == (2, 30)


@pytest.mark.parametrize("record", [{}, {"type": 1, "properties": []}, event("message.updated", info=None), event("x")])
def test_an_event_of_another_shape_is_none(record: dict[str, Any]) -> None:
    assert told([record, *asked("m", "Do it."), record])[-1].what is What.BEGAN


class Recorder:
    """Takes what a watch tells."""

    def __init__(self) -> None:
        self.told: list[Signal] = []
        self._came = trio.Event()

    def tell(self, message: Message) -> None:
        assert isinstance(message, Signal)
        self.told.append(message)
        self._came.set()
        self._came = trio.Event()

    async def until(self, count: int) -> list[tuple[What, str]]:
        with trio.fail_after(10):
            while len(self.told) < count:
                await self._came.wait()
        return [(signal.what, signal.turn) for signal in self.told]


def write(record: Path, *stream: Mapping[str, Any]) -> None:
    with record.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in stream)


async def test_a_members_record_is_followed_as_it_grows(tmp_path: Path) -> None:
    recorder, record = Recorder(), tmp_path / RECORD
    watch = OPENCODE.plan(context(tmp_path)).watch
    assert watch is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, PANE, recorder)
        write(record, *asked("m", "Do it."))
        assert await recorder.until(1) == [(What.BEGAN, "m")]
        write(record, *answered("a", "m", "It is done."), IDLE)
        assert await recorder.until(2) == [(What.BEGAN, "m"), (What.ENDED, "m")]
        nursery.cancel_scope.cancel()


async def test_an_adopted_members_record_tells_of_the_open_turn_and_goes_on(tmp_path: Path) -> None:
    recorder, record = Recorder(), tmp_path / RECORD
    old = [*asked("l", "Before."), *answered("z", "l", "Was done."), IDLE]
    write(record, *old, {"x": 1}, *asked("m", "Do it."), *answered("a", "m", "Half", None)[:1])
    watch = OPENCODE.resume(tmp_path, "/")
    assert watch is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, PANE, recorder)
        assert await recorder.until(1) == [(What.BEGAN, "m")]
        write(record, *answered("a", "m", "It is done."), IDLE)
        assert await recorder.until(2) == [(What.BEGAN, "m"), (What.ENDED, "m")]
        assert recorder.told[-1].text == "It is done."
        nursery.cancel_scope.cancel()


async def test_a_program_that_does_not_load_the_plugin_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(opencode_record, "RECORD_S", 0.0)
    watch = OPENCODE.resume(tmp_path, "/")
    assert watch is not None
    with trio.move_on_after(0.5):
        await watch(PANE, Recorder())
    assert [record.message for record in caplog.records] == [
        "program did not load fleetd's plugin; the screen decides until it does"
    ]


# -- its start ------------------------------------------------------------------------------------------------------


def context(directory: Path, *argv: str, limit_retries: bool = True, **env: str) -> LaunchContext:
    return LaunchContext(
        "m-1",
        argv or ("opencode",),
        {"PATH": "/bin", **env},
        str(directory),
        directory,
        hook=("/python", "hook.py"),
        bridge=("/python", "-m", "fleetd", "mcp"),
        limit_retries=limit_retries,
    )


def test_the_adapter_is_known_by_its_name_and_by_its_client() -> None:
    assert OPENCODE.name == "opencode"
    assert by_client("opencode") is OPENCODE


def test_a_member_gets_a_plugin_and_an_mcp_server_of_its_own(tmp_path: Path) -> None:
    plan = OPENCODE.plan(context(tmp_path))
    assert plan.argv == ("opencode",)
    content, tui = json.loads(plan.env[CONTENT]), json.loads(Path(plan.env[TUI_CONFIG]).read_text())
    assert content["mcp"]["fleetd"]["command"] == ["/python", "-m", "fleetd", "mcp"]
    assert tui == {"plugin": [(tmp_path / PLUGIN).as_uri()]}
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}
    assert "plugin" not in content, "a plugin of the server's makes the start wait for packages"
    assert plan.watch is not None


def test_what_the_profile_sets_wins_over_what_fleetd_sets(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "tui.json").write_text(
        json.dumps({"theme": "nord", "plugin": ["./mine.js", ["../its.js", {"a": 1}], "npm"]})
    )
    content = {"model": "a/b", "permission": {"fleetd_*": "deny"}, "mcp": {"mine": {"type": "local"}}}
    plan = OPENCODE.plan(
        context(
            tmp_path,
            "opencode",
            "--model",
            "x/y",
            OPENCODE_CONFIG_CONTENT=json.dumps(content),
            OPENCODE_TUI_CONFIG=str(own / "tui.json"),
            OPENCODE_DISABLE_AUTOUPDATE="0",
        )
    )
    merged, tui = json.loads(plan.env[CONTENT]), json.loads(Path(plan.env[TUI_CONFIG]).read_text())
    assert plan.argv == ("opencode", "--model", "x/y")
    assert (merged["model"], merged["permission"]) == ("a/b", {"fleetd_*": "deny"})
    assert set(merged["mcp"]) == {"mine", "fleetd"}
    mine = [(own / "mine.js").as_uri(), [(tmp_path / "its.js").as_uri(), {"a": 1}], "npm"]
    assert tui == {"theme": "nord", "plugin": [*mine, (tmp_path / PLUGIN).as_uri()]}
    assert plan.env["OPENCODE_DISABLE_AUTOUPDATE"] == "0"
    assert json.loads((own / "tui.json").read_text())["plugin"][0] == "./mine.js"


def test_its_interrupt_is_two_escapes_a_moment_apart() -> None:
    """Right behind one another they are one key, and it goes on."""
    bench = Left(interrupt_keys=OPENCODE.interrupt_keys)
    bench.runs()
    bench.tell(Interrupt())
    assert bench.panes.told[-1] == PressKeys(PANE, ("Escape",))
    later = PressKeys(PANE, ("Escape",))
    assert (ESCAPE_GAP_NS, later) in bench.timers
    bench.panes.told.clear()
    bench.tell(later)
    assert bench.panes.told == [later]


def test_a_conversation_that_stays_too_long_is_stopped_unless_the_profile_forbids_it(tmp_path: Path) -> None:
    for limit, count in ((True, OVERFLOWS), (False, 0)):
        OPENCODE.plan(context(tmp_path, limit_retries=limit))
        assert (tmp_path / PLUGIN).read_text() == source(str(tmp_path), overflows=count)
        assert f'"overflows": {count}' in (tmp_path / PLUGIN).read_text()


@pytest.mark.parametrize(
    ("argv", "env", "said"),
    [
        (["opencode", "run", "x"], {}, "no screen"),
        (["opencode"], {CONTENT: "{ // jsonc\n}"}, CONTENT),
        (["opencode"], {TUI_CONFIG: "missing.json"}, "cannot be read"),
    ],
)
def test_what_cannot_be_combined_is_refused_with_a_sentence(
    tmp_path: Path, argv: list[str], env: dict[str, str], said: str
) -> None:
    with pytest.raises(OpenFailed, match=said):
        OpenCode().plan(context(tmp_path, *argv, **env))
