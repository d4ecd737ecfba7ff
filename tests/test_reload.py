"""A reload: what is applied, what is deferred, and the configuration that is in force afterwards."""

from __future__ import annotations

import pytest

from actors.outage import OutageSettings
from actors.patterns import LEGACY_ERROR, Pattern
from actors.placement import PolicyName
from fleetd.config import Config, HostName, load
from fleetd.reload import plan
from tests.test_config import KEYS, SHIPPED

BASE = {
    "outage.threshold": "2",
    "outage.windowSeconds": "60",
    "outage.coolOffSeconds": "60",
    "outage.holdSends": "true",
    "quarantineCooldownSeconds": "1800",
    "placement.policy": "least-loaded",
    "push.tickSeconds": "1",
    "push.maxAttempts": "5",
    "push.reminders": "3",
    "health.enabled": "true",
    "health.intervalSeconds": "30",
    "health.webhook": "https://example.org/a",
    "host": "tmux",
    "profiles.a.agent": "claude",
    "profiles.a.command": "[claude]",
    "profiles.a.env": "{A: x}",
    "profiles.a.envFrom": "[B]",
    "profiles.a.credentialId": "account",
    "profiles.a.capacity": "2",
    "profiles.a.errorPattern": "one",
    "profiles.a.exhaustedPattern": "one",
    "profiles.a.minTurnSeconds": "2",
    "profiles.other.command": "[other]",
    "profiles.other.idlePattern": "one",
    "profiles.other.busyPattern": "one",
    "profiles.other.blockedPattern": "one",
    "profiles.other.answerMarker": "one",
}

APPLIED = {
    "outage.threshold": "3",
    "outage.windowSeconds": "59.5",
    "outage.coolOffSeconds": "61",
    "outage.holdSends": "false",
    "quarantineCooldownSeconds": "60",
    "placement.policy": "priority",
    "push.tickSeconds": "2",
    "push.maxAttempts": "6",
    "push.reminders": "4",
    "health.enabled": "false",
    "health.intervalSeconds": "31",
    "health.webhook": "https://example.org/b",
    "profiles.a.command": "[claude, --verbose]",
    "profiles.a.env": "{A: z}",
    "profiles.a.envFrom": "[C]",
    "profiles.a.credentialId": "account-2",
    "profiles.a.capacity": "3",
}

DEFERRED = {
    "host": "pty",
    "profiles.a.agent": "codex",
    "profiles.a.errorPattern": "two",
    "profiles.a.exhaustedPattern": "two",
    "profiles.a.minTurnSeconds": "3",
    "profiles.other.idlePattern": "two",
    "profiles.other.busyPattern": "two",
    "profiles.other.blockedPattern": "two",
    "profiles.other.answerMarker": "two",
}


def config(**changes: str) -> Config:
    return written({**BASE, **changes})


def written(keys: dict[str, str]) -> Config:
    """The configuration that holds these key paths."""
    tree: dict[str, object] = {}
    for path, value in keys.items():
        *sections, name = path.split(".")
        at = tree
        for section in sections:
            at = at.setdefault(section, {})  # type: ignore[assignment]
        at[name] = value

    def flow(node: object) -> str:
        if isinstance(node, dict):
            return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in node.items()) + "}"
        return str(node)

    return load(flow(tree), shipped=SHIPPED)


def test_every_key_of_the_contract_is_either_applied_or_deferred() -> None:
    def general(keys: dict[str, str]) -> set[str]:
        return {
            key.replace("profiles.a.", "profiles.<name>.").replace("profiles.other.", "profiles.<name>.")
            for key in keys
        }

    assert general(APPLIED) | general(DEFERRED) == set(KEYS)
    assert not general(APPLIED) & general(DEFERRED)


def test_a_reload_of_the_same_file_changes_nothing() -> None:
    same = plan(config(), config())
    assert (same.applied, same.deferred) == ((), ())
    assert same.config == config()


@pytest.mark.parametrize("key", APPLIED)
def test_an_applied_key_is_in_force_at_once(key: str) -> None:
    new = config(**{key: APPLIED[key]})
    found = plan(config(), new)
    assert (found.applied, found.deferred) == ((key,), ())
    assert found.config == new


@pytest.mark.criterion("U5.1")
@pytest.mark.parametrize("key", DEFERRED)
def test_a_deferred_key_keeps_its_old_value_and_is_reported(key: str) -> None:
    found = plan(config(), config(**{key: DEFERRED[key]}))
    assert (found.applied, found.deferred) == ((), (key,))
    assert found.config == config()


