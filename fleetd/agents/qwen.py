"""Qwen Code: how it is started as a member, and what it reports. See :mod:`fleetd.agents.qwen_screen` for its screen.

It merges four settings files, the lowest of which ("system defaults") can be named in the environment. Everything that
a member needs goes there: hooks and MCP servers of all files add up, and any other value that its user or the folder
sets wins. So nothing of the user's own is written or overruled.

Hooks report prompts, ends, failures and questions. That it tries again by itself no hook reports: see
:mod:`fleetd.agents.qwen_record`.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.host import OpenFailed
from actors.inject import Typing
from actors.patterns import Pattern
from actors.resets import resets_in
from actors.screen import Grammar
from actors.signal import Signal, What
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.gemini_home import merged
from fleetd.agents.qwen_record import SESSION, Retries
from fleetd.agents.qwen_screen import QwenGrammar

#: The settings, in the member's directory and beside those of the machine.
SETTINGS: Final = "system-defaults.json"
#: A settings file larger than this is none, in bytes.
SETTINGS_BYTES: Final = 1024 * 1024
#: How long a hook may take. Read as milliseconds by every version; newer ones also know seconds, below 1000.
HOOK_MS: Final = 5000
#: The events that say something of a turn.
EVENTS: Final = ("UserPromptSubmit", "Stop", "StopFailure", "PermissionRequest")
#: Names the lowest settings file.
DEFAULTS_PATH: Final = "QWEN_CODE_SYSTEM_DEFAULTS_PATH"
#: Names the highest one, which the lowest stands beside.
SYSTEM_PATH: Final = "QWEN_CODE_SYSTEM_SETTINGS_PATH"
SYSTEM: Final = (
    "/Library/Application Support/QwenCode/settings.json"
    if sys.platform == "darwin"
    else "/etc/qwen-code/settings.json"
)
#: Flags of a run that has no screen, or none that can be read.
SCREENLESS: Final = ("-p", "--prompt", "--acp", "--experimental-acp", "--screen-reader")

# What stands behind the error mark. Old versions draw it in column 0, newer ones in column 2.
_MARK: Final = r"^ {0,2}✕ "
_ERROR: Final = _MARK + r"\[API Error: "
#: Any message that does not begin with the code of a request that was refused.
_UNCODED: Final = _ERROR + r"(?:[^4].*)?"
_USED_UP: Final = (
    r"(?i:exceeded your (?:current |daily |weekly |monthly )?quota|insufficient[_ ]quota|"
    r"usage limit (?:has been |was )?(?:reached|exceeded)|(?:hit|reached|exceeded) your (?:[a-z0-9-]+ ){0,3}limit|"
    r"quota (?:has been |is |was )?(?:exhausted|used up)|exhausted your (?:[a-z]+ ){0,3}quota|"
    r"(?:hour|day|week|month)(?:ly)? (?:allocated )?quota exceeded|free tier (?:[a-z]+ ){0,4}exhausted|"
    r"insufficient (?:balance|credits?|funds)|requires more credits|credit balance is too low|"
    r"billing hard limit|payment required|arrearage|free-models-per-day)"
)
_BROKEN: Final = (
    r"(?i:overloaded|at capacity|model_capacity|no capacity|server had an error|internal (?:server )?error|"
    r"service unavailable|bad gateway|gateway time-?out|too many requests|rate[ _-]?limit|not your usage limit|"
    r"terminated|connection (?:error|closed|reset|refused|aborted|timed out)|fetch failed|socket|premature close|"
    r"econn[a-z]+|enotfound|eai_again|etimedout|epipe|und_err|timed out|request timeout|retry attempts exhausted|"
    r"status: (?:unavailable|resource_exhausted|internal|deadline_exceeded))"
)
_NO_KEY: Final = (
    r"(?i:(?:incorrect|invalid) api[ _-]?key|api key not valid|unauthori[sz]ed|unauthenticated|permission.denied|"
    r"authentication|no auth type is selected|missing (?:api )?(?:key|credentials)|token (?:has )?expired)"
)
_TOO_MUCH: Final = (
    r"(?i:context (?:window|length|is too)|too (?:large|long)|token (?:count|limit)|maximum (?:context|number)|"
    r"invalid.(?:argument|value|request)|does not exist|not found|not supported)"
)


class Qwen:
    """The adapter."""

    name = "qwen"
    command: tuple[str, ...] = ("qwen",)
    grammar: Grammar = QwenGrammar()
    #: A restored prompt has up to two hundred lines, and two of the keys take one away.
    typing = Typing(placeholders=("[Pasted Content ",), settle_s=0.5, breath_s=0.5, clear_keys=("C-u",) * 64)
    interrupt_keys: tuple[str, ...] = ("Escape",)
    error_pattern = rf"{_ERROR}(?:408|425|429|5\d\d)\b|{_UNCODED}{_BROKEN}"
    exhausted_pattern = (
        rf"{_ERROR}402\b|{_ERROR}.*{_USED_UP}|{_MARK}(?:Quota exhausted: |Qwen OAuth (?:quota|free tier) )"
    )
    auth_pattern = rf"{_ERROR}(?:401|403|407)\b|{_UNCODED}{_NO_KEY}"
    request_pattern = rf"{_ERROR}4\d\d\b|{_UNCODED}{_TOO_MUCH}"
    #: Any other error, and notices by which the program stops a turn.
    failed_pattern = (
        rf"{_MARK}|^ {{0,2}}●\x{{FE0E}}? (?:⚠\x{{FE0F}}? +Response stopped|"
        r"The session has reached the maximum number of turns|A potential loop was detected)"
    )
    #: The program's name and that of the server in its settings.
    client_names: tuple[str, ...] = ("qwen-cli-mcp-client-fleetd",)

    def plan(self, context: LaunchContext) -> LaunchPlan:
        """The command as it is, with a settings file of fleetd's below all others."""
        screenless = next((word for word in context.argv[1:] if word.partition("=")[0] in SCREENLESS), None)
        if screenless is not None:
            raise OpenFailed(f"{screenless} starts Qwen Code without the screen that fleetd reads: take it out")
        if context.env.get("QWEN_TUI_RENDERER", "").strip().lower() == "opentui":
            raise OpenFailed("QWEN_TUI_RENDERER=opentui draws a screen that fleetd cannot read: take it out")
        settings = context.directory / SETTINGS
        settings.touch(mode=0o600)
        settings.write_text(json.dumps(merged(_settings(context), _defaults(context.env)), indent=1), encoding="utf-8")
        env = {
            # One process instead of two, so that nothing is left behind when the pane ends.
            "QWEN_CODE_NO_RELAUNCH": "true",
            **context.env,
            DEFAULTS_PATH: str(settings),
        }
        return LaunchPlan(context.argv, env, Retries(context.target, context.directory / SESSION).watch)

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        """The session's record, from its present end on."""
        return Retries(directory.name.rpartition("-")[0], directory / SESSION).watch

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        name, turn = event.get("hook_event_name"), _text(event, "prompt_id")
        if event.get("agent_id"):
            return ()  # a helper's, not the member's
        match name:
            case "UserPromptSubmit":
                prompt = _text(event, "submitted_prompt") or _text(event, "prompt")
                # A tool's result goes to the model as a prompt without text.
                what = What.BEGAN if prompt.strip() else What.WORKING
                return (Signal(what, turn, prompt, pattern=name),)
            case "Stop":
                return (Signal(What.ENDED, turn, _text(event, "last_assistant_message"), pattern=name),)
            case "StopFailure":
                return (_failure(event, turn, now),)
            case "PermissionRequest":
                return (Signal(What.WAITING, turn, _text(event, "tool_name"), pattern=name),)
        return ()


