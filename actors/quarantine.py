"""The quarantine: a used-up quota closes its credential for long.

Another state than a cool-off, with another text and another length: it wins over a cool-off wherever both hold. A
repeat restarts the one deadline of its credential.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from actors.actor import Actor, Ask, Message, Tells
from actors.gate import GateCheck
from actors.turn import TurnEnded


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
                self._until[credential] = turn.at_ns + self._cooldown_ns
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

    def _open(self) -> dict[str, int]:
        now = self.now()
        self._until = {name: until for name, until in self._until.items() if now < until}
        return dict(self._until)
