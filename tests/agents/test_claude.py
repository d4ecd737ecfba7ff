"""Claude Code's adapter: what its hooks say, how it is started, and the traps of its screen."""

from __future__ import annotations

import json
import os
import stat
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.clock import NS_PER_S
from actors.host import OpenFailed
from actors.inject import HEAD, injectable
from actors.patterns import Pattern
from actors.screen import Frame, Sent, State
from actors.signal import Signal, What
from fleetd.agents import ADAPTERS, by_client, claude_errors
from fleetd.agents.adapter import LaunchContext, LaunchPlan
from fleetd.replay import judge, shipped_setup
from tests.agents.corpus import CORPUS

CLAUDE = ADAPTERS["claude"]
SIGNALS = CORPUS / "claude" / "signals" / "332"
NOW = datetime(2026, 11, 29, 18, 22, tzinfo=UTC)
HOUR_NS = 3600 * NS_PER_S


def test_the_adapter_is_known_by_its_name_and_by_its_client() -> None:
    assert CLAUDE.name == "claude"
    assert by_client("claude-code") is CLAUDE
    assert CLAUDE.resume(Path("/"), "/") is None


# -- its hooks ------------------------------------------------------------------------------------------------------


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transcripts are not there, and need not be waited for."""
    monkeypatch.setattr(claude_errors, "RECORD_S", 0.02)


async def told(case: str) -> list[Signal]:
    """What the events of one recorded turn say, in their order."""
    signals: list[Signal] = []
    for path in sorted((SIGNALS / case).glob("*.json")):
        signals += await CLAUDE.signals(json.loads(path.read_text(encoding="utf-8")), NOW)
    return signals


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    ("case", "kind"),
    [
        *((f"fail_{name}", "backend_error") for name in ("429", "500", "502", "529", "529_default_retries")),
        *((f"fail_{name}", "backend_error") for name in ("drop_mid", "drop_pre", "refuse", "sse_error", "timeout")),
        *((f"fail_{name}", "auth") for name in ("401", "403")),
        *((f"fail_{name}", "request") for name in ("400", "404", "413")),
        ("fail_400-credit", "exhausted"),
        ("oauth_401", "auth"),
        ("oauth_429-5h", "exhausted"),
        ("oauth_429-7d", "exhausted"),
        ("oauth_429-opus", "exhausted"),
        ("max_tokens", "request"),
        ("refusal", "request"),
    ],
)
async def test_a_failed_turn_is_reported_with_its_kind_and_the_programs_words(case: str, kind: str) -> None:
    began, failed = await told(case)
    assert (began.what, failed.what, failed.kind) == (What.BEGAN, What.FAILED, kind)
    assert began.turn == failed.turn != ""
    assert failed.text
    assert failed.pattern.startswith("StopFailure ")


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(("case", "hours"), [("oauth_429-5h", 3), ("oauth_429-7d", 50), ("oauth_429-opus", 50)])
async def test_a_used_up_quota_comes_back_when_its_text_says(case: str, hours: int) -> None:
    failed = (await told(case))[-1]
    assert failed.resets_in_ns == hours * HOUR_NS


@pytest.mark.parametrize("case", ["ok", "ok_tool", "idle_notification", "quoted_only", "quoted_limit_start"])
async def test_a_turn_that_ended_well_is_reported_with_its_whole_answer(case: str) -> None:
    began, ended = await told(case)
    stop = next((SIGNALS / case).glob("*-Stop.json"))
    assert (began.what, ended.what, began.turn) == (What.BEGAN, What.ENDED, ended.turn)
    assert ended.text == json.loads(stop.read_text(encoding="utf-8"))["last_assistant_message"]


async def test_an_empty_answer_is_reported_as_none() -> None:
    assert [(signal.what, signal.text) for signal in await told("empty")][1:] == [(What.ENDED, "")]


@pytest.mark.parametrize(("case", "tool"), [("permission", "Bash"), ("question", "AskUserQuestion")])
async def test_a_dialog_is_reported_as_waiting(case: str, tool: str) -> None:
    signals = await told(case)
    assert (What.WAITING, tool) in [(signal.what, signal.text) for signal in signals]


async def test_a_turn_that_is_stopped_is_only_begun() -> None:
    assert [signal.what for signal in await told("interrupt_esc")] == [What.BEGAN]


@pytest.mark.parametrize(
    ("event", "what"),
    [
        ({"hook_event_name": "StopFailure", "error": "server_error", "last_assistant_message": "API Error: 529"}, []),
        ({"hook_event_name": "Stop", "last_assistant_message": "Mine."}, []),
        ({"hook_event_name": "PermissionRequest", "tool_name": "Bash"}, [What.WAITING]),
    ],
)
async def test_of_a_sub_agents_events_only_its_questions_count(event: dict[str, str], what: list[What]) -> None:
    signals = await CLAUDE.signals({**event, "prompt_id": "p-1", "agent_id": "a-1"}, NOW)
    assert [signal.what for signal in signals] == what


@pytest.mark.parametrize("event", [{}, {"hook_event_name": 7}, {"hook_event_name": "SomethingNew", "prompt_id": []}])
async def test_an_event_of_another_form_says_nothing(event: dict[str, Any]) -> None:
    assert await CLAUDE.signals(event, NOW) == ()


THROTTLED = "API Error: Request rejected (429) · Try again later."


def record(text: str, **more: object) -> str:
    message = {"role": "assistant", "content": [{"type": "text", "text": text}]}
    return json.dumps({"type": "assistant", "isApiErrorMessage": True, "message": message, **more}) + "\n"


async def limited(transcript: Path, text: str = THROTTLED) -> Signal:
    event = {"hook_event_name": "StopFailure", "prompt_id": "p-1", "error": "rate_limit"}
    (signal,) = await CLAUDE.signals({**event, "last_assistant_message": text, "transcript_path": str(transcript)}, NOW)
    return signal


async def test_the_transcripts_record_tells_a_used_up_quota_from_a_throttle(tmp_path: Path) -> None:
    transcript = tmp_path / "session.jsonl"
    transcript.write_text(record("Another failure.", quotaLimits={"resetsAt": 1}) + record(THROTTLED))
    assert (await limited(transcript)).kind == "backend_error"
    resets_at = round(NOW.timestamp()) + 7200
    with transcript.open("a") as file:
        file.write(record(THROTTLED, quotaLimits={"rateLimitType": "five_hour", "resetsAt": resets_at}))
    signal = await limited(transcript)
    assert (signal.kind, signal.resets_in_ns) == ("exhausted", 2 * HOUR_NS)


async def test_the_record_may_be_written_after_the_hook_has_started(tmp_path: Path) -> None:
    transcript = tmp_path / "session.jsonl"
    async with trio.open_nursery() as nursery:

        async def written() -> None:
            await trio.sleep(0.2)
            transcript.write_text(record(THROTTLED, quotaLimits={"resetsAt": NOW.timestamp() + 60}))

        nursery.start_soon(written)
        assert (await limited(transcript)).resets_in_ns == 60 * NS_PER_S


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "line",
    [
        "no object",
        "[]",
        record(THROTTLED, quotaLimits=[]),
        record(THROTTLED, quotaLimits={"resetsAt": float("inf")}),
        record(THROTTLED, quotaLimits={"resetsAt": "soon"}),
        record(THROTTLED, message="text"),
        record(THROTTLED, message={"content": "text"}),
    ],
)
async def test_a_record_of_another_form_leaves_a_throttle(tmp_path: Path, line: str) -> None:
    transcript = tmp_path / "session.jsonl"
    transcript.write_text(line)
    signal = await limited(transcript)
    assert (signal.kind, signal.resets_in_ns) == ("backend_error", None)


@pytest.mark.usefixtures("impatient")
async def test_a_transcript_that_is_no_file_is_never_opened(tmp_path: Path) -> None:
    """Opening a pipe that nobody writes to would hold the daemon's thread for ever."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing"):
        with trio.fail_after(10):
            assert (await limited(path)).kind == "backend_error"


