"""The socket's frames: JSON-RPC 2.0 messages, one a line, on any byte stream.

Nothing that a peer sends can do more than end its own connection. A line that is no message raises a
:class:`BadFrame` out of ``receive``, which carries what to answer, and the next line is read as if nothing had been.
A line over the bound is thrown away while it comes in, so it never takes more memory than the bound.

Sending never waits. A message goes into the connection's own queue, and a client that does not read is dropped when
as much waits for it as may: whoever sent the message is not held up by it.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import Any, Final

import msgspec
import trio

from fleetd.jsonrpc import INVALID_REQUEST, PARSE_ERROR, Envelope, RequestId, failure, fault, id_of

log = logging.getLogger("fleetd.frames")

#: Bytes in one line, without its newline.
FRAME_BYTES: Final = 1024 * 1024
#: Objects and arrays inside each other in one message.
FRAME_DEPTH: Final = 64
#: Messages that may wait for a client that reads slowly.
QUEUE_FRAMES: Final = 256
#: Bytes that may wait for a client that reads slowly.
QUEUE_BYTES: Final = 4 * 1024 * 1024
#: Bytes asked for at a time, and bytes after which what waits is written in one go.
CHUNK_BYTES: Final = 64 * 1024


class BadFrame(Exception):
    """A line that is not a message. The connection is still in step: the next line can be read."""

    code = PARSE_ERROR

    def __init__(self, why: str, id: RequestId | None = None) -> None:
        super().__init__(why)
        #: The request's identifier where one could be read.
        self.id = id

    def answer(self) -> Envelope:
        """The error response that tells the peer."""
        return failure(self.id, self.code, str(self))


class FrameTooLong(BadFrame):
    """A line of more than :data:`FRAME_BYTES`."""

    code = INVALID_REQUEST

    def __init__(self, id: RequestId | None = None) -> None:
        super().__init__(f"one line holds at most {FRAME_BYTES} bytes, and this one is longer", id)


class FrameTooDeep(BadFrame):
    """More than :data:`FRAME_DEPTH` objects and arrays inside each other."""

    code = INVALID_REQUEST

    def __init__(self) -> None:
        super().__init__(f"one message nests at most {FRAME_DEPTH} objects and arrays, and this one nests more")


class NotAMessage(BadFrame):
    """JSON, but not one JSON-RPC 2.0 message. Batches are among these."""

    code = INVALID_REQUEST


def encode(message: Envelope) -> bytes:
    """The message as a line.

    Raises:
        FrameTooLong: no peer would take it.
    """
    line = msgspec.json.encode(message)
    if len(line) > FRAME_BYTES:
        raise FrameTooLong(id_of(message))
    return line + b"\n"


def decode(line: bytes) -> Envelope:
    """The message in a line.

    Raises:
        BadFrame: the line is not a JSON-RPC 2.0 message.
    """
    try:
        message = msgspec.json.decode(line)
    except msgspec.MsgspecError as exc:
        raise BadFrame(f"this line is not JSON: {exc}") from None
    except RecursionError:
        raise FrameTooDeep from None
    if not isinstance(message, dict):
        kind = "a batch" if isinstance(message, list) else "a bare value"
        raise NotAMessage(f"this line holds {kind}: send one JSON-RPC 2.0 object a line")
    # Counting brackets is cheap, and hardly any message has so many that it needs to be walked.
    if line.count(b"{") + line.count(b"[") > FRAME_DEPTH and _too_deep(message):
        raise FrameTooDeep
    if why := fault(message):
        raise NotAMessage(why, id_of(message))
    return message


def _too_deep(message: Envelope) -> bool:
    level: list[Any] = [message]
    for _ in range(FRAME_DEPTH):
        inside = (value for node in level for value in (node.values() if isinstance(node, dict) else node))
        level = [value for value in inside if isinstance(value, dict | list)]
    return bool(level)


class FrameReader:
    """Bytes in, lines out. No I/O."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._scanned = 0
        self._skipping = False

    def feed(self, data: bytes | bytearray) -> list[bytes | FrameTooLong]:
        """Take bytes as they came; return the lines that they complete, in order.

        Blank lines are left out. A line over the bound is one :class:`FrameTooLong`, as soon as that is known.
        """
        self._held += data
        lines: list[bytes | FrameTooLong] = []
        while (end := self._held.find(b"\n", self._scanned)) >= 0:
            line = bytes(self._held[:end])
            del self._held[: end + 1]
            self._scanned = 0
            if self._skipping:
                self._skipping = False
            elif len(line) > FRAME_BYTES:
                lines.append(FrameTooLong())
            elif line.strip():
                lines.append(line)
        if len(self._held) > FRAME_BYTES and not self._skipping:
            lines.append(FrameTooLong())
            self._skipping = True
        if self._skipping:
            self._held.clear()
        self._scanned = len(self._held)
        return lines

    @property
    def inside(self) -> bool:
        """A line has begun and not ended."""
        return self._skipping or bool(self._held)


