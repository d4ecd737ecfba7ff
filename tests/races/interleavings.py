"""Every interleaving of several actors' steps.

:mod:`fleetd.testing.merges` shows every order in which messages reach *one* mailbox. Here the orders are those of many:
the actors are real and so are their mailboxes, but nobody runs them. A :class:`World` lets one of those that have
something to read take a step, then another; which one is a choice, and :func:`interleavings` plays a scene once for
each way to choose. What passes all of them passes whatever Trio's scheduler does.

Most ways to choose differ only in the order of two steps that know nothing of each other, and come to the same. So
each step's *footprint* is noted: whose step it was, and the mailboxes that it wrote to. Two steps with nothing in
common are played in one order only (the rule of sleep sets): three results on their way to mail come in 16 orders
instead of more than 40,000. An actor that looked at another one's state behind the mailbox's back would go unnoticed;
where that is the mistake to catch, a scene is played in *all* orders.

Two things beside actors take steps: a client's script, which says so when it looks at more than the answers that it has
waited for (:meth:`World.look`), and a timer that is due. An effect is run in the step that starts it, so a scene's
effects must not wait.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Coroutine, Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import outcome

from actors.actor import Actor, Ask, Message, tell_if_alive

A = TypeVar("A", bound=Actor)
M = TypeVar("M", bound=Message)
R = TypeVar("R")

#: Ways to play one scene; more are no test any more.
MOST: Final = 20_000

#: What a client does: steps, and between them what it waits for, or ``None`` to go on in a later step.
Script = Generator[Callable[[], bool] | None, None, None]
Footprint = frozenset[str]
EVERYTHING: Final = "everything"


class Redundant(Exception):
    """Whatever can be done now leads to an interleaving that has been played."""


class _Timer:
    def __init__(self, world: World, name: str, due_ns: int, actor: Actor, message: Message) -> None:
        self._world = world
        self.name, self.due_ns, self.actor, self.message = name, due_ns, actor, message
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True
        self._world.touched(self.name)


class _Client:
    def __init__(self, name: str, script: Script) -> None:
        self.name, self._script = name, script
        self.waits_for: Callable[[], bool] | None = None

    def step(self) -> bool:
        """Take a step; say whether there is another."""
        try:
            self.waits_for = next(self._script)
        except StopIteration:
            return False
        return True


class _Teller(_Client):
    """Tells messages to an actor. It knows which is the last, and so takes no step more."""

    def __init__(self, name: str, actor: Actor, messages: Sequence[Message]) -> None:
        self.name, self.waits_for = name, None
        self._actor, self._messages = actor, deque(messages)

    def step(self) -> bool:
        tell_if_alive(self._actor, self._messages.popleft())
        return bool(self._messages)


class _Point:
    """A moment with something to choose: what has been chosen there, and what came of it."""

    def __init__(self, asleep: Mapping[str, Footprint]) -> None:
        self.played = dict(asleep)


class World:
    """Actors that step when they are chosen to, on a clock that stands until the test moves it."""

    def __init__(self, path: Sequence[tuple[_Point, str]] = (), *, every: bool = False) -> None:
        self.ns = 0
        self._every = every
        #: Each message with the name of the actor that handled it, in the order in which they were handled.
        self.handled: list[tuple[str, Message]] = []
        self._path = path
        self._taken: list[tuple[_Point, str]] = []
        #: Other ways to play this scene that were seen on the way.
        self.others: list[list[tuple[_Point, str]]] = []
        self._asleep: Mapping[str, Footprint] = {}
        self._touched: set[str] = set()
        self._mail: Counter[str] = Counter()
        self._actors: dict[str, Actor] = {}
        self._clients: list[_Client] = []
        self._timers: list[_Timer] = []
        self._numbers = 0

    # -- who takes part ----------------------------------------------------------------------------------------------

    def add(self, actor: A) -> A:
        """Let an actor take part."""
        append = actor.tell

        def tell(message: Message) -> None:
            append(message)
            self._mail[actor.name] += 1
            self.touched(f"to {actor.name}")

        def after(delay_ns: int, message: Message) -> _Timer:
            timer = _Timer(self, self._number("timer"), self.ns + max(0, delay_ns), actor, message)
            self._timers.append(timer)
            return timer

        actor.tell, actor.after = tell, after  # type: ignore
        actor.now = lambda: self.ns
        actor.effects = self
        self._actors[actor.name] = actor
        return actor

    def client(self, script: Script) -> None:
        """Let a client take part; its first step is a choice like all others."""
        self._clients.append(_Client(self._number("client"), script))

    def tells(self, actor: Actor, *messages: Message) -> None:
        """Somebody tells an actor something, message by message, whenever that may be. It may have ended by then."""
        self._clients.append(_Teller(self._number("client"), actor, messages))

    def start_soon(self, async_fn: Callable[..., Any], *args: object, name: object = None) -> None:
        """See :class:`actors.actor.Effects`."""
        owner = getattr(async_fn, "__self__", None)
        actors = [each for each in (owner, *args) if isinstance(each, Actor)]
        if actors:
            self.add(actors[0])  # a push loop's run, or a resolver that is isolated
        else:
            _at_once(async_fn(*args))

    def touched(self, name: str) -> None:
        """The step that is taken now has to do with this."""
        self._touched.add(name)

    def look(self) -> None:
        """A script is about to look at more than what it waited for, or to change it."""
        self.touched(EVERYTHING)

    def take(self, actor: Actor) -> Message:
        """Take the oldest message out of a mailbox."""
        self._mail[actor.name] -= 1
        return actor._receive.receive_nowait()

    def _number(self, kind: str) -> str:
        self._numbers += 1
        return f"{kind} {self._numbers}"

    # -- steps -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Step until nobody has anything to do at this time.

        Raises:
            Redundant: this way has been played.
        """
        while steps := self._steps():
            point, name = self._choose(list(steps))
            self._touched = {name, EVERYTHING} if self._every else {name}
            steps[name]()
            footprint = frozenset(self._touched)
            self._asleep = {key: other for key, other in point.played.items() if not _meet(other, footprint)}
            point.played[name] = footprint

    def settle(self) -> None:
        """Step until nobody has anything to do, in one order: what leads up to a race is none."""
        while steps := self._steps():
            next(iter(steps.values()))()

    def _choose(self, names: Sequence[str]) -> tuple[_Point, str]:
        if len(self._taken) < len(self._path):
            point, name = self._path[len(self._taken)]
        else:
            point = _Point(self._asleep)
            awake = [name for name in names if name not in self._asleep]
            if not awake:
                raise Redundant
            name = awake[0]
            self.others += [[*self._taken, (point, other)] for other in reversed(awake[1:])]
        self._taken.append((point, name))
        return point, name

    def _steps(self) -> dict[str, Callable[[], None]]:
        steps: dict[str, Callable[[], None]] = {}
        for actor in self._actors.values():
            if self._mail[actor.name] and not actor._stopped:
                steps[actor.name] = partial(self._step, actor)
        for client in self._clients:
            if client.waits_for is None or client.waits_for():
                steps[client.name] = partial(self._play, client)
        for timer in self._timers:
            if timer.due_ns <= self.ns and not timer.cancelled:
                steps[timer.name] = partial(self._fire, timer)
        return steps

    def _step(self, actor: Actor) -> None:
        message = self.take(actor)
        self.handled.append((actor.name, message))
        actor._step(message)
        if actor._stopped:
            # What comes now is refused, so this does not go with any step that writes to it.
            self.touched(f"to {actor.name}")
            actor._dismiss(None)

    def _play(self, client: _Client) -> None:
        if not client.step():
            self._clients.remove(client)

    def _fire(self, timer: _Timer) -> None:
        self._timers.remove(timer)
        if not timer.actor._stopped:
            timer.actor.tell(timer.message)

    # -- looking -----------------------------------------------------------------------------------------------------

    def order(self, by: str, *kinds: type[M]) -> list[M]:
        """The messages of some types that an actor has handled, in their order."""
        return [message for name, message in self.handled if name == by and isinstance(message, kinds)]


