"""A toolbox that records, and two clients: a plain one, and the wire under the SDK's own."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

import anyio
import jsonschema  # noqa: F401  (the SDK's client imports it late, and it then opens its schemas)
import trio
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from fleetd.callers import Caller, Role
from fleetd.frames import LineStream
from fleetd.jsonrpc import Envelope, notification, request
from fleetd.toolbox import ToolResult, ToolSpec

LEAD = Caller(Role.LEAD, "lead-1")
MEMBER = Caller(Role.MEMBER, "m-4")

STATELESS = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "plain", "version": "1"},
    }
}


def initialize_params(version: str = "2025-11-25") -> dict[str, Any]:
    return {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "plain", "version": "1"}}


def spec(name: str) -> ToolSpec:
    schema = {"type": "object", "properties": {"text": {"type": "string"}}}
    return ToolSpec(name, f"what {name} does", schema, {"type": "object", "properties": {"said": {"type": "string"}}})


class FakeToolbox:
    """``echo``, ``refuse``, ``crash``, and ``wait``, which ends when the test says so or its caller cancels."""

    def __init__(self) -> None:
        self.calls: list[tuple[Caller, str, Mapping[str, Any]]] = []
        self.waiting = 0
        self.cancelled = 0
        self.go_on = trio.Event()

    def specs(self, role: Role) -> Sequence[ToolSpec]:
        names = ["wait", "echo", "refuse", "crash"] if role is Role.LEAD else ["echo"]
        return [spec(name) for name in names]

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        self.calls.append((caller, name, arguments))
        if name == "crash":
            raise RuntimeError("the password is hunter2")
        if name == "refuse":
            return ToolResult({"error": "not_allowed"}, "refused: not allowed", is_error=True)
        if name == "wait":
            self.waiting += 1
            try:
                await self.go_on.wait()
            except trio.Cancelled:
                self.cancelled += 1
                raise
            finally:
                self.waiting -= 1
        text = arguments.get("text", "")
        return ToolResult({"said": text}, f"said {text}")


class Plain:
    """A client without the SDK."""

    def __init__(self, stream: trio.abc.Stream, nursery: trio.Nursery) -> None:
        self._lines = LineStream(stream, "server")
        self._nursery = nursery
        self._last = 0
        self._answers: dict[object, Envelope] = {}
        self._changed = trio.Event()
        self.heard: list[Envelope] = []
        self.ended = trio.Event()
        nursery.start_soon(self._lines.write_out)
        nursery.start_soon(self._read)

    async def _read(self) -> None:
        while (message := await self._lines.receive()) is not None:
            self.heard.append(message)
            if "method" not in message:
                self._answers[message["id"]] = message
            self._changed.set()
            self._changed = trio.Event()
        self.ended.set()

    def send(self, message: Envelope) -> None:
        assert self._lines.send(message)

    def notify(self, method: str, params: object = None) -> None:
        self.send(notification(method, params))

    def start(self, method: str, params: object = None, id: str | int | None = None) -> str | int:
        """Send a request; :meth:`answer` has what becomes of it."""
        if id is None:
            self._last += 1
            id = self._last
        self.send(request(id, method, params))
        return id

    async def answer(self, id: str | int | None, within_s: float = 10) -> Envelope:
        """The answer to a request; each one is given once."""
        with trio.fail_after(within_s):
            while id not in self._answers:
                await self._changed.wait()
        return self._answers.pop(id)

    async def request(self, method: str, params: object = None, id: str | int | None = None) -> Envelope:
        return await self.answer(self.start(method, params, id))

    async def initialize(self, version: str = "2025-11-25") -> Envelope:
        reply = await self.request("initialize", initialize_params(version))
        self.notify("notifications/initialized")
        return reply

    async def call(self, tool: str, **arguments: Any) -> Envelope:
        return await self.request("tools/call", {"name": tool, "arguments": arguments})


@asynccontextmanager
async def sdk_transport(stream: trio.abc.Stream) -> AsyncIterator[tuple[Any, Any]]:
    """A byte stream as the SDK's client wants its server."""
    lines = LineStream(stream, "server")
    to_client, from_server = anyio.create_memory_object_stream[SessionMessage | Exception](16)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](16)

    async def read() -> None:
        async with to_client:
            while (message := await lines.receive()) is not None:
                await to_client.send(SessionMessage(jsonrpc_message_adapter.validate_python(message)))

    async def write() -> None:
        async with from_client:
            async for item in from_client:
                lines.send(item.message.model_dump(by_alias=True, mode="json", exclude_unset=True))

    async with trio.open_nursery() as nursery, from_server, to_server:
        nursery.start_soon(lines.write_out)
        nursery.start_soon(read)
        nursery.start_soon(write)
        yield from_server, to_server
        nursery.cancel_scope.cancel()
