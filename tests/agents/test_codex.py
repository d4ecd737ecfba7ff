"""Codex's adapter: how it is started, what its rollouts say, and the traps of its screen."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import trio

from actors.actor import Message
from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.host import OpenFailed, PaneRef
from actors.screen import Frame, Reading, Sent, State, clean_lines
from actors.signal import Signal, What
from actors.turn import Source
from fleetd.agents import ADAPTERS, by_client
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.codex_errors import kind_of
from fleetd.agents.codex_record import Rollout, open_rollouts, watcher
from fleetd.replay import judge, shipped_setup
from tests.agents.corpus import CORPUS

CODEX = ADAPTERS["codex"]
SETUP = shipped_setup(CODEX)
ROLLOUTS = CORPUS / "codex/signals/rollout"
LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)

# -- start-up ---------------------------------------------------------------------------------------------------------

BRIDGE = ("/usr/bin/python", "-m", "fleetd", "--runtime-dir", "/run/it's", "mcp")


def planned(
    directory: Path, *argv: str, config: str = "", limit_retries: bool = True, env: Mapping[str, str] = {}
) -> LaunchPlan:
    home = directory / "home"
    (home / ".codex").mkdir(parents=True, exist_ok=True)
    (home / ".codex/config.toml").write_text(config)
    private = directory / "member"
    private.mkdir(exist_ok=True)
    whole = {"HOME": str(home), "PATH": "/nowhere", **env}
    return CODEX.plan(LaunchContext("m-1", argv, whole, "/work", private, ("hook",), BRIDGE, limit_retries))


def settings(plan: LaunchPlan) -> dict[str, str]:
    """What ``-c`` sets, the last of each key in force."""
    return dict(value.split("=", 1) for flag, value in pairwise(plan.argv) if flag == "-c")


PROVIDER = 'model_provider = "mine"\n[model_providers.mine]\nbase_url = "http://localhost"\n'


def test_the_adapter_is_known_by_its_name_and_by_its_client() -> None:
    assert by_client("codex-mcp-client") is CODEX


def test_a_member_gets_fleetds_tools_and_keeps_to_its_own_process_and_to_the_main_screen(tmp_path: Path) -> None:
    plan = planned(tmp_path, "codex")
    assert plan.argv[:3] == ("codex", "--no-daemon", "--no-alt-screen")
    assert json.loads(settings(plan)["mcp_servers.fleetd.args"]) == list(BRIDGE[1:])
    assert settings(plan)["mcp_servers.fleetd.default_tools_approval_mode"] == '"approve"'
    assert plan.watch is not None
    assert not [name for name in plan.env if name not in ("HOME", "PATH")]


def test_what_the_profiles_command_says_stands_behind_and_wins(tmp_path: Path) -> None:
    own = ("--no-alt-screen", "-m", "gpt-5", "-c", "mcp_servers.fleetd.tool_timeout_sec=9", "--", "fix it")
    plan = planned(tmp_path, "npx", "@openai/codex@latest", *own)
    assert plan.argv[:3] == ("npx", "@openai/codex@latest", "--no-daemon")
    assert plan.argv[-len(own) :] == own
    assert plan.argv.count("--no-alt-screen") == 1
    assert settings(plan)["mcp_servers.fleetd.tool_timeout_sec"] == "9"


def test_the_limits_of_its_retries_are_set_for_the_provider_that_its_user_defined(tmp_path: Path) -> None:
    found = settings(planned(tmp_path, "codex", config=PROVIDER))
    assert found["model_providers.mine.request_max_retries"] == found["model_providers.mine.stream_max_retries"] == "2"


@pytest.mark.parametrize(
    ("argv", "config", "limited"),
    [
        ((), "", False),
        ((), 'model_provider = "mine"', False),
        (("-c", "model_provider=other"), PROVIDER, False),
        (("-c", 'model_provider="other"'), PROVIDER + "[model_providers.other]\nname = 'x'\n", True),
        (("--config=model_provider=mine",), PROVIDER.replace('model_provider = "mine"\n', ""), True),
        (("-p", "work"), PROVIDER.partition("\n")[2] + '[profiles.work]\nmodel_provider = "mine"\n', True),
        ((), PROVIDER + "request_max_retries = 0\nstream_max_retries = 9\n", False),
        ((), "no [toml", False),
    ],
    ids=["own", "undefined", "other", "chosen", "chosen-too", "profile", "set", "broken"],
)
def test_its_own_providers_and_what_its_user_has_set_are_left_alone(
    tmp_path: Path, argv: tuple[str, ...], config: str, limited: bool
) -> None:
    found = settings(planned(tmp_path, "codex", *argv, config=config))
    assert any("max_retries" in key for key in found) is limited


def test_no_limits_are_set_where_the_profile_wants_none(tmp_path: Path) -> None:
    found = settings(planned(tmp_path, "codex", config=PROVIDER, limit_retries=False))
    assert not [key for key in found if "max_retries" in key]


def test_the_users_configuration_is_found_where_its_environment_says(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(PROVIDER)
    found = settings(planned(tmp_path, "codex", env={"CODEX_HOME": str(tmp_path)}))
    assert "model_providers.mine.request_max_retries" in found


@pytest.mark.parametrize(("version", "added"), [("0.104.0", False), ("0.156.0", True), ("0.171.0-alpha.2", True)])
def test_a_version_without_a_background_server_is_not_told_to_do_without(
    tmp_path: Path, version: str, added: bool
) -> None:
    program = tmp_path / "node_modules/@openai/codex/bin/codex.js"
    program.parent.mkdir(parents=True)
    program.touch(mode=0o755)
    (program.parents[1] / "package.json").write_text(json.dumps({"version": version}))
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/codex").symlink_to(program)
    plan = planned(tmp_path, "codex", env={"PATH": str(tmp_path / "bin")})
    assert ("--no-daemon" in plan.argv) is added


@pytest.mark.parametrize(("argv", "why"), [(("exec", "do it"), "no input line"), (("--remote", "ws://x"), "--remote")])
def test_a_command_that_cannot_be_a_member_is_refused(tmp_path: Path, argv: tuple[str, ...], why: str) -> None:
    with pytest.raises(OpenFailed, match=why):
        planned(tmp_path, "codex", *argv)


# -- its rollouts -----------------------------------------------------------------------------------------------------


def meta(version: str = "0.171.0", **more: object) -> dict[str, Any]:
    payload = {"source": "cli", "thread_source": "user", "cli_version": version, **more}
    return {"timestamp": "2026-11-29T17:00:00.000Z", "type": "session_meta", "payload": payload}


def event(kind: str, *, at: str = "2026-11-29T17:54:00.000Z", **payload: object) -> dict[str, Any]:
    return {"timestamp": at, "type": "event_msg", "payload": {"type": kind, **payload}}


def prompt(turn: str, text: str = "Please look into it.") -> dict[str, Any]:
    item = {"type": "UserMessage", "content": [{"type": "text", "text": text}]}
    return event("item_completed", turn_id=turn, item=item)


def told(*records: Mapping[str, Any], since: datetime = LONG_AGO) -> list[Signal]:
    rollout = Rollout(since)
    found = [rollout.signal(record, datetime(2026, 11, 29, 18, 0, tzinfo=UTC)) for record in records]
    return [signal for signal in found if signal is not None]


def recorded(name: str) -> list[dict[str, Any]]:
    """A turn of the real program, with the prompt that the recording leaves out."""
    records: list[dict[str, Any]] = json.loads((ROLLOUTS / f"{name}.json").read_text())
    return [meta(), records[0], prompt(records[0]["payload"]["turn_id"]), *records[1:]]


KINDS = {
    "400": Kind.REQUEST,
    "400ctx": Kind.REQUEST,
    "401": Kind.AUTH,
    "403": Kind.AUTH,
    "404": Kind.REQUEST,
    "429quota": Kind.EXHAUSTED,
    "429rate": Kind.BACKEND_ERROR,
    "429usage": Kind.EXHAUSTED,
    "429usage_na": Kind.EXHAUSTED,
    "500": Kind.BACKEND_ERROR,
    "502": Kind.BACKEND_ERROR,
    "503": Kind.BACKEND_ERROR,
    "529": Kind.BACKEND_ERROR,
    "drop": Kind.BACKEND_ERROR,
    "drop0": Kind.BACKEND_ERROR,
    "reset": Kind.BACKEND_ERROR,
    "stream-error": Kind.BACKEND_ERROR,
    "stream-overloaded": Kind.BACKEND_ERROR,
    "stream-quota": Kind.EXHAUSTED,
    "stream-rate": Kind.BACKEND_ERROR,
}


@pytest.mark.parametrize("name", KINDS)
def test_a_failed_turn_is_reported_with_its_kind_and_its_words(name: str) -> None:
    began, failed = told(*recorded(name))
    assert (began.what, failed.what, failed.kind) == (What.BEGAN, What.FAILED, KINDS[name])
    assert began.turn == failed.turn != ""
    assert failed.text
    assert failed.source is Source.TRANSCRIPT


def test_a_completed_turn_is_reported_with_its_prompt_and_its_whole_answer() -> None:
    began, ended = told(*recorded("ok"))
    assert (began.what, began.text, ended.what) == (What.BEGAN, "Please look into it.", What.ENDED)
    assert ended.text.startswith("I reviewed src/app.py")
    assert ended.text.endswith("Nothing was committed.")


@pytest.mark.parametrize("name", ["empty", "refusal"])
def test_a_turn_without_an_answer_ends_with_none(name: str) -> None:
    assert [(signal.what, signal.text) for signal in told(*recorded(name))][1:] == [(What.ENDED, "")]


def test_an_interrupted_turn_was_stopped_and_one_that_hangs_has_no_end() -> None:
    assert [signal.what for signal in told(*recorded("interrupted"))] == [What.BEGAN, What.STOPPED]
    assert [signal.what for signal in told(*recorded("hang-idle-timeout"))] == [What.BEGAN]


def test_a_reset_time_is_that_of_the_words_or_else_of_the_limits() -> None:
    (_, in_words) = told(*recorded("429usage"))
    assert in_words.resets_in_ns == (84 * 60) * NS_PER_S  # 7:24 PM, from 18:00 on
    at = datetime(2026, 11, 29, 19, 30, tzinfo=UTC).timestamp()
    limits = {
        "primary": {"used_percent": 100.0, "resets_at": at},
        "secondary": {"used_percent": 3, "resets_at": at + 9},
    }
    error = {"message": "Quota exceeded.", "codex_error_info": "usage_limit_exceeded"}
    turn = event("task_started", turn_id="t"), prompt("t"), event("token_count", rate_limits=limits)
    (_, failed) = told(meta(), *turn, event("task_complete", turn_id="t", error=error))
    assert failed.resets_in_ns == 90 * 60 * NS_PER_S


def test_the_conversation_of_a_sub_agent_is_nobodys_turn() -> None:
    records = recorded("503")[1:]
    for more in ({"source": {"subagent": "review"}}, {"thread_source": "subagent"}):
        assert told(meta(**more), *records) == []


def test_what_was_written_before_the_member_was_launched_is_history() -> None:
    assert told(*recorded("503"), since=datetime(2026, 11, 29, 18, 0, tzinfo=UTC)) == []


@pytest.mark.parametrize("odd", [None, 7, "x", [], [1], {}, {"type": "UserMessage", "content": 7}], ids=repr)
def test_a_record_of_another_shape_says_nothing(odd: Any) -> None:
    started, asked = event("task_started", turn_id="t"), prompt("t")
    names = ("item", "message", "turn_id", "rate_limits", "reason")
    kinds = ("item_completed", "user_message", "token_count", "nobody_knows")
    oddities = [event(kind, **{name: odd}) for kind in kinds for name in names]
    bare = [{"type": odd}, {"type": "event_msg", "payload": odd}, {"type": "session_meta", "payload": odd}]
    untimed = event("task_complete", turn_id="t", last_agent_message="x") | {"timestamp": odd}
    signals = told(meta(), started, asked, *bare, untimed, *oddities)
    assert {signal.what for signal in signals} <= {What.BEGAN}
    limits = event("token_count", rate_limits={"primary": odd, "secondary": {"used_percent": odd, "resets_at": odd}})
    error = {"message": odd, "codex_error_info": odd}
    (_, failed) = told(meta(), started, asked, limits, event("task_complete", turn_id="t", error=error))
    assert (failed.what, failed.kind) == (What.FAILED, Kind.FAILED)


def test_the_end_of_a_turn_whose_beginning_was_not_told_is_not_told() -> None:
    records = recorded("503")
    assert told(records[0], *records[3:]) == []


def test_an_older_version_tells_no_failures_so_its_empty_end_says_nothing() -> None:
    turn = event("task_started", turn_id="t"), event("user_message", message="Please.")
    end = event("task_complete", turn_id="t", last_agent_message=None)
    good = event("task_complete", turn_id="t", last_agent_message="Done.")
    assert [signal.what for signal in told(meta("0.144.6"), *turn, end)] == [What.BEGAN]
    assert [signal.what for signal in told(meta("0.144.6"), *turn, good)] == [What.BEGAN, What.ENDED]
    assert [signal.what for signal in told(meta("0.152.0"), *turn, end)] == [What.BEGAN, What.ENDED]


@pytest.mark.parametrize(
    ("info", "text", "kind"),
    [
        ({"http_connection_failed": {"http_status_code": 401}}, "x", Kind.AUTH),
        ({"http_connection_failed": {"http_status_code": 402}}, "x", Kind.EXHAUSTED),
        ({"http_connection_failed": {"http_status_code": 422}}, "x", Kind.REQUEST),
        ({"http_connection_failed": {"http_status_code": None}}, "x", Kind.BACKEND_ERROR),
        ({"response_stream_disconnected": {"http_status_code": 200}}, "cut", Kind.REQUEST),
        ("other", "stream disconnected before completion: Incomplete response returned, reason: x", Kind.REQUEST),
        ("other", "stream disconnected before completion: Transport error", Kind.BACKEND_ERROR),
        ("a_class_of_next_year", "Words of next year", Kind.FAILED),
        ("a_class_of_next_year", "You’ve hit your usage limit.", Kind.EXHAUSTED),
        (None, "", Kind.FAILED),
    ],
)
def test_a_failures_kind_is_its_class_or_its_status_or_its_words(info: object, text: str, kind: Kind) -> None:
    assert kind_of(info, text)[0] is kind


async def test_a_member_has_no_events_of_hooks() -> None:
    assert await CODEX.signals({"hook_event_name": "Stop"}, LONG_AGO) == ()


# -- following them ---------------------------------------------------------------------------------------------------


class Heard:
    """A resolver's mailbox."""

    def __init__(self) -> None:
        self.signals: list[Signal] = []

    def tell(self, message: Message) -> None:
        assert isinstance(message, Signal)
        self.signals.append(message)

    async def until(self, *whats: What) -> None:
        with trio.fail_after(20):
            while [signal.what for signal in self.signals] != list(whats):
                assert len(self.signals) <= len(whats), self.signals
                await trio.sleep(0.02)


