"""The outage, from two turns on two screens to the lead's pane and back to work.

Every test goes the whole real way: scripted screens are captured, read and classified, and what comes of it is looked
at through the tools and the panes alone.
"""

from __future__ import annotations

import pytest

from fleetd.testing import Fleet, Member
from tests.stories.conftest import CONFIG

ONLY_SHARED = "\n".join(line for line in CONFIG.splitlines() if "demo-c" not in line)
BOTH_MATCH = CONFIG.replace('exhaustedPattern: "@demo"', 'exhaustedPattern: "^✗ API Error.*quota"')


async def outage(fleet: Fleet) -> list[Member]:
    """Two members of the shared credential, ``a`` and ``b``, fail within seconds."""
    members = [await fleet.spawn("a", "demo-a"), await fleet.spawn("b", "demo-b")]
    for member in members:
        await member.fails()
    return members


async def cooling(fleet: Fleet) -> dict[str, int]:
    return dict((await fleet.lead().call("fleet_profiles"))["coolingOff"])


@pytest.mark.criterion("U5.4")
@pytest.mark.criterion("U2.1")
async def test_one_failure_marks_only_its_member(fleet: Fleet) -> None:
    failing, healthy = await fleet.spawn("failing", "demo-a"), await fleet.spawn("healthy", "demo-b")
    await (await failing.fails()).result()
    await fleet.advance(seconds=5)
    assert (await failing.state(), await healthy.state()) == ("backend_error", "idle")
    assert await cooling(fleet) == {}
    assert not any("Outage" in nudge for nudge in fleet.lead().nudges)


@pytest.mark.criterion("U5.5")
@pytest.mark.criterion("U2.2")
async def test_two_failures_within_the_window_open_one_incident(fleet: Fleet) -> None:
    await outage(fleet)
    assert set(await cooling(fleet)) == {"shared"}
    assert 58 <= (await cooling(fleet))["shared"] <= 60


@pytest.mark.criterion("U5.6")
@pytest.mark.criterion("U5.8")
async def test_every_profile_of_the_credential_refuses_before_any_launch(fleet: Fleet) -> None:
    await outage(fleet)
    launched = len(fleet.launches)
    for profile in ("demo-a", "demo-b"):
        refusal = await fleet.lead().call("fleet_spawn", profile=profile)
        assert refusal["error"] == "credential_cooling_off"
        assert "cooling off" in refusal["message"]
        assert f"{refusal['retryAfterSeconds']} s remaining" in refusal["message"]
    assert len(fleet.launches) == launched
    assert (await fleet.lead().call("fleet_spawn", profile="demo-c"))["credentialId"] == "other"


@pytest.mark.criterion("U5.7")
async def test_placement_goes_around_a_cooling_credential(fleet: Fleet) -> None:
    await outage(fleet)
    assert [(await fleet.lead().call("fleet_spawn"))["profile"] for _ in range(2)] == ["demo-c", "demo-c"]
    refusal = await fleet.lead().call("fleet_spawn")
    assert refusal["error"] == "no_candidate"
    assert {row["profile"]: row["cause"] for row in refusal["candidates"]} == {
        "demo-a": "credential_cooling_off",
        "demo-b": "credential_cooling_off",
        "demo-c": "profile_full",
    }


@pytest.mark.criterion("U5.7")
@pytest.mark.fleet_config(ONLY_SHARED)
async def test_when_all_cool_the_refusal_says_cool_off_and_not_exhaustion(fleet: Fleet) -> None:
    await outage(fleet)
    refusal = await fleet.lead().call("fleet_spawn")
    assert refusal["error"] == "no_candidate"
    assert "cooling off" in refusal["message"]
    assert "exhausted" not in refusal["message"]
    assert 0 < refusal["retryAfterSeconds"] <= 60


@pytest.mark.criterion("U5.9")
@pytest.mark.criterion("U4.6")
@pytest.mark.criterion("U4.7")
async def test_fleet_list_shows_both_members_and_the_shut_credential(fleet: Fleet) -> None:
    bystander = await fleet.spawn("bystander", "demo-c")
    members = await outage(fleet)
    for ticket in ("t-1", "t-2"):
        await fleet.lead().call("fleet_collect", ticket=ticket)
    listing = await fleet.lead().call("fleet_list")
    rows = {row["target"]: row for row in listing["members"]}
    for member in members:
        assert rows[member.target]["state"] == "backend_error"
        assert rows[member.target]["failureReason"] == "API Error: 529 Overloaded (req_demo_0001)"
    assert "failureReason" not in rows[bystander.target]
    profiles = {row["name"]: row for row in listing["profiles"]}
    for name in ("demo-a", "demo-b"):
        assert profiles[name]["free"] == 0
        assert profiles[name]["credentialId"] == "shared"
        assert 0 < profiles[name]["coolingOffForSeconds"] <= 60
        assert "quarantinedForSeconds" not in profiles[name]
    assert profiles["demo-c"] == {"name": "demo-c", "capacity": 2, "members": 1, "free": 1}