class LineReader:
    """The lines of a byte stream."""

    def __init__(self, stream: trio.abc.ReceiveStream) -> None:
        self._stream = stream
        self._frames = FrameReader()
        self._ready: deque[bytes | FrameTooLong] = deque()

    async def receive(self) -> bytes | None:
        """The next line, without its newline; ``None`` when the peer has ended or gone.

        Raises:
            FrameTooLong: the line was thrown away. The next call goes on behind it.
        """
        if self._ready:
            await trio.lowlevel.checkpoint()
        while not self._ready:
            try:
                data = await self._stream.receive_some(CHUNK_BYTES)
            except (trio.BrokenResourceError, trio.ClosedResourceError) as gone:
                log.debug("peer went away", extra={"fleet_reason": str(gone)})
                return None
            if not data:
                if self._frames.inside:
                    log.debug("peer ended inside a line, which was not read")
                return None
            self._ready.extend(self._frames.feed(data))
        line = self._ready.popleft()
        if isinstance(line, FrameTooLong):
            raise line
        return line


class LineStream:
    """A connection that carries messages.

    Args:
        stream: the bytes. Whoever made it closes it.
        name: how logs call the client.
    """

    def __init__(self, stream: trio.abc.Stream, name: str) -> None:
        self._stream = stream
        self._name = name
        self._reader = LineReader(stream)
        self._queue: deque[bytes] = deque()
        self._queued_bytes = 0
        self._changed = trio.Event()
        self._writing = trio.CancelScope()
        self._gone = False

    async def receive(self) -> Envelope | None:
        """The next message; ``None`` when the peer has ended or gone.

        Raises:
            BadFrame: the line is not a message. The next call goes on behind it.
        """
        line = await self._reader.receive()
        return None if line is None else decode(line)

    def send(self, message: Envelope) -> bool:
        """Queue a message now; say whether there is still somebody to read it.

        Raises:
            FrameTooLong: the message is over the bound and was not sent.
        """
        line = encode(message)
        if self._gone:
            log.debug("sent to nobody", extra={"fleet_client": self._name})
            return False
        if len(self._queue) >= QUEUE_FRAMES or self._queued_bytes + len(line) > QUEUE_BYTES:
            log.warning(
                "client dropped: it does not read, and no more than %d messages or %d bytes may wait for it",
                QUEUE_FRAMES,
                QUEUE_BYTES,
                extra={"fleet_client": self._name, "fleet_frames": len(self._queue), "fleet_bytes": self._queued_bytes},
            )
            self._gone = True
            self._writing.cancel()
            return False
        self._queue.append(line)
        self._queued_bytes += len(line)
        self._wake()
        return True

    async def write_out(self) -> None:
        """Write what is sent, until the client goes away or is dropped because it does not read."""
        try:
            with self._writing:
                while True:
                    if not self._queue:
                        await self._changed.wait()
                        continue
                    batch = self._batch()
                    await self._stream.send_all(b"".join(batch))
                    for line in batch:
                        self._queue.popleft()
                        self._queued_bytes -= len(line)
                    self._wake()
        except (trio.BrokenResourceError, trio.ClosedResourceError) as gone:
            log.debug("client went away", extra={"fleet_client": self._name, "fleet_reason": str(gone)})
        finally:
            self._gone = True
            self._wake()

    async def flush(self, within_s: float) -> None:
        """Wait until what was sent is written, at most ``within_s`` seconds. Needs :meth:`write_out` beside it."""
        with trio.move_on_after(within_s):
            while self._queue and not self._gone:
                await self._changed.wait()

    def _batch(self) -> list[bytes]:
        """The oldest lines, up to about :data:`CHUNK_BYTES`. They count as waiting until they are written."""
        batch: list[bytes] = []
        size = 0
        for line in self._queue:
            if batch and size + len(line) > CHUNK_BYTES:
                break
            batch.append(line)
            size += len(line)
        return batch

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()
