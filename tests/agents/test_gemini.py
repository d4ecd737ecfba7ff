"""Gemini CLI's adapter: its screen's traps, what its hooks and its record say, and how it is started."""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from actors.classify import Kind, classify, word
from actors.clock import NS_PER_S
from actors.host import OpenFailed
from actors.screen import Frame, Reading, Sent, State
from actors.signal import Signal, What
from fleetd.agents import ADAPTERS, by_client, gemini_record
from fleetd.agents.adapter import LaunchContext
from fleetd.agents.gemini import ATTEMPTS, EVENTS, Gemini
from fleetd.agents.gemini_home import HOME
from fleetd.replay import shipped_setup
from tests.agents.corpus import CORPUS

GEMINI = ADAPTERS["gemini"]
SETUP = shipped_setup(GEMINI)
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
HINT = " >   Type your message or @path/to/file"
ASKED = (" > Go.",)
ANSWER = ("✦ Two bugs:", "", "   - one", "  Done.")
OVERLOADED = '✕ [API Error: {"error":{"code":503,"message":"The model is overloaded.","status":"UNAVAILABLE"}}]'
#: The ways in which the program draws a prompt's echo and its input box.
STYLES = ("half", "rules", "plain", "framed")


# -- the screen -----------------------------------------------------------------------------------------------------


def boxed(*rows: str, width: int = 80) -> tuple[str, ...]:
    """Rows in a frame."""
    return (
        "╭" + "─" * (width - 2) + "╮",
        *(f"│ {row}".ljust(width - 1) + "│" for row in rows),
        "╰" + "─" * (width - 2) + "╯",
    )


def screen(
    *transcript: str,
    style: str = "half",
    echo: Sequence[str] = ASKED,
    box: Sequence[str] = (HINT,),
    status: str = "   ? for shortcuts",
    width: int = 80,
    title: str = "",
) -> Frame:
    """A prompt's echo and what follows it, above the input box."""
    top, end = ("▄" * width, "▀" * width) if style == "half" else ("", "")
    edge = "─" * width if style == "rules" else ""
    if style in ("half", "plain"):
        drawn = [top, *echo, end] if echo else ["Tips for getting started:"]
    else:
        drawn = ["", *(line.removeprefix(" ") for line in echo), ""] if echo else ["Tips for getting started:"]
    if style == "framed":
        region = [*boxed(*(row.removeprefix(" ") for row in box), width=width), " ~/work   no sandbox   gemini-2.5-pro"]
        region = [status, *region] if "esc to cancel" in status else region
    else:
        region = [status, "─" * width, " Shift+Tab to accept edits", top or edge, *box, end or edge]
        region += [" workspace (/directory)    sandbox    /model", " ~/work    no sandbox    gemini-2.5-pro"]
    lines = [line.rstrip() for line in (*drawn, *transcript, "", *region)]
    return Frame(tuple(lines), title=title, width=width, height=max(40, len(lines)))


def dialog(*rows: str, width: int = 80) -> Frame:
    """A prompt's echo, and a dialog in the input box's place."""
    lines = ("▄" * width, *ASKED, "▀" * width, "", *boxed(*rows, width=width))
    return Frame(lines, width=width, height=40)


def read(frame: Frame, sent: Sent | None = None) -> Reading:
    return GEMINI.grammar.read(frame, sent)


def verdict(frame: Frame, sent: Sent | None = None) -> str:
    """What a person would be told of a screen that stands like this."""
    reading = read(frame, sent)
    found = classify(reading, SETUP.patterns, width=frame.width, sent=sent, screen=frame.lines, fast=False)
    return word(reading, found)


def test_the_adapter_is_known_by_its_name_and_by_its_client() -> None:
    assert GEMINI.name == "gemini"
    assert by_client("gemini-cli-mcp-client") is GEMINI


