"""JSON-RPC 2.0 messages as decoded JSON: how they are made, and what is wrong with one."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

Envelope: TypeAlias = dict[str, Any]
RequestId: TypeAlias = str | int

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INTERNAL_ERROR: Final = -32603
#: A request that was understood and refused; the error's data says which refusal it is.
REFUSED: Final = 1


def request(id: RequestId, method: str, params: object = None) -> Envelope:
    return {"jsonrpc": "2.0", "id": id, "method": method} | ({} if params is None else {"params": params})


def notification(method: str, params: object = None) -> Envelope:
    return {"jsonrpc": "2.0", "method": method} | ({} if params is None else {"params": params})


def answer(id: RequestId, result: object) -> Envelope:
    return {"jsonrpc": "2.0", "id": id, "result": result}


def failure(id: RequestId | None, code: int, message: str, data: object = None) -> Envelope:
    """An error response. ``id`` is ``None`` where the request's could not be read."""
    error: Envelope = {"code": code, "message": message}
    if data is not None:
        error["data"] = data
    return {"jsonrpc": "2.0", "id": id, "error": error}


def id_of(message: Envelope) -> RequestId | None:
    """The message's identifier, unless it is none: null, a fraction and a truth value are not identifiers."""
    id = message.get("id")
    return id if isinstance(id, str | int) and not isinstance(id, bool) else None


def fault(message: Envelope) -> str | None:
    """Why this is not a JSON-RPC 2.0 message; ``None`` when it is one.

    Only the members that routing relies on are looked at. Null ``params`` count as none.
    """
    id = id_of(message)
    if message.get("jsonrpc") != "2.0":
        return 'a message needs "jsonrpc": "2.0"'
    if "method" not in message:
        if "id" not in message or ("result" in message) == ("error" in message):
            return 'a message needs a "method", or an "id" with either a "result" or an "error"'
        if id is None and (message["id"] is not None or "result" in message):
            return 'an "id" is a string or an integer'
        return None if isinstance(message.get("error", {}), dict) else 'an "error" is an object'
    if not isinstance(message["method"], str):
        return 'a "method" is a string'
    if "id" in message and id is None:
        return 'an "id" is a string or an integer'
    if not isinstance(message.get("params"), dict | None):
        return '"params" is an object: arguments by position are not taken'
    return None
