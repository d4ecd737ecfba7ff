"""What is kept of a launch: all that a running member needs of its profile, and no secret."""

from __future__ import annotations

import msgspec

from actors.patterns import Pattern
from fleetd.launching import setup_of
from fleetd.profiles import Profile
from fleetd.snapshot import Snapshot, profile_of, taken

SECRET = "sk-very-secret"
FULL = Profile(
    name="claude-a",
    agent=None,
    command=("agent", "--api-key", SECRET),
    env={"API_KEY": SECRET, SECRET: "named"},
    env_from=("ANOTHER_KEY",),
    credential_id="anthropic-a",
    capacity=7,
    error_pattern=Pattern(r"API Error: 5\d\d", "errorPattern"),
    exhausted_pattern=Pattern("quota is used up", "@claude"),
    idle_pattern=Pattern("^> ", "idlePattern"),
    busy_pattern=Pattern("working", "busyPattern"),
    blocked_pattern=Pattern("allow", "blockedPattern"),
    answer_marker="● ",
    min_turn_ns=1_500_000_000,
)


def back(profile: Profile, directory: str = "/run/members/m-1") -> tuple[Profile, Snapshot]:
    snapshot = msgspec.json.decode(taken(profile, directory), type=Snapshot)
    return profile_of(snapshot), snapshot


def test_what_a_running_member_needs_comes_back() -> None:
    profile, snapshot = back(FULL)
    assert snapshot.directory == "/run/members/m-1"
    # Not needed again: how to start it, and how many may be started.
    assert profile == msgspec.structs.replace(FULL, command=(), env={}, env_from=(), capacity=profile.capacity)


def test_its_screen_is_read_as_before() -> None:
    before, after = setup_of(FULL), setup_of(back(FULL)[0])
    assert (after.patterns, after.typing, after.min_turn_ns, after.interrupt_keys) == (
        before.patterns,
        before.typing,
        before.min_turn_ns,
        before.interrupt_keys,
    )


def test_a_profile_with_an_agent_and_nothing_else_comes_back() -> None:
    plain = Profile(name="demo-a", agent="demo", credential_id="shared")
    assert back(plain, "")[0] == plain
    assert setup_of(back(plain)[0]).patterns == setup_of(plain).patterns


def test_neither_command_nor_environment_is_written_down() -> None:
    written = taken(FULL, "/run/members/m-1")
    for secret in (SECRET, "API_KEY", "ANOTHER_KEY", "--api-key"):
        assert secret.encode() not in written