@pytest.mark.criterion("U5.10")
async def test_fleet_profiles_keeps_cool_off_and_quarantine_apart(fleet: Fleet) -> None:
    await outage(fleet)
    spent = await fleet.spawn("spent", "demo-c")
    await fleet.lead().send("spent")
    await fleet.advance(seconds=3)
    spent.agent.exhausts()
    await fleet.advance(seconds=1)
    profiles = await fleet.lead().call("fleet_profiles")
    assert set(profiles["coolingOff"]) == {"shared"}
    assert set(profiles["quarantined"]) == {"other"}


@pytest.mark.criterion("U5.11")
@pytest.mark.criterion("U5.17")
async def test_the_lead_is_told_once_in_its_pane(fleet: Fleet) -> None:
    await outage(fleet)
    await fleet.advance(seconds=3)
    about = [nudge for nudge in fleet.lead().nudges if "inc-1" in nudge]
    assert len(about) == 1
    for word in ("shared", "demo-a", "demo-b", "m-1", "m-2", "fleet_list"):
        assert word in about[0]
    await fleet.advance(seconds=600)
    assert [nudge for nudge in fleet.lead().nudges if "inc-1" in nudge] == about
    assert any("inc-1" in line for line in fleet.lead().screen)


@pytest.mark.criterion("U3.2")
async def test_two_affected_leads_are_told_once_each(fleet: Fleet) -> None:
    for name in ("second", "bystander"):
        await fleet.add_lead(name)
    one, two = await fleet.spawn("one", "demo-a"), await fleet.spawn("two", "demo-b", lead="second")
    await one.fails()
    await two.fails(lead="second")
    await fleet.advance(seconds=3)
    for name in ("lead", "second"):
        assert sum("inc-1" in nudge for nudge in fleet.lead(name).nudges) == 1
    assert fleet.lead("bystander").nudges == []


@pytest.mark.criterion("U5.12")
async def test_exhaustion_wins_in_refusals_and_views_when_both_hold(fleet: Fleet) -> None:
    spare = await fleet.spawn("spare", "demo-a")
    await fleet.lead().send("spare")
    await outage(fleet)
    spare.agent.exhausts()
    await fleet.advance(seconds=1)
    refusal = await fleet.lead().call("fleet_spawn", profile="demo-a")
    assert refusal["error"] == "credential_exhausted"
    assert "cooling" not in refusal["message"]
    row = next(row for row in (await fleet.lead().call("fleet_list"))["profiles"] if row["name"] == "demo-a")
    assert row["free"] == 0
    assert row["quarantinedForSeconds"] > 60