def written(path: Path, *records: Mapping[str, Any]) -> None:
    with path.open("a") as file:
        file.write("".join(json.dumps(record) + "\n" for record in records))


@pytest.mark.live
async def test_the_rollout_that_the_panes_program_has_open_is_followed(tmp_path: Path, nursery: trio.Nursery) -> None:
    path, heard = tmp_path / "rollout-1.jsonl", Heard()
    nursery.start_soon(watcher(LONG_AGO), PaneRef("tmux", "%1", os.getpid()), heard)
    assert open_rollouts(os.getpid()) == ()
    with path.open("a"):
        assert open_rollouts(os.getpid()) == (path,)
        written(path, *recorded("ok"))
        await heard.until(What.BEGAN, What.ENDED)
        written(path, *recorded("503")[1:])
        await heard.until(What.BEGAN, What.ENDED, What.BEGAN, What.FAILED)
    nursery.cancel_scope.cancel()


@pytest.mark.live
async def test_a_conversation_that_is_opened_again_is_not_told_again(
    tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="fleetd.codex")

    async def logged(message: str, times: int) -> None:
        with trio.fail_after(20):
            while True:
                if [record.message for record in caplog.records].count(message) >= times:
                    return
                await trio.sleep(0.02)

    path, other, heard = tmp_path / "rollout-1.jsonl", tmp_path / "rollout-2.jsonl", Heard()
    nursery.start_soon(watcher(LONG_AGO), PaneRef("tmux", "%1", os.getpid()), heard)
    with path.open("a"):
        written(path, *recorded("ok"))
        await heard.until(What.BEGAN, What.ENDED)
    with other.open("a"):
        written(other, *recorded("503"))
        await heard.until(What.BEGAN, What.ENDED, What.BEGAN, What.FAILED)
        await logged("rollout let go", 1)
        with path.open("a"):
            await logged("rollout followed", 3)
            written(path, *recorded("interrupted")[1:])
            await heard.until(What.BEGAN, What.ENDED, What.BEGAN, What.FAILED, What.BEGAN, What.STOPPED)
    nursery.cancel_scope.cancel()


