"""Start-up coverage: which profiles' failures are recognised, and by what.

A profile without an ``errorPattern`` runs on the legacy default, which knows one wording of one program and hits prose:
that is degraded coverage and is said so. A profile without an ``exhaustedPattern`` never goes into quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable

from fleetd.config import Config
from fleetd.profiles import Profile
from fleetd.views import Coverage


def by_profile(config: Config) -> dict[str, Coverage]:
    """What each profile's failures are recognised by, for ``fleet_profiles``."""
    return {
        name: Coverage(
            error_pattern="legacy default" if profile.error_pattern is None else "configured",
            exhausted_pattern="none" if profile.exhausted_pattern is None else "configured",
        )
        for name, profile in config.profiles.items()
    }


def degraded(config: Config) -> tuple[str, ...]:
    """Profiles on the legacy default: the report about them is a warning."""
    return tuple(_names(each for each in config.profiles.values() if each.error_pattern is None))


def report(config: Config) -> list[str]:
    """Sentences for the log and for ``fleet_health``."""
    profiles = config.profiles.values()
    if not profiles:
        return ["no profile is configured: nothing can be spawned until fleetd.yaml has one"]
    return [
        _sentence(
            "errorPattern",
            ("configured", _names(each for each in profiles if each.error_pattern is not None)),
            ("legacy default (degraded coverage)", list(degraded(config))),
        ),
        _sentence(
            "exhaustedPattern",
            ("configured", _names(each for each in profiles if each.exhausted_pattern is not None)),
            ("none (a used-up quota is not recognised)", _names(e for e in profiles if e.exhausted_pattern is None)),
        ),
    ]


def _names(profiles: Iterable[Profile]) -> list[str]:
    return [profile.name for profile in profiles]


def _sentence(key: str, *groups: tuple[str, list[str]]) -> str:
    return f"{key}: " + "; ".join(f"{what} for {', '.join(names)}" for what, names in groups if names)
