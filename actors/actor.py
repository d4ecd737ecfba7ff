"""The actor kernel: a task, a bounded mailbox, and an answer for everyone who asks.

An actor owns its state and reads one memory channel. ``handle`` is an ordinary function: it may not await, so
each message is one atomic step, and a race between two senders is only ever the question whose message came first
in this one mailbox. There is no lock anywhere, and because an actor cannot wait for another, a deadlock by mutual
waiting cannot be written.

* ``tell`` appends to a mailbox now. It never blocks and never lets another task run, so what one step tells to two
  actors is in both mailboxes before anybody else can look.
* ``ask`` is for the edges of the program (a client's connection, the command line, a test), never for an actor. It
  always ends: with the answer, with the refusal that the handler raised, with :class:`ActorDead`, or with
  :class:`Unanswered` after its deadline.
* Work that takes time runs in an *effect*, a task beside the loop, which tells its actor how it ended.

A handler that raises a :class:`Refused` for an ask answers that ask and goes on: it is what the caller did. Any other
exception ends the actor, because state that a failed step may have left half changed is worth nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import outcome
import trio

from actors.clock import now_ns, to_seconds

R = TypeVar("R")
T = TypeVar("T")

#: Waiting messages per mailbox. The usual depth is 0 to 3: a deeper queue only hides a stalled reader for longer.
MAILBOX_CAPACITY: Final = 256

#: How long an edge waits for an answer, in seconds, when it does not say.
ASK_DEADLINE_S: Final = 10.0


class Message(msgspec.Struct, frozen=True):
    """What a mailbox holds."""


#: Told of each message just before its actor handles it, in the tasks below where it was set. For a test's timeline.
observer: Final[ContextVar[Callable[[Actor, Message], None] | None]] = ContextVar("observer", default=None)


class Reply(Generic[R]):
    """A slot that the answering actor fills at most once and one asker reads."""

    def __init__(self) -> None:
        #: The asker has gone. An actor about to do something costly may look.
        self.abandoned = False
        self._filled = trio.Event()
        self._outcome: outcome.Outcome[R] | None = None

    @property
    def settled(self) -> bool:
        return self._outcome is not None

    def settle(self, result: outcome.Outcome[R]) -> None:
        """Fill the slot. The first answer stands; a later one is a no-op."""
        if self._outcome is None:
            self._outcome = result
            self._filled.set()

    def answer(self, value: R) -> None:
        self.settle(outcome.Value(value))

    def refuse(self, why: Exception) -> None:
        self.settle(outcome.Error(why))

    async def wait(self) -> R:
        try:
            await self._filled.wait()
        except trio.Cancelled:
            self.abandoned = True
            raise
        assert self._outcome is not None
        return self._outcome.unwrap()


class Ask(Message, Generic[R], frozen=True, kw_only=True):
    """A message whose sender waits for the answer."""

    reply: Reply[R] = msgspec.field(default_factory=Reply)


class Ping(Ask[None], frozen=True):
    """Answered by every actor as soon as its loop comes to it: it is alive, and not behind for long."""


class Later:
    """Returned by ``handle`` when the answer to an ask comes in a later step."""


LATER: Final = Later()


class ActorError(Exception):
    """The kernel could not deliver a message or an answer. Domain refusals are :class:`Refused`."""


class MailboxFull(ActorError):
    """A mailbox holds as many messages as it may. Raised in the *sender*: nothing is dropped in silence."""


class ActorDead(ActorError):
    """The actor has ended: nobody will read the message. Unlike :class:`Unanswered`, waiting longer cannot help."""


class Unanswered(ActorError):
    """The actor lives but did not answer within the asker's deadline."""


class Refused(Exception):
    """An expected "no" to an ask. It is the caller's to read, and leaves the actor's state as it was."""

    #: A stable word for programs; the message is for people.
    error = "refused"

    def data(self) -> dict[str, object]:
        """What a client gets beside the message."""
        return {"error": self.error, "message": str(self)}


class Tells(Protocol):
    """An address: whatever a message can be told to."""

    def tell(self, message: Message) -> None: ...


class Address:
    """An address given out before its actor exists: actors that tell each other in a circle are built with one."""

    def __init__(self) -> None:
        self._actor: Tells | None = None

    def bind(self, actor: Tells) -> None:
        self._actor = actor

    def tell(self, message: Message) -> None:
        assert self._actor is not None, f"{type(message).__name__} told to an address that is not bound yet"
        self._actor.tell(message)


def tell_if_alive(address: Tells, message: Message) -> bool:
    """Tell somebody who may have ended meanwhile, as a released member has; say whether there was anybody."""
    try:
        address.tell(message)
    except ActorDead:
        logging.getLogger("fleetd.actor").debug("told nobody", extra={"fleet_message": type(message).__name__})
        return False
    return True


#: Actors whose loop runs now, in this process.
_running: Final[set[Actor]] = set()


def running() -> tuple[Actor, ...]:
    """Every actor whose loop runs now, by name: for the state dump, which must not depend on any of them."""
    return tuple(sorted(_running, key=lambda actor: actor.name))


class Effects(Protocol):
    """Where an actor starts its effects: its own nursery, or a recorder in a test that drives ``handle`` itself."""

    def start_soon(self, async_fn: Callable[..., Awaitable[object]], *args: object, name: object = None) -> None: ...


