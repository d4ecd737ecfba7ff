"""What clients see: the results of the tools, as data.

One struct per shape of the contract; keys are camelCase on the wire. A key that a row does not have is absent, never
``null`` or blank. The functions are pure: actors' snapshots in, views out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from actors.clock import NS_PER_S, ceil_seconds, floor_seconds
from actors.health import Finding
from actors.mail import QuestionView, TicketView
from actors.placement import Load
from actors.roster import MemberView
from actors.screen import collapse
from actors.turn import Phase, Status, clean

#: Characters of an answer that ``fleet_wait`` shows; the whole is in ``fleet_collect``.
PREVIEW_CHARS = 600
#: Characters of one page of a result, well below what clients cut off.
PAGE_CHARS = 16_000
#: Characters of a member's name or question in a view.
QUESTION_CHARS = 4_000


class View(msgspec.Struct, frozen=True, rename="camel"):
    """A shape that clients see."""


class MemberRow(View, frozen=True, kw_only=True):
    target: str
    name: str
    profile: str
    credential_id: str
    lead: str
    state: str
    #: The agent's own words, cleaned and cut: data, never an instruction.
    failure_reason: str | UnsetType = UNSET
    for_seconds: int


class ProfileRow(View, frozen=True, kw_only=True):
    name: str
    capacity: int
    members: int
    free: int
    credential_id: str | UnsetType = UNSET
    cooling_off_for_seconds: int | UnsetType = UNSET
    quarantined_for_seconds: int | UnsetType = UNSET


class TicketRow(View, frozen=True, kw_only=True):
    """A send that has not been collected."""

    ticket: str
    target: str
    #: ``queued held typing running ended``.
    state: str
    status: str | UnsetType = UNSET
    held_for_seconds: int | UnsetType = UNSET


class QuestionRow(View, frozen=True, kw_only=True):
    question: str
    target: str
    #: The member's own words: data, never an instruction.
    text: str
    for_seconds: int


class Listing(View, frozen=True, kw_only=True):
    """``fleet_list``."""

    members: list[MemberRow]
    profiles: list[ProfileRow]
    tickets: list[TicketRow] | UnsetType = UNSET
    questions: list[QuestionRow] | UnsetType = UNSET
    notices: list[str] | UnsetType = UNSET


class Coverage(View, frozen=True, kw_only=True):
    """What a profile's failures are recognised by."""

    #: ``configured`` or ``legacy default``.
    error_pattern: str
    #: ``configured`` or ``none``.
    exhausted_pattern: str


class ProfileInfo(View, frozen=True, kw_only=True):
    name: str
    agent: str | UnsetType = UNSET
    credential_id: str
    capacity: int
    members: int
    free: int
    coverage: Coverage


class Profiles(View, frozen=True, kw_only=True):
    """``fleet_profiles``."""

    profiles: list[ProfileInfo]
    #: Credential to remaining seconds.
    quarantined: dict[str, int]
    cooling_off: dict[str, int]
    notices: list[str] | UnsetType = UNSET


class SpawnedView(View, frozen=True, kw_only=True):
    """``fleet_spawn``."""

    target: str
    name: str
    profile: str
    credential_id: str
    cwd: str
    #: Of the first prompt, where one was given.
    ticket: str | UnsetType = UNSET
    notices: list[str] | UnsetType = UNSET


class SendResult(View, frozen=True, kw_only=True):
    """A send, ended or not: ``fleet_send`` and ``fleet_collect``."""

    ticket: str
    target: str
    #: ``queued held typing running ended``.
    state: str
    held_for_seconds: int | UnsetType = UNSET
    #: The send has not ended: wait for it with ``fleet_wait``.
    still_running: bool | UnsetType = UNSET
    status: str | UnsetType = UNSET
    text: str | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    reason: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    turn_seconds: float | UnsetType = UNSET
    page: int | UnsetType = UNSET
    pages: int | UnsetType = UNSET
    #: What the member answered after the send had ended without it.
    late_reply: str | UnsetType = UNSET
    notices: list[str] | UnsetType = UNSET


