"""A reload that moves a profile to another credential, or changes the policy's numbers, among spawns and errors.

The sentences: an error is charged to the credential that its member was launched on, whenever the reload came; that is
the one which the lead was told, and the one whose environment the program got. New numbers hold from the next error on,
and a cool-off that runs keeps its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import pytest
import trio

from actors.clock import from_seconds
from actors.launcher import Configure, Spawn
from actors.leads import Incident
from actors.outage import BackendErrorSeen, CoolOffs, OutagePolicy, OutageSettings, Retune
from actors.placement import PolicyName
from actors.roster import Roster
from actors.spawning import ProfileRoom
from fleetd.testing import Fleet
from fleetd.testing.merges import merges
from tests.actors.recorders import Clock, Recorder, driven
from tests.races.drawn import CONFIG, Race, about_to_fail, at_work, drawn_fleet, next_look
from tests.races.interleavings import Script, World, interleavings, result
from tests.races.road import OpenGate, Road, S, evidence, seen
from tests.races.twins import twin

# -- the credential -------------------------------------------------------------------------------------------------


class ChargesTheProfile(Roster):
    """Looks up what the profile's credential is when the error comes."""

    def _backend_error(self, turn):  # type: ignore[no-untyped-def]
        if (member := self._members.get(turn.target)) is not None:
            room = self._launcher._actor._profiles[member.identity.profile]  # type: ignore[attr-defined]
            member.identity = msgspec.structs.replace(member.identity, credential=room.credential)
        super()._backend_error(turn)


@pytest.mark.parametrize("make", [Roster, twin(ChargesTheProfile)])
def test_an_error_is_charged_to_the_credential_that_the_lead_was_told_in_every_interleaving(make: type[Roster]) -> None:
    """Two members are spawned and fail, and meanwhile a reload moves their profile."""

    def scene(world: World) -> tuple[Road, list[Spawn]]:
        road = Road(world, "roster launcher", roster=make, quarantine=OpenGate, rooms=(ProfileRoom("p", "old", 9),))
        spawns = [Spawn(road.lead, "p"), Spawn(road.lead, "p")]

        def member(spawn: Spawn) -> Script:
            road.launcher.tell(spawn)
            yield lambda: spawn.reply.settled
            target = result(spawn).target
            road.roster.tell(road.fails(target, f"t-{target}"))

        for spawn in spawns:
            world.client(member(spawn))
        world.tells(road.launcher, Configure((ProfileRoom("p", "new", 9),), PolicyName.LEAST_LOADED))
        world.run()
        return road, spawns

    stamped = set()
    for road, spawns in interleavings(scene, every=make is not Roster):
        came = [result(spawn) for spawn in spawns]
        errors = [each.evidence for each in road.policy.only(BackendErrorSeen)]
        charged = {error.target: error.credential for error in errors}
        assert charged == {each.target: each.credential for each in came}
        stamped.add(tuple(sorted(charged.values())))
    assert stamped == {("old", "old"), ("new", "old"), ("new", "new")}


MOVED: Final = CONFIG.replace("demo-a: {agent: demo, credentialId: shared", "demo-a: {agent: demo, credentialId: other")


@pytest.mark.parametrize("make", [Roster, twin(ChargesTheProfile)])
def test_a_reload_at_the_instant_of_two_errors_moves_neither(make: type[Roster]) -> None:
    async def story(fleet: Fleet, race: Race) -> tuple[set[str], int]:
        members, _ = await at_work(fleet, "demo-a", "demo-b")
        await about_to_fail(*members)
        race.begins()
        await next_look()
        for _ in range(2):
            await race.dawdle()
        await fleet.reload(MOVED)
        await fleet.advance(0.5)
        cooling = set((await fleet.lead().call("fleet_profiles"))["coolingOff"])
        refused = "error" in await fleet.lead().call("fleet_spawn", profile="demo-a")
        return cooling, refused

    def judge(came: tuple[set[str], int]) -> None:
        assert came == ({"shared"}, False)

    drawn_fleet(story, judge, swap={"fleetd.fleet.Roster": make})


WHOSE: Final = """
profiles:
  p: {agent: demo, credentialId: old, capacity: 4, env: {ACCOUNT: old}}
"""


def test_a_program_gets_the_environment_of_the_credential_that_its_member_is_stamped_with() -> None:
    async def story(fleet: Fleet, race: Race) -> list[tuple[str, str]]:
        came: list[tuple[str, str]] = []

        async def spawn() -> None:
            spawned = await fleet.lead().call("fleet_spawn", profile="p")
            pane = fleet.host.of(spawned["target"])
            came.append((spawned["credentialId"], pane.spec.env["ACCOUNT"]))

        race.begins()
        async with trio.open_nursery() as nursery:
            for _ in range(3):
                nursery.start_soon(spawn, name="spawn")
            await race.dawdle()
            await fleet.reload(WHOSE.replace("old", "new"))
        return came

    def judge(came: list[tuple[str, str]]) -> None:
        assert all(stamp == account for stamp, account in came)

    drawn_fleet(story, judge, config=WHOSE, examples=12)


# -- the numbers ----------------------------------------------------------------------------------------------------

QUICK, SLOW = OutageSettings(cool_off_ns=from_seconds(5)), OutageSettings(window_ns=from_seconds(5))
ALONE, THREE = OutageSettings(threshold=1), OutageSettings(threshold=3)


def incidents(order: Sequence[int | OutageSettings], numbers: OutageSettings) -> list[int]:
    """The ends of the cool-offs, told from the sentence: seconds of errors and reloads, in their order."""
    ends: list[int] = []
    fresh: list[int] = []
    for each in order:
        if isinstance(each, OutageSettings):
            numbers = each
        elif not ends or each * S >= ends[-1]:
            fresh.append(each)
            near = [error for error in fresh if (each - error) * S <= numbers.window_ns]
            if len(near) >= numbers.threshold:
                ends.append(each * S + numbers.cool_off_ns)
                fresh = []
    return ends


class StartsAnew(OutagePolicy):
    """New numbers, new state."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        if isinstance(message, Retune):
            self._rule = CoolOffs(message.settings)
            return None
        return super().handle(message)


class MovesTheEnd(OutagePolicy):
    """A cool-off that runs is as long as the new numbers say."""

    def handle(self, message):  # type: ignore[no-untyped-def]
        if isinstance(message, Retune):
            longer = message.settings.cool_off_ns - self._rule.settings.cool_off_ns
            for credential in self._rule._credentials.values():
                credential.until_ns += longer if credential.until_ns else 0
        return super().handle(message)


@pytest.mark.parametrize("make", [OutagePolicy, twin(StartsAnew), twin(MovesTheEnd)])
def test_new_numbers_hold_from_the_next_error_on_wherever_the_reload_comes(make: type[OutagePolicy]) -> None:
    numbers = OutageSettings()
    for first, second in ((QUICK, SLOW), (SLOW, QUICK), (ALONE, THREE), (THREE, ALONE), (QUICK, THREE)):
        errors: tuple[int | OutageSettings, ...] = (0, 3, 4, 10, 66, 75, 135)
        for order in merges(errors, (first, second)):
            leads = Recorder("leads")
            policy = make(numbers, leads=leads, mail=Recorder("mail"))
            driven(policy, Clock())
            for each in order:
                policy.handle(Retune(each) if isinstance(each, OutageSettings) else seen(evidence("m-1", each * S)))
            assert [incident.until_ns for incident in leads.only(Incident)] == incidents(order, numbers), order
