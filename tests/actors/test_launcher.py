"""The launcher and placement: capacity, the gate, and both ways to spawn."""

from __future__ import annotations

import pytest
import trio

from actors.clock import NS_PER_S
from actors.gate import GateCheck, GateRead
from actors.host import OpenFailed, PaneRef
from actors.launcher import Configure, Launcher, Room, Spawn
from actors.leads import Owns
from actors.placement import Cause, Exclusion, Load, PolicyName, choose, exclusion
from actors.roster import MemberUp, ResolverDown, SlotFreed
from actors.setup import Setup
from actors.spawning import Launched, Order, ProfileRoom, Spawned, SpawnRefused
from tests.actors.recorders import Recorder, TableGrammar

S = NS_PER_S
A = ProfileRoom("claude-a", "anthropic-a", 2)
A2 = ProfileRoom("claude-b", "anthropic-a", 1)
B = ProfileRoom("codex-b", "openai-b", 1)


class Starts:
    """Launches nothing; counts, and fails when told to."""

    def __init__(self) -> None:
        self.orders: list[Order] = []
        self.error: Exception | None = None
        self.hold: trio.Event | None = None

    async def launch(self, order: Order) -> Launched:
        self.orders.append(order)
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return Launched(PaneRef("memory", f"%{order.target}"), Setup(TableGrammar()), order.cwd or "/home")


class Gate:
    """Answers each check with what the test says is shut."""

    def __init__(self) -> None:
        self.exhausted: dict[str, int] = {}
        self.cooling: dict[str, int] = {}
        self.held: list[GateCheck] | None = None

    def tell(self, message: object) -> None:
        assert isinstance(message, GateCheck)
        if self.held is not None:
            self.held.append(message)
        else:
            message.back.tell(self.read(message))

    def read(self, check: GateCheck) -> GateRead:
        return GateRead(check.id, self.exhausted, self.cooling, True, 13 * S)


class Bench:
    def __init__(self) -> None:
        self.starts, self.gate = Starts(), Gate()
        self.roster, self.leads, self.panes = Recorder("roster"), Recorder("leads"), Recorder("panes")
        self.launcher = Launcher(self.starts, gate=self.gate, roster=self.roster, leads=self.leads, panes=self.panes)
        self.launcher.tell(Configure((A, A2, B), PolicyName.LEAST_LOADED))

    async def spawn(self, profile: str | None = None, **more: object) -> Spawned:
        return await self.launcher.ask(Spawn("lead-1", profile, **more))  # type: ignore[arg-type]

    async def refused(self, profile: str | None = None, **more: object) -> dict[str, object]:
        with pytest.raises(SpawnRefused) as refusal:
            await self.spawn(profile, **more)
        return refusal.value.data()


@pytest.fixture
async def bench(nursery: trio.Nursery) -> Bench:
    bench = Bench()
    nursery.start_soon(bench.launcher.run)
    return bench


async def test_a_spawn_starts_a_member_and_roster_and_registry_know_it(bench: Bench) -> None:
    spawned = await bench.spawn("claude-a", name="parser", cwd="/src")
    assert (spawned.target, spawned.name, spawned.credential) == ("m-1", "parser", "anthropic-a")
    (up,) = bench.roster.only(MemberUp)
    assert (up.identity.credential, up.identity.lead) == ("anthropic-a", "lead-1")
    assert bench.leads.only(Owns) == [Owns("lead-1", "m-1")]


@pytest.mark.criterion("U5.6")
async def test_an_explicit_spawn_on_a_cooling_credential_starts_nothing_and_says_how_long(bench: Bench) -> None:
    bench.gate.cooling = {"anthropic-a": 60 * S}
    assert await bench.refused("claude-a") == {
        "error": "credential_cooling_off",
        "profile": "claude-a",
        "credentialId": "anthropic-a",
        "retryAfterSeconds": 47,
        "alternatives": ["codex-b"],
        "message": "profile claude-a refused: credential anthropic-a is cooling off after repeated backend errors, "
        "47 s remaining",
    }
    assert bench.starts.orders == []


