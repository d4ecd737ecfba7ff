"""The command line's side of the door."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from fleetd.frames import BadFrame, FrameTooLong, LineStream
from fleetd.jsonrpc import Envelope, request


class NoDaemon(Exception):
    """Nothing answers on the socket."""


class Refusal(Exception):
    """The daemon said no. ``data`` is what programs read; the message is for people."""

    def __init__(self, message: str, data: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.data = data


class Client:
    """One connection to the daemon. One request at a time."""

    def __init__(self, lines: LineStream) -> None:
        self._lines = lines
        self._ids = 0

    async def request(self, method: str, params: Mapping[str, Any] | None = None) -> Any:
        """Send a request and wait for its result.

        Raises:
            Refusal: the daemon refused it.
            NoDaemon: the daemon went away before it answered; whether it did what was asked is not known.
        """
        async with aclosing(self.exchange(method, params)) as messages:
            async for message in messages:
                if "result" in message:
                    return message["result"]
        raise NoDaemon("the daemon went away before it answered: look with fleetd status before you repeat it")

    async def exchange(self, method: str, params: Mapping[str, Any] | None = None) -> AsyncGenerator[Envelope, None]:
        """Send a request; yield what the daemon says meanwhile, and last its answer.

        Raises:
            Refusal: the daemon refused it.
        """
        self._ids += 1
        try:
            self._lines.send(request(self._ids, method, dict(params or {})))
        except FrameTooLong as bound:
            raise Refusal(f"that is too much for one request: {bound}", {}) from None
        except UnicodeEncodeError:
            raise Refusal("that holds bytes which are no text in UTF-8: convert them", {}) from None
        while (message := await self._receive()) is not None:
            if "error" in message:
                error = message["error"]
                raise Refusal(str(error.get("message")), error.get("data") or {})
            yield message
            if "result" in message:
                return

    async def _receive(self) -> Envelope | None:
        try:
            return await self._lines.receive()
        except BadFrame as bad:
            raise NoDaemon(f"what answers is no fleetd: {bad}") from None


@asynccontextmanager
async def connect(socket: Path) -> AsyncIterator[Client]:
    """A connection to the daemon behind ``socket``.

    Raises:
        NoDaemon: nothing listens there.
    """
    try:
        stream = await trio.open_unix_socket(socket)
        # A listener whose queue is full looks connected to Trio; the kernel knows better.
        stream.socket.getpeername()
    except OSError as exc:
        raise NoDaemon(f"no daemon answers at {socket} ({exc.strerror}): start it with fleetd up") from None
    async with stream:
        lines = LineStream(stream, "daemon")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.write_out)
            yield Client(lines)
            nursery.cancel_scope.cancel()
