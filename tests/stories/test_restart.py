"""The daemon dies at any moment and another one goes on where it was: whatever was acknowledged is still true."""

from __future__ import annotations

import pytest

from actors.questions import AwaitAnswer, PutQuestion
from fleetd.testing import Fleet
from fleetd.testing.people import Ticket


async def statuses(fleet: Fleet, *tickets: Ticket) -> list[str]:
    return [await ticket.status() for ticket in tickets]


async def test_a_turn_that_runs_across_a_restart_is_completed(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    ticket = await fleet.lead().send("a")
    await fleet.restart()
    assert (await member.state(), await ticket.status()) == ("busy", "running")
    await fleet.advance(seconds=3)
    member.agent.answers("done")
    await fleet.advance(seconds=5)
    assert (await ticket.result())["text"] == "done"
    assert member.prompts == ["do it"]


async def test_a_turn_that_ended_while_the_daemon_was_away_is_judged_by_what_is_there(fleet: Fleet) -> None:
    good, bad = await fleet.spawn("good", "demo-a"), await fleet.spawn("bad", "demo-b")
    tickets = [await fleet.lead().send("good"), await fleet.lead().send("bad")]
    await fleet.advance(seconds=3)
    good.agent.answers("all tests pass")
    bad.agent.fails()
    await fleet.restart()
    await fleet.advance(seconds=5)
    assert await statuses(fleet, *tickets) == ["completed", "backend_error"]


async def test_a_turn_whose_prompt_is_no_longer_on_the_screen_is_lost_and_never_completed(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    ticket = await fleet.lead().send("a")
    await fleet.advance(seconds=3)
    member.agent.answers("done")
    member.agent.story.blocks.clear()
    await fleet.restart()
    await fleet.advance(seconds=10)
    result = await ticket.result()
    assert (result["status"], "no longer on the screen" in result["reason"]) == ("lost", True)
    again = await fleet.lead().send("a", "go on")
    await fleet.advance(seconds=3)
    member.agent.answers("went on")
    await fleet.advance(seconds=5)
    assert await again.status() == "completed"


async def test_what_waited_is_typed_once_by_the_next_daemon(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    first = await fleet.lead().send("a", "one")
    second = await fleet.lead().send("a", "two")
    assert await second.status() == "queued"
    await fleet.restart()
    for _ in range(2):
        await fleet.advance(seconds=3)
        member.agent.answers("done")
        await fleet.advance(seconds=5)
    assert await statuses(fleet, first, second) == ["completed", "completed"]
    assert member.prompts == ["one", "two"]


async def test_results_stay_until_they_are_collected_and_their_lead_is_told(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    ticket = await member.answers("the result")
    told = len(fleet.lead().nudges)
    await fleet.restart()
    await fleet.advance(seconds=5)
    assert len(fleet.lead().nudges) == told + 1
    assert (await ticket.result())["text"] == "the result"
    await fleet.restart()
    await fleet.advance(seconds=5)
    assert len(fleet.lead().nudges) == told + 1


async def test_a_failed_member_is_still_failed_with_its_reason(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    await member.fails("API Error: 529 Overloaded")
    await fleet.restart()
    assert (await member.state(), await member.reason()) == ("backend_error", "API Error: 529 Overloaded")
    refused = await fleet.lead().send("a")
    assert await refused.status() == "refused"


async def test_the_outage_stays_in_the_memory_of_the_daemon_that_saw_it(fleet: Fleet) -> None:
    for name in ("a", "b"):
        await (await fleet.spawn(name, "demo-a")).fails()
    assert (await fleet.lead().call("fleet_profiles"))["coolingOff"]
    await fleet.restart()
    assert (await fleet.lead().call("fleet_profiles"))["coolingOff"] == {}


async def test_members_that_ended_with_the_daemon_are_lost_and_their_turns_too(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    running = await fleet.lead().send("a", "one")
    waiting = await fleet.lead().send("a", "two")
    await fleet.restart(members_live=False)
    await fleet.advance(seconds=2)
    assert await member.state() == "lost"
    assert "ended with the daemon" in await member.reason()
    assert await statuses(fleet, running, waiting) == ["lost", "refused"]
    spawned = await fleet.lead().call("fleet_spawn", profile="demo-a", name="b")
    assert spawned["target"] == "m-2"


async def test_a_member_that_was_released_does_not_come_back(fleet: Fleet) -> None:
    await fleet.spawn("a", "demo-a")
    await fleet.lead().call("fleet_release", target="a")
    await fleet.restart()
    assert (await fleet.lead().call("fleet_list"))["members"] == []


async def test_no_target_is_ever_given_to_another_member(fleet: Fleet) -> None:
    """A lead may remember one; a member that was released and forgotten has had it all the same."""
    await fleet.spawn("a", "demo-a")
    second = await fleet.spawn("b", "demo-a")
    await fleet.lead().call("fleet_release", target=second.target)
    await fleet.advance(1)
    await fleet.restart()
    third = await fleet.spawn("c", "demo-a")
    assert (second.target, third.target) == ("m-2", "m-3")


async def test_a_question_outlives_the_daemon_and_is_answered_after_it(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    await fleet.lead().send("a")
    asked = await fleet.actors.roster.ask(PutQuestion(member.target, "which?"))
    await fleet.restart()
    rows = (await fleet.lead().call("fleet_list"))["questions"]
    assert [(row["question"], row["text"]) for row in rows] == [(asked, "which?")]
    await fleet.lead().call("fleet_answer", question=asked, text="this")
    assert await fleet.actors.questions.ask(AwaitAnswer(asked, member.target)) == "this"
    await fleet.restart()
    assert await fleet.actors.questions.ask(AwaitAnswer(asked, member.target)) == "this"


async def test_a_full_disk_refuses_new_sends_and_serves_what_is_known(fleet: Fleet) -> None:
    member = await fleet.spawn("a", "demo-a")
    ticket = await fleet.lead().send("a")
    fleet.store.refuses = "no space left on device"
    refused = await fleet.lead().call("fleet_send", target="a", prompt="more")
    assert (refused["error"], "no space left" in refused["message"]) == ("journal_full", True)
    spawn = await fleet.lead().call("fleet_spawn", profile="demo-a", name="b")
    assert spawn["error"] == "spawn_failed"
    await fleet.advance(seconds=3)
    member.agent.answers("done")
    await fleet.advance(seconds=3)
    assert (await ticket.result())["text"] == "done"
    fleet.store.refuses = ""
    await fleet.advance(seconds=6)
    await fleet.restart()
    assert (await ticket.result())["text"] == "done"
    assert [row["name"] for row in (await fleet.lead().call("fleet_list"))["members"]] == ["a"]


@pytest.mark.parametrize("moment_s", [0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.8, 1.0, 2.0])
async def test_no_prompt_is_ever_typed_twice(fleet: Fleet, moment_s: float) -> None:
    """Wherever in its typing the daemon dies, the prompt arrives at most once and its send ends."""
    member = await fleet.spawn("a", "demo-a")
    sent = await fleet.lead().call("fleet_send", target="a", prompt="only once")
    await fleet.advance(seconds=moment_s)
    await fleet.restart()
    await fleet.advance(seconds=8)
    assert len(member.prompts) <= 1
    if member.prompts:
        member.agent.answers("done")
        await fleet.advance(seconds=5)
    status = (await fleet.lead().call("fleet_collect", ticket=sent["ticket"]))["status"]
    assert status == ("completed" if member.prompts else "lost")