@pytest.mark.criterion("U5.1")
def test_a_changed_error_pattern_is_deferred_while_its_neighbours_are_applied() -> None:
    found = plan(config(), config(**{"profiles.a.errorPattern": '"@claude"', "profiles.a.capacity": "9"}))
    assert found.applied == ("profiles.a.capacity",)
    assert found.deferred == ("profiles.a.errorPattern",)
    profile = found.config.profiles["a"]
    assert profile.capacity == 9
    assert profile.patterns.error == (Pattern("one", "errorPattern"),)


@pytest.mark.criterion("U5.1")
def test_a_first_error_pattern_is_deferred_and_the_legacy_default_stays() -> None:
    blank = {key: value for key, value in BASE.items() if key != "profiles.a.errorPattern"}
    found = plan(written(blank), config())
    assert found.deferred == ("profiles.a.errorPattern",)
    assert found.config.profiles["a"].patterns.error == (LEGACY_ERROR,)


def test_what_was_deferred_once_is_reported_again_until_the_restart() -> None:
    first = plan(config(), config(**{"profiles.a.errorPattern": "two"}))
    second = plan(first.config, config(**{"profiles.a.errorPattern": "two", "outage.threshold": "4"}))
    assert second.applied == ("outage.threshold",)
    assert second.deferred == ("profiles.a.errorPattern",)
    taken_back = plan(second.config, config())
    assert taken_back.applied == ("outage.threshold",)
    assert taken_back.deferred == ()


def test_all_changes_together_are_sorted_into_applied_and_deferred() -> None:
    changed = {key: value for key, value in {**APPLIED, **DEFERRED}.items() if key != "profiles.a.agent"}
    found = plan(config(), config(**changed))
    assert found.applied == tuple(sorted(APPLIED))
    assert found.deferred == tuple(sorted(changed.keys() - APPLIED.keys()))
    assert found.config == config(**APPLIED)


def test_a_new_profile_is_applied_whole_with_its_patterns() -> None:
    new = config(**{"profiles.new.agent": "codex", "profiles.new.errorPattern": "fresh"})
    found = plan(config(), new)
    assert (found.applied, found.deferred) == (("profiles.new",), ())
    assert found.config.profiles["new"].patterns.error == (Pattern("fresh", "errorPattern"),)


def test_a_removed_profile_takes_no_new_spawns() -> None:
    less = {key: value for key, value in BASE.items() if not key.startswith("profiles.a.")}
    found = plan(config(), written(less))
    assert (found.applied, found.deferred) == (("profiles.a",), ())
    assert [room.name for room in found.config.rooms()] == ["other"]


def test_a_changed_order_of_the_profiles_is_applied() -> None:
    turned = sorted(BASE.items(), key=lambda item: item[0].startswith("profiles.a."))
    found = plan(config(), written(dict(turned)))
    assert (found.applied, found.deferred) == (("profiles",), ())
    assert [room.name for room in found.config.rooms()] == ["other", "a"]


def test_the_command_waits_with_the_agent_that_it_belongs_to() -> None:
    """The other way round, the new program would be started, and read and typed to as the old one."""
    found = plan(config(), config(**{"profiles.a.agent": "codex", "profiles.a.command": "[codex]"}))
    assert (found.applied, found.deferred) == ((), ("profiles.a.agent", "profiles.a.command"))
    assert found.config == config()


def test_a_profile_that_gets_an_agent_keeps_its_command_until_the_restart() -> None:
    own = load("profiles: {p: {command: [mine], idlePattern: '^>$'}}", shipped=SHIPPED)
    found = plan(own, load("profiles: {p: {agent: demo}}", shipped=SHIPPED))
    assert found.deferred == ("profiles.p.agent", "profiles.p.command", "profiles.p.idlePattern")
    assert found.config == own


def test_a_reload_to_an_empty_file_leaves_the_defaults_without_profiles() -> None:
    found = plan(config(**APPLIED), load("", shipped=SHIPPED))
    assert found.config == Config(host=HostName.TMUX)
    assert found.config.outage == OutageSettings()
    assert found.config.placement is PolicyName.LEAST_LOADED
    assert found.deferred == ("host",)
    assert {"profiles.a", "profiles.other"} <= set(found.applied)
