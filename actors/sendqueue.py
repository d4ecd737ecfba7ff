"""The sends that wait for one member, and why it takes none any more."""

from __future__ import annotations

from collections import deque
from typing import Final

from actors.actor import Actor, Tells
from actors.sends import Deliver
from actors.turn import Outcome, Phase, Progress, Status, TurnEnded

#: Sends that may wait for one member.
WAITING_SENDS: Final = 8


class SendQueue:
    """First come, first typed; what is never typed ends here.

    Args:
        target: the member's address.
        outlet: takes :class:`Progress` and :class:`TurnEnded`: the roster.
        resolver: whose queue it is; its clock counts.
    """

    def __init__(self, target: str, outlet: Tells, resolver: Actor) -> None:
        self._target = target
        self._outlet = outlet
        self._resolver = resolver
        self._waiting: deque[Deliver] = deque()
        #: Why no delivery is taken any more.
        self.closed: str | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, deliver: Deliver) -> None:
        """Take a send, or refuse it."""
        if self.closed is not None:
            self.refuse(deliver, f"member {self._target} takes no prompt: {self.closed}")
        elif len(self._waiting) >= WAITING_SENDS:
            self.refuse(
                deliver,
                f"member {self._target} has {WAITING_SENDS} sends waiting, the most that may: wait for one to end",
            )
        else:
            self._waiting.append(deliver)
            self._outlet.tell(Progress(deliver.ticket, Phase.QUEUED))

    def take(self) -> Deliver:
        return self._waiting.popleft()

    def close(self, why: str) -> None:
        """Take no more, and refuse those that wait. The first reason stands."""
        self.closed = self.closed or why
        self.end_all(Status.REFUSED, f"member {self._target} takes no prompt: {self.closed}")

    def end_all(self, status: Status, why: str) -> tuple[str, ...]:
        """End all that wait; return their tickets."""
        ended = tuple(deliver.ticket for deliver in self._waiting)
        while self._waiting:
            self.end(self._waiting.popleft(), status, why)
        return ended

    def refuse(self, deliver: Deliver, why: str) -> None:
        self.end(deliver, Status.REFUSED, why)

    def end(self, deliver: Deliver, status: Status, why: str) -> None:
        """End a send that was never typed."""
        self._outlet.tell(TurnEnded(self._target, deliver.ticket, Outcome(status, reason=why), self._resolver.now()))
