"""The relay between an agent and a daemon that comes and goes, in memory and in virtual time."""

from __future__ import annotations

import logging
from itertools import pairwise

import pytest
import trio
from trio.testing import lockstep_stream_pair, memory_stream_pair, wait_all_tasks_blocked

from fleetd.frames import FRAME_BYTES, LineReader, decode, encode
from fleetd.jsonrpc import INVALID_REQUEST, PARSE_ERROR, REFUSED, Envelope, answer, failure, notification, request
from fleetd.mcp.relay import (
    AWAY,
    MAX_WAITING,
    OUTCOME_UNKNOWN,
    PATIENCE_S,
    REDIAL_FIRST_S,
    REDIAL_MOST_S,
    REDIAL_REFUSED_S,
    REPLAY_ID,
    Relay,
)
from tests.mcp.fakes import STATELESS, Plain, initialize_params


class Link:
    """The daemon's side of one connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._lines = LineReader(stream)
        self.heard: list[Envelope] = []

    async def receive(self) -> Envelope:
        with trio.fail_after(60):
            line = await self._lines.receive()
        assert line is not None
        self.heard.append(decode(line))
        return self.heard[-1]

    async def send(self, message: Envelope) -> None:
        await self.stream.send_all(encode(message))

    async def handshake(self, version: str = "2025-11-25") -> Envelope:
        """Answer an initialize; return it."""
        message = await self.receive()
        assert message["method"] == "initialize"
        await self.send(answer(message["id"], {"protocolVersion": version}))
        return message

    async def serve(self) -> None:
        """Answer everything."""
        while True:
            message = await self.receive()
            if "id" in message:
                await self.send(answer(message["id"], {"did": message["method"]}))

    async def pending(self) -> bytes:
        """What was sent and not received yet."""
        with trio.move_on_after(1):
            return bytes(await self.stream.receive_some())
        return b""


class FakeDaemon:
    """Where the relay dials, and what it starts."""

    def __init__(self) -> None:
        self.up = True
        self.starts: list[float] = []
        self.dials: list[float] = []
        self.links, self._new = trio.open_memory_channel[Link](100)
        self.status: int | None = None
        self.program_missing = False
        self.lockstep = False
        self.comes_up_after_s: float | None = None
        self._up_at = float("inf")

    async def dial(self) -> trio.abc.Stream:
        await trio.lowlevel.checkpoint()
        self.dials.append(trio.current_time())
        if not self.up and trio.current_time() < self._up_at:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = lockstep_stream_pair() if self.lockstep else memory_stream_pair()
        await self.links.send(Link(theirs))
        return ours

    def start(self) -> FakeDaemon:
        self.starts.append(trio.current_time())
        if self.program_missing:
            raise FileNotFoundError(2, "No such file or directory", "python")
        if self.comes_up_after_s is not None:
            self._up_at = trio.current_time() + self.comes_up_after_s
        return self

    def poll(self) -> int | None:
        return self.status

    async def link(self) -> Link:
        with trio.fail_after(60):
            return await self._new.receive()


class Setting:
    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.daemon = FakeDaemon()
        self.stream, ours = memory_stream_pair()
        self.relay = Relay(ours, ours, self.daemon.dial, self.daemon.start)
        self.ended = trio.Event()
        self.agent: Plain

    def begin(self, *, up: bool = True) -> Plain:
        self.daemon.up = up

        async def run() -> None:
            await self.relay.run()
            self.ended.set()

        self._nursery.start_soon(run)
        self.agent = Plain(self.stream, self._nursery)
        return self.agent

    async def linked(self) -> tuple[Plain, Link]:
        """An agent that has shaken hands."""
        agent = self.begin()
        link = await self.daemon.link()
        id = agent.start("initialize", initialize_params())
        await link.handshake()
        await agent.answer(id)
        agent.notify("notifications/initialized")
        assert (await link.receive())["method"] == "notifications/initialized"
        return agent, link

    async def lose(self, link: Link, *, up: bool = False) -> None:
        self.daemon.up = up
        await link.stream.aclose()
        await wait_all_tasks_blocked()


@pytest.fixture
def setting(nursery: trio.Nursery) -> Setting:
    return Setting(nursery)


# -- carrying --------------------------------------------------------------------------------------------------------


async def test_lines_are_passed_on_byte_for_byte(nursery: trio.Nursery, autojump_clock: object) -> None:
    daemon = FakeDaemon()
    agent, ours = memory_stream_pair()
    nursery.start_soon(Relay(ours, ours, daemon.dial, daemon.start).run)
    link = await daemon.link()
    asked = (
        b'{ "params":{"b":1.0e2,"a":123456789012345678901234567890}, "id":"\\u00e9", "jsonrpc":"2.0","method":"x"}\n'
    )
    await agent.send_all(asked)
    assert await link.pending() == asked
    told = b'{"result" : {"z":1,"a":2.50} ,"id":"\xc3\xa9","jsonrpc":"2.0"}\n'
    await link.stream.send_all(told)
    assert await agent.receive_some() == told


@pytest.mark.parametrize("id", [0, -5, "0", "a", "", 2**70])
async def test_an_identifier_comes_back_as_it_was(setting: Setting, id: str | int, autojump_clock: object) -> None:
    agent, link = await setting.linked()
    agent.start("tools/list", id=id)
    assert (await link.receive())["id"] == id
    await link.send(answer(id, {"tools": []}))
    assert (await agent.answer(id))["result"] == {"tools": []}
    agent.start("tools/list", id=id)
    await link.receive()
    await setting.lose(link)
    lost = await agent.answer(id)
    assert lost["id"] == id
    assert type(lost["id"]) is type(id)


async def test_notifications_and_requests_of_the_server_reach_the_agent(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    await link.send(notification("notifications/tools/list_changed"))
    await link.send(request("s-1", "ping"))
    await wait_all_tasks_blocked()
    assert [message["method"] for message in agent.heard[-2:]] == ["notifications/tools/list_changed", "ping"]
    agent.send(answer("s-1", {}))
    assert await link.receive() == answer("s-1", {})


@pytest.mark.parametrize(
    ("line", "code"),
    [(b"x" * (FRAME_BYTES + 1), INVALID_REQUEST), (b"{nonsense", PARSE_ERROR), (b"[]", INVALID_REQUEST)],
)
async def test_a_bad_line_of_the_agent_is_answered_and_skipped(
    setting: Setting, line: bytes, code: int, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    await setting.stream.send_all(line + b"\n")
    assert (await agent.answer(None))["error"]["code"] == code
    agent.start("tools/list", id="next")
    assert (await link.receive())["id"] == "next"


# -- beginnings ------------------------------------------------------------------------------------------------------


async def test_a_daemon_that_is_there_is_not_started(setting: Setting, autojump_clock: object) -> None:
    await setting.linked()
    assert setting.daemon.starts == []


async def test_a_daemon_is_started_at_once_and_the_request_waits_for_it(
    setting: Setting, autojump_clock: object
) -> None:
    setting.daemon.comes_up_after_s = 2
    agent = setting.begin(up=False)
    id = agent.start("initialize", initialize_params())
    link = await setting.daemon.link()
    await link.handshake()
    assert "result" in await agent.answer(id)
    assert len(setting.daemon.starts) == 1
    assert trio.current_time() - setting.daemon.starts[0] < 2 + 2 * REDIAL_FIRST_S


async def test_what_waits_is_sent_in_the_order_it_came(setting: Setting, autojump_clock: object) -> None:
    setting.daemon.comes_up_after_s = 1
    agent = setting.begin(up=False)
    for n in range(20):
        agent.start("tools/list", STATELESS, id=n)
    link = await setting.daemon.link()
    agent.start("tools/list", STATELESS, id=20)
    assert [(await link.receive())["id"] for _ in range(21)] == list(range(21))


async def test_a_daemon_that_does_not_come_up_costs_each_request_a_bounded_wait(
    setting: Setting, autojump_clock: object
) -> None:
    agent = setting.begin(up=False)
    setting.daemon.status = 1
    before = trio.current_time()
    error = (await agent.request("initialize", initialize_params()))["error"]
    assert trio.current_time() - before == pytest.approx(PATIENCE_S)
    assert error["code"] == AWAY
    assert "Connection refused" in error["message"]
    assert "ended with status 1" in error["message"]
    assert "fleetd up" in error["message"]


async def test_a_daemon_that_cannot_be_started_is_no_reason_to_end(setting: Setting, autojump_clock: object) -> None:
    setting.daemon.program_missing = True
    agent = setting.begin(up=False)
    error = (await agent.request("initialize", initialize_params()))["error"]
    assert "cannot be started" in error["message"]
    assert not setting.ended.is_set()


async def test_our_error_codes_are_not_the_protocol_s() -> None:
    for code in (AWAY, OUTCOME_UNKNOWN):
        assert not -32099 <= code <= -32020
        assert code not in (-32000, -32001)


# -- ends and new beginnings -----------------------------------------------------------------------------------------


async def test_a_new_daemon_is_told_the_old_handshake_and_the_agent_hears_nothing_of_it(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    heard = len(agent.heard)
    await setting.lose(link, up=True)
    link = await setting.daemon.link()
    replayed = await link.handshake()
    assert replayed == request(REPLAY_ID, "initialize", initialize_params())
    assert await link.receive() == notification("notifications/initialized")
    agent.start("tools/list", id=2)
    assert (await link.receive())["id"] == 2
    assert len(agent.heard) == heard


async def test_requests_wait_until_the_handshake_has_been_told(setting: Setting, autojump_clock: object) -> None:
    agent, link = await setting.linked()
    await setting.lose(link, up=True)
    link = await setting.daemon.link()
    initialize = await link.receive()
    agent.start("tools/list", id="early")
    await wait_all_tasks_blocked()
    await link.send(answer(initialize["id"], {}))
    assert [(await link.receive())["method"] for _ in range(2)] == ["notifications/initialized", "tools/list"]


async def test_the_last_handshake_is_the_one_that_is_told(setting: Setting, autojump_clock: object) -> None:
    agent, link = await setting.linked()
    later = initialize_params("2025-06-18")
    id = agent.start("initialize", later)
    await link.handshake()
    await agent.answer(id)
    await setting.lose(link, up=True)
    assert (await (await setting.daemon.link()).receive())["params"] == later


async def test_a_handshake_that_was_refused_is_not_told(setting: Setting, autojump_clock: object) -> None:
    agent = setting.begin()
    link = await setting.daemon.link()
    id = agent.start("initialize", initialize_params())
    await link.receive()
    await link.send(failure(id, -32602, "no"))
    assert "error" in await agent.answer(id)
    await setting.lose(link, up=True)
    link = await setting.daemon.link()
    assert await link.pending() == b""


async def test_a_stateless_agent_has_no_handshake_to_tell(setting: Setting, autojump_clock: object) -> None:
    agent = setting.begin()
    link = await setting.daemon.link()
    id = agent.start("server/discover", STATELESS)
    await link.receive()
    await link.send(answer(id, {}))
    await agent.answer(id)
    await setting.lose(link, up=True)
    link = await setting.daemon.link()
    agent.start("tools/list", STATELESS, id="next")
    assert (await link.receive())["id"] == "next"


async def test_what_was_sent_has_an_unknown_outcome_and_is_never_sent_again(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    sent = [agent.start("tools/call", {"name": "fleet_spawn"}) for _ in range(3)]
    for id in sent:
        assert (await link.receive())["id"] == id
    await link.send(answer(sent[0], {}))
    await agent.answer(sent[0])
    await setting.lose(link)
    for id in sent[1:]:
        error = (await agent.answer(id))["error"]
        assert error["code"] == OUTCOME_UNKNOWN
        assert error["message"] == (
            "outcome unknown: the daemon went away after it got this request; look before you repeat it"
        )
    setting.daemon.up = True
    link = await setting.daemon.link()
    await link.handshake()
    agent.start("ping", id="after")
    while (await link.receive()).get("id") != "after":
        pass
    assert [message.get("method") for message in link.heard] == ["initialize", "notifications/initialized", "ping"]


async def test_what_had_waited_and_was_sent_then_has_an_unknown_outcome_too(
    setting: Setting, autojump_clock: object
) -> None:
    setting.daemon.comes_up_after_s = 1
    agent = setting.begin(up=False)
    id = agent.start("tools/list", STATELESS)
    link = await setting.daemon.link()
    await link.receive()
    await setting.lose(link)
    assert (await agent.answer(id))["error"]["code"] == OUTCOME_UNKNOWN


async def test_a_request_finds_a_daemon_that_has_come_back_at_once(setting: Setting, autojump_clock: object) -> None:
    agent, link = await setting.linked()
    await setting.lose(link)
    await trio.sleep(60)
    await trio.sleep(setting.daemon.dials[-1] + REDIAL_MOST_S / 2 - trio.current_time())
    setting.daemon.up = True
    before = trio.current_time()
    agent.start("tools/list")
    await setting.daemon.link()
    assert trio.current_time() == before


async def test_a_cancellation_during_the_sending_of_what_waited_is_not_lost(
    setting: Setting, autojump_clock: object
) -> None:
    setting.daemon.lockstep = True
    setting.daemon.comes_up_after_s = 1
    agent = setting.begin(up=False)
    for id in ("a", "b"):
        agent.start("tools/call", STATELESS, id=id)
    link = await setting.daemon.link()
    await wait_all_tasks_blocked()  # a is on its way into a link that nobody reads yet
    agent.notify("notifications/cancelled", {"requestId": "a"})
    agent.start("tools/list", STATELESS, id="c")
    await wait_all_tasks_blocked()
    heard = [await link.receive() for _ in range(4)]
    assert [message.get("id") for message in heard] == ["a", "b", None, "c"]
    assert heard[2]["method"] == "notifications/cancelled"


async def test_a_request_that_was_cancelled_gets_no_answer_when_the_daemon_goes(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    agent.start("tools/call", {"name": "fleet_wait"}, id="doomed")
    agent.notify("notifications/cancelled", {"requestId": "doomed"})
    assert [(await link.receive())["method"] for _ in range(2)] == ["tools/call", "notifications/cancelled"]
    await setting.lose(link)
    agent.start("ping", id="after")
    await agent.answer("after", within_s=60)
    assert "doomed" not in [message.get("id") for message in agent.heard]


async def test_a_request_that_is_cancelled_while_it_waits_is_never_sent(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    await setting.lose(link)
    agent.start("tools/call", {"name": "fleet_spawn"}, id="doomed")
    agent.start("tools/list", id="other")
    agent.notify("notifications/cancelled", {"requestId": "doomed"})
    agent.notify("notifications/cancelled", {"requestId": ["x"]})
    await wait_all_tasks_blocked()
    setting.daemon.up = True
    link = await setting.daemon.link()
    await link.handshake()
    assert [(await link.receive()).get("id") for _ in range(2)] == [None, "other"]
    await trio.sleep(2 * PATIENCE_S)
    assert "doomed" not in [message.get("id") for message in agent.heard]


async def test_notifications_are_dropped_with_a_word_while_the_daemon_is_away(
    setting: Setting, autojump_clock: object, caplog: pytest.LogCaptureFixture
) -> None:
    agent, link = await setting.linked()
    await setting.lose(link)
    with caplog.at_level(logging.WARNING):
        agent.notify("notifications/roots/list_changed")
        await wait_all_tasks_blocked()
    assert caplog.messages == ["dropped notifications/roots/list_changed: fleetd is away"]
    setting.daemon.up = True
    link = await setting.daemon.link()
    await link.handshake()
    assert (await link.receive())["method"] == "notifications/initialized"
    assert await link.pending() == b""


async def test_waiting_requests_have_a_bound(setting: Setting, autojump_clock: object) -> None:
    agent, link = await setting.linked()
    await setting.lose(link)
    for n in range(MAX_WAITING):
        agent.start("tools/list", id=n)
        if n % 100 == 0:
            await wait_all_tasks_blocked()
    error = (await agent.request("tools/list", id="more"))["error"]
    assert error["code"] == AWAY
    assert str(MAX_WAITING) in error["message"]
    for n in range(MAX_WAITING):
        assert (await agent.answer(n))["error"]["code"] == AWAY


async def test_a_daemon_that_was_ended_is_started_again_for_a_request_and_for_nothing_else(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    await setting.lose(link)
    await trio.sleep(600)
    assert setting.daemon.starts == []
    setting.daemon.comes_up_after_s = 1
    agent.start("tools/list", id="now")
    link = await setting.daemon.link()
    await link.handshake()
    assert [(await link.receive()).get("id") for _ in range(2)] == [None, "now"]
    assert len(setting.daemon.starts) == 1


async def test_starts_are_not_repeated_faster_than_a_daemon_can_come_up(
    setting: Setting, autojump_clock: object
) -> None:
    agent = setting.begin(up=False)
    for n in range(100):
        agent.start("tools/list", STATELESS, id=n)
        await trio.sleep(0.2)
    gaps = [b - a for a, b in pairwise(setting.daemon.starts)]
    assert len(gaps) >= 3
    assert min(gaps) >= PATIENCE_S


async def test_it_dials_again_with_growing_pauses_up_to_their_bound(setting: Setting, autojump_clock: object) -> None:
    _, link = await setting.linked()
    await setting.lose(link)
    await trio.sleep(60)
    gaps = [b - a for a, b in pairwise(setting.daemon.dials[1:])]
    assert gaps[0] == pytest.approx(2 * REDIAL_FIRST_S)
    assert all(a <= b + 1e-6 for a, b in pairwise(gaps))
    assert gaps[-1] == pytest.approx(REDIAL_MOST_S)


async def test_a_daemon_that_ends_each_time_it_is_reached_is_dialled_with_growing_pauses(
    setting: Setting, autojump_clock: object
) -> None:
    _, link = await setting.linked()
    await setting.lose(link, up=True)
    for _ in range(8):
        await (await setting.daemon.link()).stream.aclose()
    await wait_all_tasks_blocked()
    gaps = [b - a for a, b in pairwise(setting.daemon.dials[1:])]
    assert gaps[-1] == pytest.approx(REDIAL_MOST_S)


# -- refusals --------------------------------------------------------------------------------------------------------


async def test_the_words_of_a_daemon_that_refuses_this_client_reach_its_requests(
    setting: Setting, autojump_clock: object
) -> None:
    agent = setting.begin()
    id = agent.start("initialize", initialize_params())
    link = await setting.daemon.link()
    await link.receive()
    no = "not allowed: a member's helper has no lead's tools"
    await link.send(failure(None, REFUSED, no, {"error": "not_allowed"}))
    await link.stream.aclose()
    assert (await agent.answer(id))["error"] == {
        "code": REFUSED,
        "message": "not allowed: a member's helper has no lead's tools",
        "data": {"error": "not_allowed"},
    }
    assert None not in [message["id"] for message in agent.heard]


async def test_a_daemon_that_refuses_is_not_asked_again_until_a_request_comes(
    setting: Setting, autojump_clock: object
) -> None:
    agent = setting.begin()
    link = await setting.daemon.link()
    await link.send(failure(None, REFUSED, "no"))
    await link.stream.aclose()
    await trio.sleep(REDIAL_REFUSED_S - 1)
    assert len(setting.daemon.dials) == 1
    agent.start("initialize", initialize_params())
    assert (await (await setting.daemon.link()).receive())["method"] == "initialize"


@pytest.mark.parametrize("of", [REPLAY_ID, None])
async def test_a_replay_that_is_refused_answers_what_waits_and_is_tried_again(
    setting: Setting, of: str | None, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    await setting.lose(link, up=True)
    link = await setting.daemon.link()
    await link.receive()
    id = agent.start("tools/list")
    await wait_all_tasks_blocked()
    await link.send(failure(of, REFUSED, "I do not know you"))
    assert (await agent.answer(id))["error"] == {"code": REFUSED, "message": "I do not know you"}
    link = await setting.daemon.link()
    await link.handshake()
    assert (await link.receive())["method"] == "notifications/initialized"
    assert await link.pending() == b""


async def test_a_daemon_that_hangs_in_the_handshake_is_left_for_another_try(
    setting: Setting, autojump_clock: object
) -> None:
    agent, link = await setting.linked()
    await setting.lose(link, up=True)
    silent = await setting.daemon.link()
    await silent.receive()
    link = await setting.daemon.link()
    await link.handshake()
    await link.receive()
    agent.start("ping", id="p")
    assert (await link.receive())["id"] == "p"


async def test_a_daemon_that_speaks_nonsense_is_left(setting: Setting, autojump_clock: object) -> None:
    agent, link = await setting.linked()
    id = agent.start("tools/list")
    await link.receive()
    await link.stream.send_all(b"nonsense\n")
    assert (await agent.answer(id))["error"]["code"] == OUTCOME_UNKNOWN
    await (await setting.daemon.link()).handshake()


# -- the end ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("up", [True, False])
async def test_the_end_of_the_agent_is_the_end_and_nothing_more_is_answered(
    setting: Setting, up: bool, autojump_clock: object
) -> None:
    agent = setting.begin(up=up)
    agent.start("initialize", initialize_params())
    await wait_all_tasks_blocked()
    before = trio.current_time()
    await setting.stream.send_eof()
    with trio.fail_after(10):
        await setting.ended.wait()
    assert trio.current_time() == before
    assert agent.heard == []


async def test_an_agent_that_does_not_read_any_more_is_the_end(
    setting: Setting, nursery: trio.Nursery, autojump_clock: object
) -> None:
    daemon = setting.daemon
    to_relay, source = trio.testing.memory_stream_one_way_pair()
    sink, from_relay = trio.testing.memory_stream_one_way_pair()
    ended = trio.Event()

    async def run() -> None:
        await Relay(source, sink, daemon.dial, daemon.start).run()
        ended.set()

    nursery.start_soon(run)
    link = await daemon.link()
    await from_relay.aclose()
    await link.send(notification("notifications/tools/list_changed"))
    with trio.fail_after(10):
        await ended.wait()
    await to_relay.aclose()
