"""Qwen Code's adapter: its screen's traps, what its hooks and its record say, and how it is started."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.actor import Message
from actors.classify import Kind, classify, word
from actors.clock import NS_PER_S
from actors.host import OpenFailed, PaneRef
from actors.screen import Frame, Reading, Sent, State, columns
from actors.signal import Signal, What
from actors.turn import Source
from fleetd.agents import ADAPTERS, by_client
from fleetd.agents.adapter import LaunchContext
from fleetd.agents.qwen import DEFAULTS_PATH, EVENTS, SYSTEM_PATH, Qwen
from fleetd.agents.qwen_record import SESSION
from fleetd.replay import shipped_setup
from tests.agents.corpus import CORPUS

QWEN = ADAPTERS["qwen"]
SETUP = shipped_setup(QWEN)
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
#: The box without a draft, as the program puts its fixed suggestion into it.
HINT = ">   Type your message or @path/to/file"
AT_REST = "  ➜ work · fake-model"
OVERLOADED = "  ✕ [API Error: 503 The engine is currently overloaded, please try again later]"
SPINNER = "  ⠋ Thinking about it... (12s · esc to cancel)"


# -- the screen -----------------------------------------------------------------------------------------------------


def screen(
    *transcript: str,
    box: Sequence[str] = (HINT,),
    footer: Sequence[str] = (AT_REST,),
    width: int = 80,
    title: str = "",
    styled: Sequence[str] = (),
) -> Frame:
    """A transcript above the input box."""
    rule = "─" * width
    lines = (*transcript, "", rule, *box, rule, *footer)
    return Frame(lines, title=title, width=width, height=max(40, len(lines)), styled=tuple(styled))


def read(frame: Frame, sent: Sent | None = None) -> Reading:
    return QWEN.grammar.read(frame, sent)


def verdict(frame: Frame, sent: Sent | None = None) -> str:
    """What a person would be told of a screen that stands like this."""
    reading = read(frame, sent)
    found = classify(reading, SETUP.patterns, width=frame.width, sent=sent, screen=frame.lines, fast=False)
    return word(reading, found)


def test_the_adapter_is_known_by_its_name_and_by_its_client() -> None:
    assert QWEN.name == "qwen"
    assert by_client("qwen-cli-mcp-client-fleetd") is QWEN


@pytest.mark.parametrize("mark", ["✦", "◆", "◆\ufe0e"])
def test_an_answer_is_read_without_its_mark_and_its_indentation(mark: str) -> None:
    reading = read(screen("  > Go.", "", f"  {mark} Two bugs:", "", "     - one", "    Done."))
    assert (reading.state, reading.input_open, reading.answer) == (State.IDLE, True, "Two bugs:\n\n - one\nDone.")


def test_an_error_below_a_half_answer_is_the_turns_end() -> None:
    frame = screen("  > Go.", "", "  ◆ I look at the", "  ✕ [API Error: terminated (cause: UND_ERR_SOCKET)]")
    assert verdict(frame) == "backend_error"


def test_an_old_error_above_a_good_answer_is_none_of_it() -> None:
    assert verdict(screen("  > Go.", "", OVERLOADED, "", "  > Again.", "", "  ◆ Fine.")) == "completed"
    assert verdict(screen("  > Go.", "", OVERLOADED, "", "  ◆ It works again.")) == "completed"


def test_the_good_answer_of_the_turn_before_does_not_hide_an_error() -> None:
    assert verdict(screen("  > Go.", "", "  ◆ Fine.", "", "  > Again.", "", OVERLOADED)) == "backend_error"


def test_errors_that_an_answer_quotes_are_no_errors() -> None:
    quoted = "[API Error: 503 overloaded] (Press Ctrl+Y to retry)"
    frame = screen("  > Go.", "", f"  ◆ ✕ {quoted}", f"    ✕ {quoted}", "", f"     1   ✕ {quoted}", "    End.")
    assert verdict(frame) == "completed"


def test_errors_that_a_prompt_quotes_are_no_errors() -> None:
    prompt = ["  > What is this?", "    ✕ [API Error: 503 x]", "", "      ✕ [API Error: 401 x]", ""]
    assert verdict(screen(*prompt, "  ◆ An outage.")) == "completed"
    assert verdict(screen(*prompt)) == "failed", "nothing was answered"


def test_an_error_that_the_program_wraps_at_80_columns_is_read_whole() -> None:
    frame = screen(
        "  > Go.",
        "  ✕ [API Error: 429 You are out of luck, and this goes on until the line is full, ",
        "    for you exceeded your current quota, please check your plan.] (Press Ctrl+Y to",
        "     retry)",
    )
    assert verdict(frame) == "exhausted"


def test_an_error_that_will_be_tried_again_is_work() -> None:
    frame = screen(
        "  > Go.",
        "",
        OVERLOADED + " (Retrying in 40s… (attempt 1/10))",
        "  ↻ Retrying in 40 seconds… (attempt 1/10)",
        "",
        SPINNER,
    )
    reading = read(frame)
    assert reading.retrying is not None
    assert (reading.state, reading.retrying.attempt, reading.retrying.wait_s) == (State.BUSY, 1, 40)
    assert reading.retrying.line == OVERLOADED.strip()
    assert verdict(frame) == "working"


def test_a_countdown_that_an_answer_quotes_is_none() -> None:
    frame = screen("  > Go.", "", "  ◆ I saw:", "    ↻ Retrying in 40 seconds… (attempt 1/10)", f"  {SPINNER}", "")
    assert read(frame).retrying is None
    assert verdict(frame) == "completed"


@pytest.mark.parametrize(
    "line",
    [
        SPINNER,
        "  .  Hmmm... let me think... (2s · esc to cancel)",
        "  ... Hmmm... (1s · esc to",
        "  (12s · esc to cancel)",
    ],
)
def test_a_spinner_above_the_input_box_is_work_without_any_title(line: str) -> None:
    assert read(screen("  > Go.", "", line)).state is State.BUSY


def test_a_title_alone_says_that_the_program_works_or_asks() -> None:
    at_work, asking = "◐︎ Qwen - work", "✳︎ Qwen - work"
    assert read(screen("  > Go.", title=at_work)).state is State.BUSY
    assert read(screen("  > Go.", title=asking)).state is State.BLOCKED
    assert read(screen("  > Go.", "", "  ◆ Fine.", title="Qwen - work")).state is State.IDLE


@pytest.mark.parametrize(
    "error",
    [
        "503 overloaded",
        "500 The server had an error",
        "529 Overloaded",
        "429 Rate limit reached for fake-model",
        "429 This is not your usage limit; the model is at capacity",
        "Connection error.",
        "terminated",
        "fetch failed (cause: ECONNREFUSED)",
    ],
)
def test_an_overloaded_backend_is_a_backend_error(error: str) -> None:
    assert verdict(screen("  > Go.", f"  ✕ [API Error: {error}]", width=160)) == "backend_error"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        ("429 You exceeded your current quota, please check your plan", "exhausted"),
        ("402 Payment required", "exhausted"),
        ("429 hour allocated quota exceeded", "exhausted"),
        ("401 Incorrect API key provided: sk-x", "auth"),
        ("403 Country, region, or territory not supported", "auth"),
        ("400 Your input exceeds the context window of this model", "request"),
        ("404 The model does not exist", "request"),
        ("Model stream ended with empty response text.", "failed"),
        ("Something that nobody has seen before", "failed"),
    ],
)
def test_each_error_has_its_kind_and_an_unknown_one_is_no_success(error: str, said: str) -> None:
    assert verdict(screen("  > Go.", f"  ✕ [API Error: {error}]", width=160)) == said


def test_notices_by_which_the_program_stops_a_turn_are_failures() -> None:
    notice = "  ● The session has reached the maximum number of turns: 10."
    assert verdict(screen("  > Go.", "", "  ◆ I look.", notice)) == "failed"


def test_a_dialog_in_place_of_the_input_box_blocks_and_takes_no_prompt() -> None:
    dialog = ("   Allow execution of: 'touch'?", "", "   › 1. Yes, allow once", "     2. No, suggest changes (esc)")
    frame = Frame(
        ("  > Go.", "  ? Shell touch it ←", "", *dialog, "", "  ⠏ Waiting for user confirmation..."), width=80
    )
    reading = read(frame)
    assert (reading.state, reading.input_open) == (State.BLOCKED, False)


def test_a_dialog_that_an_answer_shows_above_the_input_box_is_only_an_answer() -> None:
    frame = screen(
        "  > Go.", "", "  ◆ It asks:", "", "    │ › 1. Yes, allow once", "    ⠏ Waiting for user confirmation..."
    )
    reading = read(frame)
    assert (reading.state, reading.input_open, verdict(frame)) == (State.IDLE, True, "completed")


def test_a_program_that_still_starts_takes_no_prompt_and_waits_for_nobody() -> None:
    for frame in (
        screen(footer=("  ⠋ Initializing...",)),
        Frame(("  Tips: Type / to open the command popup.", "", "  ⠋ Initializing..."), title="Qwen - work", width=80),
    ):
        reading = read(frame)
        assert (reading.state, reading.input_open) == (State.BUSY, False)


@pytest.mark.parametrize("mark", ["!", "(r:)"])
def test_an_input_box_that_takes_a_shell_command_or_a_search_is_not_open(mark: str) -> None:
    assert not read(screen("  > Go.", box=(f"{mark}   Type",))).input_open


def test_the_fixed_suggestion_is_no_draft_and_anything_typed_is() -> None:
    assert read(screen()).draft == ""
    assert read(screen(box=("> fix it \u200b",))).draft == "fix it"
    assert read(screen(box=("> fix it", "  and that \u200b"))).draft == "fix it\nand that"
    assert read(screen(box=("> [Pasted Content 2893 chars] \u200b",))).draft == "[Pasted Content 2893 chars]"


def test_a_suggestion_has_the_colour_of_the_footers_hints_and_a_draft_has_not() -> None:
    def drawn(ink: str, text: str = "run the tests") -> Frame:
        styled = ("─" * 40, f"> {text[0]}\x1b[{ink}m{text[1:]}\x1b[39m", "─" * 40, "  \x1b[38;2;9;9;9m? for shortcuts")
        lines = ("─" * 40, f"> {text}", "─" * 40, "  ? for shortcuts")
        return Frame(lines, width=40, styled=styled)

    assert read(drawn("38;2;9;9;9")).draft == ""
    assert read(drawn("38;2;1;1;1")).draft == "run the tests"
    assert read(drawn("39")).draft == "run the tests"


def test_a_prompt_that_is_back_in_the_input_box_was_stopped() -> None:
    before = screen("  > Old.", "", "  ◆ Old answer.")
    after = screen("  > Old.", "", "  ◆ Old answer.", box=("> Please look into it. \u200b",))
    sent = Sent("Please look into it.", before)
    assert read(after, sent).interrupted
    assert verdict(after, sent) == "interrupted"
    assert not read(screen("  > Please look into it.", "", "  ◆ Fine."), sent).interrupted


@pytest.mark.parametrize(
    "line", ["  ● Request cancelled.", "  ●︎ Request cancelled.", "  ● User cancelled the request."]
)
def test_a_stopped_turn_says_so(line: str) -> None:
    assert verdict(screen("  > Go.", "", "  ◆ I look at", line)) == "interrupted"


def test_a_turn_that_was_stopped_before_its_prompt_was_printed_says_so_above_it() -> None:
    before = screen("  ● Request cancelled.", "", "  > Old.", "", "  ◆ Old answer.")
    after = ("  ● Request cancelled.", "", "  > Old.", "", "  ◆ Old answer.", "")
    assert verdict(screen(*after, "  ● Request cancelled.", "", "  > New."), Sent("New.", before)) == "interrupted"
    assert verdict(screen(*after, "  > New."), Sent("New.", before)) == "failed"
    assert verdict(screen(*after, "  > New.", "", "  ◆ Fine."), Sent("New.", before)) == "completed"


def test_the_answer_of_another_turn_is_not_this_turns() -> None:
    """The prompt has just been typed, and nothing was printed since."""
    before = screen("  > Old.", "", "  ◆ Old answer.")
    typed = screen("  > Old.", "", "  ◆ Old answer.", box=("> New. \u200b",))
    reading = read(typed, Sent("New.", before))
    assert (reading.answer, reading.echoed, reading.scope) == ("", False, ())


def test_a_prompt_that_was_taken_and_shows_no_spinner_yet_has_not_ended() -> None:
    before = screen("  > Old.", "", "  ◆ Old answer.")
    sent = Sent("New.", before)
    assert read(before, sent).state is State.UNKNOWN
    assert read(screen(*before.lines[:3], "", "  > New."), sent).state is State.UNKNOWN
    assert read(screen(*before.lines[:3], "", "  > New.", "", "  ◆ Fine."), sent).state is State.IDLE
    assert read(screen(*before.lines[:3], box=("> New. \u200b",)), sent).state is State.IDLE


def test_an_answer_so_long_that_its_prompt_is_gone_is_an_answer() -> None:
    rows = [f"    line {n} ✕ [API Error: 503]" for n in range(30)]
    assert verdict(screen(*rows)) == "completed"
    assert verdict(screen(*rows, "", OVERLOADED)) == "backend_error"


def test_the_scrollbar_of_newer_versions_is_no_text() -> None:
    def barred(line: str) -> str:
        return line + " " * (79 - columns(line.replace("\ufe0e", ""))) + "█"

    rows = ["  > Go.", "", "  ◆︎ Fine,", "    indeed."]
    reading = read(screen(*map(barred, rows)))
    assert reading.answer == "Fine,\nindeed."


def test_the_first_versions_with_a_framed_box_are_read_too() -> None:
    box = ["╭" + "─" * 60 + "╮", "│ >   Type your message or @path/to/file" + " " * 22 + "│", "╰" + "─" * 60 + "╯"]
    frame = Frame((" > Port it", "", "✕ [API Error: 503 overloaded]", "", *box, "~/repo   no sandbox"), width=80)
    assert (read(frame).input_open, read(frame).draft, verdict(frame)) == (True, "", "backend_error")
    frame = Frame((" > Port it", "", "⠏ I'm Feeling Lucky (esc to cancel, 3s)", "", *box, "~/repo"), width=80)
    assert read(frame).state is State.BUSY


def test_a_torn_screen_is_unknown_and_takes_no_prompt() -> None:
    whole = screen("  > Go.", "", "  ◆ Fine.")
    for cut in range(len(whole.lines) - len(("rule", "footer"))):
        reading = read(Frame(whole.lines[:cut], width=80))
        assert (reading.state, reading.input_open) == (State.UNKNOWN, False)


# -- hooks ----------------------------------------------------------------------------------------------------------


def payloads() -> list[dict[str, Any]]:
    """What the real program's hooks got in eight turns."""
    lines = (CORPUS / "qwen/signals/hooks/hooks.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["stdin"] for line in lines]


async def said(event: Mapping[str, Any]) -> list[Signal]:
    return list(await QWEN.signals(event, NOW))


async def test_the_hooks_of_the_real_program_tell_of_each_turn() -> None:
    told = [signal for event in payloads() for signal in await said(event)]
    assert [
        (signal.what, signal.turn[-1:], signal.kind if signal.what is What.FAILED else None) for signal in told
    ] == [
        (What.BEGAN, "0", None),
        (What.FAILED, "0", Kind.AUTH),
        (What.BEGAN, "1", None),
        (What.ENDED, "1", None),
        (What.BEGAN, "2", None),
        (What.FAILED, "2", Kind.REQUEST),
        (What.BEGAN, "3", None),
        (What.ENDED, "3", None),
        (What.BEGAN, "4", None),
        (What.FAILED, "4", Kind.BACKEND_ERROR),
        (What.BEGAN, "0", None),
        (What.WAITING, "0", None),
        (What.WORKING, "0", None),
        (What.ENDED, "0", None),
    ]
    assert told[0].text == "First task"
    assert told[3].text.startswith("I reviewed src/app.py and found no blocking problem.\n\n- The parser")
    assert all(signal.source is Source.HOOK for signal in told)


def failure(error: str, text: str) -> dict[str, Any]:
    return {"hook_event_name": "StopFailure", "prompt_id": "p", "error": error, "last_assistant_message": text}


@pytest.mark.parametrize(
    ("error", "text", "kind"),
    [
        ("rate_limit", "[API Error: 429 You exceeded your current quota, please]", Kind.EXHAUSTED),
        ("rate_limit", "[API Error: 429 Rate limit reached]", Kind.BACKEND_ERROR),
        ("billing_error", "[API Error: Something of money.]", Kind.EXHAUSTED),
        ("server_error", "[API Error: Odd.]", Kind.BACKEND_ERROR),
        ("unknown", "[API Error: 503 overloaded]", Kind.BACKEND_ERROR),
        ("unknown", "[API Error: 413 Too large]", Kind.REQUEST),
        ("unknown", "[API Error: Model stream ended with empty response text.]", Kind.FAILED),
        ("a_class_of_next_year", "", Kind.FAILED),
    ],
)
async def test_a_failure_is_classed_by_its_text_and_then_by_the_programs_own_class(
    error: str, text: str, kind: Kind
) -> None:
    (signal,) = await said(failure(error, text))
    assert (signal.what, signal.turn, signal.kind, signal.pattern) == (What.FAILED, "p", kind, f"StopFailure {error}")


async def test_a_used_up_quota_says_when_it_comes_back_where_the_text_does() -> None:
    (signal,) = await said(failure("rate_limit", "[API Error: 429 usage limit reached. Try again in 2h 30m]"))
    assert (signal.kind, signal.resets_in_ns) == (Kind.EXHAUSTED, 9000 * NS_PER_S)
    (throttled,) = await said(failure("rate_limit", "[API Error: 429 Rate limit reached. Try again in 2s]"))
    assert throttled.resets_in_ns is None


async def test_what_a_helper_of_the_program_does_is_no_turn_of_ours() -> None:
    for event in payloads():
        assert await said({**event, "agent_id": "helper-1"}) == []


async def test_an_event_of_another_shape_says_nothing() -> None:
    assert await said({}) == []
    assert await said({"hook_event_name": ["Stop"]}) == []
    (signal,) = await said({"hook_event_name": "Stop", "prompt_id": 7, "last_assistant_message": None})
    assert (signal.what, signal.turn, signal.text) == (What.ENDED, "", "")


# -- the record -----------------------------------------------------------------------------------------------------


class Recorder:
    """A resolver that only hands on what it is told."""

    def __init__(self) -> None:
        self._told, self._taken = trio.open_memory_channel[Signal](100)

    def tell(self, message: Message) -> None:
        assert isinstance(message, Signal)
        self._told.send_nowait(message)

    async def next(self, *, past: str = "begin") -> Signal:
        """The next signal that is not of the turn ``past``."""
        with trio.fail_after(10):
            async for signal in self._taken:
                if signal.turn != past:
                    return signal
        raise AssertionError("no signal")

    async def followed(self, record: Path) -> None:
        """Write to a record until it is seen that somebody follows it."""
        with trio.fail_after(10):
            while True:
                append(record, attempt("begin"))
                with trio.move_on_after(0.3):
                    await self.next(past="")
                    return


def append(record: Path, line: str) -> None:
    with record.open("a") as file:
        file.write(line)


def attempt(turn: str, status: int | None = 503, **more: object) -> str:
    event = {
        "event.name": "qwen-code.api_error",
        "prompt_id": turn,
        "status_code": status,
        "error_message": "busy",
        **more,
    }
    return json.dumps({"type": "system", "subtype": "ui_telemetry", "systemPayload": {"uiEvent": event}}) + "\n"


@pytest.fixture
def member(tmp_path: Path) -> Path:
    """A member's directory, with the word that the hook at its session's start has left."""
    directory = tmp_path / "m-1-abcd1234"
    directory.mkdir()
    (directory / SESSION).write_text(json.dumps({"transcript_path": str(directory / "chat.jsonl")}))
    return directory


@pytest.mark.live
async def test_attempts_that_fail_are_told_and_refusals_and_helpers_are_not(member: Path) -> None:
    watch, recorder, record = QWEN.resume(member, "/"), Recorder(), member / "chat.jsonl"
    assert watch is not None
    append(record, attempt("before fleetd looked"))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, PaneRef("none", "m-1"), recorder)
        await recorder.followed(record)
        for line in (
            attempt("p-1"),
            attempt("p-1", 401),
            attempt("p-1", subagent_id="helper"),
            attempt(""),
            "{}\n",
            attempt("p-1", None),
            attempt("p-2", 429),
        ):
            append(record, line)
        told = [await recorder.next() for _ in range(3)]
        nursery.cancel_scope.cancel()
    assert [(each.what, each.turn, each.attempt) for each in told] == [
        (What.RETRYING, "p-1", 1),
        (What.RETRYING, "p-1", 2),
        (What.RETRYING, "p-2", 1),
    ]
    assert {each.source for each in told} == {Source.TRANSCRIPT}


