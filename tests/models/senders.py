"""Two senders to one mailbox: every merge of what they tell, and a sentence that must be true after each step.

A mailbox is shown as a :class:`Scene`: its actor between recorders, its senders with their messages, and what must
hold. Some messages are answers: what the disk, the gate or a keyboard says depends on what it was asked by then. Such
a sender has functions for messages, which return ``None`` where there is nothing to say yet.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final, TypeVar

import outcome

from actors.actor import LATER, Actor, Ask, Message
from actors.clock import NS_PER_S
from actors.journal import Entry, NotRecorded, Recorded
from fleetd.testing.merges import merges
from tests.actors.recorders import Clock, Recorder, driven

S: Final = NS_PER_S
M = TypeVar("M", bound=Message)
Step = Message | Callable[[], Message | None]


class Scene:
    """One actor between recorders."""

    #: What each sender tells, in its own order.
    senders: Mapping[str, Sequence[Step]]

    def __init__(self, actor: Actor) -> None:
        self.actor: Any = actor
        self.clock = Clock(100 * S)
        driven(actor, self.clock)
        actor.start = self._started  # type: ignore[method-assign]
        #: Effects that were started and have not ended: the work, and what becomes of its result.
        self.effects: deque[tuple[Callable[[], Coroutine[Any, Any, Any]], Callable[[Any], Message]]] = deque()
        self.told: list[Message] = []
        self._taken: set[int] = set()

    def _started(self, work: Any, then: Any, name: str = "effect") -> None:
        self.effects.append((work, then))

    def play(self, step: Step) -> None:
        message = step() if callable(step) else step
        if message is None or self.actor._stopped:
            return
        self.told.append(message)
        self.actor._step(message)
        self.holds()

    def heard(self, *kinds: type[Message]) -> list[Any]:
        """The messages of some types that the actor has handled, in their order."""
        return [message for message in self.told if isinstance(message, kinds)]

    def before(self, *steps: Step) -> None:
        """What has happened before the two senders come."""
        for step in steps:
            message = step() if callable(step) else step
            assert message is not None
            self.actor._step(message)

    def oldest(self, recorder: Recorder, kind: type[M]) -> M | None:
        """The oldest message of a kind that a recorder holds and that has not been taken out here."""
        for message in recorder.only(kind):
            if id(message) not in self._taken:
                self._taken.add(id(message))
                return message
        return None

    def holds(self) -> None:
        """What is true after every step."""

    def over(self) -> None:
        """What is true when both have told everything; may let those go on who owe an answer."""


def pairs(*scenes: type[Any]) -> list[tuple[type[Any], str, str]]:
    """Each two senders of each mailbox."""
    return [(scene, one, other) for scene in scenes for one, other in combinations(scene().senders, 2)]


def every_merge(make: Callable[[], Scene], one: str, other: str) -> None:
    """Play every merge of two senders' messages."""
    lengths = {name: len(make().senders[name]) for name in (one, other)}
    for order in merges([one] * lengths[one], [other] * lengths[other]):
        scene = make()
        left: dict[str, Iterator[Step]] = {name: iter(scene.senders[name]) for name in (one, other)}
        try:
            for name in order:
                scene.play(next(left[name]))
            scene.over()
        except AssertionError as wrong:
            wrong.add_note(f"in the order: {', '.join(order)}; handled: {scene.told}")
            raise


class Disk:
    """A journal whose disk answers when the test lets it; see :class:`actors.journal.Journaling`."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Actor | None, Message | None, tuple[Entry, ...]]] = deque()
        #: What a daemon would find after a crash.
        self.kept: dict[tuple[str, str], bytes | None] = {}
        #: What the disk has refused.
        self.refused: list[Message] = []

    def record(self, actor: Actor, then: Message, *entries: Entry) -> object:
        self._queue.append((actor, then, entries))
        return LATER

    def note(self, *entries: Entry) -> None:
        self._queue.append((None, None, entries))

    async def keep(self, *entries: Entry) -> None:
        self.note(*entries)

    def _next(self) -> tuple[Message, tuple[Entry, ...]] | None:
        while self._queue:
            _, then, entries = self._queue.popleft()
            if then is not None:
                return then, entries
            self._write(entries)
        return None

    def _write(self, entries: tuple[Entry, ...]) -> None:
        self.kept |= {(entry.kind, entry.id): entry.body for entry in entries}

    def safe(self) -> Message | None:
        """The oldest record has been written."""
        if (asked := self._next()) is None:
            return None
        self._write(asked[1])
        return Recorded(asked[0])

    def full(self) -> Message | None:
        """The oldest record could not be written."""
        if (asked := self._next()) is None:
            return None
        self.refused.append(asked[0])
        return NotRecorded(asked[0], "no space left")

    def body(self, kind: str, name: str) -> bytes | None:
        return self.kept.get((kind, name))


def flush(scene: Scene, disk: Disk) -> None:
    """Let the disk write all that it has been given."""
    while (message := disk.safe()) is not None:
        scene.play(message)


def at_once(work: Coroutine[Any, Any, Any]) -> outcome.Outcome[Any]:
    """What comes of an effect that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return outcome.Value(done.value)
    except Exception as exc:
        return outcome.Error(exc)
    raise AssertionError("this effect waits")


def result(ask: Ask[Any]) -> Any:
    """What an ask was answered with, or the exception that refused it; ``None`` while it has no answer."""
    match ask.reply._outcome:
        case outcome.Value(value=value):
            return value
        case outcome.Error(error=error):
            return error
    return None
