"""Every way a turn can end, on real panes: each ends its ticket once, with the right status."""

from __future__ import annotations

import pytest
import trio

from tests.live.running import Running

pytestmark = pytest.mark.live


async def test_an_answer_that_is_read_from_the_screen(running: Running) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, "demo: work 3; say hello there; lines 3"))
    assert (result["status"], result["source"]) == ("completed", "block")
    assert result["turnSeconds"] >= 2.5
    await running.until_state(target, "done")


async def test_an_answer_by_fleet_reply(running: Running) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, "demo: work 1; reply the answer is 42"))
    assert (result["status"], result["source"], result["text"]) == ("completed", "reply", "the answer is 42")
    await running.until_state(target, "done")


async def test_a_question_to_the_lead_and_on_with_its_answer(running: Running) -> None:
    target = await running.spawn()
    ticket = await running.send(target, "demo: work 2; ask which branch?")
    questions: list[dict[str, str]] = []

    async def asked() -> bool:
        questions[:] = (await running.call("fleet_list"))["questions"]
        return bool(questions)

    await running.until(asked, "a question is open")
    assert (questions[0]["target"], questions[0]["text"]) == (target, "which branch?")
    await running.call("fleet_answer", question=questions[0]["question"], text="main")
    result = await running.result(ticket)
    assert result["status"] == "completed"
    assert "The lead says: main" in result["text"]


async def test_an_interrupt_ends_the_turn_and_the_member_works_on(running: Running) -> None:
    target = await running.spawn()
    ticket = await running.send(target, "demo: hang")
    await running.until_state(target, "busy")
    assert (await running.call("fleet_interrupt", target=target))["tickets"] == [ticket]
    assert (await running.result(ticket))["status"] == "interrupted"
    await running.until_state(target, "done")
    again = await running.result(await running.send(target, "demo: work 3; say still here"))
    assert (again["status"], again["text"]) == ("completed", "still here")


async def test_a_time_out_ends_the_send_and_the_answer_that_comes_late_is_kept(running: Running) -> None:
    target = await running.spawn()
    ticket = await running.send(target, "demo: work 4; reply late but here", timeoutSeconds=2)
    result = await running.result(ticket)
    assert result["status"] == "timed_out"

    async def late() -> bool:
        return "lateReply" in await running.call("fleet_collect", ticket=ticket)

    await running.until(late, "the late reply is kept")


@pytest.mark.parametrize(("code", "how"), [(7, "exited with status 7"), (0, "exited with status 0")])
async def test_a_process_that_dies_in_mid_turn(running: Running, code: int, how: str) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, f"demo: work 1; die {code}"))
    assert result["status"] == "failed"
    assert how in result["reason"]
    assert await running.state(target) == "failed"


async def test_a_backend_error_marks_the_member_and_keeps_its_reason(running: Running) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, "demo: work 2; fail"))
    assert (result["status"], result["source"]) == ("backend_error", "raw")
    assert result["reason"].startswith("API Error: 529 Overloaded")
    assert await running.state(target) == "backend_error"


async def test_a_backend_error_under_the_floor_is_typed(running: Running) -> None:
    target = await running.spawn()
    assert (await running.result(await running.send(target, "demo: fail")))["status"] == "backend_error"


async def test_an_answer_under_the_floor_is_not_believed(running: Running) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, "demo: fast"))
    assert result["status"] == "failed"
    assert "under the floor of 2 s" in result["reason"]


async def test_a_used_up_quota_quarantines_the_credential(running: Running) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, "demo: work 2; exhaust"))
    assert result["status"] == "backend_exhausted"
    refusal = await running.call("fleet_spawn", profile="demo-b")
    assert refusal["error"] == "credential_exhausted"
    # The program says when its quota comes back (in 3h 20m), and that is believed over quarantineCooldownSeconds.
    assert 11_900 < refusal["retryAfterSeconds"] <= 12_000


async def test_a_report_that_quotes_errors_is_a_finished_turn(running: Running) -> None:
    target = await running.spawn()
    result = await running.result(await running.send(target, "demo: work 3; quote"))
    assert result["status"] == "completed"
    assert "API Error" in result["text"]


async def test_a_permission_dialog_is_shown_and_nothing_is_typed_into_it(running: Running) -> None:
    target = await running.spawn()
    ticket = await running.send(target, "demo: work 1; permission; say went on")
    await running.until_state(target, "blocked")
    waiting = await running.send(target, "demo: work 3; say second")
    before = (await running.screen(await running.pane(target))).lines
    await trio.sleep(1)
    assert (await running.screen(await running.pane(target))).lines == before
    await running.press(target, "1")
    assert (await running.result(ticket))["text"] == "went on"
    assert (await running.result(waiting))["text"] == "second"


async def test_a_release_in_mid_turn_ends_the_send_and_the_process(running: Running) -> None:
    target = await running.spawn()
    ticket = await running.send(target, "demo: hang")
    await running.until_state(target, "busy")
    assert (await running.call("fleet_release", target=target))["state"] == "released"
    result = await running.result(ticket)
    assert (result["status"], result["reason"]) == ("interrupted", "the member was released")
    assert (await running.call("fleet_list"))["members"] == []


async def test_a_second_send_waits_for_the_first(running: Running) -> None:
    target = await running.spawn()
    first = await running.send(target, "demo: work 3; say one")
    second = await running.send(target, "demo: work 3; say two")
    assert (await running.result(second))["text"] == "two"
    assert (await running.result(first))["text"] == "one"


async def test_a_send_on_a_cooling_credential_is_held_and_typed_when_it_is_over(running: Running) -> None:
    failing = [await running.spawn(), await running.spawn("demo-b")]
    healthy = await running.spawn()
    for target in failing:
        await running.result(await running.send(target, "demo: work 1; fail"))
    held = await running.call("fleet_send", target=healthy, prompt="demo: work 3; say after the storm")

    async def so() -> bool:
        rows = (await running.call("fleet_list"))["tickets"]
        row = next(row for row in rows if row["ticket"] == held["ticket"])
        return row["state"] == "held" and 0 < row["heldForSeconds"] <= 6

    await running.until(so, "the send is held with seconds left")
    assert (await running.result(held["ticket"]))["text"] == "after the storm"


@pytest.mark.criterion("U3.1")
@pytest.mark.criterion("U5.11")
async def test_an_outage_is_one_nudge_in_the_leads_pane(running: Running) -> None:
    for profile in ("demo-a", "demo-b"):
        target = await running.spawn(profile)
        await running.result(await running.send(target, "demo: work 1; fail"))
    lead_pane = running.daemon.who.lead_pane(running.lead.id)
    assert lead_pane is not None

    async def nudges() -> list[str]:
        return [line for line in (await running.screen(lead_pane)).lines if line.startswith("> [fleetd]")]

    async def nudged() -> bool:
        return bool(await nudges())

    await running.until(nudged, "the lead is nudged")
    await trio.sleep(3)
    (nudge,) = await nudges()
    assert "Outage inc-1: credential shared" in nudge
