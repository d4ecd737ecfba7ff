"""Claude Code. See :mod:`fleetd.agents.claude_screen` for how it draws; its hooks report its turns.

A member's program gets two files of its own: settings with the hooks (``--settings``), and fleetd's MCP server
(``--mcp-config``). Nothing of its user's is touched, and what the profile's own settings say stays in force.

The hooks name each turn (``prompt_id``). A prompt that the program took, a turn that ended well with the whole answer,
one that failed with a class and the program's words, and a question to a person are reported; a turn that somebody
stops with Escape is not, and neither is a retry: both are on the screen only. A sub-agent that dies is reported under
its turn's name, which goes on without it.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.host import OpenFailed
from actors.inject import CLEARS, Typing
from actors.resets import resets_in
from actors.screen import Grammar
from actors.signal import Signal, What
from fleetd.agents import claude_errors
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.claude_screen import PASTED, ClaudeGrammar

log = logging.getLogger("fleetd.claude")

#: What the hooks are asked for.
EVENTS: Final = ("UserPromptSubmit", "Stop", "StopFailure", "PermissionRequest")
#: How long the program waits for a hook, in seconds.
HOOK_S: Final = 10
#: How often the key is pressed, at a time, that empties a line of its input and then joins it to the one above. A
#: program that lags may read all that :mod:`actors.inject` presses in one go, and takes 64 for pasted text, but not 40.
CLEARING: Final = 40 // CLEARS
#: Retries of the program's own before it says that a request failed: about 4 s of waiting, and by default 3 minutes.
RETRIES: Final = "3"
#: The setting by which it goes on by itself when a used-up quota comes back: a turn that nobody sent.
AUTO_CONTINUE: Final = "autoContinueAtUsageLimit"
#: Arguments with which the program has no input line for a prompt.
HEADLESS: Final = frozenset({"-p", "--print", "--bg", "--background", "--cloud", "--desktop"})
#: Arguments with which it runs no hooks of ours.
HOOKLESS: Final = frozenset({"--bare", "--safe-mode"})


class Claude:
    """The adapter."""

    name = "claude"
    command: tuple[str, ...] = ("claude",)
    grammar: Grammar = ClaudeGrammar()
    typing = Typing(
        settle_s=1.0,
        placeholders=(PASTED,),
        plain_lines=3,
        plain_chars=700,
        clear_keys=("C-u",) * CLEARING,
    )
    interrupt_keys: tuple[str, ...] = ("Escape",)
    error_pattern = claude_errors.BACKEND
    exhausted_pattern = claude_errors.EXHAUSTED
    auth_pattern = claude_errors.AUTH
    request_pattern = claude_errors.REQUEST
    failed_pattern = claude_errors.FAILED
    client_names: tuple[str, ...] = ("claude-code",)

    def plan(self, context: LaunchContext) -> LaunchPlan:
        end = context.argv.index("--") if "--" in context.argv else len(context.argv)
        flags, prompt = context.argv[:end], context.argv[end:]
        if headless := HEADLESS.intersection(flags):
            raise OpenFailed(f"{', '.join(sorted(headless))} leaves it no input line for a prompt: take it out")
        flags, given = _take_settings(flags)
        settings = _merged(_settings(given, context.cwd), context)
        if HOOKLESS.intersection(flags) or settings.get("disableAllHooks"):
            log.warning("hooks were off", extra={"fleet_member": context.target})
        servers = {"fleetd": _server(context.bridge)}
        added = (
            f"--settings={_written(context.directory / 'settings.json', settings)}",
            f"--mcp-config={_written(context.directory / 'mcp.json', {'mcpServers': servers})}",
        )
        env = {"CLAUDE_CODE_DISABLE_ALTERNATE_SCREEN": "1", **context.env}
        if context.limit_retries:
            env.setdefault("CLAUDE_CODE_MAX_RETRIES", RETRIES)
        return LaunchPlan((*flags, *added, *prompt), env)

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        """None: its hooks find the daemon that is there."""
        return None

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        name, turn = str(event.get("hook_event_name", "")), str(event.get("prompt_id", ""))
        if "agent_id" in event and name != "PermissionRequest":
            return ()  # a sub-agent's: its turn goes on
        match name:
            case "UserPromptSubmit":
                return (Signal(What.BEGAN, turn, str(event.get("prompt", "")), pattern=name),)
            case "PermissionRequest":
                return (Signal(What.WAITING, turn, str(event.get("tool_name", "")), pattern=name),)
            case "Stop":
                return (Signal(What.ENDED, turn, str(event.get("last_assistant_message") or ""), pattern=name),)
            case "StopFailure":
                return (await self._failure(event, turn, now),)
        return ()

    async def _failure(self, event: Mapping[str, Any], turn: str, now: datetime) -> Signal:
        error, text = str(event.get("error", "")), str(event.get("last_assistant_message") or "")
        kind, resets_in_ns = claude_errors.kind_of(error, text), None
        if error == "rate_limit":
            quota = await claude_errors.quota_reset(Path(str(event.get("transcript_path", ""))), text)
            if quota is not None:
                kind = Kind.EXHAUSTED
                resets_in_ns = max(0, round((quota - now.timestamp()) * NS_PER_S))
        if kind is Kind.EXHAUSTED and resets_in_ns is None and (span := resets_in(text, now)) is not None:
            resets_in_ns = round(span.total_seconds() * NS_PER_S)
        return Signal(
            What.FAILED, turn, text, kind=kind, pattern=f"StopFailure {error}".strip(), resets_in_ns=resets_in_ns
        )


def _take_settings(flags: Sequence[str]) -> tuple[tuple[str, ...], str | None]:
    """The command without ``--settings``, and its value: the last, which is the one that counts."""
    kept: list[str] = []
    given: str | None = None
    words = iter(flags)
    for word in words:
        if word == "--settings":
            given = next(words, None)
        elif word.startswith("--settings="):
            given = word.partition("=")[2]
        else:
            kept.append(word)
    return tuple(kept), given


def _settings(given: str | None, cwd: str) -> dict[str, Any]:
    """The settings that the profile's command names: JSON, or a file with it."""
    if given is None:
        return {}
    try:
        text = given if given.lstrip().startswith("{") else (Path(cwd) / given).read_text(encoding="utf-8")
        settings = json.loads(text)
    except (OSError, ValueError) as exc:
        raise OpenFailed(f"its --settings cannot be read, and fleetd's hooks go into them: {exc}") from None
    if not isinstance(settings, dict):
        raise OpenFailed("its --settings are not an object, and fleetd's hooks go into them")
    return settings


def _merged(settings: Mapping[str, Any], context: LaunchContext) -> dict[str, Any]:
    """Settings with our hooks behind the user's, and with fleetd's tools allowed."""
    ours = {"hooks": [{"type": "command", "command": shlex.join(context.hook), "timeout": HOOK_S}]}
    defaults = {AUTO_CONTINUE: False} if context.limit_retries else {}
    try:
        hooks = dict(settings.get("hooks", {}))
        for event in EVENTS:
            hooks[event] = [*hooks.get(event, ()), ours]
        permissions = dict(settings.get("permissions", {}))
        permissions["allow"] = [*permissions.get("allow", ()), "mcp__fleetd"]
    except (TypeError, ValueError):
        raise OpenFailed(
            "its --settings have hooks or permissions of another form, and fleetd's go into them"
        ) from None
    return {**defaults, **settings, "hooks": hooks, "permissions": permissions}


def _server(bridge: Sequence[str]) -> dict[str, Any]:
    """The entry of fleetd's MCP server; its tools are few, and a member needs them without looking for them."""
    return {"type": "stdio", "command": bridge[0], "args": list(bridge[1:]), "alwaysLoad": True}


def _written(path: Path, content: Mapping[str, Any]) -> Path:
    path.touch(mode=0o600)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
