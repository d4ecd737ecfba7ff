"""Frames: bytes to messages and back, and what a hostile or a sleepy peer can do. Mostly nothing."""

from __future__ import annotations

import json
import logging
import os

import msgspec
import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

from fleetd.frames import (
    FRAME_BYTES,
    FRAME_DEPTH,
    QUEUE_BYTES,
    QUEUE_FRAMES,
    BadFrame,
    FrameReader,
    FrameTooDeep,
    FrameTooLong,
    LineReader,
    LineStream,
    NotAMessage,
    decode,
    encode,
)
from fleetd.jsonrpc import INVALID_REQUEST, PARSE_ERROR, answer, failure, notification, request


def lines_of(*chunks: bytes) -> list[object]:
    reader = FrameReader()
    return [line for chunk in chunks for line in reader.feed(chunk)]


# -- lines -----------------------------------------------------------------------------------------------------------


def test_a_line_is_given_when_its_newline_comes() -> None:
    reader = FrameReader()
    assert reader.feed(b'{"a":') == []
    assert reader.inside
    assert reader.feed(b'1}\n{"b"') == [b'{"a":1}']
    assert reader.feed(b":2}\r\n") == [b'{"b":2}\r']
    assert not reader.inside


def test_blank_lines_are_no_lines() -> None:
    assert lines_of(b"\n \r\n\n{}\n") == [b"{}"]


@given(st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)), st.data())
def test_how_the_bytes_are_cut_makes_no_difference(lines: list[bytes], data: st.DataObject) -> None:
    whole = b"".join(line + b"\n" for line in lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    chunks = [whole[a:b] for a, b in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert lines_of(*chunks) == [line for line in lines if line.strip()]


def test_a_line_of_exactly_the_bound_is_taken() -> None:
    assert lines_of(b"x" * FRAME_BYTES + b"\n") == [b"x" * FRAME_BYTES]


@pytest.mark.parametrize("chunk", [1, FRAME_BYTES // 3, 2 * FRAME_BYTES])
def test_a_line_over_the_bound_is_one_error_that_names_it_and_the_next_line_is_read(chunk: int) -> None:
    reader = FrameReader()
    whole = b"x" * (FRAME_BYTES + 1) + b"\n{}\n"
    start = b"" if chunk > 1 else whole[: FRAME_BYTES - 5]
    found = reader.feed(start)
    for at in range(len(start), len(whole), chunk):
        found += reader.feed(whole[at : at + chunk])
    assert [type(line) for line in found] == [FrameTooLong, bytes]
    assert str(FRAME_BYTES) in str(found[0])
    assert found[1] == b"{}"


def test_an_endless_line_takes_no_memory_beyond_the_bound() -> None:
    reader = FrameReader()
    found = [line for _ in range(64) for line in reader.feed(b"x" * 100_000)]
    assert len(found) == 1
    assert len(reader._held) <= FRAME_BYTES


# -- messages --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        request(1, "m", {"a": [1, 2]}),
        request("id", "m"),
        notification("m", {"t": "ü\0"}),
        answer(2**70, None),
        failure(None, 1, "no", {"error": "no"}),
        {"jsonrpc": "2.0", "id": 1, "method": "m", "params": None},
    ],
)
def test_a_message_survives_the_wire(message: dict[str, object]) -> None:
    line = encode(message)
    assert line.endswith(b"\n")
    assert decode(line) == message


@pytest.mark.parametrize(
    "line",
    [
        b'{"jsonrpc":"2.0","method":"m"',
        b'{"jsonrpc":"2.0","method":"m\0"}',
        b'{"jsonrpc":"2.0","method":"m"}\0',
        b'{"jsonrpc":"2.0","method":"\xff"}',
        b'{"jsonrpc":"2.0","method":"\\ud800"}',
        b'{"jsonrpc":"2.0","method":"m","params":{"a":1e999}}',
        b'{"jsonrpc":"2.0","method":"m","params":{"a":' + b"9" * 5000 + b"}}",
        b"\xef\xbb\xbf{}",
        b"NaN",
        b"GET / HTTP/1.1",
    ],
)
def test_what_is_no_json_is_a_parse_error(line: bytes) -> None:
    with pytest.raises(BadFrame) as bad:
        decode(line)
    assert bad.value.answer()["error"]["code"] == PARSE_ERROR
    assert bad.value.answer()["id"] is None


@pytest.mark.parametrize(
    ("line", "id"),
    [
        (b"[]", None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', None),
        (b"1", None),
        (b"null", None),
        (b"{}", None),
        (b'{"id":1,"method":"m"}', 1),
        (b'{"jsonrpc":"1.0","id":"a","method":"m"}', "a"),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', 1),
        (b'{"jsonrpc":"2.0","id":null,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":true,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":{},"method":"m"}', None),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1]}', 1),
        (b'{"jsonrpc":"2.0","id":1}', 1),
        (b'{"jsonrpc":"2.0","id":1,"result":1,"error":{}}', 1),
        (b'{"jsonrpc":"2.0","id":null,"result":1}', None),
        (b'{"jsonrpc":"2.0","id":1,"error":"no"}', 1),
    ],
)
def test_what_is_no_message_is_an_invalid_request_under_the_id_where_it_has_one(line: bytes, id: object) -> None:
    with pytest.raises(NotAMessage) as bad:
        decode(line)
    assert bad.value.answer()["error"]["code"] == INVALID_REQUEST
    assert bad.value.answer()["id"] == id


def nested(depth: int) -> bytes:
    """A message of ``depth`` objects and arrays inside each other."""
    inner = depth - 2
    return b'{"jsonrpc":"2.0","method":"m","params":{"a":' + b"[" * inner + b"]" * inner + b"}}"


def test_nesting_is_taken_up_to_its_bound() -> None:
    assert decode(nested(FRAME_DEPTH))
    with pytest.raises(FrameTooDeep, match=str(FRAME_DEPTH)):
        decode(nested(FRAME_DEPTH + 1))


@pytest.mark.parametrize("bomb", [nested(900), nested(100_000), b'{"a":' * 150_000, b"[" * FRAME_BYTES])
def test_a_depth_bomb_is_one_error(bomb: bytes) -> None:
    with pytest.raises(FrameTooDeep):
        decode(bomb)


def test_brackets_in_text_are_not_nesting() -> None:
    assert decode(encode(notification("m", {"text": "[" * 1000 + "{" * 1000})))


def test_a_message_over_the_bound_is_not_encoded() -> None:
    with pytest.raises(FrameTooLong) as bound:
        encode(answer("big", "x" * FRAME_BYTES))
    assert bound.value.id == "big"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside),
    max_leaves=20,
)
MEMBERS = st.dictionaries(st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]), JSON)