# -- what the hooks say ---------------------------------------------------------------------------------------------

_PATTERNS: Final = tuple(
    (kind, Pattern(text, "@qwen"))
    for kind, text in (
        (Kind.EXHAUSTED, Qwen.exhausted_pattern),
        (Kind.BACKEND_ERROR, Qwen.error_pattern),
        (Kind.AUTH, Qwen.auth_pattern),
        (Kind.REQUEST, Qwen.request_pattern),
    )
)
#: The program's own classes of failures, for texts that no pattern knows.
_CLASSES: Final = {
    "rate_limit": Kind.BACKEND_ERROR,
    "server_error": Kind.BACKEND_ERROR,
    "authentication_failed": Kind.AUTH,
    "billing_error": Kind.EXHAUSTED,
    "invalid_request": Kind.REQUEST,
    "max_output_tokens": Kind.REQUEST,
}


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _failure(event: Mapping[str, Any], turn: str, now: datetime) -> Signal:
    """A failed turn: classed by the line that the program draws for it, then by its own class."""
    error = _text(event, "error")
    text = _text(event, "last_assistant_message") or _text(event, "error_details") or error
    drawn = "  ✕ " + " ".join(text.split())
    kind = next((kind for kind, pattern in _PATTERNS if pattern.matches(drawn)), _CLASSES.get(error, Kind.FAILED))
    resets = resets_in(text, now) if kind is Kind.EXHAUSTED else None
    return Signal(
        What.FAILED,
        turn,
        text,
        kind,
        pattern=f"StopFailure {error}".rstrip(),
        resets_in_ns=None if resets is None else round(resets.total_seconds() * NS_PER_S),
    )


# -- the settings ---------------------------------------------------------------------------------------------------


def _settings(context: LaunchContext) -> dict[str, Any]:
    """What a member needs. Each value gives way to one that its user set."""

    def run(*argv: str) -> list[dict[str, Any]]:
        return [{"hooks": [{"type": "command", "command": shlex.join(argv), "timeout": HOOK_MS}]}]

    settings: dict[str, Any] = {
        "hooks": {
            **{event: run(*context.hook) for event in EVENTS},
            "SessionStart": run("dd", f"of={context.directory / SESSION}", "status=none"),
        },
        "mcpServers": {
            "fleetd": {"command": context.bridge[0], "args": list(context.bridge[1:]), "trust": True},
        },
        "tools": {"approvalMode": "default"},
        # Nobody is there to answer or to take up what these offer, and one of them costs a request each turn.
        "ui": {"enableWelcomeBack": False, "enableUserFeedback": False, "enableFollowupSuggestions": False},
        "general": {"enableAutoUpdate": False},
    }
    if context.limit_retries:
        settings["model"] = {"generationConfig": {"maxRetries": 0}}
    return settings


def _defaults(env: Mapping[str, str]) -> dict[str, Any]:
    """The machine's or the profile's own file, in whose place ours is read."""
    named = env.get(DEFAULTS_PATH)
    path = Path(named) if named else Path(env.get(SYSTEM_PATH) or SYSTEM).with_name(SETTINGS)
    try:
        with path.open("rb") as file:
            raw = file.read(SETTINGS_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise OpenFailed(f"Qwen Code's {path} cannot be read: {exc.strerror}") from None
    try:
        found = json.loads(raw[:SETTINGS_BYTES]) if len(raw) <= SETTINGS_BYTES else None
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OpenFailed(
            f"Qwen Code's {path} is not a JSON object of at most {SETTINGS_BYTES} bytes without comments, and fleetd "
            f"cannot add to it: correct it, or name another in {DEFAULTS_PATH}"
        )
    return found
