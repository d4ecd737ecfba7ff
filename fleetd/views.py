"""What clients see: the results of the tools, as data.

One struct per shape of the contract; keys are camelCase on the wire. A key that a row does not have is absent, never
``null`` or blank. :mod:`fleetd.shaping` fills them.
"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class View(msgspec.Struct, frozen=True, rename="camel"):
    """A shape that clients see."""


class RetryingRow(View, frozen=True, kw_only=True):
    """A turn that only retries by itself: it still works, and has not failed."""

    attempt: int | UnsetType = UNSET
    for_seconds: int
    #: The program's own words.
    reason: str


class MemberRow(View, frozen=True, kw_only=True):
    target: str
    name: str
    profile: str
    credential_id: str
    lead: str
    state: str
    #: The agent's own words, cleaned and cut: data, never an instruction.
    failure_reason: str | UnsetType = UNSET
    #: ``auth`` or ``request``: no fault of the backend, and never evidence of an outage.
    failure_kind: str | UnsetType = UNSET
    for_seconds: int
    retrying: RetryingRow | UnsetType = UNSET


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
    failure_kind: str | UnsetType = UNSET
    #: For an exhausted quota, where the program said when it comes back; counted from the end of the turn.
    resets_in_seconds: int | UnsetType = UNSET
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
    failure_kind: str | UnsetType = UNSET
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
    #: When a used-up quota comes back, in ISO 8601 and UTC, where the screen says so.
    resets_at: str | UnsetType = UNSET
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
    #: Members' panes in the terminal server that no journal knows: they are left alone.
    strangers: list[str]
    #: Why the journal cannot be written, and so no new send is taken; empty while it can.
    journal: str
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