@given(st.binary() | JSON.map(lambda value: json.dumps(value).encode()) | MEMBERS.map(msgspec.json.encode))
def test_any_line_is_a_message_or_a_bad_frame(line: bytes) -> None:
    try:
        message = decode(line)
    except BadFrame as bad:
        message = bad.answer()
    assert message["jsonrpc"] == "2.0"
    assert decode(encode(message)) == message


@given(st.binary(max_size=300), st.integers(0, 299), st.integers(0, 255))
def test_a_flipped_byte_costs_at_most_its_line(params: bytes, at: int, byte: int) -> None:
    line = bytearray(encode(request(1, "tools/call", {"text": params.hex()})))
    line[at % (len(line) - 1)] = byte
    bad = 0
    messages = []
    for found in lines_of(bytes(line), encode(request(2, "ping"))):
        assert isinstance(found, bytes)
        try:
            messages.append(decode(found))
        except BadFrame:
            bad += 1
    assert messages[-1] == request(2, "ping")
    assert bad + len(messages) <= 3


# -- streams ---------------------------------------------------------------------------------------------------------


async def test_the_end_of_the_peer_is_the_end_of_its_lines(autojump_clock: object) -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(b"{}\nunfinished")
    await theirs.send_eof()
    reader = LineReader(ours)
    assert await reader.receive() == b"{}"
    assert await reader.receive() is None


async def test_the_stream_goes_on_behind_a_bad_line(autojump_clock: object) -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(b"nonsense\n" + encode(request(1, "ping")))
    lines = LineStream(ours, "client")
    with pytest.raises(BadFrame):
        await lines.receive()
    assert await lines.receive() == request(1, "ping")


