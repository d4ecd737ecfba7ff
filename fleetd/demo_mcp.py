"""The demo agent's MCP client: the bridge as a child process, one JSON-RPC message a line. Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any, Final

PROTOCOL: Final = "2025-11-25"
#: Another command for the bridge, as a JSON list: for tests.
COMMAND_VARIABLE: Final = "FLEETD_DEMO_MCP"
#: Bytes of one message from the bridge; a longer one ends the connection.
MESSAGE_BYTES: Final = 8 * 1024 * 1024
#: What the bridge is given to end by itself, in seconds.
CLOSE_S: Final = 1.0


class BridgeGone(Exception):
    """The bridge cannot be started, has ended, or does not speak the protocol."""


class Bridge:
    """A running bridge. Nothing waits here: the caller asks :meth:`response` again until there is one."""

    def __init__(self) -> None:
        given = os.environ.get(COMMAND_VARIABLE)
        argv = json.loads(given) if given else [sys.executable, "-m", "fleetd", "mcp"]
        pipe = subprocess.PIPE
        try:
            self._child = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, bufsize=0)
        except OSError as exc:
            raise BridgeGone(f"{argv[0]} cannot be started: {exc.strerror}") from exc
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._stdin, self._stdout = self._child.stdin, self._child.stdout
        os.set_blocking(self._stdout.fileno(), False)
        self._buffer = b""
        self._responses: dict[object, dict[str, Any]] = {}
        self._last = 0

    def request(self, method: str, params: dict[str, Any]) -> int:
        """Send a request; its number asks for the response."""
        self._last += 1
        self._send({"id": self._last, "method": method, "params": params})
        return self._last

    def notify(self, method: str) -> None:
        self._send({"method": method})

    def response(self, number: int) -> dict[str, Any] | None:
        """The response to a request as soon as it is there: an object with ``result`` or ``error``."""
        while number not in self._responses:
            try:
                data = os.read(self._stdout.fileno(), 65536)
            except BlockingIOError:
                return None
            if not data:
                raise BridgeGone("the bridge has ended; is the daemon up?")
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            if len(self._buffer) > MESSAGE_BYTES:
                raise BridgeGone(f"the bridge sent a message of more than {MESSAGE_BYTES} bytes")
            for line in filter(None, lines):
                message = json.loads(line)
                if "method" not in message:
                    self._responses[message.get("id")] = message
        return self._responses.pop(number)

    def close(self) -> None:
        """End the bridge as the protocol says: by the end of its input."""
        self._stdin.close()
        try:
            self._child.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self._child.kill()
            self._child.wait()
        self._stdout.close()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._stdin.write(json.dumps({"jsonrpc": "2.0"} | message).encode() + b"\n")
        except OSError as exc:
            raise BridgeGone(f"the bridge takes no message: {exc.strerror}") from exc
