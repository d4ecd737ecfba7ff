"""Who leads whom, and the road to each lead's push loop.

A lead is an agent or a person, known by a key that the door derives from the kernel. The registry gives it an
identifier, starts its push loop, and remembers which member belongs to it, also after the member is gone: a late
message about a target must still find somebody to tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Refused, Tells
from actors.journal import Entry, Forgetful, Journaling, NotRecorded, Recorded, Records, count_in, counted
from actors.nudge import Item, Outage, Unattributed
from actors.push import Drop, LeadPane, PushLoop, PushSettings, Put, SetPane, SetPush, StopPush
from actors.turn import TurnEnded

#: Leads at a time. Beyond it, the one that was heard of longest ago and owns no member makes room.
LEADS: Final = 256
#: Targets whose lead is remembered.
OWNED: Final = 4096


class TooManyLeads(Refused):
    error = "too_many_leads"


class Join(Ask[str], frozen=True):
    """The lead behind a key: known, or new. Answers with its identifier."""

    key: str


class RestoreLeads(Ask[None], frozen=True):
    """Take over the leads that an earlier daemon knew."""

    records: Records


class _Joined(Message, frozen=True):
    key: str
    lead: str


class SetLeadPane(Message, frozen=True):
    """Where a lead reads; ``None`` when its pane or its program is gone."""

    lead: str
    pane: LeadPane | None


class Owns(Message, frozen=True):
    lead: str
    target: str


class Incident(Message, frozen=True):
    """Two failures were one outage. Each affected lead is told once."""

    id: str
    credential: str
    targets: tuple[str, ...]
    profiles: tuple[str, ...]
    leads: tuple[str, ...]
    evidence_count: int
    until_ns: int
    #: The turn whose end opened it; passed on to mail once the leads' loops have been told.
    cause: TurnEnded


class Unattributable(Message, frozen=True):
    """A classified failure of a target that cannot be mapped to a credential: correlation could not run."""

    target: str
    reason: str


class Notify(Message, frozen=True):
    """Tell a lead of something; see :class:`actors.push.Put`."""

    lead: str
    item: Item
    once: bool = False


class Settled(Message, frozen=True):
    """A lead has taken care of something."""

    lead: str
    key: str


class LoopOf(Ask[PushLoop], frozen=True):
    """A lead's push loop, for an edge to ask."""

    lead: str


class LeadsNow(Ask[Mapping[str, str]], frozen=True):
    """Each lead with what its push loop holds, for the state dump."""


class SetPushAll(Message, frozen=True):
    settings: PushSettings


class UnknownLead(Refused):
    error = "unknown_lead"


class _Lead(msgspec.Struct):
    id: str
    loop: PushLoop
    heard_ns: int


