"""What a reload changes at once, and what waits for a restart.

The new file has been checked whole before anything here is asked. Patterns, and what decides how a program's screen is
read, are compiled when the daemon starts: a change to one of them keeps its old value in force and is reported as
deferred. Everything else is applied. A profile that is new is taken over whole, patterns included, because no old value
of it exists; one that is gone takes no new spawns, and its members live on.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

import msgspec

from fleetd.config import Config
from fleetd.profiles import Profile

#: Key path and attribute of what a reload applies.
_APPLIED: Final = {
    "outage.threshold": "outage.threshold",
    "outage.windowSeconds": "outage.window_ns",
    "outage.coolOffSeconds": "outage.cool_off_ns",
    "outage.holdSends": "outage.hold_sends",
    "quarantineCooldownSeconds": "quarantine_ns",
    "placement.policy": "placement",
    "push.tickSeconds": "push.tick_ns",
    "push.maxAttempts": "push.max_attempts",
    "push.reminders": "push.reminders",
    "health.enabled": "health.enabled",
    "health.intervalSeconds": "health.interval_ns",
    "health.webhook": "health.webhook",
}
#: The same for a profile that was there before.
_PROFILE_APPLIED: Final = {
    "command": "command",
    "env": "env",
    "envFrom": "env_from",
    "credentialId": "credential_id",
    "capacity": "capacity",
    "limitRetries": "limit_retries",
}
_PROFILE_DEFERRED: Final = {
    "agent": "agent",
    "errorPattern": "error_pattern",
    "exhaustedPattern": "exhausted_pattern",
    "idlePattern": "idle_pattern",
    "busyPattern": "busy_pattern",
    "blockedPattern": "blocked_pattern",
    "answerMarker": "answer_marker",
    "minTurnSeconds": "min_turn_ns",
}


class ReloadPlan(msgspec.Struct, frozen=True):
    """The configuration to put in force, and what became of each change. Key paths are sorted."""

    config: Config
    applied: tuple[str, ...]
    deferred: tuple[str, ...]


def plan(old: Config, new: Config) -> ReloadPlan:
    """Merge what may change now with what must stay until a restart.

    Args:
        old: the configuration in force, which may itself be the merge of an earlier reload.
        new: the one that the file holds now.
    """
    applied = [key for key, field in _APPLIED.items() if attrgetter(field)(old) != attrgetter(field)(new)]
    deferred = ["host"] if old.host != new.host else []
    profiles: dict[str, Profile] = {}
    for name, profile in new.profiles.items():
        if name not in old.profiles:
            applied.append(f"profiles.{name}")
            profiles[name] = profile
        else:
            profiles[name] = _merge(old.profiles[name], profile, applied, deferred)
    applied += [f"profiles.{name}" for name in old.profiles if name not in new.profiles]
    kept = [name for name in old.profiles if name in new.profiles]
    if kept != [name for name in new.profiles if name in old.profiles]:
        applied.append("profiles")  # their order, by which placement goes
    config = msgspec.structs.replace(new, host=old.host, profiles=profiles)
    return ReloadPlan(config, tuple(sorted(applied)), tuple(sorted(deferred)))


def _merge(old: Profile, new: Profile, applied: list[str], deferred: list[str]) -> Profile:
    """The profile to put in force; its changed keys go to one of the lists."""
    waits = dict(_PROFILE_DEFERRED)
    if old.agent != new.agent:
        # A command belongs to its agent: the new one would be started, read and typed to as the old program.
        waits["command"] = "command"
    changed = [
        (key, field)
        for key, field in {**_PROFILE_APPLIED, **_PROFILE_DEFERRED}.items()
        if getattr(old, field) != getattr(new, field)
    ]
    for key, _ in changed:
        (deferred if key in waits else applied).append(f"profiles.{new.name}.{key}")
    return msgspec.structs.replace(new, **{field: getattr(old, field) for field in waits.values()})