# -- how it is started ----------------------------------------------------------------------------------------------


def planned(tmp_path: Path, *argv: str, env: dict[str, str] | None = None, limit_retries: bool = True) -> LaunchPlan:
    directory = tmp_path / "member"
    directory.mkdir(exist_ok=True)
    return CLAUDE.plan(
        LaunchContext(
            "m-1",
            ("claude", *argv),
            env or {},
            str(tmp_path),
            directory,
            hook=("/usr/bin/python 3", "-I", "/fleetd/hook.py", "/run/fleetd's/door"),
            bridge=("/usr/bin/python", "-m", "fleetd", "mcp"),
            limit_retries=limit_retries,
        )
    )


def given(plan: LaunchPlan, flag: str) -> Any:
    """The content of the file that a flag of ours names."""
    (path,) = [word.partition("=")[2] for word in plan.argv if word.startswith(f"{flag}=")]
    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_a_member_gets_hooks_and_fleetds_server_in_files_of_its_own(tmp_path: Path) -> None:
    plan = planned(tmp_path, "--model", "opus", env={"ANTHROPIC_API_KEY": "sk-secret"})
    assert plan.argv[:3] == ("claude", "--model", "opus")
    assert not any("secret" in word for word in plan.argv)
    settings = given(plan, "--settings")
    assert set(settings["hooks"]) == {"UserPromptSubmit", "Stop", "StopFailure", "PermissionRequest"}
    for ((entry,),) in ((each["hooks"] for each in hooks) for hooks in settings["hooks"].values()):
        assert entry["type"] == "command"
        assert entry["command"] == """'/usr/bin/python 3' -I /fleetd/hook.py '/run/fleetd'"'"'s/door'"""
    assert settings["permissions"] == {"allow": ["mcp__fleetd"]}
    assert given(plan, "--mcp-config")["mcpServers"]["fleetd"]["args"] == ["-m", "fleetd", "mcp"]
    assert plan.watch is None