@pytest.mark.parametrize("width", [80, 200])
@pytest.mark.parametrize("style", STYLES)
def test_an_answer_is_read_without_its_mark_and_its_indentation(style: str, width: int) -> None:
    reading = read(screen(*ANSWER, style=style, width=width))
    assert (reading.state, reading.input_open, reading.draft) == (State.IDLE, True, "")
    assert reading.answer == "Two bugs:\n\n - one\nDone."


@pytest.mark.parametrize("style", STYLES)
def test_text_in_the_input_box_is_a_draft_and_its_fixed_suggestion_is_not(style: str) -> None:
    reading = read(screen(*ANSWER, style=style, box=(" > half a", "   draft ✕")))
    assert (reading.state, reading.input_open, reading.draft) == (State.IDLE, True, "half a\ndraft ✕")
    assert read(screen(*ANSWER, style=style)).draft == ""


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("line", [" ⠋ Thinking... (esc to cancel, 12s)", " Working... (esc to cancel, 3s)"])
def test_a_line_that_says_how_to_cancel_is_busy_whatever_the_title_says(line: str, style: str) -> None:
    assert verdict(screen(*ANSWER, style=style, status=line, title="◇  Ready (work)")) == "working"


@pytest.mark.parametrize(
    ("title", "state"), [("✦  Working… (work)", State.BUSY), ("✋  Action Required", State.BLOCKED)]
)
def test_a_title_that_says_what_it_does_adds_to_a_screen_that_does_not(title: str, state: State) -> None:
    assert read(screen(*ANSWER, title=title)).state is state
    assert read(screen(*ANSWER)).state is State.IDLE


@pytest.mark.parametrize("style", STYLES)
def test_an_error_below_a_half_answer_is_the_turns_end(style: str) -> None:
    assert verdict(screen("✦ I look at the", "✕ [API Error: terminated]", style=style)) == "backend_error"


def test_an_error_above_an_answer_of_the_same_turn_is_over() -> None:
    assert verdict(screen("✕ The model returned an empty response with no text.", *ANSWER)) == "completed"


def test_an_error_of_an_earlier_turn_is_not_this_turns() -> None:
    frame = screen(*ANSWER)
    older = ("▄" * 80, " > Before", "▀" * 80, OVERLOADED, "")
    assert verdict(Frame(older + frame.lines, width=80, height=60)) == "completed"


@pytest.mark.parametrize("style", STYLES)
def test_a_prompt_that_quotes_errors_is_no_failure(style: str) -> None:
    echo = (" > What is this:", f"   {OVERLOADED}", "", "   │ Usage limit reached for x")
    assert verdict(screen(*ANSWER, style=style, echo=echo)) == "completed"


def test_an_answer_that_shows_an_error_a_dialog_a_footer_and_an_input_box_is_only_an_answer() -> None:
    quoted = [
        "",
        *screen(OVERLOADED, " ⠋ Thinking... (esc to cancel, 3s)").lines,
        *boxed("● 1. Keep trying", "2. Stop"),
    ]
    frame = screen("✦ The log has:", *(f"  {line}".rstrip() for line in quoted), "  That is all.")
    reading = read(frame)
    assert (reading.state, reading.input_open, verdict(frame)) == (State.IDLE, True, "completed")
    assert reading.answer.endswith("That is all.")


def test_what_a_tool_printed_stands_in_a_frame_and_is_no_failure() -> None:
    printed = boxed("✓  Shell cat old.log", OVERLOADED, "Usage limit reached for x", "● 1. Keep trying", "  2. Stop")
    assert verdict(screen(*printed, *ANSWER)) == "completed"
    assert verdict(screen(*ANSWER, *printed)) == "completed"
    assert verdict(screen(*printed)) == "failed", "a turn without an answer did not end well"


def test_the_end_of_a_tools_frame_whose_beginning_has_left_the_screen_is_no_failure() -> None:
    rows = boxed("✓  Shell cat old.log", "Usage limit reached for x", "We are currently experiencing high demand")[2:]
    assert verdict(screen(*rows, *ANSWER, echo=())) == "completed"
    assert Kind.EXHAUSTED not in verdict(screen(*rows, echo=()))


