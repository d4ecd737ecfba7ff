"""The kernel: mailboxes, asks, effects and ends."""

from __future__ import annotations

import pytest
import trio

from actors.actor import (
    LATER,
    Actor,
    ActorDead,
    Address,
    Ask,
    MailboxFull,
    Message,
    Refused,
    Reply,
    Unanswered,
    tell_if_alive,
)


class Add(Message, frozen=True):
    amount: int


class Total(Ask[int], frozen=True):
    pass


class WhenAbove(Ask[int], frozen=True):
    limit: int


class Boom(Ask[None], frozen=True):
    pass


class No(Ask[None], frozen=True):
    pass


class Work(Message, frozen=True):
    fails: bool = False


class Worked(Message, frozen=True):
    result: str


class Later(Message, frozen=True):
    pass


class Quit(Message, frozen=True):
    pass


class Counter(Actor):
    """Adds; answers when it is above a limit; can be made to crash, to refuse, and to work."""

    def __init__(self) -> None:
        super().__init__("counter")
        self.total = 0
        self.waiting: list[tuple[int, Reply[int]]] = []
        self.worked: list[str] = []

    def handle(self, message: Message) -> object:
        match message:
            case Add(amount=amount):
                self.total += amount
                for limit, reply in self.waiting:
                    if self.total > limit:
                        reply.answer(self.total)
            case Total():
                return self.total
            case WhenAbove(limit=limit):
                self.waiting.append((limit, message.reply))
                return LATER
            case Boom():
                raise RuntimeError("boom")
            case No():
                raise Refused("not today")
            case Work(fails=fails):

                async def work() -> str:
                    await trio.sleep(1)
                    if fails:
                        raise OSError("disk gone")
                    return "done"

                self.start(work, lambda result: Worked(str(result)), "work")
            case Worked(result=result):
                self.worked.append(result)
            case Later():
                self.after(5_000_000_000, Add(7))
            case Quit():
                self.stop()
            case _:
                raise self.unknown(message)
        return None


@pytest.fixture
async def counter(nursery: trio.Nursery) -> Counter:
    actor = Counter()
    nursery.start_soon(actor.run)
    return actor


async def test_messages_are_handled_in_the_order_they_were_told(counter: Counter) -> None:
    for amount in (1, 2, 3):
        counter.tell(Add(amount))
    assert await counter.ask(Total()) == 6


async def test_a_full_mailbox_refuses_its_sender_and_names_actor_and_bound() -> None:
    actor = Counter()
    for _ in range(actor.capacity):
        actor.tell(Add(1))
    with pytest.raises(MailboxFull, match=r"actor counter has 256 messages waiting .* Add was not delivered"):
        actor.tell(Add(1))
    assert actor.depth == actor.capacity


async def test_an_ask_can_be_answered_in_a_later_step(counter: Counter, nursery: trio.Nursery) -> None:
    answers: list[int] = []

    async def asker() -> None:
        answers.append(await counter.ask(WhenAbove(limit=5)))

    nursery.start_soon(asker)
    await trio.testing.wait_all_tasks_blocked()
    counter.tell(Add(3))
    counter.tell(Add(3))
    await trio.testing.wait_all_tasks_blocked()
    assert answers == [6]


async def test_an_ask_that_nobody_answers_ends_at_its_deadline(counter: Counter, autojump_clock: object) -> None:
    with pytest.raises(Unanswered, match="counter did not answer WhenAbove within 3 s"):
        await counter.ask(WhenAbove(limit=99), within_s=3)


async def test_a_refusal_goes_to_the_asker_and_the_actor_goes_on(counter: Counter) -> None:
    with pytest.raises(Refused, match="not today"):
        await counter.ask(No())
    counter.tell(Add(1))
    assert await counter.ask(Total()) == 1


async def test_a_crash_fails_the_ask_that_caused_it_those_owed_and_those_queued() -> None:
    actor = Counter()
    asks: list[Ask[object]] = [WhenAbove(limit=99), Boom(), Total()]  # type: ignore[list-item]
    for ask in asks:
        actor.tell(ask)
    with pytest.RaisesGroup(RuntimeError, flatten_subgroups=True):
        await actor.run()
    for ask in asks:
        with pytest.raises(ActorDead, match="actor counter has ended"):
            await ask.reply.wait()


async def test_telling_an_actor_that_has_ended_is_an_error_that_names_it(counter: Counter) -> None:
    counter.tell(Quit())
    await trio.testing.wait_all_tasks_blocked()
    with pytest.raises(ActorDead, match="actor counter has ended: Add was not delivered"):
        counter.tell(Add(1))
    assert not tell_if_alive(counter, Add(1))


async def test_shutdown_answers_who_waits_instead_of_leaving_them_hanging() -> None:
    actor = Counter()
    reply: Reply[int] = Reply()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(actor.run)
        actor.tell(WhenAbove(limit=99, reply=reply))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    with pytest.raises(ActorDead):
        await reply.wait()


async def test_a_cancelled_asker_leaves_word_and_disturbs_nobody(counter: Counter, autojump_clock: object) -> None:
    ask = WhenAbove(limit=5)
    with trio.move_on_after(1):
        await counter.ask(ask)
    assert ask.reply.abandoned
    counter.tell(Add(10))
    assert await counter.ask(Total()) == 10


async def test_the_first_answer_stands() -> None:
    reply: Reply[int] = Reply()
    reply.answer(1)
    reply.answer(2)
    reply.refuse(Refused("late"))
    assert await reply.wait() == 1


async def test_an_effect_tells_how_it_ended_well_or_badly(counter: Counter, autojump_clock: object) -> None:
    counter.tell(Work())
    counter.tell(Work(fails=True))
    await trio.sleep(2)
    assert sorted(counter.worked) == ["Error(OSError('disk gone'))", "Value('done')"]


async def test_a_timer_tells_its_message_when_its_time_has_come(counter: Counter, autojump_clock: object) -> None:
    counter.tell(Later())
    await trio.sleep(4.9)
    assert await counter.ask(Total()) == 0
    await trio.sleep(0.2)
    assert await counter.ask(Total()) == 7


async def test_a_cancelled_timer_tells_nothing(counter: Counter, autojump_clock: object) -> None:
    await trio.testing.wait_all_tasks_blocked()
    scope = counter.after(1_000_000_000, Add(1))
    scope.cancel()
    await trio.sleep(2)
    assert await counter.ask(Total()) == 0


async def test_effects_end_with_their_actor(counter: Counter, autojump_clock: object) -> None:
    counter.tell(Work())
    await trio.testing.wait_all_tasks_blocked()
    counter.tell(Quit())
    await trio.sleep(5)
    assert counter.worked == []


async def test_a_message_without_a_case_is_a_mistake_in_the_program() -> None:
    actor = Counter()
    actor.tell(Message())
    with pytest.RaisesGroup(TypeError, flatten_subgroups=True):
        await actor.run()


async def test_an_address_passes_on_to_the_actor_that_it_is_bound_to(counter: Counter) -> None:
    address = Address()
    with pytest.raises(AssertionError, match="not bound yet"):
        address.tell(Add(1))
    address.bind(counter)
    address.tell(Add(4))
    assert await counter.ask(Total()) == 4