def _meet(one: Footprint, other: Footprint) -> bool:
    return EVERYTHING in one or EVERYTHING in other or not one.isdisjoint(other)


def _at_once(effect: Coroutine[Any, Any, object]) -> None:
    """Run an effect that waits for nothing."""
    try:
        effect.send(None)
    except StopIteration:
        return
    raise AssertionError("an effect of this scene waits, and nobody runs it here")


def told(actor: Actor, ask: Ask[R]) -> Ask[R]:
    """Tell an ask and return it, for a script that looks at its reply later."""
    actor.tell(ask)
    return ask


def is_answered(ask: Ask[Any]) -> bool:
    return ask.reply.settled


def result(ask: Ask[Any]) -> Any:
    """What an ask was answered with, or the exception that refused it."""
    came = ask.reply._outcome
    assert came is not None, f"{type(ask).__name__} was never answered"
    return came.error if isinstance(came, outcome.Error) else came.value  # type: ignore[attr-defined]


def interleavings(scene: Callable[[World], R], *, every: bool = False) -> Iterator[R]:
    """Play a scene once for each interleaving that differs from the others; yield what it returns.

    Args:
        every: also those that differ in the order of independent steps only.
    """
    waiting: list[list[tuple[_Point, str]]] = [[]]
    for _ in range(MOST):
        if not waiting:
            return
        world = World(waiting.pop(), every=every)
        try:
            result = scene(world)
        except Redundant:
            continue
        finally:
            waiting += world.others
        yield result
    raise AssertionError(f"more than {MOST} ways to play the scene: make it smaller")