class EndedRow(View, frozen=True, kw_only=True):
    ticket: str
    target: str
    status: str
    reason: str | UnsetType = UNSET
    #: The beginning of the answer.
    preview: str | UnsetType = UNSET


class Waited(View, frozen=True, kw_only=True):
    """``fleet_wait``."""

    ended: list[EndedRow]
    running: list[TicketRow]
    notices: list[str] | UnsetType = UNSET


class Peeked(View, frozen=True, kw_only=True):
    """``fleet_peek``: a member's screen, as data."""

    target: str
    state: str
    title: str
    lines: list[str]
    notices: list[str] | UnsetType = UNSET


class Answered(View, frozen=True, kw_only=True):
    """``fleet_answer``."""

    question: str
    target: str
    notices: list[str] | UnsetType = UNSET


class Interrupted(View, frozen=True, kw_only=True):
    """``fleet_interrupt``."""

    target: str
    tickets: list[str]
    notices: list[str] | UnsetType = UNSET


class ReleasedView(View, frozen=True, kw_only=True):
    """``fleet_release``."""

    target: str
    state: str
    notices: list[str] | UnsetType = UNSET


class ConsideredRow(View, frozen=True, kw_only=True):
    what: str
    found: str


class Explanation(View, frozen=True, kw_only=True):
    """``fleet_explain``: why a send got its verdict, or what a live member's screen means now."""

    target: str
    ticket: str | UnsetType = UNSET
    verdict: str
    reason: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    pattern: str | UnsetType = UNSET
    line: str | UnsetType = UNSET
    turn_seconds: float | UnsetType = UNSET
    considered: list[ConsideredRow]
    frame: list[str]
    lost_races: dict[str, int] | UnsetType = UNSET
    notices: list[str] | UnsetType = UNSET


class FindingRow(View, frozen=True, kw_only=True):
    target: str
    state: str
    for_seconds: int


class Health(View, frozen=True, kw_only=True):
    """``fleet_health``."""

    pid: int
    version: str
    uptime_seconds: int
    host: str
    health_coverage: str
    findings: list[FindingRow]
    #: Sentences of the start-up report.
    coverage: list[str]
    #: Configuration keys whose new value waits for a restart.
    deferred: list[str]
    actors: list[str]
    notices: list[str] | UnsetType = UNSET


class Replied(View, frozen=True, kw_only=True):
    """``fleet_reply``."""

    ticket: str


class AskedView(View, frozen=True, kw_only=True):
    """``fleet_ask``."""

    question: str
    #: The lead's answer.
    answer: str | UnsetType = UNSET
    #: Nobody has answered yet: ask again with this question's identifier to go on waiting.
    still_waiting: bool | UnsetType = UNSET


class WhoAmI(View, frozen=True, kw_only=True):
    """``fleet_whoami``."""

    role: str
    id: str
    name: str | UnsetType = UNSET
    profile: str | UnsetType = UNSET
    lead: str | UnsetType = UNSET


def dump(view: View) -> dict[str, Any]:
    """The view as a client gets it."""
    built: dict[str, Any] = msgspec.to_builtins(view)
    return built


def remaining(until: Mapping[str, int], now_ns: int) -> dict[str, int]:
    """Credentials with the seconds that they are shut for, rounded up."""
    return {name: ceil_seconds(until_ns - now_ns) for name, until_ns in until.items()}


def member_row(member: MemberView, now_ns: int) -> MemberRow:
    identity = member.identity
    return MemberRow(
        target=identity.target,
        name=identity.name,
        profile=identity.profile,
        credential_id=identity.credential,
        lead=identity.lead,
        state=member.state,
        failure_reason=clean(member.reason) if member.reason else UNSET,
        for_seconds=floor_seconds(now_ns - member.since_ns),
    )


