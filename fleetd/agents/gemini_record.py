"""Gemini CLI's record of a session: how a turn ended, which its hooks leave out.

The hook at a turn's end is the same after an answer, a failure and a stop, and the text that it carries is garbled. The
record has what the program showed: answers, errors and notices, one JSON object a line; in older versions it is one
object with all of them. Each has the time at which it was shown. The record is written a moment before the hook runs,
or behind it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final

import msgspec
import trio

#: Bytes at the end of a record in which a turn's end stands: repeated copies of the history stand between.
RECORD_BYTES: Final = 16 * 1024 * 1024
#: How long a turn's end is waited for, in seconds.
RECORD_S: Final = 1.0
#: Between two looks at the record, in seconds.
LOOK_S: Final = 0.05
#: Begins a line that only changes what stands above it.
_CHANGE: Final = b'{"$'


class Shown(msgspec.Struct, frozen=True):
    """Something that the program showed in a turn: ``answer``, ``error`` or ``info``."""

    what: str
    text: str


async def last_shown(path: Path, since: str, says: Callable[[Shown], bool]) -> Shown | None:
    """The last thing of a turn that says how it ended; ``None`` where there is none, even after a moment.

    Args:
        path: the session's record.
        since: when the turn began, as the program writes times; empty where that is not known.
        says: whether something says how a turn ended.
    """
    with trio.move_on_after(RECORD_S):
        while True:
            shown = await trio.to_thread.run_sync(_shown, path, since)
            found = next((each for each in reversed(shown) if says(each)), None)
            if found is not None:
                return found
            await trio.sleep(LOOK_S)
    return None


def _shown(path: Path, since: str) -> list[Shown]:
    """What was shown since the turn began: by its time, else behind the last prompt."""
    shown: list[Shown] = []
    asked = bool(since)
    for record in _records(path):
        kind, text = record.get("type"), _text(record.get("content"))
        if kind == "user" and text and not since:
            shown, asked = [], True
        elif str(record.get("timestamp", "")) < since or not text:
            continue
        elif kind == "gemini" and not record.get("toolCalls"):
            shown.append(Shown("answer", text))
        elif kind in ("error", "info"):
            shown.append(Shown(kind, text))
    return shown if asked else []


def _records(path: Path) -> Iterable[dict[str, Any]]:
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - RECORD_BYTES))
            data = file.read(RECORD_BYTES)
    except OSError:
        return []
    if path.suffix == ".json":
        found = _parsed(data)
        messages = found.get("messages") if found is not None else None
        return [each for each in messages if isinstance(each, dict)] if isinstance(messages, list) else []
    lines = (line for line in data.split(b"\n") if line and not line.startswith(_CHANGE))
    return [record for record in map(_parsed, lines) if record is not None]


def _parsed(data: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(data)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


def _text(content: object) -> str:
    """A message's text: itself, or its parts that are text."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part["text"] for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str))
