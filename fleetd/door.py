"""The door: every client of the daemon comes in here, and is told apart here.

A connection is one process. The kernel says which one, ``identify`` makes a caller of it, once, and everything that
comes over the connection is that caller's. Methods that begin with ``fleetd/`` are the daemon's own and go to the
controls; everything else is MCP. The protocol's SDK takes seconds to import, so that happens in a worker thread when
the first MCP message comes, or before by :meth:`Door.warm_up`.

A failure in one connection ends that connection. Nothing of it reaches another one, or the client in words.
"""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import trio

from actors.actor import Refused
from fleetd import jsonrpc
from fleetd.callers import Caller
from fleetd.connection import Connection, Controls, OpenControls
from fleetd.frames import BadFrame, LineStream
from fleetd.jsonrpc import Envelope
from fleetd.mcp.era import INSTRUCTIONS_CHARS, client_name
from fleetd.peer import Peer, peer_of
from fleetd.toolbox import Toolbox

log = logging.getLogger("fleetd.door")

#: Clients at a time.
MAX_CONNECTIONS: Final = 256
#: Messages that wait for the SDK while it is imported.
MCP_INBOX: Final = 16
#: What a client that has ended its side is given to read the last answers, in seconds.
FLUSH_S: Final = 1.0

SESSION_MODULE: Final = "fleetd.mcp.session"


class TooManyConnections(Refused):
    error = "too_many_connections"


class Door:
    """Accepts clients and carries their messages.

    Args:
        identify: makes a caller of a process; raises :class:`Refused` for one that may not call.
        instructions: what an MCP client's model is told about the server.
        on_client: told when a connection's MCP client has said its name, or another one.
        on_gone: told when an identified connection has ended.
    """

    def __init__(
        self,
        toolbox: Toolbox,
        controls: Controls,
        identify: Callable[[Peer], Awaitable[Caller]],
        *,
        instructions: str = "",
        on_client: Callable[[Connection, Caller, str], object] = lambda *_: None,
        on_gone: Callable[[Connection, Caller], object] = lambda *_: None,
    ) -> None:
        if len(instructions) > INSTRUCTIONS_CHARS:
            raise ValueError(f"instructions have {len(instructions)} characters and may have {INSTRUCTIONS_CHARS}")
        self._toolbox = toolbox
        self._controls = controls
        self._identify = identify
        self._instructions = instructions
        self._on_client = on_client
        self._on_gone = on_gone
        self._open = 0
        self._loading = trio.Lock()

    def __repr__(self) -> str:
        return f"<Door {self._open} of {MAX_CONNECTIONS} connections>"

    async def serve(self, listener: trio.abc.Listener[trio.SocketStream]) -> NoReturn:
        """Accept clients for ever. Out of file descriptors, it waits until there are some again."""
        await trio.serve_listeners(self._accepted, [listener])

    async def serve_stream(self, stream: trio.abc.Stream, caller: Caller) -> None:
        """Serve a client that is known already, until it ends."""

        async def who() -> tuple[Caller, Peer | None]:
            return caller, None

        await self._guarded(stream, who)

    async def warm_up(self) -> None:
        """Import the protocol's SDK, if that has not been done. The loop lives on meanwhile."""
        await self._serve_mcp()

    # -- one connection ------------------------------------------------------------------------------------------

    async def _accepted(self, stream: trio.SocketStream) -> None:
        async def who() -> tuple[Caller, Peer | None]:
            peer = peer_of(stream.socket)
            return await self._identify(peer), peer

        await self._guarded(stream, who)

    async def _guarded(self, stream: trio.abc.Stream, who: Callable[[], Awaitable[tuple[Caller, Peer | None]]]) -> None:
        """Keep what happens in a connection inside it."""
        self._open += 1
        try:
            try:
                if self._open > MAX_CONNECTIONS:
                    raise TooManyConnections(f"fleetd serves {MAX_CONNECTIONS} connections at a time: end some first")
                caller, peer = await who()
            except Refused as no:
                await self._turn_away(stream, no)
                return
            await self._serve(stream, caller, peer)
        except Exception:
            log.exception("connection crashed")
        finally:
            self._open -= 1
            await trio.aclose_forcefully(stream)

    async def _turn_away(self, stream: trio.abc.Stream, no: Refused) -> None:
        log.warning("client refused", extra={"fleet_error": no.error, "fleet_reason": str(no)})
        lines = LineStream(stream, "refused")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.write_out)
            lines.send(jsonrpc.failure(None, jsonrpc.REFUSED, str(no), no.data()))
            await lines.flush(FLUSH_S)
            nursery.cancel_scope.cancel()

    async def _serve(self, stream: trio.abc.Stream, caller: Caller, peer: Peer | None) -> None:
        pid = peer.pid if peer else None
        lines = LineStream(stream, f"{caller.id} pid {pid}")
        connection = Connection(lines, caller, peer)
        log.info("client came", extra={"fleet_caller": caller.id, "fleet_pid": pid})
        try:
            async with trio.open_nursery() as nursery:

                async def write() -> None:
                    await lines.write_out()
                    nursery.cancel_scope.cancel()

                nursery.start_soon(write)
                await self._listen(connection, lines)
                await lines.flush(FLUSH_S)
                nursery.cancel_scope.cancel()
        finally:
            connection.closed.set()
            log.info("client gone", extra={"fleet_caller": caller.id, "fleet_pid": pid})
            self._on_gone(connection, caller)

    async def _listen(self, connection: Connection, lines: LineStream) -> None:
        """Carry messages until the client has ended its side; then what still runs for it is cancelled."""
        async with trio.open_nursery() as nursery:
            controls = OpenControls(self._controls, connection, nursery)
            mcp, inbox = trio.open_memory_channel[Envelope](MCP_INBOX)
            mcp_runs = False
            while True:
                try:
                    message = await lines.receive()
                except BadFrame as bad:
                    connection.send(bad.answer())
                    continue
                if message is None:
                    break
                if controls.take(message):
                    continue
                self._note_client(connection, message)
                if not mcp_runs:
                    mcp_runs = True
                    nursery.start_soon(self._run_mcp, inbox, connection)
                await mcp.send(message)
            nursery.cancel_scope.cancel()

    def _note_client(self, connection: Connection, message: Envelope) -> None:
        name = client_name(message)
        if name is not None and name != connection.client_name:
            connection.client_name = name
            self._on_client(connection, connection.caller, name)

    # -- MCP -----------------------------------------------------------------------------------------------------

    async def _run_mcp(self, inbox: trio.MemoryReceiveChannel[Envelope], connection: Connection) -> None:
        serve_mcp = await self._serve_mcp()
        await serve_mcp(inbox, connection.send, self._toolbox, connection.caller, instructions=self._instructions)

    async def _serve_mcp(self) -> Callable[..., Awaitable[None]]:
        async with self._loading:
            module = sys.modules.get(SESSION_MODULE)
            if module is None:
                module = await trio.to_thread.run_sync(importlib.import_module, SESSION_MODULE)
            serve: Callable[..., Awaitable[None]] = module.serve_mcp
            return serve
