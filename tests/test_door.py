"""The door: who comes in, what they may ask, and that one client's trouble is its own."""

from __future__ import annotations

import errno
import logging
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

import fleetd.mcp.session  # noqa: F401 - a virtual clock and the thread that would import it do not mix
from actors.actor import Refused
from fleetd.callers import Caller
from fleetd.connection import MAX_CONTROLS, Connection, UnknownMethod
from fleetd.door import MAX_CONNECTIONS, Door
from fleetd.frames import FRAME_BYTES, QUEUE_FRAMES, LineStream
from fleetd.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, PARSE_ERROR, REFUSED, notification
from fleetd.mcp.era import INSTRUCTIONS_CHARS
from fleetd.peer import Peer
from fleetd.rundir import bind_socket, make_runtime_dir, socket_path
from tests.mcp.fakes import LEAD, MEMBER, STATELESS, FakeToolbox, Plain, initialize_params


class NotToday(Refused):
    error = "not_today"

    def data(self) -> dict[str, object]:
        return super().data() | {"retryAfterSeconds": 7}


class Row(msgspec.Struct, frozen=True):
    target: str


class FakeControls:
    def __init__(self) -> None:
        self.seen: list[tuple[Caller, str, Mapping[str, Any]]] = []
        self.connections: list[Connection] = []
        self.waiting = 0
        self.go_on = trio.Event()

    async def control(self, caller: Caller, method: str, params: Mapping[str, Any], connection: Connection) -> object:
        self.seen.append((caller, method, params))
        self.connections.append(connection)
        match method:
            case "fleetd/status":
                return {"members": [Row("m-1")]}
            case "fleetd/refuse":
                raise NotToday("not today: come again tomorrow")
            case "fleetd/crash":
                raise RuntimeError("the password is hunter2")
            case "fleetd/unencodable":
                return object()
            case "fleetd/big":
                return "x" * FRAME_BYTES
            case "fleetd/wait":
                self.waiting += 1
                try:
                    await self.go_on.wait()
                finally:
                    self.waiting -= 1
                return None
            case _:
                raise UnknownMethod


class House:
    """A door with everything behind it, and clients in memory before it."""

    def __init__(self, nursery: trio.Nursery) -> None:
        self._nursery = nursery
        self.toolbox = FakeToolbox()
        self.controls = FakeControls()
        self.peers: list[Peer] = []
        self.named: list[tuple[str, str]] = []
        self.gone: list[tuple[str, str | None]] = []
        self.refuses: Exception | None = None
        self.door = Door(
            self.toolbox,
            self.controls,
            self.identify,
            instructions="Do.",
            on_client=lambda connection, caller, name: self.named.append((caller.id, name)),
            on_gone=lambda connection, caller: self.gone.append((caller.id, connection.client_name)),
        )

    async def identify(self, peer: Peer) -> Caller:
        self.peers.append(peer)
        if self.refuses:
            raise self.refuses
        return LEAD

    def stream(self, caller: Caller = LEAD) -> trio.abc.Stream:
        theirs, ours = memory_stream_pair()
        self._nursery.start_soon(self.door.serve_stream, ours, caller)
        return theirs

    def client(self, caller: Caller = LEAD) -> Plain:
        return Plain(self.stream(caller), self._nursery)


@pytest.fixture
def house(nursery: trio.Nursery) -> House:
    return House(nursery)


# -- what a client may ask -------------------------------------------------------------------------------------------


async def test_control_requests_go_to_the_controls_and_the_rest_to_the_tools(
    house: House, autojump_clock: object
) -> None:
    client = house.client()
    assert (await client.request("fleetd/status", {"a": 1}))["result"] == {"members": [{"target": "m-1"}]}
    await client.initialize()
    assert (await client.call("echo", text="hi"))["result"]["structuredContent"] == {"said": "hi"}
    assert house.controls.seen == [(LEAD, "fleetd/status", {"a": 1})]
    assert house.toolbox.calls == [(LEAD, "echo", {"text": "hi"})]


