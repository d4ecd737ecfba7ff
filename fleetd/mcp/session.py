"""MCP on one connection, in both of its eras.

The SDK locks a session to the era of its first request: once a client has asked ``server/discover`` (2026-07-28), an
``initialize`` (2025-11-25 and before) is refused, and Claude Code sends exactly these two in this order. So a
connection has up to two SDK sessions, each made when the first request of its era comes, and every request goes to the
session of the era that it speaks. An ``initialize`` always begins a session: a client may say it again at any time.

The SDK sees its requests under identifiers of ours. The client's are its own: two eras may use the same, and the SDK
takes ``"7"`` for ``7`` when one is cancelled. The table of what is open is kept here, so it also knows which session
a cancellation belongs to, and who is still owed an answer when a session ends.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import anyio
import msgspec
import trio
from anyio.streams.memory import MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCError, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from actors.actor import Refused
from fleetd.callers import Caller
from fleetd.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, REFUSED, Envelope, RequestId, answer, failure
from fleetd.mcp.era import Era, era_of
from fleetd.mcp.server import build_server
from fleetd.toolbox import Toolbox

log = logging.getLogger("fleetd.mcp")

#: Requests of one connection that may be without an answer.
MAX_CALLS: Final = 128
#: Messages on their way into one SDK session.
INBOX: Final = 16


class TooManyCalls(Refused):
    """The connection has :data:`MAX_CALLS` requests without an answer."""

    error = "too_many_calls"


async def serve_mcp(
    incoming: trio.MemoryReceiveChannel[Envelope],
    send: Callable[[Envelope], object],
    toolbox: Toolbox,
    caller: Caller,
    *,
    instructions: str = "",
) -> None:
    """Serve one client until ``incoming`` ends.

    Args:
        send: takes each message for the client, at once.
        instructions: what the client's model is told about the server.
    """
    async with incoming, trio.open_nursery() as nursery:
        carrier = _Carrier(nursery, send, toolbox, caller, instructions)
        async for message in incoming:
            await carrier.take(message)
        await carrier.close()


class _Session:
    """One SDK session and the way into it."""

    def __init__(self, era: Era) -> None:
        self.era = era
        self.inbox: MemoryObjectSendStream[SessionMessage | Exception]
        self.inbox, self.outlet = anyio.create_memory_object_stream[SessionMessage | Exception](INBOX)
        self.ended = trio.Event()


class _Call(msgspec.Struct, frozen=True):
    """A request that has no answer yet."""

    id: RequestId
    session: _Session


class _Out:
    """Where an SDK session writes. It never blocks, so a session that is cancelled ends at once."""

    def __init__(self, deliver: Callable[[SessionMessage], None]) -> None:
        self._deliver = deliver

    async def send(self, item: SessionMessage, /) -> None:
        self._deliver(item)

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> _Out:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass


class _Carrier:
    """Owns, per connection: the sessions, and the requests that are open."""

    def __init__(
        self,
        nursery: trio.Nursery,
        send: Callable[[Envelope], object],
        toolbox: Toolbox,
        caller: Caller,
        instructions: str,
    ) -> None:
        self._nursery = nursery
        self._send = send
        self._caller = caller
        self._server = build_server(toolbox, caller, instructions)
        self._sessions: dict[Era, _Session] = {}
        self._calls: dict[int, _Call] = {}
        self._numbers: dict[RequestId, int] = {}
        self._last = 0

    async def take(self, message: Envelope) -> None:
        """Route one message of the client."""
        if "method" not in message:
            log.debug("answer ignored: this server asks its clients nothing", extra={"fleet_caller": self._caller.id})
        elif "id" in message:
            await self._request(message)
        elif message["method"] == "notifications/cancelled":
            await self._cancelled(message)
        else:
            await self._notification(message)

    async def close(self) -> None:
        """End the sessions; what is open in them is cancelled."""
        for session in list(self._sessions.values()):
            await self._end(session)

    # -- inwards -------------------------------------------------------------------------------------------------

    async def _request(self, message: Envelope) -> None:
        id = message["id"]
        if id in self._numbers:
            self._send(failure(id, INVALID_REQUEST, f"a request with the id {id!r} is open: give each one its own"))
            return
        if len(self._calls) >= MAX_CALLS:
            no = TooManyCalls(f"{MAX_CALLS} requests of this connection are without an answer, and it may have no more")
            self._send(failure(id, REFUSED, str(no), no.data()))
            return
        session = await self._session_for(era_of(message), message["method"])
        self._last += 1
        self._calls[self._last] = _Call(id, session)
        self._numbers[id] = self._last
        params = message.get("params")
        await self._put(session, JSONRPCRequest(jsonrpc="2.0", id=self._last, method=message["method"], params=params))

    async def _cancelled(self, message: Envelope) -> None:
        params: dict[str, Any] = message.get("params") or {}
        id = params.get("requestId")
        number = self._numbers.get(id) if isinstance(id, str | int) else None
        if number is None:
            log.debug("nothing to cancel", extra={"fleet_caller": self._caller.id})
            return
        session = self._calls[number].session
        self._forget(number)
        note = JSONRPCNotification(jsonrpc="2.0", method=message["method"], params=params | {"requestId": number})
        await self._put(session, note)

    async def _notification(self, message: Envelope) -> None:
        era = era_of(message)
        session = self._sessions.get(era)
        if session is None:
            log.debug("notification ignored: no session", extra={"fleet_method": message["method"], "fleet_era": era})
            return
        params = message.get("params")
        await self._put(session, JSONRPCNotification(jsonrpc="2.0", method=message["method"], params=params))

    async def _session_for(self, era: Era, method: str) -> _Session:
        session = self._sessions.get(era)
        if session is not None and method == "initialize":
            await self._end(session)
            session = None
        if session is None:
            session = self._sessions[era] = _Session(era)
            self._nursery.start_soon(self._run, session)
        return session

    async def _put(self, session: _Session, message: JSONRPCRequest | JSONRPCNotification) -> None:
        try:
            await session.inbox.send(SessionMessage(message))
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.debug("message for a session that has ended", extra={"fleet_era": session.era})

    # -- the session ---------------------------------------------------------------------------------------------

    async def _run(self, session: _Session) -> None:
        try:
            async with session.inbox, session.outlet:
                await self._server.run(
                    session.outlet, _Out(self._deliver), self._server.create_initialization_options()
                )
        except Exception:
            log.exception("mcp session crashed", extra={"fleet_caller": self._caller.id, "fleet_era": session.era})
        finally:
            if self._sessions.get(session.era) is session:
                del self._sessions[session.era]
            for number in [number for number, call in self._calls.items() if call.session is session]:
                id = self._forget(number)
                self._send(failure(id, INTERNAL_ERROR, "the session ended before it answered; its log has the reason"))
            session.ended.set()

    async def _end(self, session: _Session) -> None:
        await session.inbox.aclose()
        await session.ended.wait()

    # -- outwards ------------------------------------------------------------------------------------------------

    def _deliver(self, item: SessionMessage) -> None:
        """Pass on what an SDK session says, under the client's own identifiers."""
        match item.message:
            case JSONRPCResponse(id=int(number), result=result) if number in self._calls:
                self._send(answer(self._forget(number), result))
            case JSONRPCError(id=int(number), error=error) if number in self._calls:
                self._send(failure(self._forget(number), error.code, error.message, error.data))
            case JSONRPCNotification(method=method, params=params):
                self._send({"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params}))
            case other:
                log.debug("not passed on", extra={"fleet_message": type(other).__name__})

    def _forget(self, number: int) -> RequestId:
        id = self._calls.pop(number).id
        del self._numbers[id]
        return id
