"""A member's profile as it was when the member was launched, for a daemon that takes it over.

The file may say something else by then; evidence, patterns and the floor stay those of the launch. The command and the
environment are not in it: they are not needed again, and may hold secrets.
"""

from __future__ import annotations

import msgspec

from actors.patterns import Pattern
from fleetd.profiles import Profile


class PatternText(msgspec.Struct, frozen=True):
    text: str
    name: str


class Snapshot(msgspec.Struct, frozen=True):
    """What is kept of a launch; the journal holds it as JSON."""

    profile: str
    credential: str
    agent: str | None
    error: PatternText | None
    exhausted: PatternText | None
    idle: PatternText | None
    busy: PatternText | None
    blocked: PatternText | None
    answer_marker: str | None
    min_turn_ns: int
    #: The member's private files; empty where it has none.
    directory: str


def taken(profile: Profile, directory: str) -> bytes:
    """The snapshot of a launch."""
    return msgspec.json.encode(
        Snapshot(
            profile.name,
            profile.credential_id,
            profile.agent,
            _text(profile.error_pattern),
            _text(profile.exhausted_pattern),
            _text(profile.idle_pattern),
            _text(profile.busy_pattern),
            _text(profile.blocked_pattern),
            profile.answer_marker,
            profile.min_turn_ns,
            directory,
        )
    )


def profile_of(snapshot: Snapshot) -> Profile:
    """The profile as far as a running member needs it."""
    return Profile(
        name=snapshot.profile,
        credential_id=snapshot.credential,
        agent=snapshot.agent,
        error_pattern=_pattern(snapshot.error),
        exhausted_pattern=_pattern(snapshot.exhausted),
        idle_pattern=_pattern(snapshot.idle),
        busy_pattern=_pattern(snapshot.busy),
        blocked_pattern=_pattern(snapshot.blocked),
        answer_marker=snapshot.answer_marker,
        min_turn_ns=snapshot.min_turn_ns,
    )


def _text(pattern: Pattern | None) -> PatternText | None:
    return None if pattern is None else PatternText(pattern.text, pattern.name)


def _pattern(text: PatternText | None) -> Pattern | None:
    return None if text is None else Pattern(text.text, text.name)