@pytest.mark.criterion("U5.7")
async def test_placement_skips_a_cooling_candidate(bench: Bench) -> None:
    bench.gate.cooling = {"anthropic-a": 60 * S}
    assert (await bench.spawn()).profile == "codex-b"


@pytest.mark.criterion("U5.7")
async def test_when_every_candidate_cools_the_refusal_says_cool_off_and_not_exhaustion(bench: Bench) -> None:
    bench.gate.cooling = {"anthropic-a": 60 * S, "openai-b": 20 * S}
    refusal = await bench.refused()
    assert refusal["error"] == "no_candidate"
    assert refusal["retryAfterSeconds"] == 7
    assert "cooling off" in str(refusal["message"])
    assert "exhausted" not in str(refusal["message"])
    assert [row["cause"] for row in refusal["candidates"]] == ["credential_cooling_off"] * 3  # type: ignore[attr-defined]


@pytest.mark.criterion("U5.8")
async def test_every_profile_of_the_credential_is_blocked_and_another_credential_is_not(bench: Bench) -> None:
    bench.gate.cooling = {"anthropic-a": 60 * S}
    for profile in ("claude-a", "claude-b"):
        assert (await bench.refused(profile))["error"] == "credential_cooling_off"
    assert (await bench.spawn("codex-b")).target == "m-1"


@pytest.mark.criterion("U5.12")
async def test_exhaustion_wins_over_a_cool_off_and_over_a_full_profile(bench: Bench) -> None:
    await bench.spawn("claude-b")
    bench.gate.cooling = {"anthropic-a": 60 * S}
    bench.gate.exhausted = {"anthropic-a": 1813 * S}
    refusal = await bench.refused("claude-b")
    assert (refusal["error"], refusal["retryAfterSeconds"]) == ("credential_exhausted", 1800)
    assert "cooling" not in str(refusal["message"])


async def test_a_full_profile_refuses_and_names_the_others(bench: Bench) -> None:
    await bench.spawn("codex-b")
    refusal = await bench.refused("codex-b")
    assert (refusal["error"], refusal["alternatives"]) == ("profile_full", ["claude-a", "claude-b"])


async def test_a_place_is_free_again_when_its_pane_is_closed(bench: Bench) -> None:
    spawned = await bench.spawn("codex-b")
    bench.launcher.tell(SlotFreed(spawned.target))
    bench.launcher.tell(SlotFreed(spawned.target))
    assert (await bench.spawn("codex-b")).target == "m-2"


async def test_two_spawns_that_race_for_the_last_place_start_one_process(bench: Bench, nursery: trio.Nursery) -> None:
    """The place is taken in the step that chooses, while the first launch is still under way."""
    bench.starts.hold = trio.Event()
    results: list[str] = []

    async def one() -> None:
        try:
            results.append((await bench.spawn("codex-b")).target)
        except SpawnRefused as refusal:
            results.append(refusal.error)

    nursery.start_soon(one)
    nursery.start_soon(one)
    await trio.testing.wait_all_tasks_blocked()
    bench.starts.hold.set()
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(results) == ["m-1", "profile_full"]
    assert len(bench.starts.orders) == 1


async def test_a_launch_that_fails_gives_its_place_back(bench: Bench) -> None:
    bench.starts.error = OpenFailed("nonesuch: No such file or directory")
    refusal = await bench.refused("codex-b")
    assert refusal["error"] == "spawn_failed"
    assert "No such file" in str(refusal["message"])
    bench.starts.error = None
    assert (await bench.spawn("codex-b")).profile == "codex-b"


