"""Gemini CLI: how it is started as a member, and what it reports. Its screen is in :mod:`fleetd.agents.gemini_screen`.

What a member needs stands in settings of its own, beside those of its user (see :mod:`fleetd.agents.gemini_home`). Its
hooks report prompts, questions and ends; how a turn ended is in the session's record (see
:mod:`fleetd.agents.gemini_record`). No hook says anything while a dialog stands where a request has failed, and none
that it tries again by itself: both are on the screen only.
"""

from __future__ import annotations

import logging
import shlex
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.host import OpenFailed
from actors.inject import Typing
from actors.patterns import Pattern
from actors.resets import resets_in
from actors.screen import Grammar
from actors.signal import Signal, What
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.gemini_home import make_home, merged, users_settings
from fleetd.agents.gemini_record import Shown, last_shown
from fleetd.agents.gemini_screen import STOPPED, GeminiGrammar

log = logging.getLogger("fleetd.gemini")

#: How long a hook may take, in milliseconds.
HOOK_MS: Final = 5000
#: The events that say something of a turn.
EVENTS: Final = ("BeforeAgent", "AfterAgent", "Notification")
#: Attempts at a request: one more, after about five seconds, where the program's own number is ten.
ATTEMPTS: Final = 2
#: Sessions whose turns are counted.
SESSIONS: Final = 1024
#: Flags of a run that has no screen, or none that can be read.
SCREENLESS: Final = ("-p", "--prompt", "--acp", "--experimental-acp", "--screen-reader")
#: What the program asks itself when a tool's result was met with silence: no prompt of anybody's.
SELF_PROMPT: Final = "[System: "

# Errors are drawn behind a mark in column 0, notices behind another, and the words of a dialog behind its frame.
_ERROR: Final = r"^✕ \[API Error: "
_CODE: Final = rf'{_ERROR}.*"code": ?'
_USED_UP: Final = (
    r"(?i:exhausted your (?:[a-z]+ ){0,3}(?:quota|capacity)|exceeded your (?:[a-z]+ )?quota|quota_exhausted|"
    r"usage limit (?:has been |was )?(?:reached|exceeded)|reached your (?:[a-z0-9.-]+ ){0,4}(?:quota|limit)|"
    r"quota will reset|insufficient[_ ](?:g1[_ ])?(?:credits|quota|balance))"
)
_BROKEN: Final = (
    r"(?i:overloaded|at capacity|model_capacity|no capacity|high demand|internal (?:server )?error|"
    r"(?:service|currently) unavailable|bad gateway|gateway time-?out|too many requests|rate[ _-]?limit|"
    r"not your usage limit|resource (?:has been )?exhausted|terminated|fetch failed|socket|premature close|"
    r"connection (?:error|closed|reset|refused|aborted|timed out)|other side closed|econn[a-z]+|enotfound|eai_again|"
    r"etimedout|epipe|und_err|timed out|timeout|deadline|incomplete json|unexpected end|"
    r"status: (?:unavailable|resource_exhausted|internal|deadline_exceeded|unknown))"
)
_NO_KEY: Final = (
    r"(?i:api[ _]key not valid|api_key_invalid|api key (?:was )?(?:expired|not found|missing|reported as leaked)|"
    r"permission[ _.]denied|unauthenticated|unauthorized|invalid authentication|invalid_grant|reauth|credentials)"
)
_TOO_MUCH: Final = (
    r"(?i:token count|invalid[ _]argument|not found|not supported|failed[ _]precondition|too (?:large|long))"
)
_EXHAUSTED: Final = rf"{_ERROR}.*{_USED_UP}|^│ Usage limit reached for |^ℹ .*{_USED_UP}"
_BACKEND: Final = (
    rf"{_CODE}(?:408|429|499|5\d\d)\b|{_ERROR}(?:[^{{].*)?{_BROKEN}|{_ERROR}.*(?i:model_capacity)|"
    r"^✕ (?:Model stream ended|The model returned an empty response)|^│ We are currently experiencing high demand"
)
_AUTH: Final = rf"{_CODE}(?:401|403|407)\b|{_ERROR}.*{_NO_KEY}"
_REQUEST: Final = (
    rf"{_CODE}4\d\d\b|{_ERROR}.*{_TOO_MUCH}|^│ (?:It seems like you don't have access|Model \")|"
    r"^ℹ Sending this message \(\d+ tokens\)"
)
#: Any other error, and notices by which the program stops a turn.
_FAILED: Final = (
    r"^✕ |^ℹ (?:\x{26A0}\x{FE0F}? +Response (?:stopped|truncated)|This request failed|Agent execution |"
    r"The session has reached the maximum number of turns|A potential loop was detected)"
)


class _Turn(msgspec.Struct, frozen=True):
    """A session's turn: its number, and when it began as the program writes times."""

    number: int
    since: str


