"""The tool that plays every interleaving: it leaves none out that matters, and plays none twice."""

from __future__ import annotations

from collections.abc import Generator

import pytest
import trio

from actors.actor import Actor, Message
from fleetd.testing.merges import merges
from tests.races.interleavings import World, interleavings


class Word(Message, frozen=True):
    text: str


class Writer(Actor):
    """Writes down what it is told, and tells it on where it has somebody to."""

    def __init__(self, name: str, *then: Actor) -> None:
        super().__init__(name)
        self.written: list[str] = []
        self._then = then

    def handle(self, message: Message) -> object:
        assert isinstance(message, Word)
        self.written.append(message.text)
        for other in self._then:
            other.tell(message)
        return None


def test_senders_to_one_mailbox_come_in_every_merge_and_in_each_once() -> None:
    def scene(world: World) -> tuple[str, ...]:
        writer = world.add(Writer("writer"))
        for words in ("ab", "xyz"):
            world.tells(writer, *map(Word, words))
        world.run()
        return tuple(writer.written)

    found = list(interleavings(scene))
    assert len(found) == len(set(found))
    assert set(found) == set(merges("ab", "xyz"))


def test_steps_that_have_nothing_in_common_are_played_in_one_order() -> None:
    def scene(world: World) -> None:
        for name in ("one", "other"):
            world.tells(world.add(Writer(name)), Word("a"), Word("b"))
        world.run()

    assert len(list(interleavings(scene))) == 1
    assert len(list(interleavings(scene, every=True))) > 20


def test_leaving_those_out_loses_no_outcome() -> None:
    """Roads of different length from three senders to one end."""

    def scene(world: World) -> tuple[str, ...]:
        end = world.add(Writer("end"))
        middle = world.add(Writer("middle", end))
        start = world.add(Writer("start", middle))
        for word, actor in zip("abc", (start, middle, end), strict=True):
            world.tells(actor, Word(word))
        world.run()
        return tuple(end.written)

    found = list(interleavings(scene))
    assert len(found) == len(set(found))
    assert set(found) == set(interleavings(scene, every=True))


def test_a_timer_fires_at_its_time_or_not_at_all_and_may_be_cancelled_by_a_step() -> None:
    class Cancels(Writer):
        timer: trio.CancelScope

        def handle(self, message: Message) -> object:
            if message == Word("stop"):
                self.timer.cancel()
            return super().handle(message)

    def scene(world: World) -> tuple[str, ...]:
        actor = world.add(Cancels("actor"))
        actor.timer = actor.after(5, Word("rings"))
        actor.after(6, Word("too late"))
        world.ns = 5
        world.tells(actor, Word("stop"))
        world.run()
        return tuple(actor.written)

    assert set(interleavings(scene)) == {("stop",), ("rings", "stop"), ("stop", "rings")}


def test_an_effect_that_waits_is_refused() -> None:
    class Nothing:
        def __await__(self) -> Generator[None, None, None]:
            yield

    async def waits() -> None:
        await Nothing()

    def scene(world: World) -> None:
        world.add(Writer("actor")).start(waits, lambda _: Word("done"))

    with pytest.raises(AssertionError, match="waits, and nobody runs it here"):
        next(interleavings(scene))
