"""The outage, from two turns on two screens to the lead's pane and back to work.

Every test goes the whole real way: scripted screens are captured, read and classified, and what comes of it is looked
at through the tools and the panes alone.
"""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from fleetd.testing import FleetInMemory, fleet_in_memory
from tests.stories.conftest import CONFIG


async def outage(fleet: FleetInMemory, lead, apart_s: float = 5.0) -> list[str]:  # type: ignore[no-untyped-def]
    """Two members of the shared credential fail; their targets."""
    targets = [await fleet.spawn(lead, "demo-a"), await fleet.spawn(lead, "demo-b")]
    for target in targets:
        await fleet.fails(lead, target)
    return targets


@pytest.mark.criterion("U5.4")
@pytest.mark.criterion("U2.1")
async def test_one_failure_marks_only_its_member(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    failing, healthy = await fleet.spawn(lead, "demo-a"), await fleet.spawn(lead, "demo-b")
    ticket = await fleet.fails(lead, failing)
    await lead.call("fleet_collect", ticket=ticket)
    await fleet.advance(5)
    listing = await lead.call("fleet_list")
    assert {row["target"]: row["state"] for row in listing["members"]} == {failing: "backend_error", healthy: "idle"}
    assert (await lead.call("fleet_profiles"))["coolingOff"] == {}
    assert not any("Outage" in nudge for nudge in lead.nudges)


@pytest.mark.criterion("U5.5")
@pytest.mark.criterion("U2.2")
async def test_two_failures_within_the_window_open_one_incident(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    await outage(fleet, lead)
    cooling = (await lead.call("fleet_profiles"))["coolingOff"]
    assert set(cooling) == {"shared"}
    assert 58 <= cooling["shared"] <= 60


@pytest.mark.criterion("U5.6")
@pytest.mark.criterion("U5.8")
async def test_every_profile_of_the_credential_refuses_before_any_launch(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead()
    await outage(fleet, lead)
    launched = len(fleet.launches)
    for profile in ("demo-a", "demo-b"):
        refusal = await lead.call("fleet_spawn", profile=profile)
        assert refusal["error"] == "credential_cooling_off"
        assert "cooling off" in refusal["message"]
        assert f"{refusal['retryAfterSeconds']} s remaining" in refusal["message"]
    assert len(fleet.launches) == launched
    assert (await lead.call("fleet_spawn", profile="demo-c"))["credentialId"] == "other"


@pytest.mark.criterion("U5.7")
async def test_placement_goes_around_a_cooling_credential(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    await outage(fleet, lead)
    assert [(await lead.call("fleet_spawn"))["profile"] for _ in range(2)] == ["demo-c", "demo-c"]
    refusal = await lead.call("fleet_spawn")
    assert refusal["error"] == "no_candidate"
    assert {row["profile"]: row["cause"] for row in refusal["candidates"]} == {
        "demo-a": "credential_cooling_off",
        "demo-b": "credential_cooling_off",
        "demo-c": "profile_full",
    }


@pytest.mark.criterion("U5.7")
async def test_when_all_cool_the_refusal_says_cool_off_and_not_exhaustion(mock_clock: MockClock) -> None:
    only_shared = "\n".join(line for line in CONFIG.splitlines() if "demo-c" not in line)
    async with fleet_in_memory(only_shared, mock_clock) as fleet:
        lead = await fleet.lead()
        await outage(fleet, lead)
        refusal = await lead.call("fleet_spawn")
    assert refusal["error"] == "no_candidate"
    assert "cooling off" in refusal["message"]
    assert "exhausted" not in refusal["message"]
    assert 0 < refusal["retryAfterSeconds"] <= 60


@pytest.mark.criterion("U5.9")
@pytest.mark.criterion("U4.6")
@pytest.mark.criterion("U4.7")
async def test_fleet_list_shows_both_members_and_the_shut_credential(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead()
    bystander = await fleet.spawn(lead, "demo-c")
    targets = await outage(fleet, lead)
    for ticket in ("t-1", "t-2"):
        await lead.call("fleet_collect", ticket=ticket)
    listing = await lead.call("fleet_list")
    rows = {row["target"]: row for row in listing["members"]}
    for target in targets:
        assert rows[target]["state"] == "backend_error"
        assert rows[target]["failureReason"] == "API Error: 529 Overloaded (req_demo_0001)"
    assert "failureReason" not in rows[bystander]
    profiles = {row["name"]: row for row in listing["profiles"]}
    for name in ("demo-a", "demo-b"):
        assert profiles[name]["free"] == 0
        assert profiles[name]["credentialId"] == "shared"
        assert 0 < profiles[name]["coolingOffForSeconds"] <= 60
        assert "quarantinedForSeconds" not in profiles[name]
    assert profiles["demo-c"] == {"name": "demo-c", "capacity": 2, "members": 1, "free": 1}


@pytest.mark.criterion("U5.10")
async def test_fleet_profiles_keeps_cool_off_and_quarantine_apart(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    await outage(fleet, lead)
    exhausted = await fleet.spawn(lead, "demo-c")
    await fleet.send(lead, exhausted)
    await fleet.advance(3)
    fleet.agent(exhausted).exhausts()
    await fleet.advance(1)
    profiles = await lead.call("fleet_profiles")
    assert set(profiles["coolingOff"]) == {"shared"}
    assert set(profiles["quarantined"]) == {"other"}


@pytest.mark.criterion("U5.11")
@pytest.mark.criterion("U5.17")
async def test_the_lead_is_told_once_in_its_pane(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    await outage(fleet, lead)
    await fleet.advance(3)
    about = [nudge for nudge in lead.nudges if "inc-1" in nudge]
    assert len(about) == 1
    for word in ("shared", "demo-a", "demo-b", "m-1", "m-2", "fleet_list"):
        assert word in about[0]
    lead.agent.answers("looking")
    await fleet.advance(600)
    assert [nudge for nudge in lead.nudges if "inc-1" in nudge] == about


@pytest.mark.criterion("U3.2")
async def test_two_affected_leads_are_told_once_each(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    first, second, bystander = await fleet.lead(), await fleet.lead(), await fleet.lead()
    one, two = await fleet.spawn(first, "demo-a"), await fleet.spawn(second, "demo-b")
    await fleet.fails(first, one)
    await fleet.fails(second, two)
    await fleet.advance(3)
    for lead in (first, second):
        assert sum("inc-1" in nudge for nudge in lead.nudges) == 1
    assert bystander.nudges == []


@pytest.mark.criterion("U5.12")
async def test_exhaustion_wins_in_refusals_and_views_when_both_hold(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead()
    spare = await fleet.spawn(lead, "demo-a")
    await fleet.send(lead, spare)
    await outage(fleet, lead)
    fleet.agent(spare).exhausts()
    await fleet.advance(1)
    refusal = await lead.call("fleet_spawn", profile="demo-a")
    assert refusal["error"] == "credential_exhausted"
    assert "cooling" not in refusal["message"]
    row = next(row for row in (await lead.call("fleet_list"))["profiles"] if row["name"] == "demo-a")
    assert row["free"] == 0
    assert row["quarantinedForSeconds"] > 60


@pytest.mark.criterion("U5.12")
@pytest.mark.criterion("U1.4")
async def test_a_line_that_matches_both_patterns_is_exhaustion(mock_clock: MockClock) -> None:
    both = CONFIG.replace('exhaustedPattern: "@demo"', 'exhaustedPattern: "^✗ API Error.*quota"')
    async with fleet_in_memory(both, mock_clock) as fleet:
        lead = await fleet.lead()
        target = await fleet.spawn(lead, "demo-a")
        ticket = await fleet.fails(lead, target, text="API Error: 429 your quota is used up")
        result = await lead.call("fleet_collect", ticket=ticket)
        profiles = await lead.call("fleet_profiles")
    assert result["status"] == "backend_exhausted"
    assert (set(profiles["quarantined"]), profiles["coolingOff"]) == ({"shared"}, {})


@pytest.mark.criterion("U5.13")
@pytest.mark.criterion("U2.8")
async def test_after_the_cool_off_spawns_work_and_another_incident_needs_two_fresh_errors(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead()
    for target in await outage(fleet, lead):
        await lead.call("fleet_release", target=target)
    await fleet.advance(60)
    fresh = [await fleet.spawn(lead, "demo-a"), await fleet.spawn(lead, "demo-b")]
    await fleet.fails(lead, fresh[0])
    assert (await lead.call("fleet_profiles"))["coolingOff"] == {}
    await fleet.fails(lead, fresh[1])
    assert set((await lead.call("fleet_profiles"))["coolingOff"]) == {"shared"}


@pytest.mark.criterion("U2.3")
async def test_failures_further_apart_than_the_window_are_no_outage(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead()
    first, second = await fleet.spawn(lead, "demo-a"), await fleet.spawn(lead, "demo-b")
    await fleet.fails(lead, first)
    await fleet.advance(61)
    await fleet.fails(lead, second)
    assert (await lead.call("fleet_profiles"))["coolingOff"] == {}


@pytest.mark.criterion("U5.14")
@pytest.mark.parametrize(
    ("health", "coverage"),
    [
        ("health: {enabled: false}", "off"),
        ("", "detection-only"),
        ("health: {webhook: 'http://127.0.0.1:1/hook'}", "full"),
    ],
)
async def test_health_coverage_says_the_same_before_and_after_an_outage(
    mock_clock: MockClock, health: str, coverage: str
) -> None:
    async with fleet_in_memory(CONFIG + health, mock_clock) as fleet:
        lead = await fleet.lead()
        before = (await lead.call("fleet_health"))["healthCoverage"]
        await outage(fleet, lead)
        after = (await lead.call("fleet_health"))["healthCoverage"]
    assert before == after == coverage


@pytest.mark.criterion("U1.7")
async def test_old_error_text_on_an_unchanged_screen_is_no_evidence(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    """The prompt's paste and Enter are swallowed, and the screen still shows another turn's error."""
    lead = await fleet.lead()
    target = await fleet.spawn(lead, "demo-a")
    fleet.agent(target).story.trouble("API Error: 529 from long ago")
    fleet.pane(target).lost_pastes = 1
    ticket = await fleet.send(lead, target)
    await fleet.advance(30)
    result = await lead.call("fleet_collect", ticket=ticket)
    assert result.get("status") == "refused"
    assert (await lead.call("fleet_list"))["members"][0]["state"] == "idle"


@pytest.mark.criterion("U3.7")
async def test_a_failed_ticket_and_the_incident_come_in_one_nudge(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    lead.agent.busy()
    await outage(fleet, lead)
    await fleet.advance(5)
    assert lead.nudges == []
    lead.agent.idle()
    await fleet.advance(3)
    (nudge,) = lead.nudges
    for word in ("inc-1", "t-1 (m-1, backend_error)", "t-2 (m-2, backend_error)"):
        assert word in nudge


@pytest.mark.criterion("U3.4")
async def test_a_lead_at_a_dialog_is_not_typed_to(fleet: FleetInMemory, mock_clock: MockClock) -> None:
    lead = await fleet.lead()
    lead.agent.asks_permission()
    await outage(fleet, lead)
    await fleet.advance(120)
    assert lead.pane is not None
    assert lead.pane.keys == []
    lead.agent.idle()
    await fleet.advance(3)
    assert sum("inc-1" in nudge for nudge in lead.nudges) == 1


async def test_a_lead_without_a_pane_hears_of_it_with_its_next_tool_result(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead(pane=False)
    await outage(fleet, lead)
    notices = (await lead.call("fleet_whoami"))["notices"]
    assert sum("inc-1" in notice for notice in notices) == 1
    assert not any("inc-1" in notice for notice in (await lead.call("fleet_whoami")).get("notices", []))


async def test_sends_to_a_cooling_credential_are_held_and_typed_when_it_is_over(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    lead = await fleet.lead()
    healthy = await fleet.spawn(lead, "demo-a")
    await outage(fleet, lead)
    ticket = await fleet.send(lead, healthy, "after the storm")
    held = await lead.call("fleet_collect", ticket=ticket)
    assert held["state"] == "held"
    assert 0 < held["heldForSeconds"] <= 60
    await fleet.advance(held["heldForSeconds"] - 2)
    assert fleet.agent(healthy).prompts == []
    await fleet.advance(3)
    assert fleet.agent(healthy).prompts == ["after the storm"]


async def test_with_hold_sends_off_a_send_is_typed_at_once(mock_clock: MockClock) -> None:
    async with fleet_in_memory(CONFIG + "outage: {holdSends: false}", mock_clock) as fleet:
        lead = await fleet.lead()
        healthy = await fleet.spawn(lead, "demo-a")
        await outage(fleet, lead)
        await fleet.send(lead, healthy, "now")
        assert fleet.agent(healthy).prompts == ["now"]


async def test_a_member_is_charged_to_the_credential_that_it_was_launched_on(
    fleet: FleetInMemory, mock_clock: MockClock
) -> None:
    """A reload moves the profile to another credential between the launch and the errors."""
    from fleetd.agents import ADAPTERS
    from fleetd.config import load
    from fleetd.reload import plan

    lead = await fleet.lead()
    targets = [await fleet.spawn(lead, "demo-a"), await fleet.spawn(lead, "demo-b")]
    moved = load(CONFIG.replace("credentialId: shared", "credentialId: moved"), shipped=ADAPTERS)
    fleet.fleet.configure(plan(fleet.config, moved).config)
    for target in targets:
        await fleet.fails(lead, target)
    assert set((await lead.call("fleet_profiles"))["coolingOff"]) == {"shared"}
    assert "error" not in await lead.call("fleet_spawn", profile="demo-a")