def profile_row(load: Load, quarantined: Mapping[str, int], cooling: Mapping[str, int]) -> ProfileRow:
    """A profile's room: none while its credential is shut, and then it says which and for how long."""
    shut_for = quarantined.get(load.credential)
    cooling_for = cooling.get(load.credential)
    shut = shut_for is not None or cooling_for is not None
    return ProfileRow(
        name=load.profile,
        capacity=load.capacity,
        members=load.taken,
        free=0 if shut else load.free,
        credential_id=load.credential if shut else UNSET,
        cooling_off_for_seconds=UNSET if cooling_for is None else cooling_for,
        quarantined_for_seconds=UNSET if shut_for is None else shut_for,
    )


def ticket_row(ticket: TicketView, now_ns: int) -> TicketRow:
    return TicketRow(
        ticket=ticket.id,
        target=ticket.target,
        state=ticket.phase if ticket.outcome is None else "ended",
        status=UNSET if ticket.outcome is None else ticket.outcome.status,
        held_for_seconds=_held(ticket, now_ns),
    )


def _held(ticket: TicketView, now_ns: int) -> int | UnsetType:
    held = ticket.outcome is None and ticket.phase is Phase.HELD
    return ceil_seconds(ticket.until_ns - now_ns) if held else UNSET


def question_row(question: QuestionView, now_ns: int) -> QuestionRow:
    return QuestionRow(
        question=question.id,
        target=question.target,
        text=question.text[:QUESTION_CHARS],
        for_seconds=floor_seconds(now_ns - question.asked_ns),
    )


def pages(text: str) -> list[str]:
    """A text in pages of at most :data:`PAGE_CHARS` characters; at least one."""
    return [text[start : start + PAGE_CHARS] for start in range(0, len(text), PAGE_CHARS)] or [""]


def send_result(ticket: TicketView, now_ns: int, page: int = 1) -> SendResult:
    """A send as ``fleet_collect`` shows it; ``page`` counts from 1 and is within the result's pages."""
    outcome = ticket.outcome
    if outcome is None:
        return SendResult(
            ticket=ticket.id,
            target=ticket.target,
            state=ticket.phase,
            held_for_seconds=_held(ticket, now_ns),
            still_running=True,
        )
    text = pages(outcome.text)
    return SendResult(
        ticket=ticket.id,
        target=ticket.target,
        state="ended",
        status=outcome.status,
        text=text[page - 1],
        truncated=outcome.truncated,
        reason=clean(outcome.reason) if outcome.reason else UNSET,
        source=outcome.source if outcome.source is not None else UNSET,
        turn_seconds=round(outcome.turn_ns / NS_PER_S, 1),
        page=page,
        pages=len(text),
        late_reply=UNSET if ticket.late_reply is None else ticket.late_reply[:PAGE_CHARS],
    )


def ended_row(ticket: TicketView) -> EndedRow:
    outcome = ticket.outcome
    assert outcome is not None, "only ended tickets are shown as ended"
    completed = outcome.status is Status.COMPLETED
    return EndedRow(
        ticket=ticket.id,
        target=ticket.target,
        status=outcome.status,
        reason=clean(outcome.reason) if outcome.reason else UNSET,
        preview=collapse(outcome.text[: PREVIEW_CHARS * 2])[:PREVIEW_CHARS] if completed else UNSET,
    )


def explained(ticket: TicketView) -> Explanation:
    """Why an ended send got its verdict."""
    outcome = ticket.outcome
    assert outcome is not None, "only ended tickets are explained"
    return Explanation(
        target=ticket.target,
        ticket=ticket.id,
        verdict=outcome.status,
        reason=clean(outcome.reason) if outcome.reason else UNSET,
        source=outcome.source if outcome.source is not None else UNSET,
        pattern=outcome.pattern or UNSET,
        line=outcome.line or UNSET,
        turn_seconds=round(outcome.turn_ns / NS_PER_S, 1),
        considered=[ConsideredRow(what=each.what, found=each.found) for each in outcome.considered],
        frame=list(outcome.frame),
    )


def finding_rows(findings: Sequence[Finding]) -> list[FindingRow]:
    return [FindingRow(target=each.target, state=each.state, for_seconds=each.for_seconds) for each in findings]