def test_an_answer_of_code_alone_has_no_mark_and_is_one() -> None:
    for style in STYLES:
        reading = read(screen("   1 ✕ [API Error: x]", "   2 Usage limit reached for y", style=style))
        assert reading.answer == " 1 ✕ [API Error: x]\n 2 Usage limit reached for y"


def test_a_tool_in_one_line_is_no_answer_and_ends_one() -> None:
    tool = ("  ✓  ReadFile  app.py → Read 3 lines", "        1 ✕ [API Error: x]")
    assert verdict(screen(*tool)) == "failed", "a turn without an answer did not end well"
    assert read(screen("✦ I look.", *tool, "", *ANSWER)).answer == "Two bugs:\n\n - one\nDone."


def test_an_answer_whose_beginning_has_left_the_screen_is_read_from_there() -> None:
    frame = Frame(("  the end of", "  a long answer", *screen(echo=()).lines[1:]), width=80, height=20)
    reading = read(frame)
    assert (reading.answer, reading.echoed) == ("the end of\na long answer", False)


def test_a_screen_on_which_nothing_was_printed_yet_may_still_start() -> None:
    """The input box is drawn before a prompt is taken: what is typed into it waits, or is lost."""
    frame = screen(echo=())
    assert read(frame).state is State.IDLE
    bare = Frame(frame.lines[1:], width=80, height=40)
    assert read(bare).state is State.UNKNOWN


def test_a_prompt_that_waits_in_the_programs_own_queue_is_working() -> None:
    assert verdict(screen("", "  Queued (press ↑ to edit):", "    Go.")) == "working"


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("Usage limit reached for all Pro models.", "exhausted"),
        ("We are currently experiencing high demand.", "backend_error"),
        ("It seems like you don't have access to gemini-3-pro.", "request"),
        ('Model "gemini-9" was not found or is invalid.', "request"),
    ],
)
def test_a_dialog_in_the_place_of_a_failed_request_ends_the_turn_and_takes_no_prompt(first: str, said: str) -> None:
    frame = dialog("", first, "/model to switch models.", "", "● 1. Keep trying", "  2. Stop", "")
    assert (read(frame).state, read(frame).input_open, verdict(frame)) == (State.IDLE, False, said)


def test_a_used_up_quotas_dialog_names_when_it_comes_back() -> None:
    frame = dialog(
        "Usage limit reached for gemini-3.", "Access resets at 3:00 PM UTC.", "● 1. Keep trying", "  2. Stop"
    )
    found = classify(read(frame), SETUP.patterns, width=80, fast=False, wall=NOW)
    assert (found.kind, found.resets_in_ns) == (Kind.EXHAUSTED, 3 * 3600 * NS_PER_S)


@pytest.mark.parametrize(
    "rows",
    [
        ("? Shell  touch x", "Allow execution of [touch]?", "● 1. Allow once", "  2. No, suggest changes (esc)"),
        ("Which one?", "● 1. Keep trying", "  2. Stop"),
        ("Further action is required to use this service.", "● 1. Verify your account"),
        ("Do you trust the files in this folder?", "● 1. Trust folder", "  2. Don't trust"),
        ("Enter Gemini API Key", "Paste your API key here", "(Press Enter to submit, Esc to cancel)"),
    ],
)
def test_any_other_dialog_waits_for_a_person(rows: tuple[str, ...]) -> None:
    frame = dialog(*rows)
    assert (read(frame).state, read(frame).input_open, verdict(frame)) == (State.BLOCKED, False, "blocked")