@pytest.mark.live
async def test_a_session_that_was_cleared_goes_on_in_another_record(member: Path) -> None:
    watch, recorder = QWEN.resume(member, "/"), Recorder()
    assert watch is not None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(watch, PaneRef("none", "m-1"), recorder)
        await recorder.followed(member / "chat.jsonl")
        (member / SESSION).write_text(json.dumps({"transcript_path": str(member / "other.jsonl")}))
        await recorder.followed(member / "other.jsonl")
        append(member / "other.jsonl", attempt("p-9"))
        assert (await recorder.next()).turn == "p-9"
        nursery.cancel_scope.cancel()


# -- how it is started ----------------------------------------------------------------------------------------------


def context(
    directory: Path, *argv: str, env: Mapping[str, str] | None = None, limit_retries: bool = True
) -> LaunchContext:
    # Nothing of the machine's own settings.
    env = {SYSTEM_PATH: str(directory / "nothing/settings.json"), **(env or {})}
    hook, bridge = ("python", "hook.py", "a socket"), ("python", "-m", "fleetd", "mcp")
    return LaunchContext("m-1", argv or Qwen.command, env, "/", directory, hook, bridge, limit_retries)


def settings(launch: LaunchContext) -> dict[str, Any]:
    """What the program finds in the file that its environment names."""
    found: dict[str, Any] = json.loads(Path(QWEN.plan(launch).env[DEFAULTS_PATH]).read_text())
    return found