def test_retries_are_cut_short_unless_the_profile_says_otherwise(tmp_path: Path) -> None:
    plan = planned(tmp_path)
    assert plan.env["CLAUDE_CODE_MAX_RETRIES"] == "3"
    assert given(plan, "--settings")["autoContinueAtUsageLimit"] is False
    assert planned(tmp_path, env={"CLAUDE_CODE_MAX_RETRIES": "10"}).env["CLAUDE_CODE_MAX_RETRIES"] == "10"
    off = planned(tmp_path, limit_retries=False)
    assert "CLAUDE_CODE_MAX_RETRIES" not in off.env
    assert "autoContinueAtUsageLimit" not in given(off, "--settings")


def test_the_classic_screen_is_asked_for_unless_the_profile_wants_the_other(tmp_path: Path) -> None:
    name = "CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN"
    assert planned(tmp_path).env[name] == "1"
    assert planned(tmp_path, env={name: "0"}).env[name] == "0"


@pytest.mark.parametrize("form", ["apart", "joined", "file", "last"])
def test_settings_of_the_profiles_command_are_merged(tmp_path: Path, form: str) -> None:
    theirs = {"hooks": [{"type": "command", "command": "mine"}]}
    text = json.dumps(
        {
            "model": "opus",
            "autoContinueAtUsageLimit": True,
            "hooks": {"Stop": [theirs], "PreToolUse": [theirs]},
            "permissions": {"allow": ["Bash(ls)"], "deny": ["WebFetch"]},
        }
    )
    (tmp_path / "mine.json").write_text(text)
    argv = {
        "apart": ("--settings", text),
        "joined": (f"--settings={text}",),
        "file": ("--settings", "mine.json"),
        "last": ("--settings", "{}", "--settings", text),
    }[form]
    plan = planned(tmp_path, "-c", *argv, "--verbose")
    settings = given(plan, "--settings")
    assert [word for word in plan.argv if not word.startswith(("--settings", "--mcp"))] == ["claude", "-c", "--verbose"]
    assert (settings["model"], settings["autoContinueAtUsageLimit"]) == ("opus", True)
    assert settings["hooks"]["Stop"][0] == theirs
    assert len(settings["hooks"]["Stop"]) == 2
    assert settings["hooks"]["PreToolUse"] == [theirs]
    assert settings["permissions"] == {"allow": ["Bash(ls)", "mcp__fleetd"], "deny": ["WebFetch"]}


@pytest.mark.parametrize(
    "settings",
    ["missing.json", "{broken", "[]", '{"hooks": 7}', '{"hooks": {"Stop": 7}}', '{"permissions": "all"}'],
)
def test_settings_that_cannot_be_merged_refuse_the_launch(tmp_path: Path, settings: str) -> None:
    (tmp_path / "[]").write_text("[]")
    with pytest.raises(OpenFailed, match="--settings"):
        planned(tmp_path, "--settings", settings)


