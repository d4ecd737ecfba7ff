"""A home of the member's own for Gemini CLI, with its user's things in it.

The program merges settings files, and what a member needs could stand in the lowest. But newer versions read that one
only where root owns it and every folder above it. What anybody may name is the home that holds ``.gemini``. So a member
gets one in its own directory: everything in it is a link to its user's own (logins, trusted folders, commands, records)
but for the settings, which are the user's with those of fleetd added. A value that the user has set wins, and so does
one of the folder's settings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from actors.host import OpenFailed

#: Names the home.
HOME: Final = "GEMINI_CLI_HOME"
#: In a home: the program's folder, and what else it reads there.
FOLDER: Final = ".gemini"
BESIDE: Final = (".agents", ".env")
SETTINGS: Final = "settings.json"
#: A settings file larger than this is none, in bytes.
SETTINGS_BYTES: Final = 1024 * 1024

#: A string, which is kept, or a comment.
_COMMENT: Final = re.compile(r'("(?:\\.|[^"\\])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)


def users_settings(env: Mapping[str, str]) -> dict[str, Any]:
    """The user's own settings.

    Args:
        env: the member's environment, which says where its user's home is.

    Raises:
        OpenFailed: they cannot be read.
    """
    path = _users_home(env) / FOLDER / SETTINGS
    try:
        with path.open("rb") as file:
            raw = file.read(SETTINGS_BYTES + 1)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise OpenFailed(f"Gemini CLI's {path} cannot be read: {exc.strerror}") from None
    try:
        text = raw.decode("utf-8") if len(raw) <= SETTINGS_BYTES else ""
        found = json.loads(_COMMENT.sub(lambda part: part[1] or "", text))
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise OpenFailed(
            f"Gemini CLI's {path} is not a JSON object of at most {SETTINGS_BYTES} bytes, and fleetd cannot add to it: "
            "correct it"
        )
    return found


def make_home(directory: Path, env: Mapping[str, str], settings: Mapping[str, Any]) -> dict[str, str]:
    """Make the member's home. Returns what to set in the environment.

    Args:
        directory: the member's.
        env: the member's environment, which says where its user's home is.
        settings: what stands in it in the place of the user's.
    """
    users, home = _users_home(env), directory / "home"
    (home / FOLDER).mkdir(mode=0o700, parents=True)
    for name in BESIDE:
        if (users / name).exists():
            (home / name).symlink_to(users / name)
    if (users / FOLDER).is_dir():
        for entry in (users / FOLDER).iterdir():
            if entry.name != SETTINGS:
                (home / FOLDER / entry.name).symlink_to(entry)
    written = home / FOLDER / SETTINGS
    written.touch(mode=0o600)
    written.write_text(json.dumps(settings, indent=1), encoding="utf-8")
    return {HOME: str(home)}


def _users_home(env: Mapping[str, str]) -> Path:
    return Path(env.get(HOME) or env.get("HOME") or Path.home())


def merged(ours: Mapping[str, Any], theirs: Mapping[str, Any], *, hooks: bool = False) -> dict[str, Any]:
    """Both, as the program merges its own files: theirs wins, and lists of hooks add up."""
    both = dict(ours)
    for key, value in theirs.items():
        mine = both.get(key)
        if isinstance(mine, dict) and isinstance(value, dict):
            both[key] = merged(mine, value, hooks=key == "hooks")
        elif hooks and isinstance(mine, list) and isinstance(value, list):
            both[key] = [*value, *mine]
        else:
            both[key] = value
    return both