def test_a_shell_line_takes_no_prompt() -> None:
    assert not read(screen(*ANSWER, box=(" !   Type your shell command",))).input_open
    assert read(screen(*ANSWER, box=(" *   Type your message or @path/to/file",))).input_open


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (OVERLOADED, "backend_error"),
        ("✕ [API Error: got status: UNAVAILABLE. The service is currently unavailable.]", "backend_error"),
        (
            "✕ [API Error: You exceeded your current quota, please check your plan (Status: RESOURCE_EXHAUSTED)]",
            "exhausted",
        ),
        ("✕ [API Error: No capacity available: MODEL_CAPACITY_EXHAUSTED]", "backend_error"),
        ("✕ [API Error: This is a rate limit, not your usage limit]", "backend_error"),
        ('✕ [API Error: {"error":{"code":400,"message":"API key not valid.","status":"INVALID_ARGUMENT"}}]', "auth"),
        ('✕ [API Error: {"error":{"code":400,"message":"Bad value","status":"INVALID_ARGUMENT"}}]', "request"),
        ("✕ Something that nobody foresaw", "failed"),
        ("ℹ ⚠️  Response truncated due to token limits.", "failed"),
        ("ℹ The session has reached the maximum number of turns: 3.", "failed"),
        ("ℹ Request cancelled.", "interrupted"),
        ("ℹ Context compressed from 80% to 20%.", "completed"),
    ],
)
def test_what_stands_below_an_answer_decides(line: str, said: str) -> None:
    assert verdict(screen(*ANSWER, line)) == said


def test_a_retry_that_the_program_shows_is_working_and_says_which() -> None:
    reading = read(screen(status=" ⠋ Trying to reach gemini-3 (Attempt 2/10) (esc to cancel, 9s)"))
    assert reading.retrying is not None
    assert (reading.state, reading.retrying.attempt) == (State.BUSY, 2)
    quoted = screen("✦ It said:", "  Trying to reach x (Attempt 2/3)", status=" ⠋ Thinking... (esc to cancel, 9s)")
    assert read(quoted).retrying is None
    waits = "Attempt 1 failed: Your quota will reset after 2h.. Retrying after 7200000ms..."
    reading = read(screen(waits, status=" ⠋ Thinking... (esc to cancel, 9s)"))
    assert reading.retrying is not None
    assert reading.retrying.wait_s == 7200


def test_the_screen_of_another_turn_is_not_this_turns_scope() -> None:
    before = screen(*ANSWER)
    sent = Sent("Next.", before)
    typed = screen(*ANSWER, box=(" > Next.",))
    assert (read(typed, sent).scope, read(typed, sent).echoed) == ((), False)
    failed = Frame(
        (*before.lines[:-7], "▄" * 80, " > Next.", "▀" * 80, OVERLOADED, *before.lines[-7:]), width=80, height=60
    )
    assert verdict(failed, sent) == "backend_error"


def test_a_prompt_that_was_taken_and_has_no_echo_yet_is_working() -> None:
    """A slow machine shows an empty input box for seconds before it shows anything of the turn."""
    before = screen(*ANSWER)
    sent = Sent("Next.", before)
    assert read(before, sent).state is State.IDLE
    for lines in (screen(*ANSWER, status="").lines, screen(*ANSWER, "", "ℹ Initializing... Prompts wait.").lines):
        reading = read(Frame(lines, width=80, height=60), sent)
        assert (reading.state, reading.scope, reading.echoed) == (State.BUSY, (), False)
    assert read(screen("✦ Half drawn", echo=()), sent).state is State.UNKNOWN


def test_an_echo_with_nothing_below_it_is_at_rest_only_when_it_stands_still() -> None:
    assert read(screen()).state is State.UNKNOWN
    assert verdict(screen()) == "failed"


# -- what it reports ------------------------------------------------------------------------------------------------


def payloads(name: str) -> list[Mapping[str, Any]]:
    """The hooks' events of one kind of turn, as the program gave them."""
    path = CORPUS / "gemini" / "signals" / "hooks" / f"{name}.json"
    return [entry["stdin"] for entry in json.loads(path.read_text())]