@pytest.mark.parametrize("flag", ["-p", "--print", "--bg", "--cloud"])
def test_a_command_without_an_input_line_is_refused(tmp_path: Path, flag: str) -> None:
    with pytest.raises(OpenFailed, match=f"{flag} leaves it no input line"):
        planned(tmp_path, flag)


def test_a_first_prompt_stays_the_last_word_whatever_it_says(tmp_path: Path) -> None:
    plan = planned(tmp_path, "--verbose", "--", "-p")
    assert plan.argv[-2:] == ("--", "-p")
    assert plan.argv[1] == "--verbose"
    assert any(word.startswith("--settings=") for word in plan.argv[2:-2])


@pytest.mark.parametrize("argv", [("--bare",), ("--safe-mode",), ("--settings", '{"disableAllHooks": true}')])
def test_a_command_that_runs_no_hooks_is_started_with_a_warning(
    tmp_path: Path, argv: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    planned(tmp_path, *argv)
    assert [record.levelname for record in caplog.records] == ["WARNING"]


# -- its screen -----------------------------------------------------------------------------------------------------

SETUP = shipped_setup(CLAUDE)
FOOTER = "  ⏵⏵ accept edits on (shift+tab to cycle)"
BUSY = "  ⏵⏵ accept edits on (shift+tab to cycle) · esc to interrupt"
DIALOG = (
    "─" * 80,
    " Bash command",
    " touch it; rm it",
    " Do you want to proceed?",
    " ❯ 1. Yes",
    "   2. No",
    "",
    " Esc to cancel · Tab to amend",
)


def box(*rows: str, footer: str = FOOTER) -> tuple[str, ...]:
    first, *others = rows or ("",)
    return ("─" * 80, f"❯\xa0{first}", *(f"  {row}" for row in others), "─" * 80, footer)


def frame(*lines: str, title: str = "", styled: tuple[str, ...] = ()) -> Frame:
    return Frame(tuple(line.rstrip() for line in lines), title=title, width=80, height=50, styled=styled)


def said(*lines: str) -> str:
    return judge("", frame(*lines), SETUP).verdict


ASKED = ("❯ Find the bugs.", "")
ANSWERED = (*ASKED, "● There are two.", "")
DONE = ("✻ Brewed for 4s · done 5:28 PM", "")


def test_dim_text_in_the_input_box_is_a_suggestion_and_bright_text_is_a_draft() -> None:
    lines = (*ANSWERED, *DONE, *box("fix them"))
    at = lines.index("❯\xa0fix them")
    for drawn, draft in (
        ("❯\xa0\x1b[2mfix them\x1b[0m", ""),
        ("❯\xa0\x1b[7mf\x1b[0;2mix them\x1b[0m", ""),
        ("❯\xa0fix them\x1b[7m \x1b[0m", "fix them"),
    ):
        shown = frame(*lines, styled=(*lines[:at], drawn, *lines[at + 1 :]))
        reading = CLAUDE.grammar.read(shown)
        assert (reading.state, reading.input_open, reading.draft) == (State.IDLE, True, draft)
        assert (injectable(reading, 0) is None) == (draft == "")


def test_a_draft_of_several_lines_is_read_as_drawn() -> None:
    assert CLAUDE.grammar.read(frame(*box("one", "", "  two"))).draft == "one\n\ntwo"


@pytest.mark.parametrize(
    "busy",
    [
        frame(*ANSWERED, *box(footer=BUSY)),
        frame(*ASKED, "✢ Pondering… (12s · ↓ 5 tokens)", "", *box()),
        frame(*ANSWERED, *box(), title="◐ Find the bugs"),
        frame(*ANSWERED, *box(), title="⠂ Find the bugs"),
    ],
    ids=["footer", "spinner", "title", "older-title"],
)
def test_a_turn_runs_by_any_of_its_signs(busy: Frame) -> None:
    assert CLAUDE.grammar.read(busy).state is State.BUSY


def test_a_footer_a_spinner_and_a_dialog_in_an_answer_are_only_an_answer() -> None:
    quoted = [f"  {line}" for line in (*box(footer=BUSY), "✢ Pondering… (12s)", *DIALOG)]
    shown = frame(*ASKED, "● It showed:", "", *quoted, "", *DONE, *box())
    reading = CLAUDE.grammar.read(shown)
    assert (reading.state, reading.input_open) == (State.IDLE, True)
    assert "esc to interrupt" in reading.answer
    assert judge("", shown, SETUP).verdict == "completed"


def test_a_dialog_blocks_and_takes_no_prompt() -> None:
    reading = CLAUDE.grammar.read(frame(*ASKED, "● I need one step.", "  ⎿  $ touch it; rm it", "", *DIALOG))
    assert (reading.state, reading.input_open) == (State.BLOCKED, False)


@pytest.mark.parametrize(
    "shown",
    [
        (" Do you trust the files in this folder?", " ❯ 1. Yes, proceed", "   2. No, exit", " Enter to confirm"),
        (" Detected a custom API key in your environment", "   1. Yes", " ❯ 2. No (recommended)"),
        (" Select login method:", " ❯ 1. Claude account with subscription"),
        (" Press Enter to continue",),
    ],
    ids=["trust", "key", "login", "notice"],
)
def test_a_dialog_at_start_up_blocks(shown: tuple[str, ...]) -> None:
    reading = CLAUDE.grammar.read(frame("─" * 80, *shown))
    assert (reading.state, reading.input_open) == (State.BLOCKED, False)


def test_a_torn_redraw_takes_no_prompt() -> None:
    whole = (*ANSWERED, *DONE, *box())
    for cut in range(len(whole) - 1):
        reading = CLAUDE.grammar.read(frame(*whole[:cut]))
        assert (reading.state, reading.input_open) == (State.UNKNOWN, False)


@pytest.mark.parametrize(
    ("lines", "verdict"),
    [
        ((*ASKED, "● API Error: 529 Overloaded. This is a server-side issue.", ""), "backend_error"),
        ((*ASKED, "● API Error: Something that nobody has seen before", ""), "failed"),
        ((*ASKED, "  ⎿ \xa0Something that nobody has seen before", ""), "failed"),
        ((*ASKED, "● API Error: 529 Overloaded. It is what the log says.", "", *DONE), "completed"),
        ((*ASKED, "  ⎿ \xa0You've hit your weekly limit · resets Dec 1, 8pm (UTC)", ""), "exhausted"),
        ((*ASKED, "  ⎿ \xa0Not logged in · Please run /login", ""), "auth"),
        ((*ASKED, "● There's an issue with the selected model (opus).", ""), "request"),
        ((*ANSWERED, "❯ And now?", "", "  ⎿ \xa0Credit balance too low · Add funds", ""), "exhausted"),
        ((*ASKED, "● API Error: 529 Overloaded.", "", "❯ Again.", "", "● All is well.", "", *DONE), "completed"),
        ((*ASKED, "● Bash(cat log)", "  ⎿  API Error: 529 Overloaded", "", "● Fine.", "", *DONE), "completed"),
        ((*ASKED, "● The log has:", "", "  API Error: 529 Overloaded", "  ⎿  Rate limited", "", *DONE), "completed"),
        (("❯ It said", "  ● API Error: 529", "  ❯ why?", "", "● Two reasons.", "", *DONE), "completed"),
        ((*ASKED, "● API Error: Server is temporarily limiting requests (not your usage limit)", ""), "backend_error"),
        ((*ASKED, "  ⎿ \xa0Interrupted · What should Claude do instead?", ""), "interrupted"),
        ((*ASKED, *DONE), "failed"),
        (ASKED, "failed"),
        ((), "idle"),
    ],
)
def test_how_a_turn_ended_is_said_by_its_last_item(lines: tuple[str, ...], verdict: str) -> None:
    assert said(*lines, *box()) == verdict


def test_an_error_that_the_program_wraps_is_one_line() -> None:
    lines = ("● API Error: The request could not be sent because the socket of the", "  proxy was closed by it")
    assert said(*ASKED, *lines, "", *box()) == "backend_error"


def test_the_hint_in_the_empty_box_is_the_programs_word_that_the_turn_failed() -> None:
    shown = (*ANSWERED, *box("Resend your message to try again"))
    assert said(*shown) == "backend_error"
    reading = CLAUDE.grammar.read(frame(*shown))
    assert (reading.draft, reading.answer) == ("", "")


@pytest.mark.parametrize(
    ("banner", "attempt", "wait_s"),
    [
        ("✻ 529 Overloaded · retrying in 34s · attempt 5/10", 5, 34),
        ("  ⎿  API Error (529 {}) · Retrying in 4 seconds… (attempt 4/10)", 4, 4),
        ("✻ Rate limited · retrying in 6h 16m · attempt 2/10", 2, 22_560),
        ("✻ Waiting for API response · will retry in 4m 15s · check your network", None, None),
    ],
)
def test_a_retry_is_work_and_says_how_long_it_waits(banner: str, attempt: int | None, wait_s: int | None) -> None:
    reading = CLAUDE.grammar.read(frame(*ASKED, banner, "", *box(footer=BUSY)))
    assert reading.state is State.BUSY
    assert reading.retrying is not None
    assert (reading.retrying.attempt, reading.retrying.wait_s) == (attempt, wait_s)


def test_what_to_do_about_a_used_up_quota_is_the_end_of_a_turn_and_takes_no_prompt() -> None:
    limit = "  ⎿ \xa0You've hit your weekly limit · resets Dec 1, 8pm (UTC)"
    menu = ("What do you want to do?", " ❯ 1. Stop and wait for limit to reset", "   2. Upgrade", " Esc to cancel")
    shown = frame(*ASKED, limit, "", "─" * 80, *menu)
    reading = CLAUDE.grammar.read(shown)
    assert (reading.state, reading.input_open) == (State.IDLE, False)
    assert judge("", shown, SETUP).verdict == "exhausted"


# -- the prompt that was typed --------------------------------------------------------------------------------------


def test_the_screen_of_another_turn_is_not_this_turns() -> None:
    before = frame(*ANSWERED, *DONE, *box())
    reading = CLAUDE.grammar.read(frame(*ANSWERED, *DONE, *box(footer=BUSY)), Sent("And now?", before))
    assert (reading.scope, reading.answer, reading.echoed, reading.interrupted) == ((), "", False, False)


@pytest.mark.parametrize(
    ("draft", "interrupted"),
    [
        ("And now?", True),
        ("[Pasted text #2 +39 lines]", True),
        (f"{HEAD} [Pasted text #2 +39 lines]", True),
        (f"{HEAD} And now?", True),
        ("now?", False),
        ("look at [Pasted text #2 +39 lines]", False),
    ],
)
def test_a_prompt_that_is_given_back_was_interrupted(draft: str, interrupted: bool) -> None:
    """Stopped before its first word, it leaves no trace but itself in the input box."""
    before = frame(*ANSWERED, *DONE, *box())
    # Older versions draw the whole transcript again, with another word for each done turn.
    reading = CLAUDE.grammar.read(frame(*ANSWERED, "✻ Cooked for 4s", "", *box(draft)), Sent("And now?", before))
    assert reading.interrupted == interrupted
    assert (reading.answer == "") == interrupted


def test_a_long_prompt_may_be_given_back_in_full_and_shown_in_part() -> None:
    rows = [f"{n}. Look into it." for n in range(40)]
    before = frame(*ANSWERED, *DONE, *box())
    for shown, interrupted in (([HEAD, *rows], True), (rows[20:], True), ((rows[3],), False)):
        reading = CLAUDE.grammar.read(frame(*ANSWERED, *DONE, *box(*shown)), Sent("\n".join(rows), before))
        assert reading.interrupted == interrupted


def test_the_rows_of_a_long_echo_are_no_part_of_the_turn() -> None:
    prompt = "Find the bugs.\n● API Error: 529 is what it said\n\nReport."
    echo = ("❯ Find the bugs.", "  ● API Error: 529 is what it said", "", "  Report.", "")
    shown = frame(*echo, "● There are two.", "", *box())
    reading = CLAUDE.grammar.read(shown, Sent(prompt, frame(*box())))
    assert reading.scope == ("", "● There are two.")
    assert judge("", shown, SETUP).verdict == "completed"


def test_no_shipped_pattern_matches_prose_about_failures() -> None:
    prose = (
        "The API Error: 529 in the log is old.",
        "  ⎿  is how it marks output",
        "You've used 97% of your session limit · resets 2:10pm",
        "2 usage limit resets available",
    )
    texts = (CLAUDE.error_pattern, CLAUDE.exhausted_pattern, CLAUDE.auth_pattern, CLAUDE.request_pattern)
    for text in texts:
        assert [line for line in prose if Pattern(text, "@claude").matches(line)] == []
