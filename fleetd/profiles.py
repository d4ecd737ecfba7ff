"""``profiles`` in ``fleetd.yaml``: named ways to launch a program, and how its failures are recognised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Any, Final, Protocol

import msgspec

from actors.clock import NS_PER_S, from_seconds
from actors.patterns import LEGACY_ERROR, BadPattern, Pattern, Patterns
from actors.setup import MIN_TURN_S
from fleetd.yamlfile import Node, Scalar, YamlError, shown, table
from fleetd.yamlvalues import Key, boolean, integer, items, seconds, string, values

CAPACITY: Final = (1, 64)
#: 0 switches the floor off, for programs that answer at once.
MIN_TURN: Final = (0, 60 * NS_PER_S)
PROFILES: Final = 256
PATTERN_CHARS: Final = 4096
MARKER_CHARS: Final = 64
#: Characters of RE2's reason, which can quote the whole pattern.
REASON_CHARS: Final = 300
#: Profiles and credentials are named in nudges, so their names are nothing but names.
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
#: The daemon sets or removes these for its members itself.
_OWN_ENV: Final = ("FLEETD_", "TMUX")


class Shipped(Protocol):
    """What an agent's adapter ships behind ``@name``; an empty text when it ships none."""

    @property
    def error_pattern(self) -> str: ...

    @property
    def exhausted_pattern(self) -> str: ...


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
    #: The adapter may cut the program's silent retries short.
    limit_retries: bool = True

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


#: How the screen of a program without an adapter is read.
_SCREEN: Final[Mapping[str, str]] = {
    "idlePattern": "idle_pattern",
    "busyPattern": "busy_pattern",
    "blockedPattern": "blocked_pattern",
}


def profiles(node: Node, shipped: Mapping[str, Shipped]) -> Mapping[str, Profile]:
    """The profiles of a file, by name and in its order."""
    error = {name: agent.error_pattern for name, agent in shipped.items()}
    exhausted = {name: agent.exhausted_pattern for name, agent in shipped.items()}
    keys: dict[str, Key] = {
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
        "limitRetries": ("limit_retries", boolean),
    }
    entries = table(node)
    if len(entries) > PROFILES:
        raise YamlError.at(node, f"there are {len(entries)} profiles, and at most {PROFILES} are taken")
    return {name: _profile(name, entry, keys) for name, entry in entries.items()}


def _profile(name: str, node: Node, keys: Mapping[str, Key]) -> Profile:
    _check_name(name, node, "a profile's name")
    entries = table(node)
    fields: dict[str, Any] = {"name": name, "credential_id": name, **values(keys, node)}
    profile = Profile(**fields)
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