@pytest.mark.criterion("U5.12")
@pytest.mark.criterion("U1.4")
@pytest.mark.fleet_config(BOTH_MATCH)
async def test_a_line_that_matches_both_patterns_is_exhaustion(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    ticket = await member.fails("API Error: 429 your quota is used up")
    assert await ticket.status() == "backend_exhausted"
    profiles = await fleet.lead().call("fleet_profiles")
    assert (set(profiles["quarantined"]), profiles["coolingOff"]) == ({"shared"}, {})


@pytest.mark.criterion("U5.13")
@pytest.mark.criterion("U2.8")
async def test_after_the_cool_off_spawns_work_and_another_incident_needs_two_fresh_errors(fleet: Fleet) -> None:
    for member in await outage(fleet):
        await fleet.lead().call("fleet_release", target=member.name)
    await fleet.advance(seconds=60)
    fresh = [await fleet.spawn("c", "demo-a"), await fleet.spawn("d", "demo-b")]
    await fresh[0].fails()
    assert await cooling(fleet) == {}
    await fresh[1].fails()
    assert set(await cooling(fleet)) == {"shared"}


@pytest.mark.criterion("U2.3")
async def test_failures_further_apart_than_the_window_are_no_outage(fleet: Fleet) -> None:
    first, second = await fleet.spawn("first", "demo-a"), await fleet.spawn("second", "demo-b")
    await first.fails()
    await fleet.advance(seconds=61)
    await second.fails()
    assert await cooling(fleet) == {}


@pytest.mark.criterion("U5.14")
@pytest.mark.parametrize(
    "coverage",
    [
        pytest.param("off", marks=pytest.mark.fleet_config(CONFIG + "health: {enabled: false}")),
        pytest.param("detection-only", marks=pytest.mark.fleet_config(CONFIG)),
        pytest.param("full", marks=pytest.mark.fleet_config(CONFIG + "health: {webhook: 'http://127.0.0.1:1/hook'}")),
    ],
)
async def test_health_coverage_says_the_same_before_and_after_an_outage(fleet: Fleet, coverage: str) -> None:
    before = (await fleet.lead().call("fleet_health"))["healthCoverage"]
    await outage(fleet)
    after = (await fleet.lead().call("fleet_health"))["healthCoverage"]
    assert before == after == coverage


@pytest.mark.criterion("U1.7")
async def test_old_error_text_on_an_unchanged_screen_is_no_evidence(fleet: Fleet) -> None:
    """The prompt's paste is swallowed, and the screen still shows another turn's error."""
    member = await fleet.spawn("a", "demo-a")
    member.agent.story.trouble("API Error: 529 from long ago")
    member.pane.lost_pastes = 1
    ticket = await fleet.lead().send("a")
    await fleet.advance(seconds=30)
    assert await ticket.status() == "refused"
    assert await member.state() == "idle"


@pytest.mark.criterion("U3.7")
async def test_a_failed_ticket_and_the_incident_come_in_one_nudge(fleet: Fleet) -> None:
    lead = fleet.lead()
    lead.agent.busy()
    await outage(fleet)
    await fleet.advance(seconds=5)
    assert lead.nudges == []
    lead.agent.idle()
    await fleet.advance(seconds=3)
    (nudge,) = lead.nudges
    for word in ("inc-1", "t-1 (m-1, backend_error)", "t-2 (m-2, backend_error)"):
        assert word in nudge


@pytest.mark.criterion("U3.4")
async def test_a_lead_at_a_dialog_is_not_typed_to(fleet: Fleet) -> None:
    lead = fleet.lead()
    lead.agent.asks_permission()
    await outage(fleet)
    await fleet.advance(seconds=120)
    assert lead.pane is not None
    assert lead.pane.keys == []
    lead.agent.idle()
    await fleet.advance(seconds=3)
    assert sum("inc-1" in nudge for nudge in lead.nudges) == 1


async def test_a_lead_without_a_pane_hears_of_it_with_its_next_tool_result(fleet: Fleet) -> None:
    lead = await fleet.add_lead("headless", pane=False)
    for name, profile in (("a", "demo-a"), ("b", "demo-b")):
        member = await fleet.spawn(name, profile, lead="headless")
        await member.fails(lead="headless")
    notices = (await lead.call("fleet_whoami"))["notices"]
    assert sum("inc-1" in notice for notice in notices) == 1
    assert not any("inc-1" in notice for notice in (await lead.call("fleet_whoami")).get("notices", []))


async def test_sends_to_a_cooling_credential_are_held_and_typed_when_it_is_over(fleet: Fleet) -> None:
    healthy = await fleet.spawn("healthy", "demo-a")
    await outage(fleet)
    ticket = await fleet.lead().send("healthy", "after the storm")
    held = await ticket.result()
    assert held["state"] == "held"
    assert 0 < held["heldForSeconds"] <= 60
    await fleet.advance(seconds=held["heldForSeconds"] - 2)
    assert healthy.prompts == []
    await fleet.advance(seconds=3)
    assert healthy.prompts == ["after the storm"]


@pytest.mark.fleet_config(CONFIG + "outage: {holdSends: false}")
async def test_with_hold_sends_off_a_send_is_typed_at_once(fleet: Fleet) -> None:
    healthy = await fleet.spawn("healthy", "demo-a")
    await outage(fleet)
    await fleet.lead().send("healthy", "now")
    assert healthy.prompts == ["now"]


async def test_a_member_is_charged_to_the_credential_that_it_was_launched_on(fleet: Fleet) -> None:
    """A reload moves the profile to another credential between the launch and the errors."""
    members = [await fleet.spawn("a", "demo-a"), await fleet.spawn("b", "demo-b")]
    await fleet.reload(CONFIG.replace("credentialId: shared", "credentialId: moved"))
    for member in members:
        await member.fails()
    assert set(await cooling(fleet)) == {"shared"}
    assert "error" not in await fleet.lead().call("fleet_spawn", profile="demo-a")