def test_the_command_stays_and_the_members_settings_go_below_all_others(tmp_path: Path) -> None:
    launch = context(tmp_path, "qwen", "--model", "x", env={"OPENAI_API_KEY": "sk-secret"})
    plan = QWEN.plan(launch)
    path = Path(plan.env[DEFAULTS_PATH])
    assert plan.argv == ("qwen", "--model", "x")
    assert (path.parent, path.stat().st_mode & 0o777) == (tmp_path, 0o600)
    assert "sk-secret" not in path.read_text()
    assert plan.env["QWEN_CODE_NO_RELAUNCH"] == "true"
    assert plan.watch is not None


def test_each_event_runs_fleetds_hook_and_the_sessions_start_names_the_record(tmp_path: Path) -> None:
    hooks = settings(context(tmp_path))["hooks"]
    for event in EVENTS:
        assert shlex.split(hooks[event][0]["hooks"][0]["command"]) == ["python", "hook.py", "a socket"]
    assert shlex.split(hooks["SessionStart"][0]["hooks"][0]["command"])[:2] == ["dd", f"of={tmp_path / SESSION}"]


def test_a_member_has_fleetds_tools_and_asks_before_it_runs_anything_else(tmp_path: Path) -> None:
    found = settings(context(tmp_path))
    assert found["mcpServers"]["fleetd"] == {"command": "python", "args": ["-m", "fleetd", "mcp"], "trust": True}
    assert found["tools"] == {"approvalMode": "default"}


