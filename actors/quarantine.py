"""The quarantine: a used-up quota closes its credential for long.

Another state than a cool-off, with another text and another length: it wins over a cool-off wherever both hold. It
lasts until the program says that the quota comes back, or for a configured while where that is not known. No closing
may outlive its evidence for ever, so after a day at most the credential is tried again. A repeat restarts the one
deadline of its credential.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from actors.actor import Actor, Ask, Message, Tells
from actors.clock import NS_PER_S
from actors.gate import GateCheck
from actors.turn import TurnEnded

#: The shortest and the longest closing that a program's word on its reset leads to, in nanoseconds.
CLOSING_NS: Final = (60 * NS_PER_S, 24 * 3600 * NS_PER_S)


class ExhaustionSeen(Message, frozen=True):
    """A member's turn has ended because the credential's quota is used up, and the roster says so already."""

    credential: str
    turn: TurnEnded


class Quarantined(Ask[Mapping[str, int]], frozen=True):
    """Each exhausted credential with the end of its quarantine, in nanoseconds."""


class SetCooldown(Message, frozen=True):
    """``quarantineCooldownSeconds``, in nanoseconds; deadlines that run already stay."""

    cooldown_ns: int


class Quarantine(Actor):
    """Owns exhaustion deadlines by credential; passes the turn's result on to mail."""

    def __init__(self, cooldown_ns: int, *, policy: Tells, mail: Tells) -> None:
        super().__init__("quarantine")
        self._cooldown_ns = cooldown_ns
        self._policy = policy
        self._mail = mail
        self._until: dict[str, int] = {}

    def __repr__(self) -> str:
        return f"<Quarantine {sorted(self._open())} exhausted>"

    def handle(self, message: Message) -> object:
        match message:
            case ExhaustionSeen(credential=credential, turn=turn):
                self._until[credential] = turn.at_ns + self._length_ns(turn.outcome.resets_in_ns)
                self.log.warning(
                    "credential exhausted", extra={"fleet_credential": credential, "fleet_member": turn.target}
                )
                self._mail.tell(turn)
            case GateCheck(credentials=names):
                shut = {name: until for name, until in self._open().items() if name in names}
                self._policy.tell(msgspec.structs.replace(message, exhausted_until=shut))
            case Quarantined():
                return self._open()
            case SetCooldown(cooldown_ns=cooldown_ns):
                self._cooldown_ns = cooldown_ns
            case _:
                raise self.unknown(message)
        return None

    def _length_ns(self, resets_in_ns: int | None) -> int:
        shortest, longest = CLOSING_NS
        return self._cooldown_ns if resets_in_ns is None else min(max(resets_in_ns, shortest), longest)

    def _open(self) -> dict[str, int]:
        now = self.now()
        self._until = {name: until for name, until in self._until.items() if now < until}
        return dict(self._until)
