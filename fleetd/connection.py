"""One client of the daemon, and what it has asked of the daemon's own methods.

Those methods begin with ``fleetd/``. They run beside each other, and beside the protocol's calls; each gets one answer,
except where its client has cancelled it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final, Protocol

import trio

from actors.actor import Refused
from fleetd import jsonrpc
from fleetd.callers import Caller
from fleetd.frames import FrameTooLong, LineStream
from fleetd.jsonrpc import Envelope, RequestId
from fleetd.peer import Peer

log = logging.getLogger("fleetd.door")

#: Control requests of one connection that may be without an answer.
MAX_CONTROLS: Final = 64
#: Methods of the daemon's own.
CONTROL_PREFIX: Final = "fleetd/"


class UnknownMethod(Exception):
    """Raised by controls for a method that they do not have."""


class TooManyControls(Refused):
    error = "too_many_controls"


class Connection:
    """One client, as the rest of the daemon sees it."""

    def __init__(self, lines: LineStream, caller: Caller, peer: Peer | None) -> None:
        self.caller = caller
        #: The process at the other end; ``None`` for a client in memory.
        self.peer = peer
        #: What the client calls itself in the protocol, once it has said so.
        self.client_name: str | None = None
        #: Set when the client has gone.
        self.closed = trio.Event()
        self._lines = lines

    def __repr__(self) -> str:
        pid = self.peer.pid if self.peer else "-"
        return f"<Connection {self.caller.role} {self.caller.id} pid {pid} client {self.client_name or '-'}>"

    def notify(self, method: str, params: object = None) -> bool:
        """Tell the client something, at once; say whether it is still there."""
        return self.send(jsonrpc.notification(method, params))

    def send(self, message: Envelope) -> bool:
        """Send a message. An answer that no line can hold becomes an error that says so."""
        try:
            return self._lines.send(message)
        except FrameTooLong as bound:
            log.error("message not sent: too long", extra={"fleet_caller": self.caller.id})
            if bound.id is None:
                return False
            error = jsonrpc.failure(bound.id, jsonrpc.INTERNAL_ERROR, f"the answer is too long: {bound}")
            return self._lines.send(error)


class Controls(Protocol):
    """The daemon's own methods."""

    async def control(self, caller: Caller, method: str, params: Mapping[str, Any], connection: Connection) -> object:
        """Do what a ``fleetd/`` method asks; the result is what the client gets.

        Raises:
            Refused: the caller's to read.
            UnknownMethod: there is no such method.
        """
        ...


class OpenControls:
    """The control requests of one connection that have no answer yet."""

    def __init__(self, controls: Controls, connection: Connection, nursery: trio.Nursery) -> None:
        self._controls = controls
        self._connection = connection
        self._nursery = nursery
        self._scopes: dict[object, trio.CancelScope] = {}

    def take(self, message: Envelope) -> bool:
        """Start what the message asks of the controls, or end it; say whether it was for them."""
        method: str = message.get("method", "")
        params: dict[str, Any] = message.get("params") or {}
        if method == "notifications/cancelled":
            named = params.get("requestId")
            scope = self._scopes.get(named) if isinstance(named, str | int) else None
            if scope is not None:
                scope.cancel()
            return scope is not None
        if not method.startswith(CONTROL_PREFIX):
            return False
        id = jsonrpc.id_of(message)
        if id in self._scopes:
            self._say(
                jsonrpc.failure(
                    id, jsonrpc.INVALID_REQUEST, f"a request with the id {id!r} is open: give each one its own"
                )
            )
        elif len(self._scopes) >= MAX_CONTROLS:
            no = TooManyControls(f"{MAX_CONTROLS} control requests of this connection are open, and no more may be")
            self._say(jsonrpc.failure(id, jsonrpc.REFUSED, str(no), no.data()))
        else:
            key = object() if id is None else id
            self._scopes[key] = trio.CancelScope()
            self._nursery.start_soon(self._run, key, id, method, params)
        return True

    async def _run(self, key: object, id: RequestId | None, method: str, params: dict[str, Any]) -> None:
        with self._scopes[key]:
            try:
                result = await self._controls.control(self._connection.caller, method, params, self._connection)
                if id is not None:
                    self._connection.send(jsonrpc.answer(id, result))
            except UnknownMethod:
                self._say(jsonrpc.failure(id, jsonrpc.METHOD_NOT_FOUND, f"fleetd has no method {method}"))
            except Refused as no:
                self._say(jsonrpc.failure(id, jsonrpc.REFUSED, str(no), no.data()))
            except Exception:
                log.exception("control crashed", extra={"fleet_method": method})
                self._say(
                    jsonrpc.failure(
                        id, jsonrpc.INTERNAL_ERROR, "fleetd failed inside this call; its log has the reason"
                    )
                )
            finally:
                del self._scopes[key]

    def _say(self, error: Envelope) -> None:
        """Answer a request; what came as a notification has nobody to answer, so it is only logged."""
        if error["id"] is not None:
            self._connection.send(error)
        else:
            log.warning("control notification failed", extra={"fleet_reason": error["error"]["message"]})
