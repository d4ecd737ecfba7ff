"""The journal: nothing is acknowledged before it is safe, nothing refused is forgotten, and nothing grows."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from actors.actor import LATER, Actor, ActorDead, Ask, Message
from actors.clock import to_seconds
from actors.journal import (
    AGAIN_NS,
    Entry,
    Forgetful,
    Journal,
    Journaling,
    NotKept,
    NotRecorded,
    Recorded,
    StoreRefused,
    by_kind,
)
from actors.supervise import leaf
from tests.actors.recorders import settle

AGAIN_S = to_seconds(AGAIN_NS)


def entry(id: str, body: bytes | None = b"x", kind: str = "ticket") -> Entry:
    return Entry(kind, id, body)


class Disk:
    """A store that writes when it is let, or refuses."""

    def __init__(self) -> None:
        #: What each write was given, refused ones too.
        self.tried: list[tuple[str, ...]] = []
        self.records: dict[tuple[str, str], bytes | None] = {}
        self.refuses = ""
        self.breaks: Exception | None = None
        self.lets = trio.Event()
        self.lets.set()

    async def write(self, entries: Sequence[Entry]) -> None:
        self.tried.append(tuple(each.id for each in entries))
        await self.lets.wait()
        if self.breaks is not None:
            raise self.breaks
        if self.refuses:
            raise StoreRefused(self.refuses)
        self.records |= {(each.kind, each.id): each.body for each in entries}

    @property
    def kept(self) -> set[str]:
        return {id for (_, id), body in self.records.items() if body is not None}


class Promise(Ask[str], frozen=True):
    """Have this recorded; the answer says what came of it."""

    id: str


class _Promised(Message, frozen=True):
    ask: Promise


class Promiser(Actor):
    """An actor with a write-ahead."""

    def __init__(self, journal: Journaling) -> None:
        super().__init__("promiser")
        self.journal = journal

    def handle(self, message: Message) -> object:
        match message:
            case Promise(id=id):
                return self.journal.record(self, _Promised(message), entry(id))
            case Recorded(then=_Promised(ask=ask)):
                ask.reply.answer("safe")
                return "safe"
            case NotRecorded(then=_Promised(ask=ask), why=why):
                ask.reply.answer(f"not safe: {why}")
            case _:
                raise self.unknown(message)
        return None


class Stage:
    def __init__(self) -> None:
        self.disk = Disk()
        self.journal = Journal(self.disk)
        self.promiser = Promiser(self.journal)


@asynccontextmanager
async def running() -> AsyncIterator[Stage]:
    stage = Stage()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.journal.run)
        nursery.start_soon(stage.promiser.run)
        yield stage
        nursery.cancel_scope.cancel()


async def test_an_actor_goes_on_only_once_its_record_is_safe(autojump_clock: MockClock) -> None:
    async with running() as stage, trio.open_nursery() as nursery:
        stage.disk.lets = trio.Event()
        answers: list[str] = []

        async def promise() -> None:
            answers.append(await stage.promiser.ask(Promise("t-1")))

        nursery.start_soon(promise)
        await settle()
        assert (stage.disk.tried, answers) == ([("t-1",)], [])
        stage.disk.lets.set()
        await settle()
        assert (stage.disk.kept, answers) == ({"t-1"}, ["safe"])


async def test_what_comes_while_a_write_is_under_way_goes_together_in_the_next_in_its_order(
    autojump_clock: MockClock,
) -> None:
    async with running() as stage:
        stage.disk.lets = trio.Event()
        stage.journal.note(entry("t-1"))
        await settle()
        stage.journal.note(entry("t-2"), entry("t-3"))
        stage.journal.note(entry("t-4", None))
        stage.promiser.tell(Promise("t-5"))
        await settle()
        assert stage.disk.tried == [("t-1",)]
        stage.disk.lets.set()
        await settle()
        assert stage.disk.tried == [("t-1",), ("t-2", "t-3", "t-4", "t-5")]


async def test_keep_returns_once_all_that_came_before_it_is_safe(autojump_clock: MockClock) -> None:
    async with running() as stage:
        stage.journal.note(entry("t-1"))
        await stage.journal.keep(entry("t-2"))
        assert stage.disk.kept == {"t-1", "t-2"}
        stage.journal.note(entry("t-3"))
        await stage.journal.keep()
        assert stage.disk.kept == {"t-1", "t-2", "t-3"}


async def test_a_refused_record_goes_back_to_its_actor_with_the_reason_and_is_not_written_later(
    autojump_clock: MockClock,
) -> None:
    async with running() as stage:
        stage.disk.refuses = "no space left"
        assert await stage.promiser.ask(Promise("t-1")) == "not safe: no space left"
        assert stage.journal.trouble == "no space left"
        stage.disk.refuses = ""
        await trio.sleep(3 * AGAIN_S)
        await stage.journal.keep(entry("t-2"))
        assert stage.disk.kept == {"t-2"}


async def test_a_refused_keep_says_journal_full_and_why(autojump_clock: MockClock) -> None:
    async with running() as stage:
        stage.disk.refuses = "no space left"
        with pytest.raises(NotKept, match="no space left") as refused:
            await stage.journal.keep(entry("t-1"))
        assert refused.value.data()["error"] == "journal_full"


async def test_what_was_noted_and_refused_goes_with_the_next_write(autojump_clock: MockClock) -> None:
    async with running() as stage:
        stage.disk.refuses = "no space left"
        stage.journal.note(entry("t-1"), entry("t-2", None))
        await settle()
        stage.disk.refuses = ""
        await stage.journal.keep(entry("t-3"))
        assert stage.disk.tried[-1] == ("t-1", "t-2", "t-3")
        assert stage.disk.records["ticket", "t-2"] is None
        assert stage.journal.trouble == ""
        await stage.journal.keep(entry("t-4"))
        assert stage.disk.tried[-1] == ("t-4",)


async def test_what_is_owed_is_tried_again_though_nobody_writes(autojump_clock: MockClock) -> None:
    async with running() as stage:
        stage.disk.refuses = "no space left"
        stage.journal.note(entry("t-1"))
        await trio.sleep(AGAIN_S + 1)
        assert stage.disk.tried == [("t-1",), ("t-1",)]
        stage.disk.refuses = ""
        await trio.sleep(AGAIN_S)
        assert stage.disk.kept == {"t-1"}
        await trio.sleep(10 * AGAIN_S)
        assert len(stage.disk.tried) == 3


async def test_of_a_record_that_is_owed_the_newest_form_is_written(autojump_clock: MockClock) -> None:
    async with running() as stage:
        stage.disk.refuses = "no space left"
        for body in (b"old", b"newer", b"newest"):
            stage.journal.note(entry("t-1", body))
            await settle()
        stage.disk.refuses = ""
        await trio.sleep(2 * AGAIN_S)
        assert stage.disk.tried[-1] == ("t-1",)
        assert stage.disk.records["ticket", "t-1"] == b"newest"


async def test_a_disk_that_stays_full_is_tried_once_each_time_however_much_is_owed(autojump_clock: MockClock) -> None:
    """Each refused write used to start a series of tries of its own, and they went on for ever side by side."""
    async with running() as stage:
        stage.disk.refuses = "no space left"
        for number in range(20):
            stage.journal.note(entry(f"t-{number}"))
            await trio.sleep(0.1)
        tried = len(stage.disk.tried)
        await trio.sleep(10 * AGAIN_S)
        assert len(stage.disk.tried) - tried <= 10
        assert len(stage.disk.tried[-1]) == 20


async def test_an_actor_that_has_ended_meanwhile_is_not_told(autojump_clock: MockClock) -> None:
    async with running() as stage:
        stage.disk.lets = trio.Event()
        stage.promiser.tell(Promise("t-1"))
        await settle()
        stage.promiser.stop()
        stage.promiser.tell(Promise("t-2"))
        await settle()
        stage.disk.lets.set()
        await stage.journal.keep()
        assert "t-1" in stage.disk.kept


async def test_a_store_that_fails_in_no_foreseen_way_ends_the_journal_and_whoever_waits_is_told(
    autojump_clock: MockClock,
) -> None:
    disk = Disk()
    journal = Journal(disk)
    disk.breaks = RuntimeError("a bug")
    told: list[type[Exception]] = []

    async def waits() -> None:
        try:
            await journal.keep(entry("t-1"))
        except ActorDead as dead:
            told.append(type(dead))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waits)
        with pytest.raises(ExceptionGroup) as caught:
            await journal.run()
    assert leaf(caught.value) is disk.breaks
    assert told == [ActorDead]


async def test_an_actor_without_a_journal_goes_on_at_once() -> None:
    forgetful = Forgetful()
    promiser = Promiser(forgetful)
    promise = Promise("t-1")
    assert forgetful.record(promiser, _Promised(promise), entry("t-1")) == "safe"
    await forgetful.keep(entry("t-2"))
    forgetful.note(entry("t-3"))
    assert promiser.handle(promise) is not LATER


def test_records_come_by_kind_and_deletions_are_none() -> None:
    found = by_kind([entry("t-1"), entry("m-1", b"y", "member"), entry("t-2", None)])
    assert found == {"ticket": {"t-1": b"x"}, "member": {"m-1": b"y"}}