@pytest.mark.live
async def test_the_next_daemon_tells_what_is_new_and_the_turn_that_still_runs(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    planned(tmp_path, "codex")
    path, heard = tmp_path / "rollout-1.jsonl", Heard()
    running = [record | {"timestamp": "2999-01-01T00:00:00.000Z"} for record in recorded("ok")]
    with path.open("a"):
        written(path, *recorded("503"), *running[1:-1])
        watch: Watch | None = CODEX.resume(tmp_path / "member", "/work")
        assert watch is not None
        nursery.start_soon(watch, PaneRef("tmux", "%1", os.getpid()), heard)
        await heard.until(What.BEGAN)
        written(path, running[-1])
        await heard.until(What.BEGAN, What.ENDED)
    nursery.cancel_scope.cancel()


def test_a_member_whose_files_are_gone_is_judged_by_its_screen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert CODEX.resume(tmp_path / "gone", "/work") is None
    assert [record.message for record in caplog.records] == ["rollout not followed"]


async def test_a_pane_whose_process_is_not_known_is_not_followed(caplog: pytest.LogCaptureFixture) -> None:
    await watcher(LONG_AGO)(PaneRef("tmux", "%1"), Heard())
    assert len(caplog.records) == 1


# -- its screen -------------------------------------------------------------------------------------------------------

HEAD = ("", "  >_ OpenAI Codex (v0.171.0)", "     ~/work", "", "")
BOX = ("› Ask Codex to do anything",)
FOOT = ("", "  gpt-5 default · ~/work")
DIALOG = (
    "",
    "  Would you like to run the following command?",
    "",
    "  $ touch it",
    "",
    "› 1. Yes, proceed (y)",
    "  2. No, and tell Codex what to do differently (esc)",
    "",
    "  Press enter to confirm or esc to cancel",
)
WORKING = ("• Working (1m 04s • esc to interrupt)", "", "")
DONE = ("", "  Worked for 3s • 17:40", "", "")


def screen(
    *transcript: str, bottom: tuple[str, ...] = (*BOX, *FOOT), title: str = "", width: int = 80, styled: bool = False
) -> Frame:
    lines = (*HEAD, *transcript, *bottom)
    dim = tuple(f"\x1b[1m›\x1b[0m \x1b[2m{line[2:]}\x1b[0m" if line in BOX else line for line in lines)
    return Frame(lines, title=title, width=width, height=60, styled=dim if styled else ())


def read(frame: Frame, sent: Sent | None = None) -> Reading:
    return SETUP.grammar.read(frame, sent)


def verdict(frame: Frame) -> str:
    return judge("it", frame, SETUP).verdict


@pytest.mark.parametrize("title", ["", "work", "ok | work"])
@pytest.mark.parametrize("styled", [True, False])
def test_a_program_that_has_started_is_idle_and_its_suggestion_is_no_draft(title: str, styled: bool) -> None:
    reading = read(screen(title=title, styled=styled))
    assert (reading.state, reading.input_open, reading.draft, reading.echoed) == (State.IDLE, True, "", False)


def test_a_suggestion_of_another_version_is_known_by_its_dimness_and_a_draft_by_its_brightness() -> None:
    frame = screen(bottom=("› Try something new", *FOOT))
    assert read(frame).draft == "Try something new"
    dim = tuple(line.replace("Try", "\x1b[2mTry") for line in frame.lines)
    assert read(Frame(frame.lines, width=80, height=60, styled=dim)).draft == ""
    typed = screen(styled=True)
    assert read(Frame(typed.lines, width=80, height=60, styled=typed.lines)).draft == BOX[0][2:]


def test_a_draft_of_several_lines_is_one_draft_and_keeps_the_input_line_open() -> None:
    reading = read(screen(bottom=("› one", "  two", "  • three", *FOOT)))
    assert (reading.draft, reading.input_open) == ("one\ntwo\n• three", True)


def test_before_it_has_started_nobody_knows_whether_a_dialog_comes() -> None:
    assert read(screen(bottom=(*BOX, "", "  ? for shortcuts"))).state is State.UNKNOWN


@pytest.mark.parametrize("title", ["", "[ ! ] Action Required | work", "[ . ] Action Required | work"])
def test_a_permission_dialog_blocks_and_takes_no_prompt(title: str) -> None:
    reading = read(screen("› do it", "", "• Running touch it", bottom=DIALOG, title=title))
    assert (reading.state, reading.input_open) == (State.BLOCKED, False)


def test_a_dialog_that_only_the_title_knows_of_takes_no_prompt_either() -> None:
    reading = read(screen("› do it", "", "• I look.", "", "", title="[ ! ] Action Required | work"))
    assert (reading.state, reading.input_open) == (State.BLOCKED, False)


def test_a_prompt_in_the_words_of_a_suggestion_is_a_prompt() -> None:
    old = ("› one", "", "■ unexpected status 503 x", "", "")
    assert verdict(screen(*old, "› Explain this codebase", "", "• It is a parser.", *DONE)) == "completed"


def test_an_answer_that_shows_a_dialog_a_status_line_and_a_failure_is_only_an_answer() -> None:
    quoted = [f"  {line}".rstrip() for line in (*DIALOG, *WORKING, "■ unexpected status 503", "› not an echo")]
    frame = screen("› do it", "", "• Here is what it shows:", *quoted, *DONE)
    reading = read(frame)
    assert (reading.state, reading.input_open, reading.retrying) == (State.IDLE, True, None)
    assert "Would you like to run" in reading.answer
    assert "› not an echo" in reading.answer
    assert verdict(frame) == "completed"


@pytest.mark.parametrize(
    "status",
    [
        "• Working (0s • esc to interrupt)",
        "◦ Working (1h 02m 03s • esc to interrupt) · 1 background terminal running",
        "• Working (9s • esc to",
        "• Working (9s)",
        "• Reconnecting... waiting for network (11m 08s • esc to interrupt)",
        "• Starting MCP servers (0/1): fleetd (1s • esc to interrupt)",
    ],
)
def test_a_status_line_above_the_input_line_is_working(status: str) -> None:
    frame = screen("› do it", "", "• I look.", "", status, "", "")
    assert (read(frame).state, verdict(frame)) == (State.BUSY, "working")


def test_a_retry_says_which_attempt_it_is_and_why() -> None:
    status = (
        "• Reconnecting... 2/5 (6s • esc to interrupt)",
        "  └ unexpected status 503 Service Unavailable: x",
        "",
        "",
    )
    reading = read(screen("› do it", "", *status))
    assert reading.state is State.BUSY
    assert reading.retrying is not None
    assert reading.retrying.attempt == 2
    assert "503" in reading.retrying.line


def test_prompts_that_wait_for_the_turns_end_are_not_its_echo() -> None:
    waiting = ("• Messages to be submitted after next tool call", "  ↳ and then this", "")
    reading = read(screen("› do it", "", "• I look.", "", *WORKING, *waiting))
    assert (reading.state, reading.answer) == (State.BUSY, "I look.")


def test_an_answer_that_still_streams_shows_no_status_and_only_the_title_knows() -> None:
    lines = ("› do it", "", "• The first half", "", "")
    assert read(screen(*lines, title="⠹ do it | work")).state is State.BUSY
    assert read(screen(*lines)).state is State.UNKNOWN


@pytest.mark.parametrize("width", [40, 80])
def test_a_failure_is_read_to_its_end_where_it_is_wrapped_without_an_indentation(width: int) -> None:
    wrapped = (
        "■ You’ve hit your usage limit. Upgrade to Pro",
        "(https://x), visit https://x to purchase more",
        "credits",
    )
    reading = read(screen("› do it", "", *wrapped, "", "", width=width))
    assert reading.ending == wrapped
    assert verdict(screen("› do it", "", *wrapped, "", "", width=width)) == "exhausted"


def test_an_old_failure_above_a_later_answer_is_old_and_an_old_answer_above_a_failure_too() -> None:
    failed, answered = ("› one", "", "■ unexpected status 503 x", "", ""), ("› two", "", "• Fine.", *DONE)
    assert verdict(screen(*failed, *answered)) == "completed"
    assert verdict(screen(*answered, *failed)) == "backend_error"


def test_a_warning_is_no_failure_and_one_above_an_answer_is_old() -> None:
    """An older version ends a turn with a mere warning when its model is at capacity."""
    full = "⚠ Selected model is at capacity. Please try a different model."
    assert verdict(screen("› do it", "", full, "", "• It went on.", *DONE)) == "completed"
    assert verdict(screen("› do it", "", full, "", "• It went on.", "", "")) == "completed"
    lost = ("⚠ Falling back from WebSockets to HTTPS transport. stream disconnected before completion", "", "")
    assert verdict(screen("› do it", "", "• Fine.", "", *lost)) == "completed"


def test_half_an_answer_above_a_failure_does_not_make_it_a_success() -> None:
    broken = ("• Half an ans", "", "■ stream disconnected before completion: Transport error", "", "")
    assert verdict(screen("› do it", "", *broken)) == "backend_error"


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("■ Something that nobody has seen before.", "failed"),
        ("■ Conversation interrupted - use /feedback if something went wrong", "interrupted"),
        ("■ Missing environment variable: `FAKE_KEY`.", "auth"),
        ("■ unexpected status 402 Payment Required: x", "exhausted"),
        ("■ unexpected status 422 Unprocessable Entity: x", "request"),
        ("■ Selected model is at capacity. Please try a different model.", "backend_error"),
        ("⚠ Selected model is at capacity. Please try a different model.", "backend_error"),
        ("■ Error running remote compact task: unexpected status 503 x", "backend_error"),
    ],
)
def test_what_stands_behind_its_mark_in_column_0_is_never_a_success(line: str, word: str) -> None:
    assert verdict(screen("› do it", "", "• I look.", "", line, "", "")) == word