def test_retries_are_limited_unless_the_profile_says_no(tmp_path: Path) -> None:
    assert settings(context(tmp_path))["model"]["generationConfig"] == {"maxRetries": 0}
    assert "model" not in settings(context(tmp_path, limit_retries=False))


def test_a_profiles_own_defaults_file_is_merged_and_wins(tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    mine = {"matcher": "*", "hooks": [{"type": "command", "command": "mine"}]}
    own.write_text(
        json.dumps(
            {
                "model": {"name": "x", "generationConfig": {"maxRetries": 3}},
                "hooks": {"Stop": [mine], "PreToolUse": [mine]},
                "mcpServers": {"mine": {"command": "mine"}},
            }
        )
    )
    found = settings(context(tmp_path, env={DEFAULTS_PATH: str(own)}))
    assert found["model"] == {"name": "x", "generationConfig": {"maxRetries": 3}}
    assert found["hooks"]["Stop"][0] == mine
    assert len(found["hooks"]["Stop"]) == 2
    assert found["hooks"]["PreToolUse"] == [mine]
    assert set(found["mcpServers"]) == {"mine", "fleetd"}
    assert json.loads(own.read_text())["hooks"]["Stop"] == [mine], "the user's own file is left alone"


def test_the_machines_own_defaults_beside_its_settings_are_merged_too(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/system-defaults.json").write_text('{"ui": {"theme": "x", "enableWelcomeBack": true}}')
    found = settings(context(tmp_path, env={SYSTEM_PATH: str(tmp_path / "etc/settings.json")}))
    assert (found["ui"]["theme"], found["ui"]["enableWelcomeBack"]) == ("x", True)


@pytest.mark.parametrize("text", ["[1]", "{ // a comment\n}", "{" * 5])
def test_a_defaults_file_that_cannot_be_merged_stops_the_launch(tmp_path: Path, text: str) -> None:
    own = tmp_path / "own.json"
    own.write_text(text)
    with pytest.raises(OpenFailed, match=r"own\.json is not a JSON object"):
        QWEN.plan(context(tmp_path, env={DEFAULTS_PATH: str(own)}))


@pytest.mark.parametrize(
    "argv", [("qwen", "-p", "x"), ("qwen", "--prompt=x"), ("qwen", "--acp"), ("qwen", "--screen-reader")]
)
def test_a_command_without_a_screen_stops_the_launch(tmp_path: Path, argv: tuple[str, ...]) -> None:
    with pytest.raises(OpenFailed, match="without the screen that fleetd reads"):
        QWEN.plan(context(tmp_path, *argv))


def test_another_way_to_draw_stops_the_launch(tmp_path: Path) -> None:
    with pytest.raises(OpenFailed, match="QWEN_TUI_RENDERER"):
        QWEN.plan(context(tmp_path, env={"QWEN_TUI_RENDERER": "OpenTUI"}))


def test_a_profiles_own_word_on_relaunching_wins(tmp_path: Path) -> None:
    assert QWEN.plan(context(tmp_path, env={"QWEN_CODE_NO_RELAUNCH": ""})).env["QWEN_CODE_NO_RELAUNCH"] == ""
