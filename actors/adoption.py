"""Taking over the members of an earlier daemon.

Each member in the journal is looked for where it was left. One that is there gets a new resolver, with its state, its
failure and its open turn as they were written down; one that is gone is shown as lost, with the reason; one that had
been released is ended at last. What had been typed is never typed again: a turn whose member lives is followed further
and judged by what its screen shows, and one whose member is gone is lost, for nobody can know how it ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec
import trio

from actors.host import PaneGone
from actors.journal import Entry, Journaling, Records, count_in
from actors.launcher import CountFrom, Launcher, TakeOver
from actors.member import TERMINAL, MemberState
from actors.openturn import Resumed, TypedTurn
from actors.row import StateLeft
from actors.spawning import Launching, MemberRecord

log: Final = logging.getLogger("fleetd.adoption")

#: States of a member that had a turn, of ours or not.
_WORKING: Final = (MemberState.BUSY, MemberState.BLOCKED)


class Adopted(msgspec.Struct, frozen=True):
    """What came of an earlier daemon's members and of their open turns."""

    #: Targets of members that live.
    members: tuple[str, ...] = ()
    #: Tickets of turns that are followed further.
    resumed: frozenset[str] = frozenset()
    #: Tickets of turns whose end nobody can know, with the reason.
    lost: Mapping[str, str] = msgspec.field(default_factory=dict)


async def adopt(
    records: Records, launching: Launching, launcher: Launcher, journal: Journaling, strangers: Iterable[str] = ()
) -> Adopted:
    """Take over every member of the journal, before anybody can ask for anything.

    Args:
        records: what was recovered.
        strangers: targets of panes of ours that the journal may not know: their numbers are taken.

    Raises:
        HostError: the terminal does not answer. That says nothing about the members in it, so none is given up.
    """
    members = [msgspec.json.decode(body, type=MemberRecord) for body in records.get("member", {}).values()]
    members.sort(key=lambda member: _number(member.identity.target))
    turns = {turn.target: turn for turn in _turns(records)}
    found: list[str] = []
    resumed: set[str] = set()
    lost: dict[str, str] = {}
    targets = {member.identity.target for member in members}
    numbers = [_number(target) for target in (*targets, *strangers)]
    launcher.tell(CountFrom(max(count_in(records, "member"), *numbers, 0) + 1))
    released: list[MemberRecord] = []
    for member in members:
        target = member.identity.target
        left = _left(records, target)
        if left.state is MemberState.RELEASED:
            released.append(member)
            if (open_turn := turns.get(target)) is not None:
                lost[open_turn.ticket] = f"nobody knows how this turn ended: member {target} was released in it"
            continue
        turn = turns.get(target)
        left = await _take_over(member, left, turn, launching, launcher)
        if left.state is not MemberState.LOST:
            found.append(target)
        if turn is not None and left.state not in TERMINAL:
            resumed.add(turn.ticket)
        elif turn is not None:
            detail = f" ({left.reason})" if left.reason else ""
            lost[turn.ticket] = f"nobody knows how this turn ended: member {target} is {left.state}{detail}"
    for turn in turns.values():
        if turn.target not in targets:
            lost[turn.ticket] = f"nobody knows how this turn ended: member {turn.target} is not in the journal"
    # One that does not want to end takes seconds, and all of them no longer.
    async with trio.open_nursery() as nursery:
        for member in released:
            nursery.start_soon(_end, member, launching, journal)
    return Adopted(tuple(found), frozenset(resumed), lost)


async def _end(member: MemberRecord, launching: Launching, journal: Journaling) -> None:
    """End at last what is left of a member that had been released."""
    await launching.discard(member.identity, member.record)
    journal.note(Entry("member", member.identity.target, None), Entry("state", member.identity.target, None))


async def _take_over(
    member: MemberRecord, left: StateLeft, turn: TypedTurn | None, launching: Launching, launcher: Launcher
) -> StateLeft:
    """Give one member its resolver; return the state that it is in now."""
    identity = member.identity
    try:
        launched = await launching.adopt(identity, member.cwd, member.record)
    except PaneGone as gone:
        launched = None
        if left.state not in TERMINAL:
            left = StateLeft(MemberState.LOST, f"it ended while fleetd was away: {gone}")
        log.warning("member lost", extra={"fleet_member": identity.target, "fleet_reason": str(gone)})
    over = left.state in TERMINAL
    resumed = Resumed(
        turn=None if over else turn,
        ready=left.state is not MemberState.STARTING,
        draining=turn is None and left.state in _WORKING,
        closed=f"it is {left.state}; release it and spawn another" if over else "",
    )
    await launcher.ask(TakeOver(identity, launched, left, resumed))
    log.info("member taken over", extra={"fleet_member": identity.target, "fleet_state": left.state})
    return left


def _left(records: Records, target: str) -> StateLeft:
    body = records.get("state", {}).get(target)
    return StateLeft(MemberState.STARTING) if body is None else msgspec.json.decode(body, type=StateLeft)


def _turns(records: Records) -> list[TypedTurn]:
    return [msgspec.json.decode(body, type=TypedTurn) for body in records.get("turn", {}).values()]


def _number(target: str) -> int:
    """The count in ``m-17``; 0 for what is no target of ours."""
    digits = target.removeprefix("m-")
    return int(digits) if digits.isdigit() else 0