def test_a_turn_without_an_answer_has_failed_though_its_closing_line_is_there() -> None:
    assert verdict(screen("› do it", *DONE)) == "failed"


def test_the_closing_line_of_another_day_is_no_part_of_the_answer() -> None:
    """As a conversation shows it that is continued."""
    frame = screen("› do it", "", "• Fine.", "", "  Worked for 1m 06s • Nov 29 at 23:57", "", "")
    assert (read(frame).state, read(frame).answer, read(frame).finished) == (State.IDLE, "Fine.", True)


def test_a_tool_call_is_no_answer() -> None:
    assert verdict(screen("› do it", "", "• Ran touch it", "  └ (no output)", "", "")) == "failed"


def test_a_tip_that_was_left_below_an_answer_makes_it_no_tool_call() -> None:
    """On the alternate screen the second line of the status line stays where the answer is drawn over the first."""
    reading = read(screen("› do it", "", "• Fine.", "  └ Tip: Use /vim to toggle Vim editing.", *DONE))
    assert (reading.answer, reading.finished) == ("Fine.", True)


def test_a_prompt_of_many_lines_is_its_echo_to_the_end() -> None:
    rows = ("› first", "  ■ unexpected status 503", "", "  • not an answer", "")
    reading = read(screen(*rows, "• The answer.", *DONE))
    assert (reading.answer, reading.scope[0]) == ("The answer.", "• The answer.")


