"""What happens while something is being written down: the disk and the view never tell two stories."""

from __future__ import annotations

from typing import Any

import msgspec
import trio

from actors.host import PaneRef
from actors.leads import Notify
from actors.mail import Mail, OpenTicket, Tickets
from actors.member import MemberOver, SendsLost
from actors.panes import ClosePane, PaneClosed, Panes, Watch
from actors.questions import PutQuestion, QuestionClosed, Questions
from actors.turn import LateReply, Outcome, Status, TurnEnded
from actors.watching import _look_once
from tests.actors.recorders import Recorder
from tests.models.senders import Disk, S, Scene, at_once, flush, result


def mail() -> tuple[Scene, Disk]:
    """Mail with one send that has been accepted."""
    disk = Disk()
    scene = Scene(Mail(roster=Recorder(), leads=Recorder(), journal=disk))
    scene.before(OpenTicket("lead-1", "m-1", "p", 9 * S), disk.safe)
    return scene, disk


def kept(disk: Disk) -> dict[str, Any]:
    """The ticket as it is on the disk."""
    disk.safe()
    body = disk.body("ticket", "t-1")
    assert body is not None
    found: dict[str, Any] = msgspec.json.decode(body)
    return found


def test_a_late_reply_while_the_end_is_written_does_not_take_the_end_off_the_disk() -> None:
    """Else a crash would type the prompt again."""
    scene, disk = mail()
    scene.play(TurnEnded("m-1", "t-1", Outcome(Status.TIMED_OUT), 0))
    scene.play(LateReply("m-1", "t-1", "late"))
    flush(scene, disk)
    assert (kept(disk)["outcome"]["status"], kept(disk)["late_reply"], kept(disk)["prompt"]) == (
        "timed_out",
        "late",
        "",
    )


def test_of_two_ends_during_one_write_the_disk_keeps_the_one_that_is_shown() -> None:
    scene, disk = mail()
    scene.play(SendsLost("m-1", "its resolver crashed"))
    scene.play(TurnEnded("m-1", "t-1", Outcome(Status.BACKEND_ERROR), 0))
    flush(scene, disk)
    tickets = Tickets(("t-1",))
    scene.play(tickets)
    (shown,) = result(tickets)
    assert shown.outcome.status is Status.LOST
    assert kept(disk)["outcome"]["status"] == "lost"


def questions() -> tuple[Scene, Disk, Recorder]:
    disk, leads = Disk(), Recorder()
    return Scene(Questions(leads=leads, journal=disk)), disk, leads


def test_a_lead_is_not_told_of_a_question_whose_member_has_ended_while_it_was_written() -> None:
    scene, disk, leads = questions()
    ask = PutQuestion("m-1", "?", "lead-1")
    scene.play(ask)
    scene.play(MemberOver("m-1", "it was released"))
    flush(scene, disk)
    assert leads.only(Notify) == []
    assert isinstance(result(ask), QuestionClosed)


def test_a_question_that_is_asked_again_is_answered_once_it_is_on_the_disk() -> None:
    scene, disk, leads = questions()
    asks = [PutQuestion("m-1", "?", "lead-1") for _ in range(2)]
    for ask in asks:
        scene.play(ask)
    assert [result(ask) for ask in asks] == [None, None]
    flush(scene, disk)
    assert [result(ask) for ask in asks] == ["q-1", "q-1"]
    assert len(leads.only(Notify)) == 1


# -- a terminal that is not there any more --------------------------------------------------------------------------


def test_closing_a_pane_of_a_host_that_is_not_there_ends() -> None:
    scene, back = Scene(Panes({})), Recorder()
    scene.play(ClosePane(PaneRef("gone", "%1"), back))
    job, _ = scene.effects.popleft()
    at_once(job.__self__._work())  # type: ignore[attr-defined]
    assert back.only(PaneClosed)


async def test_a_member_of_a_terminal_host_that_the_daemon_has_no_longer_does_not_end_the_daemon(
    nursery: trio.Nursery,
) -> None:
    """Started with the embedded terminal, restarted with tmux: nobody can say what became of the pane."""
    panes = Panes({})
    nursery.start_soon(panes.run)
    pane = PaneRef("pty", "1")
    panes.tell(Watch(pane, panes))
    await _look_once(panes, {})
    await trio.testing.wait_all_tasks_blocked()
    assert [ended.pane for ended in panes._unclaimed.values()] == [pane]
