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
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from actors.clock import NS_PER_MS, NS_PER_S, from_seconds
from actors.health import HealthSettings
from actors.launcher import ProfileRoom
from actors.outage import OutageSettings
from actors.patterns import LEGACY_ERROR, BadPattern, Pattern, Patterns
from actors.placement import PolicyName
from actors.push import PushSettings
from actors.resolver import MIN_TURN_S
from fleetd.yamlfile import (
    MAX_BYTES,
    Node,
    Scalar,
    YamlError,
    boolean,
    choice,
    integer,
    items,
    parse,
    seconds,
    shown,
    string,
    table,
)

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
CAPACITY: Final = (1, 64)
#: 0 switches the floor off, for programs that answer at once.
MIN_TURN: Final = (0, 60 * NS_PER_S)
PROFILES: Final = 256
PATTERN_CHARS: Final = 4096
MARKER_CHARS: Final = 64
#: Characters of RE2's reason, which can quote the whole pattern.
REASON_CHARS: Final = 300
URL_CHARS: Final = 2048

#: Profiles and credentials are named in nudges, so their names are nothing but names.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: The daemon sets or removes these for its members itself.
_OWN_ENV: Final = ("FLEETD_", "TMUX")
_URL: Final = re.compile(r"https?://[A-Za-z0-9\[][!-~]*")

T = TypeVar("T")


class ConfigError(ValueError):
    """The configuration is refused as a whole. ``str()`` is one sentence that begins with file, line and key path."""

    def __init__(self, path: str, key: str, line: int, why: str) -> None:
        at = f"{path}:{line}" if line else path
        super().__init__(f"{at}: {key}: {why}" if key else f"{at}: {why}")
        self.path = path
        self.key = key
        self.line = line
        self.why = why


class Shipped(Protocol):
    """What an agent's adapter ships behind ``@name``; an empty text when it ships none."""

    @property
    def error_pattern(self) -> str: ...

    @property
    def exhausted_pattern(self) -> str: ...