async def told(events: Sequence[Mapping[str, Any]], record: Path) -> list[Signal]:
    """What an adapter of its own makes of events, with this record of their session."""
    adapter = Gemini()
    signals: list[Signal] = []
    for event in events:
        signals += await adapter.signals({**event, "transcript_path": str(record)}, NOW)
    return signals


@pytest.fixture
def record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(gemini_record, "RECORD_S", 0.2)
    return tmp_path / "session.jsonl"


def shown(record: Path, *messages: tuple[str, object], at: str = "2026-11-29T19:00:00.000Z", **more: object) -> None:
    """Write a session's record; its messages have ``more`` in them."""
    lines: list[dict[str, Any]] = [{"sessionId": "s", "kind": "main"}]
    for kind, content in messages:
        lines += [{"id": "1", "timestamp": at, "type": kind, "content": content, **more}, {"$set": {"lastUpdated": at}}]
    record.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


ASKS: tuple[str, object] = ("user", [{"text": "Please review src/app.py"}])


@pytest.mark.parametrize(
    ("name", "messages", "what", "kind", "text"),
    [
        ("ok", [("gemini", "No problem.\n\nDone.")], What.ENDED, Kind.FAILED, "No problem.\n\nDone."),
        ("err-400", [("error", "[API Error: bad argument]")], What.FAILED, Kind.FAILED, "[API Error: bad argument]"),
        (
            "drop",
            [("gemini", ""), ("error", "[API Error: terminated]")],
            What.FAILED,
            Kind.BACKEND_ERROR,
            "[API Error: terminated]",
        ),
        ("cancel", [("info", "Request cancelled.")], What.STOPPED, Kind.FAILED, "Request cancelled."),
        (
            "err-429quota-stop",
            [("error", "[API Error: You have exhausted your daily quota on this model.]")],
            What.FAILED,
            Kind.EXHAUSTED,
            "[API Error: You have exhausted your daily quota on this model.]",
        ),
    ],
)
async def test_a_turns_end_is_what_its_record_shows(
    name: str, messages: list[tuple[str, object]], what: What, kind: Kind, text: str, record: Path
) -> None:
    shown(record, ASKS, *messages)
    began, ended = await told(payloads(name), record)
    assert (began.what, began.text) == (What.BEGAN, "Please review src/app.py")
    assert (ended.what, ended.kind, ended.text, ended.turn) == (what, kind, text, began.turn)
    assert began.turn


async def test_a_question_is_reported_before_the_turn_goes_on(record: Path) -> None:
    shown(record, ASKS, ("gemini", "Done."))
    assert [signal.what for signal in await told(payloads("approval-approved"), record)] == [
        What.BEGAN,
        What.WAITING,
        What.ENDED,
    ]


@pytest.mark.parametrize("name", ["err-503", "err-429quota"])
async def test_nothing_is_reported_while_a_dialog_stands(name: str, record: Path) -> None:
    assert [signal.what for signal in await told(payloads(name), record)] == [What.BEGAN]


async def test_the_garbled_text_of_the_hook_is_never_an_answer(record: Path) -> None:
    """Without a record the screen decides."""
    assert [signal.what for signal in await told(payloads("ok"), record)] == [What.BEGAN]


async def test_what_an_earlier_turn_showed_is_not_this_turns_end(record: Path) -> None:
    shown(record, ASKS, ("gemini", "An old answer."), at="2026-11-29T17:00:00.000Z")
    assert [signal.what for signal in await told(payloads("ok"), record)] == [What.BEGAN]


async def test_text_that_goes_with_a_tools_call_is_not_the_answer(record: Path) -> None:
    shown(record, ASKS, ("gemini", "I look first."), toolCalls=[{"name": "x"}])
    assert [signal.what for signal in await told(payloads("ok"), record)] == [What.BEGAN]


