"""From actors' snapshots to what clients see. Pure: a snapshot and the time in, a view out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import UNSET, UnsetType

from actors.clock import NS_PER_S, ceil_seconds, floor_seconds
from actors.health import Finding
from actors.placement import Load
from actors.questions import QuestionView
from actors.row import MemberView
from actors.screen import collapse
from actors.ticket import TicketView
from actors.turn import Phase, Status, clean, spoken
from fleetd import views

#: Characters of an answer that ``fleet_wait`` shows; the whole is in ``fleet_collect``.
PREVIEW_CHARS = 600
#: Characters of one page of a result, well below what clients cut off.
PAGE_CHARS = 16_000
#: Characters of a member's name or question in a view.
QUESTION_CHARS = 4_000


def remaining(until: Mapping[str, int], now_ns: int) -> dict[str, int]:
    """Credentials with the seconds that they are shut for, rounded up."""
    return {name: ceil_seconds(until_ns - now_ns) for name, until_ns in until.items()}


def member_row(member: MemberView, now_ns: int) -> views.MemberRow:
    identity = member.identity
    return views.MemberRow(
        target=identity.target,
        name=identity.name,
        profile=identity.profile,
        credential_id=identity.credential,
        lead=identity.lead,
        state=member.state,
        failure_reason=clean(member.reason) if member.reason else UNSET,
        failure_kind=member.failure or UNSET,
        for_seconds=floor_seconds(now_ns - member.since_ns),
        retrying=_retrying(member, now_ns),
    )


def _retrying(member: MemberView, now_ns: int) -> views.RetryingRow | UnsetType:
    retry = member.retry
    if retry is None or retry.retrying is None:
        return UNSET
    return views.RetryingRow(
        attempt=UNSET if retry.retrying.attempt is None else retry.retrying.attempt,
        for_seconds=floor_seconds(now_ns - retry.since_ns),
        reason=spoken(retry.retrying.line),
    )


def profile_row(load: Load, quarantined: Mapping[str, int], cooling: Mapping[str, int]) -> views.ProfileRow:
    """A profile's room: none while its credential is shut, and then it says which and for how long."""
    shut_for = quarantined.get(load.credential)
    cooling_for = cooling.get(load.credential)
    shut = shut_for is not None or cooling_for is not None
    return views.ProfileRow(
        name=load.profile,
        capacity=load.capacity,
        members=load.taken,
        free=0 if shut else load.free,
        credential_id=load.credential if shut else UNSET,
        cooling_off_for_seconds=UNSET if cooling_for is None else cooling_for,
        quarantined_for_seconds=UNSET if shut_for is None else shut_for,
    )


def ticket_row(ticket: TicketView, now_ns: int) -> views.TicketRow:
    return views.TicketRow(
        ticket=ticket.id,
        target=ticket.target,
        state=ticket.phase if ticket.outcome is None else "ended",
        status=UNSET if ticket.outcome is None else ticket.outcome.status,
        held_for_seconds=_held(ticket, now_ns),
    )


def _held(ticket: TicketView, now_ns: int) -> int | UnsetType:
    held = ticket.outcome is None and ticket.phase is Phase.HELD
    return ceil_seconds(ticket.until_ns - now_ns) if held else UNSET


def question_row(question: QuestionView, now_ns: int) -> views.QuestionRow:
    return views.QuestionRow(
        question=question.id,
        target=question.target,
        text=question.text[:QUESTION_CHARS],
        for_seconds=floor_seconds(now_ns - question.asked_ns),
    )


def pages(text: str) -> list[str]:
    """A text in pages of at most :data:`PAGE_CHARS` characters; at least one."""
    return [text[start : start + PAGE_CHARS] for start in range(0, len(text), PAGE_CHARS)] or [""]


def send_result(ticket: TicketView, now_ns: int, page: int = 1) -> views.SendResult:
    """A send as ``fleet_collect`` shows it; ``page`` counts from 1 and is within the result's pages."""
    outcome = ticket.outcome
    if outcome is None:
        return views.SendResult(
            ticket=ticket.id,
            target=ticket.target,
            state=ticket.phase,
            held_for_seconds=_held(ticket, now_ns),
            still_running=True,
        )
    text = pages(outcome.text)
    return views.SendResult(
        ticket=ticket.id,
        target=ticket.target,
        state="ended",
        status=outcome.status,
        text=text[page - 1],
        truncated=outcome.truncated,
        reason=clean(outcome.reason) if outcome.reason else UNSET,
        failure_kind=outcome.failure or UNSET,
        resets_in_seconds=UNSET if outcome.resets_in_ns is None else ceil_seconds(outcome.resets_in_ns),
        source=outcome.source if outcome.source is not None else UNSET,
        turn_seconds=round(outcome.turn_ns / NS_PER_S, 1),
        page=page,
        pages=len(text),
        late_reply=UNSET if ticket.late_reply is None else ticket.late_reply[:PAGE_CHARS],
    )


def ended_row(ticket: TicketView) -> views.EndedRow:
    outcome = ticket.outcome
    assert outcome is not None, "only ended tickets are shown as ended"
    completed = outcome.status is Status.COMPLETED
    return views.EndedRow(
        ticket=ticket.id,
        target=ticket.target,
        status=outcome.status,
        reason=clean(outcome.reason) if outcome.reason else UNSET,
        failure_kind=outcome.failure or UNSET,
        preview=collapse(outcome.text[: PREVIEW_CHARS * 2])[:PREVIEW_CHARS] if completed else UNSET,
    )


def explained(ticket: TicketView) -> views.Explanation:
    """Why an ended send got its verdict."""
    outcome = ticket.outcome
    assert outcome is not None, "only ended tickets are explained"
    return views.Explanation(
        target=ticket.target,
        ticket=ticket.id,
        verdict=outcome.status,
        reason=clean(outcome.reason) if outcome.reason else UNSET,
        source=outcome.source if outcome.source is not None else UNSET,
        pattern=outcome.pattern or UNSET,
        line=outcome.line or UNSET,
        turn_seconds=round(outcome.turn_ns / NS_PER_S, 1),
        considered=[views.ConsideredRow(what=each.what, found=each.found) for each in outcome.considered],
        frame=list(outcome.frame),
    )


def finding_rows(findings: Sequence[Finding]) -> list[views.FindingRow]:
    return [views.FindingRow(target=each.target, state=each.state, for_seconds=each.for_seconds) for each in findings]