async def test_a_spawn_whose_caller_has_gone_starts_nothing(bench: Bench, autojump_clock: object) -> None:
    bench.gate.held = []
    with trio.move_on_after(1):
        await bench.spawn("claude-a")
    (check,) = bench.gate.held
    check.back.tell(bench.gate.read(check))
    await trio.testing.wait_all_tasks_blocked()
    assert bench.starts.orders == []


async def test_an_unknown_profile_is_refused_with_those_there_are(bench: Bench) -> None:
    refusal = await bench.refused("gpt")
    assert (refusal["error"], refusal["alternatives"]) == ("unknown_profile", ["claude-a", "claude-b", "codex-b"])


async def test_without_any_profile_a_spawn_says_what_to_do(bench: Bench) -> None:
    bench.launcher.tell(Configure((), PolicyName.PRIORITY))
    assert "add one to fleetd.yaml" in str((await bench.refused())["message"])


@pytest.mark.parametrize("name", ["", "Upper", "-x", "a b", "x" * 65, "a\n"])
async def test_a_name_that_is_no_identifier_is_refused(bench: Bench, name: str) -> None:
    assert (await bench.refused("claude-a", name=name))["error"] == "bad_name"


async def test_a_name_belongs_to_one_member(bench: Bench) -> None:
    await bench.spawn("claude-a", name="parser")
    assert (await bench.refused("claude-a", name="parser"))["error"] == "name_taken"
    assert (await bench.refused("claude-a", name="m-1"))["error"] == "bad_name"


async def test_a_reload_counts_members_of_a_profile_that_it_keeps(bench: Bench) -> None:
    await bench.spawn("claude-a")
    bench.launcher.tell(Configure((ProfileRoom("claude-a", "anthropic-z", 5),), PolicyName.PRIORITY))
    assert await bench.launcher.ask(Room()) == (Load("claude-a", "anthropic-z", 5, 1),)


async def test_a_resolver_that_crashes_is_told_to_the_roster_and_touches_nobody_else(bench: Bench) -> None:
    from actors.actor import Message

    await bench.spawn("claude-a")
    bench.roster.only(MemberUp)[0].resolver.tell(Message())
    await trio.testing.wait_all_tasks_blocked()
    (down,) = bench.roster.only(ResolverDown)
    assert down.target == "m-1"
    assert (await bench.spawn("claude-a")).target == "m-2"


# -- placement ------------------------------------------------------------------------------------------------------

LOADS = [Load("a", "ca", 4, 2), Load("b", "cb", 2, 0), Load("c", "cc", 2, 1)]
ORDER = ("a", "b", "c")


@pytest.mark.parametrize(
    ("policy", "last", "chosen"),
    [
        (PolicyName.LEAST_LOADED, None, "b"),
        (PolicyName.PRIORITY, None, "a"),
        (PolicyName.ROUND_ROBIN, None, "a"),
        (PolicyName.ROUND_ROBIN, "a", "b"),
        (PolicyName.ROUND_ROBIN, "c", "a"),
        (PolicyName.ROUND_ROBIN, "gone", "a"),
    ],
)
def test_each_policy_chooses_by_its_own_rule(policy: PolicyName, last: str | None, chosen: str) -> None:
    assert choose(policy, LOADS, ORDER, last).profile == chosen


def test_least_loaded_breaks_ties_by_the_order_of_the_configuration() -> None:
    even = [Load("b", "cb", 2, 1), Load("a", "ca", 4, 2)]
    assert choose(PolicyName.LEAST_LOADED, even, ORDER, None).profile == "a"


def test_a_profile_is_out_for_one_reason_the_gravest() -> None:
    load = Load("a", "c", 1, 1)
    assert exclusion(load, {"c": 9}, {"c": 5}) == Exclusion(Cause.EXHAUSTED, 9)
    assert exclusion(load, {}, {"c": 5}) == Exclusion(Cause.COOLING, 5)
    assert exclusion(load, {}, {}) == Exclusion(Cause.FULL)
    assert exclusion(Load("a", "c", 1, 0), {}, {}) is None