def test_the_screen_of_another_turn_is_not_this_turns_scope() -> None:
    before = screen("› one", "", "• Old answer.", *DONE)
    typed = screen("› one", "", "• Old answer.", *DONE, bottom=("› two", *FOOT))
    reading = read(typed, Sent("two", before))
    assert (reading.answer, reading.draft, reading.echoed) == ("", "two", False)
    assert read(screen("› one", "", "• Old answer.", *DONE, "› two", "", ""), Sent("two", before)).echoed


def test_a_dialog_behind_a_used_up_quota_does_not_hide_it() -> None:
    asks = (
        "",
        "  Rate limit reached",
        "› 1. Switch to model-mini",
        "  2. Keep current model",
        "",
        "  Press enter to confirm",
    )
    frame = screen("› do it", "", "■ You’ve hit your usage limit. Try again at 7:01 PM.", bottom=asks)
    assert (read(frame).state, read(frame).input_open, verdict(frame)) == (State.IDLE, False, "exhausted")


def test_a_torn_redraw_takes_no_prompt_and_is_never_at_rest() -> None:
    whole = screen("› do it", "", "• I look.", "", *WORKING)
    for cut in range(len(HEAD), len(whole.lines) - len(FOOT)):
        lines = clean_lines("\n".join(whole.lines[:cut]))
        reading = read(Frame(lines, width=80, height=60))
        assert (reading.state, reading.input_open) != (State.IDLE, True), lines
