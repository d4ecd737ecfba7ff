"""Members of an earlier daemon: what each is taken for, by what was written down and by what is still there."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock

from actors.actor import Message
from actors.adoption import Adopted, adopt
from actors.host import HostError, PaneGone, PaneRef
from actors.journal import Entry, Forgetful, by_kind, counted
from actors.launcher import CountFrom, TakeOver
from actors.member import Identity, MemberState
from actors.openturn import TypedTurn
from actors.row import StateLeft
from actors.setup import Setup
from actors.spawning import Launched, MemberRecord
from tests.actors.recorders import TableGrammar

SETUP = Setup(TableGrammar())


def pane(target: str) -> PaneRef:
    return PaneRef("tmux", f"%{target}", 100, 7)


def member(target: str) -> Entry:
    identity = Identity(target, f"name-{target}", "demo", "shared", "lead-1", pane(target))
    return MemberRecord(identity, "/work", b"snapshot").entry()


def left(target: str, state: MemberState, reason: str = "") -> Entry:
    return Entry("state", target, msgspec.json.encode(StateLeft(state, reason)))


def turn(target: str, ticket: str = "t-1") -> Entry:
    return TypedTurn(ticket, target, "do it", 60, ("before",), 80, 5).entry()


class Terminal:
    """Adopts what is there, and says of the rest what the test says."""

    def __init__(self, **gone: HostError) -> None:
        self.gone = {target.replace("_", "-"): error for target, error in gone.items()}
        self.adopted: list[str] = []
        self.discarded: list[str] = []

    async def launch(self, order: object) -> Launched:
        raise AssertionError("an adoption starts nothing")

    async def adopt(self, identity: Identity, cwd: str, record: bytes) -> Launched:
        if identity.target in self.gone:
            raise self.gone[identity.target]
        assert (cwd, record) == ("/work", b"snapshot")
        self.adopted.append(identity.target)
        return Launched(identity.pane, SETUP, cwd)

    async def discard(self, identity: Identity, record: bytes) -> None:
        self.discarded.append(identity.target)


class Taker:
    """Records what the launcher is told and asked."""

    def __init__(self) -> None:
        self.told: list[Message] = []

    def tell(self, message: Message) -> None:
        self.told.append(message)

    async def ask(self, message: Message) -> None:
        self.told.append(message)

    @property
    def taken(self) -> dict[str, TakeOver]:
        return {each.identity.target: each for each in self.told if isinstance(each, TakeOver)}

    @property
    def count_from(self) -> int:
        (count,) = [each.number for each in self.told if isinstance(each, CountFrom)]
        return count


class Notes(Forgetful):
    def __init__(self) -> None:
        self.noted: list[Entry] = []

    def note(self, *entries: Entry) -> None:
        self.noted += entries


async def adopting(
    *entries: Entry, terminal: Terminal | None = None, taker: Taker | None = None, **more: Any
) -> tuple[Adopted, Taker]:
    taker = taker or Taker()
    adopted = await adopt(by_kind(entries), terminal or Terminal(), taker, more.pop("notes", Notes()), **more)
    return adopted, taker


async def test_a_member_that_lives_is_followed_as_it_was_left() -> None:
    adopted, taker = await adopting(member("m-1"), left("m-1", MemberState.IDLE))
    assert adopted == Adopted(("m-1",), frozenset(), {})
    over = taker.taken["m-1"]
    assert over.left == StateLeft(MemberState.IDLE)
    assert over.launched is not None
    assert (over.resumed.turn, over.resumed.ready, over.resumed.draining, over.resumed.closed) == (
        None,
        True,
        False,
        "",
    )


async def test_an_open_turn_is_followed_further() -> None:
    adopted, taker = await adopting(member("m-1"), left("m-1", MemberState.BUSY), turn("m-1"))
    assert adopted.resumed == {"t-1"}
    resumed = taker.taken["m-1"].resumed
    assert resumed.turn is not None
    assert (resumed.turn.ticket, resumed.draining) == ("t-1", False)


@pytest.mark.parametrize("state", [MemberState.BUSY, MemberState.BLOCKED])
async def test_a_turn_without_an_open_send_drains(state: MemberState) -> None:
    """It was answered, or its time was up, and the program still runs: nothing is typed until it rests."""
    _, taker = await adopting(member("m-1"), left("m-1", state))
    assert taker.taken["m-1"].resumed.draining


async def test_one_whose_state_was_never_written_is_starting_and_not_ready() -> None:
    _, taker = await adopting(member("m-1"))
    assert taker.taken["m-1"].left.state is MemberState.STARTING
    assert not taker.taken["m-1"].resumed.ready


async def test_one_that_is_gone_is_lost_with_the_reason_and_so_is_its_turn() -> None:
    terminal = Terminal(m_1=PaneGone("pane %1 is gone"))
    adopted, taker = await adopting(member("m-1"), left("m-1", MemberState.BUSY), turn("m-1"), terminal=terminal)
    assert adopted.members == ()
    over = taker.taken["m-1"]
    assert (over.launched, over.left.state) == (None, MemberState.LOST)
    assert "ended while fleetd was away: pane %1 is gone" in over.left.reason
    assert over.resumed.turn is None
    assert "it is lost" in over.resumed.closed
    assert "m-1 is lost" in adopted.lost["t-1"]


@pytest.mark.parametrize("there", [True, False])
async def test_one_that_had_failed_stays_so_with_its_own_reason(there: bool) -> None:
    terminal = Terminal() if there else Terminal(m_1=PaneGone("gone"))
    entries = (member("m-1"), left("m-1", MemberState.BACKEND_ERROR, "529 Overloaded"), turn("m-1"))
    adopted, taker = await adopting(*entries, terminal=terminal)
    assert taker.taken["m-1"].left == StateLeft(MemberState.BACKEND_ERROR, "529 Overloaded")
    assert "529 Overloaded" in adopted.lost["t-1"]
    assert adopted.resumed == frozenset()


async def test_a_terminal_that_does_not_answer_stops_the_start_and_nobody_is_given_up() -> None:
    """Silence is not death: a stalled tmux used to make every member that was asked for then a lost one."""
    terminal, taker, notes = Terminal(m_2=HostError("tmux did not answer within 10 s")), Taker(), Notes()
    entries = (member("m-1"), left("m-1", MemberState.IDLE), member("m-2"), left("m-2", MemberState.BUSY), turn("m-2"))
    with pytest.raises(HostError, match="did not answer"):
        await adopting(*entries, terminal=terminal, taker=taker, notes=notes)
    assert "m-2" not in taker.taken
    assert notes.noted == []


async def test_one_that_was_released_is_ended_at_last_and_forgotten() -> None:
    terminal, notes = Terminal(), Notes()
    adopted, taker = await adopting(member("m-1"), left("m-1", MemberState.RELEASED), terminal=terminal, notes=notes)
    assert (adopted.members, taker.taken, terminal.discarded) == ((), {}, ["m-1"])
    assert notes.noted == [Entry("member", "m-1", None), Entry("state", "m-1", None)]


async def test_those_that_were_released_are_ended_at_the_same_time(autojump_clock: MockClock) -> None:
    class Slow(Terminal):
        async def discard(self, identity: Identity, record: bytes) -> None:
            await trio.sleep(5)
            await super().discard(identity, record)

    began, terminal = trio.current_time(), Slow()
    entries = [entry for n in range(1, 10) for entry in (member(f"m-{n}"), left(f"m-{n}", MemberState.RELEASED))]
    await adopting(*entries, terminal=terminal)
    assert len(terminal.discarded) == 9
    assert trio.current_time() - began == 5


async def test_a_turn_in_which_its_member_was_released_is_lost_and_not_taken_for_one_that_was_never_typed() -> None:
    adopted, _ = await adopting(member("m-1"), left("m-1", MemberState.RELEASED), turn("m-1"))
    assert "m-1 was released in it" in adopted.lost["t-1"]
    assert adopted.resumed == frozenset()


async def test_a_turn_of_a_member_that_nobody_wrote_down_is_lost() -> None:
    adopted, _ = await adopting(member("m-1"), turn("m-9", "t-4"))
    assert "m-9 is not in the journal" in adopted.lost["t-4"]


async def test_numbers_go_on_behind_every_member_and_every_stranger_in_the_order_of_numbers() -> None:
    _, taker = await adopting(member("m-10"), member("m-2"))
    assert (list(taker.taken), taker.count_from) == (["m-2", "m-10"], 11)
    _, taker = await adopting(member("m-2"), strangers=("m-14", "somebody's"))
    assert taker.count_from == 15
    _, taker = await adopting(member("m-2"), counted("member", 20))
    assert taker.count_from == 21
    _, taker = await adopting()
    assert taker.count_from == 1