async def test_each_connection_is_its_own_caller(house: House, autojump_clock: object) -> None:
    lead, member = house.client(LEAD), house.client(MEMBER)
    for client in (lead, member):
        await client.initialize()
        await client.request("fleetd/status")
        await client.call("echo")
    assert {seen[0] for seen in house.controls.seen} == {LEAD, MEMBER}
    assert [call[0] for call in house.toolbox.calls] == [LEAD, MEMBER]


async def test_a_refusal_is_an_error_with_its_data(house: House, autojump_clock: object) -> None:
    assert (await house.client().request("fleetd/refuse"))["error"] == {
        "code": REFUSED,
        "message": "not today: come again tomorrow",
        "data": {"error": "not_today", "message": "not today: come again tomorrow", "retryAfterSeconds": 7},
    }


async def test_an_unknown_control_is_not_found(house: House, autojump_clock: object) -> None:
    error = (await house.client().request("fleetd/nonsense"))["error"]
    assert error["code"] == METHOD_NOT_FOUND
    assert "fleetd/nonsense" in error["message"]


@pytest.mark.parametrize("method", ["fleetd/crash", "fleetd/unencodable"])
async def test_a_crashed_control_is_logged_and_its_text_stays_inside(
    house: House, method: str, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    client = house.client()
    with caplog.at_level(logging.ERROR):
        error = (await client.request(method))["error"]
    assert error["code"] == INTERNAL_ERROR
    assert "hunter2" not in str(client.heard)
    assert [record.message for record in caplog.records] == ["control crashed"]
    assert "result" in await client.request("fleetd/status")


async def test_an_answer_that_no_line_can_hold_becomes_an_error_that_names_the_bound(
    house: House, autojump_clock: object
) -> None:
    client = house.client()
    error = (await client.request("fleetd/big"))["error"]
    assert error["code"] == INTERNAL_ERROR
    assert str(FRAME_BYTES) in error["message"]
    await client.initialize()
    reply = await client.request("tools/call", {"name": "echo", "arguments": {"text": "\0" * (FRAME_BYTES // 10)}})
    assert str(FRAME_BYTES) in reply["error"]["message"]


async def test_a_control_that_came_as_a_notification_is_done_and_not_answered(
    house: House, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    client = house.client()
    client.notify("fleetd/status")
    client.notify("fleetd/refuse")
    await client.request("fleetd/status")
    assert [method for _, method, _ in house.controls.seen] == ["fleetd/status", "fleetd/refuse", "fleetd/status"]
    assert len(client.heard) == 1
    assert "control notification failed" in caplog.text


async def test_a_slow_control_holds_up_nothing_else(house: House, autojump_clock: object) -> None:
    client = house.client()
    slow = client.start("fleetd/wait")
    assert "result" in await client.request("fleetd/status")
    assert "result" in await client.initialize()
    assert house.controls.waiting == 1
    house.controls.go_on.set()
    assert (await client.answer(slow))["result"] is None


async def test_a_cancelled_control_ends_and_is_not_answered(house: House, autojump_clock: object) -> None:
    client = house.client()
    client.start("fleetd/wait", id="doomed")
    await wait_all_tasks_blocked()
    client.notify("notifications/cancelled", {"requestId": "doomed"})
    await wait_all_tasks_blocked()
    assert house.controls.waiting == 0
    assert client.heard == []
    assert (await client.request("fleetd/status", id="doomed"))["result"]


async def test_a_cancellation_finds_a_call_of_the_tools_too(house: House, autojump_clock: object) -> None:
    client = house.client()
    await client.initialize()
    client.start("fleetd/wait", id="control")
    client.start("tools/call", {"name": "wait"}, id="call")
    await wait_all_tasks_blocked()
    client.notify("notifications/cancelled", {"requestId": "call"})
    client.notify("notifications/cancelled", {"requestId": [1]})
    await wait_all_tasks_blocked()
    assert (house.toolbox.cancelled, house.controls.waiting) == (1, 1)


async def test_open_controls_have_a_bound_and_their_own_identifiers(house: House, autojump_clock: object) -> None:
    client = house.client()
    for n in range(MAX_CONTROLS):
        client.start("fleetd/wait", id=n)
    assert (await client.request("fleetd/wait", id=0))["error"]["code"] == INVALID_REQUEST
    error = (await client.request("fleetd/status", id="more"))["error"]
    assert error["data"]["error"] == "too_many_controls"
    assert str(MAX_CONTROLS) in error["message"]
    house.controls.go_on.set()
    for n in range(MAX_CONTROLS):
        assert "result" in await client.answer(n)


# -- what the daemon hears and says ----------------------------------------------------------------------------------


async def test_the_daemon_hears_each_name_once_and_the_end_once(house: House, autojump_clock: object) -> None:
    stream = house.stream()
    plain = Plain(stream, house._nursery)
    await plain.initialize()
    await plain.request("tools/list", STATELESS)
    assert house.named == [("lead-1", "plain")]
    other = initialize_params() | {"clientInfo": {"name": "other", "version": "1"}}
    await plain.request("initialize", other)
    assert house.named == [("lead-1", "plain"), ("lead-1", "other")]
    assert house.gone == []
    await stream.aclose()
    await wait_all_tasks_blocked()
    assert house.gone == [("lead-1", "other")]


async def test_a_connection_can_be_told_something_until_it_is_closed(house: House, autojump_clock: object) -> None:
    stream = house.stream()
    client = Plain(stream, house._nursery)
    await client.request("fleetd/status")
    (connection,) = house.controls.connections
    assert repr(connection) == "<Connection lead lead-1 pid - client ->"
    assert connection.notify("fleetd/screen", {"lines": ["a"]})
    await wait_all_tasks_blocked()
    assert client.heard[-1] == notification("fleetd/screen", {"lines": ["a"]})
    assert not connection.closed.is_set()
    assert not connection.notify("fleetd/screen", "x" * FRAME_BYTES)
    await stream.aclose()
    with trio.fail_after(5):
        await connection.closed.wait()
    assert not connection.notify("fleetd/screen")


async def test_the_end_of_a_client_ends_what_it_asked_for(house: House, autojump_clock: object) -> None:
    stream = house.stream()
    client = Plain(stream, house._nursery)
    await client.initialize()
    client.start("tools/call", {"name": "wait"})
    client.start("fleetd/wait")
    await wait_all_tasks_blocked()
    assert (house.toolbox.waiting, house.controls.waiting) == (1, 1)
    await stream.aclose()
    await wait_all_tasks_blocked()
    assert (house.toolbox.waiting, house.controls.waiting) == (0, 0)
    assert repr(house.door) == f"<Door 0 of {MAX_CONNECTIONS} connections>"


# -- bad clients -----------------------------------------------------------------------------------------------------


async def test_bad_lines_are_answered_and_the_connection_goes_on(house: House, autojump_clock: object) -> None:
    stream = house.stream()
    client = Plain(stream, house._nursery)
    other = house.client()
    for line, code in [
        (b"nonsense", PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"\xff"}', PARSE_ERROR),
        (b'{"jsonrpc":"2.0","method":"a\0"}', PARSE_ERROR),
        (b"[" * 100_000, INVALID_REQUEST),
        (b"[{}]", INVALID_REQUEST),
        (b"x" * (FRAME_BYTES + 1), INVALID_REQUEST),
    ]:
        await stream.send_all(line + b"\n")
        reply = await client.answer(None)
        assert reply["error"]["code"] == code
    assert "result" in await client.request("fleetd/status")
    assert "result" in await other.request("fleetd/status")


async def test_a_client_that_does_not_read_is_dropped_and_hurts_nobody(
    nursery: trio.Nursery, house: House, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    sleepy, ours = trio.testing.lockstep_stream_pair()  # nothing gets through until somebody reads
    nursery.start_soon(house.door.serve_stream, ours, MEMBER)
    reader = house.client()
    lines = LineStream(sleepy, "server")
    nursery.start_soon(lines.write_out)
    lines.send({"jsonrpc": "2.0", "id": 1, "method": "fleetd/status"})
    await wait_all_tasks_blocked()
    (connection,) = house.controls.connections
    told = 0
    with caplog.at_level(logging.WARNING):
        while connection.notify("fleetd/screen", {"n": told}):
            told += 1
            assert told < 10 * QUEUE_FRAMES
            before = trio.current_time()
            assert "result" in await reader.request("fleetd/status")
            assert trio.current_time() == before
    assert told == QUEUE_FRAMES - 1
    with trio.fail_after(5):
        await connection.closed.wait()
    assert "does not read" in caplog.text
    assert house.gone == [("m-4", None)]
    assert "result" in await reader.request("fleetd/status")


async def test_one_connection_too_many_is_told_the_bound(house: House, autojump_clock: object) -> None:
    streams = [house.stream() for _ in range(MAX_CONNECTIONS)]
    await wait_all_tasks_blocked()
    late = house.client()
    error = (await late.answer(None))["error"]
    assert error["code"] == REFUSED
    assert error["data"]["error"] == "too_many_connections"
    assert str(MAX_CONNECTIONS) in error["message"]
    with trio.fail_after(5):
        await late.ended.wait()
    await streams[0].aclose()
    await wait_all_tasks_blocked()
    assert "result" in await house.client().request("fleetd/status")


class Torn(trio.abc.Stream):
    """A stream whose reading fails as none should."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.lowlevel.checkpoint()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.lowlevel.checkpoint()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.lowlevel.checkpoint()
        raise RuntimeError("torn")

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_a_crash_in_one_connection_is_logged_and_touches_no_other(
    house: House, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    client = house.client()
    await house.door.serve_stream(Torn(), MEMBER)
    assert [record.message for record in caplog.records if record.levelno >= logging.ERROR] == ["connection crashed"]
    assert house.gone == [("m-4", None)]
    assert "result" in await client.request("fleetd/status")


async def test_a_crash_in_what_the_daemon_does_with_a_name_touches_no_other(
    nursery: trio.Nursery, house: House, autojump_clock: object
) -> None:
    def crash(*_: object) -> None:
        raise RuntimeError("crash")

    house.door = Door(house.toolbox, house.controls, house.identify, on_client=crash, on_gone=crash)
    client, other = house.client(), house.client()
    client.start("initialize", initialize_params())
    with trio.fail_after(5):
        await client.ended.wait()
    assert "result" in await other.request("fleetd/status")


def test_instructions_have_a_bound() -> None:
    with pytest.raises(ValueError, match=str(INSTRUCTIONS_CHARS)):
        Door(FakeToolbox(), FakeControls(), House.identify, instructions="x" * (INSTRUCTIONS_CHARS + 1))  # type: ignore[arg-type]


# -- accepting -------------------------------------------------------------------------------------------------------


class Exhausted(trio.abc.Listener[trio.SocketStream]):
    """Out of file descriptors for a while, then one client, then nothing."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._steps = iter([errno.EMFILE, errno.ENFILE, errno.ENOBUFS, stream])

    async def accept(self) -> Any:
        step = next(self._steps, None)
        if step is None:
            await trio.sleep_forever()
        if isinstance(step, int):
            raise OSError(step, os.strerror(step))
        await trio.lowlevel.checkpoint()
        return step

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


async def test_running_out_of_file_descriptors_does_not_end_the_door(
    house: House, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture, autojump_clock: object
) -> None:
    """The client that is accepted then is a stream without a socket: a crash of that one connection."""
    theirs, ours = memory_stream_pair()
    with caplog.at_level(logging.ERROR):
        nursery.start_soon(house.door.serve, Exhausted(ours))
        with trio.fail_after(60):
            assert await theirs.receive_some() == b""
    assert [record.message for record in caplog.records if record.name == "fleetd.door"] == ["connection crashed"]


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    make_runtime_dir(made)
    return made


@asynccontextmanager
async def process(directory: Path) -> AsyncIterator[Plain]:
    """This test's own process as a client over a real socket."""
    async with await trio.open_unix_socket(socket_path(directory)) as stream, trio.open_nursery() as nursery:
        yield Plain(stream, nursery)
        nursery.cancel_scope.cancel()


@pytest.mark.live
async def test_a_process_is_identified_once_by_the_kernel(house: House, nursery: trio.Nursery, directory: Path) -> None:
    nursery.start_soon(house.door.serve, bind_socket(directory))
    async with process(directory) as client:
        await client.initialize()
        await client.request("fleetd/status")
        await client.call("echo")
        (peer,) = house.peers
        assert peer.pid == peer.ancestry[0].pid == os.getpid()
        assert house.controls.connections[0].peer == peer


@pytest.mark.live
async def test_a_process_that_may_not_call_is_told_why_and_leaves(
    house: House, nursery: trio.Nursery, directory: Path
) -> None:
    nursery.start_soon(house.door.serve, bind_socket(directory))
    house.refuses = NotToday("not today: come again tomorrow")
    async with process(directory) as client:
        client.start("initialize", initialize_params())
        error = (await client.answer(None))["error"]
        assert (error["code"], error["data"]["retryAfterSeconds"]) == (REFUSED, 7)
        with trio.fail_after(10):
            await client.ended.wait()
    assert house.gone == []
    house.refuses = None
    async with process(directory) as client:
        assert "result" in await client.request("fleetd/status")


@pytest.mark.live
async def test_a_crash_while_a_process_is_identified_touches_no_other(
    house: House, nursery: trio.Nursery, directory: Path
) -> None:
    nursery.start_soon(house.door.serve, bind_socket(directory))
    house.refuses = RuntimeError("crash")
    async with process(directory) as client:
        with trio.fail_after(10):
            await client.ended.wait()
    house.refuses = None
    async with process(directory) as client:
        assert "result" in await client.request("fleetd/status")


@pytest.mark.live
def test_the_door_stands_without_the_sdk_and_imports_it_in_a_thread() -> None:
    script = textwrap.dedent(
        """
        import sys
        import trio
        from trio.testing import memory_stream_pair
        from fleetd.callers import Caller, Role
        from fleetd.door import Door
        from fleetd.frames import LineReader, encode
        from fleetd.jsonrpc import request

        class Nothing:
            def specs(self, role): return []
            async def call(self, caller, name, arguments): raise NotImplementedError

        ticks = 0

        async def tick():
            global ticks
            while True:
                await trio.sleep(0.01)
                ticks += 1

        async def main():
            assert not [name for name in sys.modules if name.split(".")[0] in ("mcp", "mcp_types", "pydantic")]
            door = Door(Nothing(), None, None)
            theirs, ours = memory_stream_pair()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(tick)
                nursery.start_soon(door.serve_stream, ours, Caller(Role.LEAD, "lead-1"))
                params = {"protocolVersion": "2025-11-25", "capabilities": {},
                          "clientInfo": {"name": "x", "version": "1"}}
                await theirs.send_all(encode(request(1, "initialize", params)))
                line = await LineReader(theirs).receive()
                assert b"serverInfo" in line, line
                nursery.cancel_scope.cancel()
            assert ticks > 5, ticks

        trio.run(main)
        """
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr


@pytest.mark.live
def test_warming_up_imports_the_sdk() -> None:
    script = (
        "import sys, trio; from fleetd.door import Door; door = Door(None, None, None); "
        "assert 'fleetd.mcp.session' not in sys.modules; trio.run(door.warm_up); "
        "assert 'fleetd.mcp.session' in sys.modules"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stderr
