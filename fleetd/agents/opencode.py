"""OpenCode: how it is started as a member. See :mod:`fleetd.agents.opencode_screen` for its screen.

Its configuration is merged from many files, and last from what stands in the environment: there a member gets fleetd's
MCP server, and a plugin of its interface that reports its turns (:mod:`fleetd.agents.opencode_record`). No file of its
user's is written for that.

It has other ways to report, which do harm. A plugin of its server makes its start wait for packages that it installs
in the user's folder, for minutes where there is no network. A port needs a password, with which many versions do not
start.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from actors.host import OpenFailed
from actors.inject import Typing
from actors.screen import Grammar
from actors.signal import Signal
from fleetd.agents.adapter import LaunchContext, LaunchPlan, Watch
from fleetd.agents.opencode_errors import AUTH, BACKEND, EXHAUSTED, FAILED, REQUEST
from fleetd.agents.opencode_plugin import PLUGIN, RECORD, source
from fleetd.agents.opencode_record import OVERFLOWS, Events
from fleetd.agents.opencode_screen import OpenCodeGrammar

#: Configuration in the environment, merged over that of all files.
CONTENT: Final = "OPENCODE_CONFIG_CONTENT"
#: Names a file with the interface's settings, which is merged with those of the user and the folder.
TUI_CONFIG: Final = "OPENCODE_TUI_CONFIG"
TUI_FILE: Final = "tui.json"
#: A settings file larger than this is none, in bytes.
SETTINGS_BYTES: Final = 1024 * 1024
#: How long a call of fleetd's tools may take, in milliseconds: waits are bounded by a minute.
TOOL_MS: Final = 120_000
#: Its commands that have no screen, or another's.
SCREENLESS: Final = frozenset({"run", "serve", "web", "acp", "attach", "github", "pr", "mcp", "auth", "providers"})


class OpenCode:
    """The adapter."""

    name = "opencode"
    command: tuple[str, ...] = ("opencode",)
    grammar: Grammar = OpenCodeGrammar()
    typing = Typing(placeholders=("[Pasted ~",), settle_s=1.0, breath_s=0.5)
    #: The first asks whether it was meant.
    interrupt_keys: tuple[str, ...] = ("Escape", "Escape")
    error_pattern = BACKEND
    exhausted_pattern = EXHAUSTED
    auth_pattern = AUTH
    request_pattern = REQUEST
    failed_pattern = FAILED
    client_names: tuple[str, ...] = ("opencode",)

    def plan(self, context: LaunchContext) -> LaunchPlan:
        """The command as it is, with a plugin and an MCP server of the member's alone."""
        if len(context.argv) > 1 and context.argv[1] in SCREENLESS:
            raise OpenFailed(
                f"opencode {context.argv[1]} has no screen of its own that fleetd reads: take it out of the command"
            )
        overflows = OVERFLOWS if context.limit_retries else 0
        plugin = _written(context.directory / PLUGIN, source(str(context.directory), overflows=overflows))
        tui = _merged({"plugin": [plugin.as_uri()]}, _interface(context))
        content = {
            "mcp": {"fleetd": {"type": "local", "command": list(context.bridge), "enabled": True, "timeout": TOOL_MS}},
            "permission": {"fleetd_*": "allow"},
        }
        env = {
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            # Where it notes which plugins it has seen: the member's is none of the user's.
            "OPENCODE_PLUGIN_META_FILE": str(context.directory / "plugins.json"),
            **context.env,
            TUI_CONFIG: str(_written(context.directory / TUI_FILE, json.dumps(tui, indent=1))),
            CONTENT: json.dumps(_merged(content, _object(context.env.get(CONTENT, ""), CONTENT))),
        }
        return LaunchPlan(context.argv, env, Events(context.directory / RECORD).watch)

    def resume(self, directory: Path, cwd: str) -> Watch | None:
        return Events(directory / RECORD, resumed=True).watch

    async def signals(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]:
        """None: it has no hooks that run a command; see :mod:`fleetd.agents.opencode_record`."""
        return ()


def _written(path: Path, text: str) -> Path:
    path.touch(mode=0o600)
    path.write_text(text, encoding="utf-8")
    return path


def _interface(context: LaunchContext) -> dict[str, Any]:
    """The interface's settings that the profile names, in whose place ours are read."""
    named = context.env.get(TUI_CONFIG)
    if not named:
        return {}
    path = Path(context.cwd, named)
    try:
        with path.open(encoding="utf-8") as file:
            found = _object(file.read(SETTINGS_BYTES), str(path))
    except (OSError, UnicodeDecodeError) as exc:
        raise OpenFailed(f"{path}, which {TUI_CONFIG} names, cannot be read: {exc}") from None
    plugins = found.get("plugin")
    if isinstance(plugins, list):
        found["plugin"] = [_placed(each, path.parent) for each in plugins]
    return found


def _placed(plugin: Any, folder: Path) -> Any:
    """A plugin by its path from anywhere: it was given from its settings' folder."""
    if isinstance(plugin, list) and plugin:
        return [_placed(plugin[0], folder), *plugin[1:]]
    return (folder / plugin).resolve().as_uri() if isinstance(plugin, str) and plugin.startswith(".") else plugin


def _object(text: str, where: str) -> dict[str, Any]:
    """Settings of the profile's own."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OpenFailed(
            f"{where} is not a JSON object without comments, and fleetd cannot add to it: correct it, or put it where "
            "OpenCode finds it by itself"
        )
    return found


def _merged(ours: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
    """Both: theirs wins, and plugins add up."""
    merged = dict(ours)
    for key, value in theirs.items():
        mine = merged.get(key)
        if isinstance(mine, dict) and isinstance(value, dict):
            merged[key] = _merged(mine, value)
        elif key == "plugin" and isinstance(mine, list) and isinstance(value, list):
            merged[key] = [*value, *mine]
        else:
            merged[key] = value
    return merged