async def test_an_older_versions_record_of_one_object_is_read_too(record: Path) -> None:
    old = record.with_suffix(".json")
    message = {"id": "1", "timestamp": "2026-11-29T19:00:00.000Z", "type": "gemini", "content": "Fine."}
    old.write_text(json.dumps({"sessionId": "s", "messages": [message]}, indent=1))
    assert [signal.text for signal in await told(payloads("ok"), old)][1:] == ["Fine."]


async def test_an_end_without_a_known_beginning_is_that_of_the_last_prompt(record: Path) -> None:
    """The daemon was started in mid-turn."""
    shown(record, ASKS, ("gemini", "Old."), ("user", [{"text": "Next"}]), ("error", "[API Error: fetch failed]"))
    (ended,) = await told(payloads("ok")[-1:], record)
    assert (ended.what, ended.kind, ended.turn) == (What.FAILED, Kind.BACKEND_ERROR, "")


async def test_a_prompt_of_the_programs_own_goes_on_with_the_turn(record: Path) -> None:
    shown(record, ASKS, ("gemini", "Done."))
    first, *_, last = payloads("ok")
    own = {**first, "hook_event_name": "BeforeAgent", "prompt": "[System: You successfully executed a tool but"}
    begins = {**own, "prompt": "Please review src/app.py"}
    signals = await told([begins, own, last, begins], record)
    assert [signal.what for signal in signals] == [What.BEGAN, What.WORKING, What.ENDED, What.BEGAN]
    assert signals[0].turn == signals[1].turn == signals[2].turn != signals[3].turn


async def test_a_used_up_quotas_end_names_when_it_comes_back(record: Path) -> None:
    shown(
        record,
        ("error", "[API Error: You have exhausted your capacity on this model. Your quota will reset after 2h3m.]"),
    )
    _, ended = await told(payloads("ok"), record)
    assert (ended.kind, ended.resets_in_ns) == (Kind.EXHAUSTED, (2 * 3600 + 180) * NS_PER_S)


# -- how it is started ----------------------------------------------------------------------------------------------


def context(
    tmp_path: Path, *argv: str, env: Mapping[str, str] | None = None, limit_retries: bool = True
) -> LaunchContext:
    directory = tmp_path / "member"
    directory.mkdir()
    return LaunchContext(
        "m-1",
        ("gemini", *argv),
        {"HOME": str(tmp_path / "user"), **(env or {})},
        str(tmp_path),
        directory,
        hook=("python", "-I", "it's a hook.py", "/run/door"),
        bridge=("python", "-m", "fleetd", "mcp"),
        limit_retries=limit_retries,
    )


def users_file(tmp_path: Path, name: str, text: str) -> Path:
    path = tmp_path / "user" / ".gemini" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def written(env: Mapping[str, str]) -> dict[str, Any]:
    """The settings that a member's program reads."""
    return dict(json.loads((Path(env[HOME]) / ".gemini" / "settings.json").read_text()))


def test_a_member_gets_hooks_fleetds_server_and_short_retries_in_a_home_of_its_own(tmp_path: Path) -> None:
    plan = GEMINI.plan(context(tmp_path, "-m", "gemini-2.5-pro"))
    settings = written(plan.env)
    assert plan.argv == ("gemini", "-m", "gemini-2.5-pro")
    for event in EVENTS:
        (entry,) = settings["hooks"][event]
        assert shlex.split(entry["hooks"][0]["command"]) == ["python", "-I", "it's a hook.py", "/run/door"]
    assert settings["mcpServers"]["fleetd"] == {"command": "python", "args": ["-m", "fleetd", "mcp"], "trust": True}
    assert (settings["general"]["maxAttempts"], settings["ui"]["errorVerbosity"]) == (ATTEMPTS, "full")
    assert Path(plan.env[HOME]).is_relative_to(tmp_path / "member")
    assert (Path(plan.env[HOME]) / ".gemini" / "settings.json").stat().st_mode & 0o777 == 0o600
    assert not (tmp_path / "user").exists(), "nothing of the user's own is written"