class HostName(StrEnum):
    TMUX = "tmux"
    PTY = "pty"


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One named way to launch a program."""

    name: str
    agent: str | None = None
    #: Empty: the agent's own.
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = msgspec.field(default_factory=dict)
    env_from: tuple[str, ...] = ()
    credential_id: str
    capacity: int = 2
    #: ``None``: blank, so the legacy default.
    error_pattern: Pattern | None = None
    exhausted_pattern: Pattern | None = None
    idle_pattern: Pattern | None = None
    busy_pattern: Pattern | None = None
    blocked_pattern: Pattern | None = None
    #: How the first line of an answer begins, literally, behind its indentation.
    answer_marker: str | None = None
    min_turn_ns: int = from_seconds(MIN_TURN_S)

    def __repr__(self) -> str:
        # Values of the environment may be secrets, and what has a repr gets logged.
        return f"<Profile {self.name}: agent {self.agent}, credential {self.credential_id}, capacity {self.capacity}>"

    @property
    def patterns(self) -> Patterns:
        """What the classifier looks for."""
        return Patterns(
            exhausted=() if self.exhausted_pattern is None else (self.exhausted_pattern,),
            error=(LEGACY_ERROR if self.error_pattern is None else self.error_pattern,),
        )


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
        return tuple(ProfileRoom(each.name, each.credential_id, each.capacity) for each in self.profiles.values())


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
    top: dict[str, _Key] = {
        "outage": ("outage", partial(_fill, OutageSettings, _OUTAGE)),
        "quarantineCooldownSeconds": ("quarantine_ns", partial(_whole_seconds, bounds=QUARANTINE_SECONDS)),
        "placement": ("placement", _placement),
        "push": ("push", partial(_fill, PushSettings, _PUSH)),
        "health": ("health", partial(_fill, HealthSettings, _HEALTH)),
        "host": ("host", lambda node: HostName(choice(node, tuple(HostName)))),
        "profiles": ("profiles", partial(_profiles, shipped=shipped)),
    }
    try:
        return _fill(Config, top, parse(data))
    except YamlError as exc:
        raise ConfigError(path, exc.key, exc.line, exc.why) from None


# -- the schema -----------------------------------------------------------------------------------------------------

#: The field that a key fills, and the reader of its value.
_Key = tuple[str, Callable[[Node], Any]]


def _values(keys: Mapping[str, _Key], node: Node) -> dict[str, Any]:
    """The fields that a mapping fills."""
    values: dict[str, Any] = {}
    for name, entry in table(node).items():
        if name not in keys:
            near = get_close_matches(name, keys, n=1)
            hint = f"the nearest known one is {near[0]}" if near else f"known here are {', '.join(keys)}"
            raise YamlError.at(entry, f"there is no such key: {hint}")
        field, reader = keys[name]
        values[field] = reader(entry)
    return values


def _fill(make: Callable[..., T], keys: Mapping[str, _Key], node: Node) -> T:
    return make(**_values(keys, node))


def _whole_seconds(node: Node, bounds: tuple[int, int]) -> int:
    return integer(node, *bounds) * NS_PER_S


def _placement(node: Node) -> PolicyName:
    return PolicyName(_values(_PLACEMENT, node).get("policy", PolicyName.LEAST_LOADED))


def _webhook(node: Node) -> str:
    url = string(node)
    if len(url) > URL_CHARS or not _URL.fullmatch(url):
        raise YamlError.at(
            node, f"an http:// or https:// address of at most {URL_CHARS} characters without blanks is wanted"
        )
    return url


_OUTAGE: Final[Mapping[str, _Key]] = {
    "threshold": ("threshold", lambda node: integer(node, *THRESHOLD)),
    "windowSeconds": ("window_ns", lambda node: seconds(node, *WINDOW)),
    "coolOffSeconds": ("cool_off_ns", lambda node: seconds(node, *COOL_OFF)),
    "holdSends": ("hold_sends", boolean),
}
_PLACEMENT: Final[Mapping[str, _Key]] = {"policy": ("policy", lambda node: choice(node, tuple(PolicyName)))}
_PUSH: Final[Mapping[str, _Key]] = {
    "tickSeconds": ("tick_ns", lambda node: seconds(node, *TICK)),
    "maxAttempts": ("max_attempts", lambda node: integer(node, *ATTEMPTS)),
    "reminders": ("reminders", lambda node: integer(node, *REMINDERS)),
}
_HEALTH: Final[Mapping[str, _Key]] = {
    "enabled": ("enabled", boolean),
    "intervalSeconds": ("interval_ns", lambda node: _whole_seconds(node, INTERVAL_SECONDS)),
    "webhook": ("webhook", _webhook),
}


# -- profiles -------------------------------------------------------------------------------------------------------

#: How the screen of a program without an adapter is read.
_SCREEN: Final[Mapping[str, str]] = {
    "idlePattern": "idle_pattern",
    "busyPattern": "busy_pattern",
    "blockedPattern": "blocked_pattern",
}


def _profiles(node: Node, shipped: Mapping[str, Shipped]) -> Mapping[str, Profile]:
    error = {name: agent.error_pattern for name, agent in shipped.items()}
    exhausted = {name: agent.exhausted_pattern for name, agent in shipped.items()}
    keys: dict[str, _Key] = {
        "agent": ("agent", partial(_agent, known=tuple(shipped))),
        "command": ("command", _command),
        "env": ("env", _env),
        "envFrom": ("env_from", _env_from),
        "credentialId": ("credential_id", _credential),
        "capacity": ("capacity", lambda entry: integer(entry, *CAPACITY)),
        "errorPattern": ("error_pattern", partial(_failure_pattern, name="errorPattern", shipped=error)),
        "exhaustedPattern": (
            "exhausted_pattern",
            partial(_failure_pattern, name="exhaustedPattern", shipped=exhausted),
        ),
        **{key: (field, partial(_screen_pattern, name=key)) for key, field in _SCREEN.items()},
        "answerMarker": ("answer_marker", _marker),
        "minTurnSeconds": ("min_turn_ns", lambda entry: seconds(entry, *MIN_TURN)),
    }
    entries = table(node)
    if len(entries) > PROFILES:
        raise YamlError.at(node, f"there are {len(entries)} profiles, and at most {PROFILES} are taken")
    return {name: _profile(name, entry, keys) for name, entry in entries.items()}


def _profile(name: str, node: Node, keys: Mapping[str, _Key]) -> Profile:
    _check_name(name, node, "a profile's name")
    entries = table(node)
    values: dict[str, Any] = {"name": name, "credential_id": name, **_values(keys, node)}
    profile = Profile(**values)
    if profile.agent is None and not profile.command:
        raise YamlError(
            f"{node.key}.command",
            node.line,
            "it is required where no agent is given: write a list such as [my-agent, --flag], or set agent",
        )
    for key in (*_SCREEN, "answerMarker"):
        if key in entries and profile.agent is not None:
            raise YamlError.at(
                entries[key],
                f"it is for a program without an adapter, and agent {profile.agent} has one: delete either key",
            )
    for both in profile.env_from:
        if both in profile.env:
            raise YamlError.at(entries["envFrom"], f"{both} stands in env too: keep one of the two")
    return profile


def _check_name(name: str, node: Node, what: str) -> None:
    if not NAME.fullmatch(name):
        raise YamlError.at(
            node, f"{what} is 1 to 64 of letters, digits, '.', '_' and '-', and starts with a letter or digit"
        )


def _agent(node: Node, known: tuple[str, ...]) -> str:
    agent = string(node)
    if agent not in known:
        raise YamlError.at(
            node,
            f"no agent is called {shown(agent)}: there are {', '.join(known) or 'none'}; "
            "leave the key out for any other program",
        )
    return agent


def _credential(node: Node) -> str:
    credential = string(node)
    _check_name(credential, node, "a credential's id")
    return credential


def _command(node: Node) -> tuple[str, ...]:
    if isinstance(node, Scalar) and not node.absent:
        raise YamlError.at(
            node, "a command is a list of words, never a shell string: write it like [claude, --model, opus]"
        )
    words = tuple(string(item) for item in items(node))
    if not words or not words[0].strip():
        raise YamlError.at(node, "it names no program: the first word of the list is the program to start")
    return words


def _env(node: Node) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, entry in table(node).items():
        _check_env_name(name, entry)
        found[name] = string(entry)
    return found


def _env_from(node: Node) -> tuple[str, ...]:
    names: list[str] = []
    for item in items(node):
        name = string(item)
        _check_env_name(name, item)
        if name in names:
            raise YamlError.at(item, f"{name} stands in the list twice: keep one of them")
        names.append(name)
    return tuple(names)


def _check_env_name(name: str, node: Node) -> None:
    if not _ENV_NAME.fullmatch(name):
        raise YamlError.at(
            node,
            "the name of a variable is letters, digits and '_', at most 128 of them, and does not start with a digit",
        )
    if name.startswith(_OWN_ENV):
        raise YamlError.at(node, "FLEETD_* and TMUX* are the daemon's own: rename or remove the variable")


def _failure_pattern(node: Node, name: str, shipped: Mapping[str, str]) -> Pattern | None:
    """A pattern that may be blank, or ``@agent`` for the one that the agent's adapter ships."""
    if isinstance(node, Scalar) and not node.text.strip():
        return None
    text = _written(node)
    if not text.startswith("@"):
        return _compiled(text, name, node)
    if not (own := shipped.get(text[1:])):
        known = ", ".join(f"@{agent}" for agent, pattern in shipped.items() if pattern)
        raise YamlError.at(
            node,
            f"no shipped pattern is called {shown(text)}: there are {known or 'none'}; "
            "write [@] for a regular expression that begins with an @",
        )
    return _compiled(own, text, node)


def _screen_pattern(node: Node, name: str) -> Pattern:
    if isinstance(node, Scalar) and not node.text.strip():
        raise YamlError.at(node, "an empty pattern would match every line: write one, or delete the key")
    return _compiled(_written(node), name, node)


def _written(node: Node) -> str:
    text = string(node)
    if len(text) > PATTERN_CHARS:
        raise YamlError.at(node, f"a pattern has at most {PATTERN_CHARS} characters, and this one has {len(text)}")
    return text


def _compiled(text: str, name: str, node: Node) -> Pattern:
    try:
        return Pattern(text, name)
    except BadPattern as bad:
        raise YamlError.at(node, shown(" ".join(str(bad).split()), REASON_CHARS)) from None


def _marker(node: Node) -> str:
    marker = string(node)
    if not marker or len(marker) > MARKER_CHARS or marker[0].isspace() or not marker.isprintable():
        raise YamlError.at(
            node,
            f"it is 1 to {MARKER_CHARS} characters that an answer's first line begins with, literally, behind its "
            "indentation: write them without leading blanks, or delete the key",
        )
    return marker
