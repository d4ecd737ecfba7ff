"""Codex. See :mod:`fleetd.agents.codex_screen` for how it draws; :mod:`fleetd.agents.codex_record` follows its rollout.

Nothing of its user's is touched: everything that a member needs is an override on its own command line (``-c``). What
the profile's command says comes behind ours, and so wins.

Its background server is never used: it would be shared by all panes and outlive them, and the second member's MCP
server would get the first one's environment. Its hooks are not used either: they need the trust of a person, do not
report failures, and what they report stands in the rollout.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import tomllib
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from actors.host import OpenFailed
from actors.inject import Typing
from actors.resets import local_now
from actors.screen import Grammar
from actors.signal import Signal
from fleetd.agents import codex_errors
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.codex_record import watcher
from fleetd.agents.codex_screen import CodexGrammar

log = logging.getLogger("fleetd.codex")

#: The program's word in a command: ``codex``, a path to it, ``@openai/codex@latest`` behind ``npx``.
_PROGRAM: Final = re.compile(r"(?:.*/)?codex(?:@[\w.-]+|\.js)?")
#: The first version that has a background server, and the flag against it.
BACKGROUND_SERVER: Final = (0, 156)
#: Subcommands without an input line.
HEADLESS: Final = frozenset({"exec", "e", "review", "app-server", "mcp-server", "remote-control", "cloud"})
#: Retries of its own before the program says that a request or a stream failed: 4 and 5 by default, which together make
#: 30 requests in 25 s; with these 9 requests in 3 s.
RETRIES: Final = 2
#: How long a call of fleetd's tools may take, in seconds: longer than any of them waits. 60 by default in old versions.
TOOL_S: Final = 300
#: How long fleetd's MCP server may take to start, in seconds.
STARTUP_S: Final = 60
#: In the member's directory: when it was launched, by the wall clock.
LAUNCHED: Final = "launched"


class Codex:
    """The adapter."""

    name = "codex"
    command: tuple[str, ...] = ("codex",)
    grammar: Grammar = CodexGrammar()
    typing = Typing(settle_s=0.5, placeholders=("[Pasted Content ",), clear_keys=("C-u",) * 8)
    interrupt_keys: tuple[str, ...] = ("Escape",)
    error_pattern = codex_errors.BACKEND
    exhausted_pattern = codex_errors.EXHAUSTED
    auth_pattern = codex_errors.AUTH
    request_pattern = codex_errors.REQUEST
    failed_pattern = codex_errors.FAILED
    client_names: tuple[str, ...] = ("codex-mcp-client",)

    def plan(self, context: LaunchContext) -> LaunchPlan:
        argv = context.argv
        at = next((index for index, word in enumerate(argv) if _PROGRAM.fullmatch(word)), len(argv) - 1) + 1
        given = argv[at : argv.index("--") if "--" in argv else len(argv)]
        if "--remote" in given:
            raise OpenFailed("--remote runs its turns in another process, where fleetd cannot follow them: take it out")
        if given and given[0] in HEADLESS:
            raise OpenFailed(f"codex {given[0]} has no input line for a prompt: take it out of the command")
        added = [flag for flag in ("--no-daemon", "--no-alt-screen") if flag not in given]
        if "--no-daemon" in added and (_installed(argv[0], context.env) or BACKGROUND_SERVER) < BACKGROUND_SERVER:
            added.remove("--no-daemon")
        for setting in (*_server(context.bridge), *(_retries(given, context) if context.limit_retries else ())):
            added += ("-c", setting)
        since = local_now()
        (context.directory / LAUNCHED).write_text(since.isoformat(), encoding="ascii")
        return LaunchPlan((*argv[:at], *added, *argv[at:]), dict(context.env), watcher(since))

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        try:
            since = datetime.fromisoformat((directory / LAUNCHED).read_text(encoding="ascii"))
        except (OSError, ValueError) as exc:
            log.warning("rollout not followed", extra={"fleet_path": str(directory), "fleet_reason": str(exc)})
            return None
        return watcher(since, resumed=True)

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        """None: a member's Codex has no hooks of ours."""
        return ()


def _installed(program: str, env: Mapping[str, str]) -> tuple[int, ...] | None:
    """The version of a program that npm installed; ``None`` for any other."""
    found = shutil.which(program, path=env.get("PATH"))
    try:
        package = json.loads((Path(found or "").resolve().parents[1] / "package.json").read_text(encoding="utf-8"))
        return tuple(int(number) for number in package["version"].partition("-")[0].split("."))
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return None


def _server(bridge: Sequence[str]) -> tuple[str, ...]:
    """fleetd's MCP server, whose tools need nobody's permission. JSON's strings and lists are TOML's."""
    settings: dict[str, object] = {
        "command": bridge[0],
        "args": list(bridge[1:]),
        "default_tools_approval_mode": "approve",
        "startup_timeout_sec": STARTUP_S,
        "tool_timeout_sec": TOOL_S,
    }
    return tuple(f"mcp_servers.fleetd.{key}={json.dumps(value, ensure_ascii=False)}" for key, value in settings.items())


# -- retry limits ---------------------------------------------------------------------------------------------------


def _retries(given: Sequence[str], context: LaunchContext) -> tuple[str, ...]:
    """Limits for the model provider in use, where its user has defined one and set none.

    The program's own providers cannot be changed: it refuses to start.
    """
    home = Path(context.env.get("CODEX_HOME") or Path(context.env.get("HOME", "/")) / ".codex")
    layers = [_table(home / "config.toml")]
    if (name := _last(given, "-p", "--profile")) is not None:
        layers += [(layers[0].get("profiles") or {}).get(name) or {}, _table(home / f"{name}.config.toml")]
    provider = None
    for layer in layers:
        provider = layer.get("model_provider", provider)
    for setting in _overrides(given):
        key, _, value = setting.partition("=")
        provider = value.strip().strip("\"'") if key.strip() == "model_provider" else provider
    defined: dict[str, Any] = {}
    for layer in layers:
        defined |= (layer.get("model_providers") or {}).get(provider) or {}
    if not defined or not re.fullmatch(r"[\w-]+", str(provider)):
        return ()
    keys = [key for key in ("request_max_retries", "stream_max_retries") if key not in defined]
    return tuple(f"model_providers.{provider}.{key}={RETRIES}" for key in keys)


def _table(path: Path) -> dict[str, Any]:
    """A TOML file's content; empty where there is none that can be read, of which the program itself will complain."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        log.debug("configuration not read", extra={"fleet_path": str(path), "fleet_reason": str(exc)})
        return {}


def _overrides(given: Sequence[str]) -> list[str]:
    """The values of ``-c key=value`` in a command."""
    apart = [value for flag, value in pairwise(given) if flag in ("-c", "--config")]
    return apart + [word.partition("=")[2] for word in given if word.startswith("--config=")]


def _last(given: Sequence[str], *flags: str) -> str | None:
    """The value of a flag in a command, where it has one."""
    return next((value for flag, value in reversed(list(pairwise(given))) if flag in flags), None)