def test_a_profile_may_leave_the_programs_own_retries_alone(tmp_path: Path) -> None:
    settings = written(GEMINI.plan(context(tmp_path, limit_retries=False)).env)
    assert "maxAttempts" not in settings["general"]
    assert "ui" not in settings


def test_what_the_user_has_set_wins_and_lists_of_hooks_add_up(tmp_path: Path) -> None:
    users = users_file(
        tmp_path,
        "settings.json",
        '{\n // mine\n "general": {"maxAttempts": 7, "note": "http://x//y"}, /* and */\n'
        ' "hooks": {"AfterAgent": [{"hooks": []}]}, "mcpServers": {"other": {"command": "x"}}}',
    )
    before = users.read_text()
    settings = written(GEMINI.plan(context(tmp_path)).env)
    assert settings["general"] == {"enableAutoUpdate": False, "maxAttempts": 7, "note": "http://x//y"}
    assert settings["ui"] == {"errorVerbosity": "full"}
    assert [len(entry["hooks"]) for entry in settings["hooks"]["AfterAgent"]] == [0, 1]
    assert set(settings["mcpServers"]) == {"fleetd", "other"}
    assert users.read_text() == before


def test_everything_else_in_the_users_home_is_linked_to(tmp_path: Path) -> None:
    users_file(tmp_path, "oauth_creds.json", "secret")
    (tmp_path / "user" / ".gemini" / "tmp").mkdir()
    (tmp_path / "user" / ".agents").mkdir()
    home = Path(GEMINI.plan(context(tmp_path)).env[HOME])
    assert (home / ".gemini" / "oauth_creds.json").resolve() == (tmp_path / "user/.gemini/oauth_creds.json").resolve()
    assert (home / ".gemini" / "tmp").is_symlink()
    assert (home / ".agents").is_symlink()


def test_a_home_that_the_profile_names_is_the_users(tmp_path: Path) -> None:
    (tmp_path / "else" / ".gemini").mkdir(parents=True)
    (tmp_path / "else" / ".gemini" / "settings.json").write_text('{"ui": {"errorVerbosity": "low"}}')
    plan = GEMINI.plan(context(tmp_path, env={HOME: str(tmp_path / "else"), "GEMINI_CLI_NO_RELAUNCH": "false"}))
    assert written(plan.env)["ui"] == {"errorVerbosity": "low"}
    assert (plan.env["GEMINI_CLI_NO_RELAUNCH"], plan.env["COLORTERM"]) == ("false", "truecolor")


@pytest.mark.parametrize("text", ["[]", "{", '{"a": ' + " " * (1024 * 1024) + "1}"])
def test_settings_that_cannot_be_added_to_are_refused(text: str, tmp_path: Path) -> None:
    users_file(tmp_path, "settings.json", text)
    with pytest.raises(OpenFailed, match="is not a JSON object"):
        GEMINI.plan(context(tmp_path))


@pytest.mark.parametrize("word", ["-p", "--prompt=x", "--acp", "--screen-reader"])
def test_a_run_without_a_screen_is_refused(word: str, tmp_path: Path) -> None:
    with pytest.raises(OpenFailed, match="without the screen"):
        GEMINI.plan(context(tmp_path, word))


@pytest.mark.parametrize("switches", ['{"enabled": false}', '{"disabled": ["fleetd"]}'])
def test_hooks_that_the_user_has_switched_off_are_said_to_be(
    switches: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    users_file(tmp_path, "settings.json", f'{{"hooksConfig": {switches}}}')
    with caplog.at_level(logging.WARNING, logger="fleetd.gemini"):
        GEMINI.plan(context(tmp_path))
    assert [record.message for record in caplog.records] == ["hooks are off"]


def test_an_adopted_members_hooks_suffice(tmp_path: Path) -> None:
    assert GEMINI.resume(tmp_path, str(tmp_path)) is None
