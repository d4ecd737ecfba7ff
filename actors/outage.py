"""The outage policy: two failures close together are one outage of the shared credential.

Keyed by credential, never by profile name and never by error text: one outage prints many texts, and the thing that is
limited is the account. Per credential:

==================  =====================================  ====================================================
state               a classified backend error             then
==================  =====================================  ====================================================
closed              fewer than ``threshold`` in a window   kept as evidence; nothing else happens
closed              the ``threshold``-th in a window       one incident; cooling until ``at + cool-off``
cooling             any                                    ignored: it extends nothing and tells nobody
cool-off over       any                                    closed again, with no evidence left
==================  =====================================  ====================================================

The window is inclusive (``<= 60 s``), so that scheduling delay cannot discard evidence at the boundary; cooling is
exclusive (``now < until``). Both compare integer nanoseconds. Evidence is judged by the time it carries, not by when it
arrives: an error from before the end of a cool-off belongs to that incident however late it comes, and cannot open
another.

Counting and the deadline change in one step of one actor, so a second and a third error that arrive together are two
messages of which the first makes the incident.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from actors.actor import Actor, Ask, Message, Tells, tell_if_alive
from actors.clock import from_seconds
from actors.gate import GateCheck, GateRead
from actors.leads import Incident
from actors.turn import TurnEnded


class OutageSettings(msgspec.Struct, frozen=True):
    """``outage`` in the configuration."""

    threshold: int = 2
    window_ns: int = from_seconds(60)
    cool_off_ns: int = from_seconds(60)
    hold_sends: bool = True


class Evidence(msgspec.Struct, frozen=True):
    """One classified backend error, charged to the credential that its member was launched on."""

    credential: str
    target: str
    #: The send that failed: the same one counts once.
    ticket: str
    profile: str
    lead: str
    at_ns: int


class Crossing(msgspec.Struct, frozen=True):
    """The evidence that made an incident, oldest first."""

    evidence: tuple[Evidence, ...]
    until_ns: int


class _Credential:
    def __init__(self) -> None:
        self.evidence: list[Evidence] = []
        #: The end of the last cool-off; 0 before the first.
        self.until_ns = 0


class CoolOffs:
    """Evidence and cool-offs by credential: the rule itself, without an actor around it."""

    def __init__(self, settings: OutageSettings) -> None:
        self.settings = settings
        self._credentials: dict[str, _Credential] = {}

    def record(self, new: Evidence) -> Crossing | None:
        """Take one error. Returns the crossing if it was this one that reached the threshold."""
        state = self._credentials.setdefault(new.credential, _Credential())
        if new.at_ns < state.until_ns:
            return None
        known = [old for old in state.evidence if old.ticket != new.ticket]
        ordered = sorted([*known, new], key=lambda evidence: evidence.at_ns)
        oldest = ordered[-1].at_ns - self.settings.window_ns
        state.evidence = [evidence for evidence in ordered if evidence.at_ns >= oldest]
        if len(state.evidence) < self.settings.threshold:
            return None
        crossing = tuple(state.evidence)
        state.evidence = []
        state.until_ns = crossing[-1].at_ns + self.settings.cool_off_ns
        return Crossing(crossing, state.until_ns)

    def until(self, credential: str, now_ns: int) -> int | None:
        """The end of the credential's cool-off in nanoseconds, while it cools."""
        state = self._credentials.get(credential)
        return state.until_ns if state is not None and now_ns < state.until_ns else None

    def cooling(self, now_ns: int) -> dict[str, int]:
        """Each cooling credential with the end of its cool-off."""
        return {name: state.until_ns for name, state in self._credentials.items() if now_ns < state.until_ns}


# -- the actor ------------------------------------------------------------------------------------------------------


class BackendErrorSeen(Message, frozen=True):
    """A member's turn has ended in a backend error, and the roster says so already."""

    evidence: Evidence
    turn: TurnEnded


class Cooling(Ask[Mapping[str, int]], frozen=True):
    """Each cooling credential with the end of its cool-off, in nanoseconds."""


class Retune(Message, frozen=True):
    """New settings; what cools already keeps its deadline."""

    settings: OutageSettings


class OutagePolicy(Actor):
    """Owns evidence and cool-offs; tells the leads of incidents and passes the turn's result on."""

    def __init__(self, settings: OutageSettings, *, leads: Tells, mail: Tells) -> None:
        super().__init__("outage")
        self._rule = CoolOffs(settings)
        self._leads = leads
        self._mail = mail
        self._incidents = 0

    def __repr__(self) -> str:
        return f"<OutagePolicy {sorted(self._rule.cooling(self.now()))} cooling, {self._incidents} incidents>"

    def handle(self, message: Message) -> object:
        match message:
            case BackendErrorSeen(evidence=evidence, turn=turn):
                self._record(evidence, turn)
            case GateCheck():
                self._read_gate(message)
            case Cooling():
                return self._rule.cooling(self.now())
            case Retune(settings=settings):
                self._rule.settings = settings
            case _:
                raise self.unknown(message)
        return None

    def _record(self, evidence: Evidence, turn: TurnEnded) -> None:
        crossing = self._rule.record(evidence)
        if crossing is None:
            self.log.info(
                "backend error recorded",
                extra={"fleet_credential": evidence.credential, "fleet_member": evidence.target},
            )
            self._mail.tell(turn)
            return
        self._incidents += 1
        found = crossing.evidence
        incident = Incident(
            f"inc-{self._incidents}",
            evidence.credential,
            targets=tuple(dict.fromkeys(each.target for each in found)),
            profiles=tuple(dict.fromkeys(each.profile for each in found)),
            leads=tuple(dict.fromkeys(each.lead for each in found)),
            evidence_count=len(found),
            until_ns=crossing.until_ns,
            cause=turn,
        )
        self.log.warning(
            "incident opened",
            extra={
                "fleet_incident": incident.id,
                "fleet_credential": incident.credential,
                "fleet_members": incident.targets,
            },
        )
        # The leads pass the result on to mail, so that a nudge is under way before a ticket can be read.
        self._leads.tell(incident)

    def _read_gate(self, check: GateCheck) -> None:
        now = self.now()
        cooling = {name: until for name in check.credentials if (until := self._rule.until(name, now)) is not None}
        # The quarantine looked a moment ago; the answer is as of now.
        exhausted = {name: until for name, until in check.exhausted_until.items() if now < until}
        read = GateRead(check.id, exhausted, cooling, self._rule.settings.hold_sends, now)
        tell_if_alive(check.back, read)


#: The seed's policy: two errors within 60 s cool the credential for 60 s.
DEFAULT: Final = OutageSettings()