class Gemini:
    """The adapter."""

    name = "gemini"
    command: tuple[str, ...] = ("gemini",)
    grammar: Grammar = GeminiGrammar()
    typing = Typing(placeholders=("[Pasted Text: ",), settle_s=1.0, breath_s=0.4, clear_keys=("C-u", "BSpace") * 32)
    interrupt_keys: tuple[str, ...] = ("Escape",)
    error_pattern = _BACKEND
    exhausted_pattern = _EXHAUSTED
    auth_pattern = _AUTH
    request_pattern = _REQUEST
    failed_pattern = _FAILED
    client_names: tuple[str, ...] = ("gemini-cli-mcp-client",)

    def __init__(self) -> None:
        self._kinds = tuple(
            (kind, Pattern(text, "@gemini"))
            for kind, text in (
                (Kind.EXHAUSTED, _EXHAUSTED),
                (Kind.BACKEND_ERROR, _BACKEND),
                (Kind.AUTH, _AUTH),
                (Kind.REQUEST, _REQUEST),
                (Kind.FAILED, _FAILED),
                (Kind.INTERRUPTED, STOPPED),
            )
        )
        #: The turn of each session, the newest last.
        self._turns: OrderedDict[str, _Turn] = OrderedDict()

    def plan(self, context: LaunchContext) -> LaunchPlan:
        """The command as it is, with settings of the member's own."""
        screenless = next((word for word in context.argv[1:] if word.partition("=")[0] in SCREENLESS), None)
        if screenless is not None:
            raise OpenFailed(f"{screenless} starts Gemini CLI without the screen that fleetd reads: take it out")
        settings = merged(_settings(context), users_settings(context.env))
        switches = settings.get("hooksConfig")
        if isinstance(switches, dict) and (
            switches.get("enabled") is False or "fleetd" in switches.get("disabled", ())
        ):
            log.warning("hooks are off", extra={"fleet_member": context.target})
        env = {
            # One process instead of two, so that nothing is left behind when the pane ends.
            "GEMINI_CLI_NO_RELAUNCH": "true",
            # Prompts and the input box are drawn between half blocks then, by which they are known apart.
            "COLORTERM": "truecolor",
            **context.env,
            **make_home(context.directory, context.env, settings),
        }
        return LaunchPlan(context.argv, env)

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        return None

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        name, session = event.get("hook_event_name"), _text(event, "session_id")
        match name:
            case "BeforeAgent":
                return (self._began(session, _text(event, "prompt"), _text(event, "timestamp")),)
            case "AfterAgent":
                return await self._ended(self._turns.get(session), session, Path(_text(event, "transcript_path")), now)
            case "Notification" if event.get("notification_type") == "ToolPermission":
                turn = self._turns.get(session)
                return (Signal(What.WAITING, _id(turn, session), _text(event, "message"), pattern=name),)
        return ()

    def _began(self, session: str, prompt: str, at: str) -> Signal:
        before = self._turns.pop(session, None)
        number = 1 if before is None else before.number
        if prompt.startswith(SELF_PROMPT):
            turn = self._turns[session] = _Turn(number, at)
            return Signal(What.WORKING, _id(turn, session), pattern="BeforeAgent")
        turn = self._turns[session] = _Turn(number + (before is not None), at)
        while len(self._turns) > SESSIONS:
            self._turns.popitem(last=False)
        return Signal(What.BEGAN, _id(turn, session), prompt, pattern="BeforeAgent")

    async def _ended(self, turn: _Turn | None, session: str, record: Path, now: datetime) -> tuple[Signal, ...]:
        """How a turn ended; nothing where the record does not say it: the program goes on, or the screen decides."""
        shown = await last_shown(record, "" if turn is None else turn.since, lambda each: self._kind(each) is not None)
        kind = None if shown is None else self._kind(shown)
        if shown is None or kind is None:
            return ()
        known = Signal(What.ENDED, _id(turn, session), shown.text, pattern=f"AfterAgent {shown.what}")
        if kind is Kind.COMPLETED:
            return (known,)
        if kind is Kind.INTERRUPTED:
            return (msgspec.structs.replace(known, what=What.STOPPED),)
        resets = resets_in(shown.text, now) if kind is Kind.EXHAUSTED else None
        resets_in_ns = None if resets is None else round(resets.total_seconds() * NS_PER_S)
        return (msgspec.structs.replace(known, what=What.FAILED, kind=kind, resets_in_ns=resets_in_ns),)

    def _kind(self, shown: Shown) -> Kind | None:
        """What something shown makes of its turn, by the line that the program draws for it; ``None`` for nothing."""
        if shown.what == "answer":
            return Kind.COMPLETED
        drawn = f"{'✕' if shown.what == 'error' else 'ℹ'} {' '.join(shown.text.split())}"
        return next((kind for kind, pattern in self._kinds if pattern.matches(drawn)), None)


def _id(turn: _Turn | None, session: str) -> str:
    """What a turn is called; empty for one that began before this daemon."""
    return "" if turn is None else f"{session}#{turn.number}"


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""


def _settings(context: LaunchContext) -> dict[str, Any]:
    """What a member needs. Each value gives way to one that its user set."""
    hook = {"type": "command", "name": "fleetd", "command": shlex.join(context.hook), "timeout": HOOK_MS}
    settings: dict[str, Any] = {
        "hooks": {event: [{"hooks": [hook]}] for event in EVENTS},
        "mcpServers": {
            "fleetd": {"command": context.bridge[0], "args": list(context.bridge[1:]), "trust": True},
        },
        "general": {"enableAutoUpdate": False},
    }
    if context.limit_retries:
        settings["general"]["maxAttempts"] = ATTEMPTS
        # At its other value the program answers by itself that it wants to keep trying, for ever.
        settings["ui"] = {"errorVerbosity": "full"}
    return settings
