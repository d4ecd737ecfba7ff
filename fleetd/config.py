"""``fleetd.yaml``: every key there is, what it may hold, and what it becomes.

The tables below are the schema: a key that is in none of them is refused, and the value of each goes through one
reader that knows its type and range. What comes out are the actors' own settings, checked and compiled, so nothing can
fail later for a value that stood in the file.

A blank pattern is two things. ``errorPattern`` and ``exhaustedPattern`` may be blank (no key, no value, or ``""``): the
first then falls back to the legacy default, which the start-up report calls degraded coverage, and the second finds
nothing. The screen patterns and ``answerMarker`` have no such fallback, so there a blank is a mistake and is refused;
and a pattern that matches the empty line is refused everywhere, because it would match every turn. ``answerMarker`` is
no pattern but a literal text: programs mark answers with signs such as ``*`` and ``>``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from actors.clock import NS_PER_MS, NS_PER_S, from_seconds
from actors.health import HealthSettings
from actors.outage import OutageSettings
from actors.placement import PolicyName
from actors.push import PushSettings
from actors.spawning import ProfileRoom
from fleetd.profiles import Profile, Shipped, profiles
from fleetd.yamlfile import MAX_BYTES, Node, YamlError, parse
from fleetd.yamlvalues import Key, boolean, choice, fill, integer, seconds, string, values

FILE_NAME: Final = "fleetd.yaml"

#: Ranges, inclusive; those of seconds in nanoseconds unless the name says otherwise.
THRESHOLD: Final = (1, 100)
WINDOW: Final = (NS_PER_MS, 86_400 * NS_PER_S)
COOL_OFF: Final = (NS_PER_MS, 86_400 * NS_PER_S)
QUARANTINE_SECONDS: Final = (1, 7 * 86_400)
TICK: Final = (100 * NS_PER_MS, 60 * NS_PER_S)
ATTEMPTS: Final = (1, 100)
#: Each reminder waits twice as long as the one before.
REMINDERS: Final = (0, 10)
INTERVAL_SECONDS: Final = (1, 3600)
URL_CHARS: Final = 2048

_URL: Final = re.compile(r"https?://[A-Za-z0-9\[][!-~]*")


class ConfigError(ValueError):
    """The configuration is refused as a whole. ``str()`` is one sentence that begins with file, line and key path."""

    def __init__(self, path: str, key: str, line: int, why: str) -> None:
        at = f"{path}:{line}" if line else path
        super().__init__(f"{at}: {key}: {why}" if key else f"{at}: {why}")
        self.path = path
        self.key = key
        self.line = line
        self.why = why


class HostName(StrEnum):
    TMUX = "tmux"
    PTY = "pty"


class Config(msgspec.Struct, frozen=True, kw_only=True):
    """A checked configuration. The default is that of a machine without a file: no profile, so nothing to spawn."""

    outage: OutageSettings = OutageSettings()
    quarantine_ns: int = from_seconds(1800)
    placement: PolicyName = PolicyName.LEAST_LOADED
    push: PushSettings = PushSettings()
    health: HealthSettings = HealthSettings()
    #: ``None``: tmux where it is installed, else pty.
    host: HostName | None = None
    #: By name, in the order of the file: placement goes by it.
    profiles: Mapping[str, Profile] = msgspec.field(default_factory=dict)

    def rooms(self) -> tuple[ProfileRoom, ...]:
        """What the launcher knows of the profiles."""
        return tuple(ProfileRoom(each.name, each.credential_id, each.capacity, each) for each in self.profiles.values())


# -- the way in -----------------------------------------------------------------------------------------------------


def find(explicit: Path | None, environ: Mapping[str, str], cwd: Path, home: Path) -> Path | None:
    """The file to read: ``--config``, ``$FLEETD_CONFIG``, ``./fleetd.yaml``, then the user's own; ``None`` without any.

    The first two are meant, so they are returned whether they exist or not.
    """
    if explicit is not None:
        return cwd / explicit
    if named := environ.get("FLEETD_CONFIG"):
        return cwd / named
    base = Path(environ.get("XDG_CONFIG_HOME", ""))
    own = (base if base.is_absolute() else home / ".config") / "fleetd" / FILE_NAME
    # A dangling link is a file that somebody meant: reading it says what is wrong.
    return next((path for path in (cwd / FILE_NAME, own) if os.path.lexists(path)), None)


def read(path: Path, *, shipped: Mapping[str, Shipped]) -> Config:
    """Load a file. Raises :class:`ConfigError`."""
    try:
        if path.exists() and not path.is_file():
            raise ConfigError(str(path), "", 0, "it is not a regular file, and a reload could not read it again")
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(str(path), "", 0, f"it cannot be read: {exc.strerror or exc}") from None
    return load(data, shipped=shipped, path=str(path))


def load(text: str | bytes, *, shipped: Mapping[str, Shipped], path: str = FILE_NAME) -> Config:
    """Check a configuration's text whole.

    Args:
        shipped: the known agents with the patterns that they ship.
        path: what errors call the file.

    Raises:
        ConfigError: the first thing that is wrong with it.
    """
    data = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    top: dict[str, Key] = {
        "outage": ("outage", partial(fill, OutageSettings, _OUTAGE)),
        "quarantineCooldownSeconds": ("quarantine_ns", partial(_whole_seconds, bounds=QUARANTINE_SECONDS)),
        "placement": ("placement", _placement),
        "push": ("push", partial(fill, PushSettings, _PUSH)),
        "health": ("health", partial(fill, HealthSettings, _HEALTH)),
        "host": ("host", lambda node: HostName(choice(node, tuple(HostName)))),
        "profiles": ("profiles", partial(profiles, shipped=shipped)),
    }
    try:
        return fill(Config, top, parse(data))
    except YamlError as exc:
        raise ConfigError(path, exc.key, exc.line, exc.why) from None


# -- the schema -----------------------------------------------------------------------------------------------------


def _whole_seconds(node: Node, bounds: tuple[int, int]) -> int:
    return integer(node, *bounds) * NS_PER_S


def _placement(node: Node) -> PolicyName:
    return PolicyName(values(_PLACEMENT, node).get("policy", PolicyName.LEAST_LOADED))


def _webhook(node: Node) -> str:
    url = string(node)
    if len(url) > URL_CHARS or not _URL.fullmatch(url):
        raise YamlError.at(
            node, f"an http:// or https:// address of at most {URL_CHARS} characters without blanks is wanted"
        )
    return url


_OUTAGE: Final[Mapping[str, Key]] = {
    "threshold": ("threshold", lambda node: integer(node, *THRESHOLD)),
    "windowSeconds": ("window_ns", lambda node: seconds(node, *WINDOW)),
    "coolOffSeconds": ("cool_off_ns", lambda node: seconds(node, *COOL_OFF)),
    "holdSends": ("hold_sends", boolean),
}
_PLACEMENT: Final[Mapping[str, Key]] = {"policy": ("policy", lambda node: choice(node, tuple(PolicyName)))}
_PUSH: Final[Mapping[str, Key]] = {
    "tickSeconds": ("tick_ns", lambda node: seconds(node, *TICK)),
    "maxAttempts": ("max_attempts", lambda node: integer(node, *ATTEMPTS)),
    "reminders": ("reminders", lambda node: integer(node, *REMINDERS)),
}
_HEALTH: Final[Mapping[str, Key]] = {
    "enabled": ("enabled", boolean),
    "intervalSeconds": ("interval_ns", lambda node: _whole_seconds(node, INTERVAL_SECONDS)),
    "webhook": ("webhook", _webhook),
}
