"""What a message says about the protocol and the client that sent it. Read without the SDK."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final

from fleetd.jsonrpc import Envelope

#: Characters of instructions that every client shows whole.
INSTRUCTIONS_CHARS: Final = 2_000
#: Characters kept of a client's name.
CLIENT_NAME_CHARS: Final = 64

VERSION_KEY: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_KEY: Final = "io.modelcontextprotocol/clientInfo"


class Era(StrEnum):
    """How a client and a server agree on a version."""

    #: Up to 2025-11-25: once, by ``initialize``.
    HANDSHAKE = "handshake"
    #: From 2026-07-28: each request carries its own.
    STATELESS = "stateless"


def era_of(message: Envelope) -> Era:
    """The era that a request or notification speaks."""
    carries = VERSION_KEY in _object(_params(message).get("_meta"))
    return Era.STATELESS if carries and message.get("method") != "initialize" else Era.HANDSHAKE


def client_name(message: Envelope) -> str | None:
    """The client's name where this message says it: its own word, without control characters and cut."""
    params = _params(message)
    if message.get("method") == "initialize":
        info = _object(params.get("clientInfo"))
    else:
        info = _object(_object(params.get("_meta")).get(CLIENT_KEY))
    name = info.get("name")
    if not isinstance(name, str):
        return None
    return "".join(ch for ch in name[:CLIENT_NAME_CHARS] if ch.isprintable()).strip() or None


def _params(message: Envelope) -> Mapping[str, Any]:
    return _object(message.get("params"))


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