async def test_messages_arrive_in_the_order_they_were_sent(nursery: trio.Nursery, autojump_clock: object) -> None:
    ours, theirs = memory_stream_pair()
    sender, receiver = LineStream(ours, "client"), LineStream(theirs, "server")
    nursery.start_soon(sender.write_out)
    sent = [notification("n", {"i": i, "pad": "x" * (i * 100)}) for i in range(QUEUE_FRAMES)]
    for message in sent:
        assert sender.send(message)
    assert [await receiver.receive() for _ in sent] == sent


async def test_a_client_that_reads_is_never_dropped_however_much_it_is_told(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    ours, theirs = memory_stream_pair()
    sender, receiver = LineStream(ours, "client"), LineStream(theirs, "server")
    nursery.start_soon(sender.write_out)
    message = notification("n", {"text": "x" * (FRAME_BYTES // 2)})
    for _ in range(3 * QUEUE_BYTES // FRAME_BYTES):
        assert sender.send(message)
        assert await receiver.receive() == message


async def test_flush_waits_until_everything_is_written(nursery: trio.Nursery, autojump_clock: object) -> None:
    ours, theirs = memory_stream_pair()
    lines = LineStream(ours, "client")
    nursery.start_soon(lines.write_out)
    lines.send(notification("n"))
    await lines.flush(1)
    await ours.aclose()
    assert await theirs.receive_some() == encode(notification("n"))


class Wall(trio.abc.Stream):
    """A peer that never reads."""

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await trio.sleep_forever()

    async def wait_send_all_might_not_block(self) -> None:
        await trio.sleep_forever()

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        await trio.sleep_forever()
        raise AssertionError

    async def aclose(self) -> None:
        await trio.lowlevel.checkpoint()


@pytest.mark.parametrize(
    ("message", "fits"),
    [
        (notification("n"), QUEUE_FRAMES),
        (notification("n", {"text": "x" * (FRAME_BYTES - 100)}), QUEUE_BYTES // FRAME_BYTES),
    ],
)
async def test_a_client_that_never_reads_is_dropped_at_its_cap(
    message: dict[str, object],
    fits: int,
    nursery: trio.Nursery,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = LineStream(Wall(), "sleepy")
    ended = trio.Event()

    async def write() -> None:
        await lines.write_out()
        ended.set()

    nursery.start_soon(write)
    await wait_all_tasks_blocked()
    with caplog.at_level(logging.WARNING):
        assert [lines.send(message) for _ in range(fits)] == [True] * fits
        assert not caplog.records
        assert not lines.send(message)
    with trio.fail_after(1):
        await ended.wait()
    (record,) = caplog.records
    assert record.__dict__["fleet_client"] == "sleepy"
    assert str(QUEUE_FRAMES) in record.getMessage()
    assert not lines.send(message)


async def test_what_is_sent_to_a_client_that_has_gone_is_sent_to_nobody(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    ours, theirs = memory_stream_pair()
    lines = LineStream(ours, "client")
    await theirs.aclose()
    lines.send(notification("n"))
    with trio.fail_after(1):
        await lines.write_out()
    assert not lines.send(notification("n"))


async def test_a_flood_of_small_lines_lets_other_tasks_run(nursery: trio.Nursery, autojump_clock: object) -> None:
    ours, theirs = memory_stream_pair()
    await theirs.send_all(b"{}\n" * 1000)
    reader = LineReader(ours)
    turns = 0

    async def other() -> None:
        nonlocal turns
        for _ in range(1000):
            turns += 1
            await trio.lowlevel.checkpoint()

    nursery.start_soon(other)
    for _ in range(1000):
        await reader.receive()
    assert turns > 500


@pytest.mark.live
async def test_frames_cross_a_real_socket() -> None:
    left, right = trio.socket.socketpair()
    async with trio.SocketStream(left) as ours, trio.SocketStream(right) as theirs, trio.open_nursery() as nursery:
        sender, receiver = LineStream(ours, "client"), LineStream(theirs, "server")
        nursery.start_soon(sender.write_out)
        text = os.urandom(FRAME_BYTES // 2 - 100).hex()
        with trio.fail_after(10):
            sender.send(notification("n", {"text": text}))
            got = await receiver.receive()
        assert got == notification("n", {"text": text})
        nursery.cancel_scope.cancel()