class Actor:
    """Subclass it and write ``handle``.

    Args:
        name: how logs, errors and the state dump call it.
        now: the clock in integer nanoseconds; Trio's by default.
    """

    capacity = MAILBOX_CAPACITY

    def __init__(self, name: str, *, now: Callable[[], int] = now_ns) -> None:
        self.name = name
        self.now = now
        self.log = logging.getLogger(f"fleetd.{type(self).__name__.lower()}")
        self.effects: Effects | None = None
        #: The last message taken from the mailbox but for pings, for the state dump.
        self.last: Message | None = None
        self._stopped = False
        self._send, self._receive = trio.open_memory_channel[Message](self.capacity)
        self._owed: set[Reply[object]] = set()

    # -- for senders ---------------------------------------------------------------------------------------------

    def tell(self, message: Message) -> None:
        """Append to the mailbox now.

        Raises:
            MailboxFull: ``capacity`` messages wait already.
            ActorDead: the actor has ended.
        """
        try:
            self._send.send_nowait(message)
        except trio.WouldBlock:
            raise MailboxFull(
                f"actor {self.name} has {self.capacity} messages waiting and takes no more: "
                f"{type(message).__name__} was not delivered; its reader is stalled"
            ) from None
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            raise ActorDead(f"actor {self.name} has ended: {type(message).__name__} was not delivered") from None

    async def ask(self, message: Ask[R], within_s: float = ASK_DEADLINE_S) -> R:
        """Tell, then wait for the answer. For edges only: an actor never asks.

        Args:
            within_s: the deadline in seconds; ``math.inf`` for none.

        Raises:
            Refused: the handler's "no".
            MailboxFull, ActorDead: as :meth:`tell`; also when the actor ends before it answers.
            Unanswered: no answer within ``within_s``.
        """
        self.tell(message)
        with trio.move_on_after(within_s):
            return await message.reply.wait()
        raise Unanswered(f"actor {self.name} did not answer {type(message).__name__} within {within_s:g} s")

    @property
    def depth(self) -> int:
        """Messages that wait in the mailbox now."""
        return self._receive.statistics().current_buffer_used

    # -- for subclasses ------------------------------------------------------------------------------------------

    def handle(self, message: Message) -> object:
        """Take one message. The return value answers an ask, unless it is :data:`LATER`."""
        raise self.unknown(message)

    def unknown(self, message: Message) -> TypeError:
        """The error for a message that this actor has no case for: always a mistake in the program."""
        return TypeError(f"actor {self.name} has no case for {type(message).__name__}")

    def stop(self) -> None:
        """End the loop after this message; what still waits is answered with :class:`ActorDead`."""
        self._stopped = True

    def start(
        self, work: Callable[[], Awaitable[T]], then: Callable[[outcome.Outcome[T]], Message], name: str = "effect"
    ) -> None:
        """Run ``work`` beside the loop and tell this actor ``then(result)`` when it ends, well or badly."""

        async def effect() -> None:
            result: outcome.Outcome[T]
            try:
                result = outcome.Value(await work())
            except Exception as exc:  # the actor decides what a failed effect means
                result = outcome.Error(exc)
            tell_if_alive(self, then(result))

        assert self.effects is not None, f"actor {self.name} is not running"
        self.effects.start_soon(effect, name=f"{self.name}.{name}")

    def after(self, delay_ns: int, message: Message) -> trio.CancelScope:
        """Tell this actor ``message`` in ``delay_ns`` nanoseconds, unless the returned scope is cancelled before."""
        scope = trio.CancelScope()

        async def timer() -> None:
            with scope:
                await trio.sleep(to_seconds(max(0, delay_ns)))
                tell_if_alive(self, message)

        assert self.effects is not None, f"actor {self.name} is not running"
        self.effects.start_soon(timer, name=f"{self.name}.timer")
        return scope

    # -- the loop ------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Handle messages until :meth:`stop`, a crash or cancellation. Effects end with it."""
        message: Message | None = None
        _running.add(self)
        try:
            async with trio.open_nursery() as nursery:
                self.effects = nursery
                while not self._stopped:
                    message = None
                    message = await self._receive.receive()
                    if not isinstance(message, Ping):
                        self.last = message
                    self._step(message)
                nursery.cancel_scope.cancel()
        finally:
            _running.discard(self)
            self._dismiss(message)

    def _step(self, message: Message) -> None:
        if (observe := observer.get()) is not None:
            observe(self, message)
        if not isinstance(message, Ask):
            self.handle(message)
            return
        if isinstance(message, Ping):
            message.reply.answer(None)
            return
        try:
            answer = self.handle(message)
        except Refused as no:
            message.reply.refuse(no)
            return
        if answer is LATER:
            self._owed = {reply for reply in self._owed if not (reply.settled or reply.abandoned)}
            self._owed.add(message.reply)
        else:
            message.reply.answer(answer)

    def _dismiss(self, current: Message | None) -> None:
        """Leave no asker waiting on a dead actor: the one in hand, those owed an answer, those still queued."""
        self._send.close()
        dead = ActorDead(f"actor {self.name} has ended")
        queued: list[Message] = [] if current is None else [current]
        while True:
            try:
                queued.append(self._receive.receive_nowait())
            except (trio.EndOfChannel, trio.WouldBlock):
                break
        self._receive.close()
        for message in queued:
            if isinstance(message, Ask):
                message.reply.refuse(dead)
        for reply in self._owed:
            reply.refuse(dead)
        self._owed.clear()
