"""Hand-written stand-ins for an actor's neighbours: they record what they are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import trio

from actors.actor import Actor, Message, Reply
from actors.host import PaneRef
from actors.screen import Frame, Reading, Sent, State

M = TypeVar("M", bound=Message)


class Recorder:
    """An address that keeps what it is told, in order."""

    def __init__(self, name: str = "recorder", journal: list[tuple[str, Message]] | None = None) -> None:
        self.name = name
        self.told: list[Message] = []
        self._journal = journal

    def tell(self, message: Message) -> None:
        self.told.append(message)
        if self._journal is not None:
            self._journal.append((self.name, message))

    def only(self, kind: type[M]) -> list[M]:
        """The messages of one type."""
        return [message for message in self.told if isinstance(message, kind)]


class Clock:
    """Nanoseconds that a test sets."""

    def __init__(self, ns: int = 0) -> None:
        self.ns = ns

    def __call__(self) -> int:
        return self.ns

    def advance(self, seconds: float) -> None:
        self.ns += round(seconds * 1_000_000_000)


class Effects:
    """Records the effects that an actor starts, so that ``handle`` can be driven without Trio."""

    def __init__(self) -> None:
        self.started: list[str] = []

    def start_soon(self, async_fn: Callable[..., object], *args: object, name: object = None) -> None:
        self.started.append(str(name))


def driven(actor: Actor, clock: Clock) -> Actor:
    """An actor whose ``handle`` the test calls itself, on the test's clock."""
    actor.effects = Effects()
    actor.now = clock
    return actor


class TableGrammar:
    """Reads frames by the first line of their text: ``busy``, ``idle``, ``blocked``, ``unknown``, ``draft``.

    The rest of the lines are the scope; a line that starts with ``* `` begins the answer block.
    """

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        word, *scope = frame.lines or ("idle",)
        state = State(word) if word in set(State) else State.IDLE
        starts = [index for index, line in enumerate(scope) if line.startswith("* ")]
        block_at = starts[-1] if starts else None
        shown = scope if block_at is None else scope[block_at:]
        return Reading(
            state,
            scope=tuple(scope),
            block_at=block_at,
            answer="\n".join(line.removeprefix("* ") for line in shown),
            input_open=state is not State.BLOCKED,
            draft="half a line" if word == "draft" else "",
            interrupted=word == "interrupted",
        )


def frame(*lines: str, at_s: float = 0.0, **more: object) -> Frame:
    return Frame(tuple(lines), at_ns=round(at_s * 1_000_000_000), **more)  # type: ignore[arg-type]


class SilentHost:
    """A pane host that shows nothing and takes everything: for actors that only need one to exist."""

    name = "silent"
    outlives_daemon = False

    async def capture(self, panes: object, *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        return {}


def answered(reply: Reply[object]) -> object:
    """The value that an ask was answered with already."""
    assert reply.settled
    return reply._outcome.unwrap()  # type: ignore[union-attr]


async def settle() -> None:
    """Until every task waits: every message that can be handled has been handled."""
    await trio.testing.wait_all_tasks_blocked()