class Leads(Actor):
    """Owns the leads, their push loops and who leads whom."""

    def __init__(self, settings: PushSettings, *, panes: Tells, mail: Tells, journal: Journaling | None = None) -> None:
        super().__init__("leads")
        self._journal = journal or Forgetful()
        self._settings = settings
        self._panes = panes
        self._mail = mail
        self._by_key: dict[str, _Lead] = {}
        self._by_id: dict[str, _Lead] = {}
        self._owner: dict[str, str] = {}
        #: Who waits for a lead that is being recorded, by its key.
        self._joining: dict[str, list[Join]] = {}
        self._count = 0

    def __repr__(self) -> str:
        return f"<Leads {len(self._by_id)} leads, {len(self._owner)} members owned>"

    def handle(self, message: Message) -> object:
        match message:
            case Join():
                return self._join(message)
            case Recorded(then=_Joined(key=key, lead=id)):
                return self._joined(key, id)
            case NotRecorded(then=_Joined(key=key, lead=id)):
                # A lead that the disk does not take is one all the same: at worst it has another name after a crash.
                self._journal.note(_entry(key, id))
                self._joined(key, id)
            case RestoreLeads(records=records):
                self._restore(records)
            case SetLeadPane(lead=lead, pane=pane):
                self._tell(lead, SetPane(pane))
            case Owns(lead=lead, target=target):
                self._owner[target] = lead
                while len(self._owner) > OWNED:
                    self._owner.pop(next(iter(self._owner)))
            case Incident():
                self._incident(message)
            case Unattributable(target=target, reason=reason):
                self._unattributable(target, reason)
            case Notify(lead=lead, item=item, once=once):
                self._tell(lead, Put(item, once))
            case Settled(lead=lead, key=key):
                self._tell(lead, Drop(key))
            case LoopOf(lead=lead):
                return self._find(lead).loop
            case LeadsNow():
                return {lead.id: repr(lead.loop) for lead in self._by_id.values()}
            case SetPushAll(settings=settings):
                self._settings = settings
                for known in self._by_id.values():
                    known.loop.tell(SetPush(settings))
            case _:
                raise self.unknown(message)
        return None

    def _join(self, join: Join) -> object:
        lead = self._by_key.get(join.key)
        if lead is not None:
            lead.heard_ns = self.now()
            return lead.id
        if join.key in self._joining:
            self._joining[join.key].append(join)
            return LATER
        if len(self._by_id) >= LEADS:
            self._make_room()
        self._count += 1
        self._joining[join.key] = [join]
        id = f"lead-{self._count}"
        return self._journal.record(self, _Joined(join.key, id), _entry(join.key, id), counted("lead", self._count))

    def _joined(self, key: str, id: str) -> str:
        self._add(key, id)
        for join in self._joining.pop(key, ()):
            join.reply.answer(id)
        return id

    def _add(self, key: str, id: str) -> None:
        loop = PushLoop(id, self._settings, panes=self._panes)
        self._by_key[key] = self._by_id[id] = _Lead(id, loop, self.now())
        assert self.effects is not None, "the registry is not running"
        self.effects.start_soon(loop.run, name=loop.name)

    def _restore(self, records: Records) -> None:
        self._count = count_in(records, "lead")
        for id, key in records.get("lead", {}).items():
            self._count = max(self._count, int(id.removeprefix("lead-")))
            self._add(key.decode(), id)

    def _make_room(self) -> None:
        owning = set(self._owner.values())
        idle = [(lead.heard_ns, key) for key, lead in self._by_key.items() if lead.id not in owning]
        if not idle:
            raise TooManyLeads(f"{LEADS} leads own members, the most that may: release members or stop fleetd")
        gone = self._by_key.pop(min(idle)[1])
        del self._by_id[gone.id]
        self._journal.note(Entry("lead", gone.id, None))
        gone.loop.tell(StopPush())

    def _find(self, lead: str) -> _Lead:
        found = self._by_id.get(lead)
        if found is None:
            raise UnknownLead(f"no lead is called {lead}")
        return found

    def _tell(self, lead: str, message: Message) -> None:
        found = self._by_id.get(lead)
        if found is None:
            self.log.warning("no such lead", extra={"fleet_lead": lead, "fleet_message": type(message).__name__})
            return
        found.loop.tell(message)

    def _incident(self, incident: Incident) -> None:
        item = Outage(incident.id, incident.credential, incident.profiles, incident.targets, incident.until_ns)
        for lead in incident.leads:
            self._tell(lead, Put(item, once=True))
        self._mail.tell(incident.cause)

    def _unattributable(self, target: str, reason: str) -> None:
        lead = self._owner.get(target)
        if lead is None:
            self.log.warning(
                "a failure cannot be attributed and no lead is known: target %s, reason %s",
                target,
                reason,
                extra={"fleet_member": target, "fleet_reason": reason},
            )
            return
        self._tell(lead, Put(Unattributed(target), once=True))


def _entry(key: str, id: str) -> Entry:
    return Entry("lead", id, key.encode())
