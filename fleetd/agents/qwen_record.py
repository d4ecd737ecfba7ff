"""Qwen Code's record of a session, for what no hook of it reports: that it tries again by itself.

With fleetd's settings it does so for a minute and a half, and nothing of it is on the screen. The record, one JSON
object a line, has one for each attempt that failed. A hook at the session's start leaves word where the record is; who
clears the session in the member's pane starts another.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any, Final

import trio

from actors.actor import Tells, tell_if_alive
from actors.host import PaneRef
from actors.signal import Signal, What
from actors.turn import Source
from fleetd.agents.record import follow

log = logging.getLogger("fleetd.qwen")

#: In the member's directory.
SESSION: Final = "session.json"
#: Between two looks for the session's record, in seconds.
LOOK_S: Final = 0.5
#: After so long without a session the hooks are off, or a dialog stands before it, in seconds.
SESSION_S: Final = 120.0
#: An attempt that failed is told again so often, each time after so many seconds: the next may be 40 s away.
REPEATS: Final = 8
REPEAT_S: Final = 5.0
#: Codes of requests that are refused and not tried again.
REFUSED: Final = range(400, 429)


class Retries:
    """Tells of each attempt that failed while its turn goes on.

    Args:
        target: the member's address.
        session: what the hook at the session's start leaves.
    """

    def __init__(self, target: str, session: Path) -> None:
        self._target, self._session = target, session
        self._turn = ""
        self._attempt = 0
        #: The attempt that failed last, and how often it may be told again.
        self._last: Signal | None = None
        self._repeats = 0

    async def watch(self, pane: PaneRef, resolver: Tells) -> None:
        """See :data:`fleetd.agents.adapter.Watch`."""
        record = await self._other("")
        while True:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._read, Path(record), resolver)
                nursery.start_soon(self._repeat, resolver)
                record = await self._other(record)
                nursery.cancel_scope.cancel()

    async def _other(self, known: str) -> str:
        """Wait until the member's session has another record than ``known``."""
        began, warned = trio.current_time(), bool(known)
        while (path := await trio.to_thread.run_sync(_record_of, self._session)) in ("", known):
            if not warned and trio.current_time() - began >= SESSION_S:
                warned = True
                log.warning(
                    "program reported no session; the screen decides until it does",
                    extra={"fleet_member": self._target, "fleet_agent": "qwen"},
                )
            await trio.sleep(LOOK_S)
        return path

    async def _read(self, record: Path, resolver: Tells) -> None:
        position = await trio.to_thread.run_sync(lambda: record.stat().st_size if record.exists() else 0)
        async with aclosing(follow(record, position=position)) as lines:
            async for line in lines:
                self._note(line)
                if self._last is not None:
                    tell_if_alive(resolver, self._last)

    async def _repeat(self, resolver: Tells) -> None:
        while True:
            await trio.sleep(REPEAT_S)
            if self._last is not None and self._repeats > 0:
                self._repeats -= 1
                tell_if_alive(resolver, self._last)

    def _note(self, line: Mapping[str, Any]) -> None:
        """Take a line of the record: an attempt that failed, or something that shows that the turn went on."""
        payload = line.get("systemPayload")
        event = payload.get("uiEvent") if isinstance(payload, dict) else None
        self._last = None
        if not isinstance(event, dict) or event.get("event.name") != "qwen-code.api_error":
            return
        turn, text = _text(event, "prompt_id"), _text(event, "error_message")
        if not turn or event.get("subagent_id") or event.get("status_code") in REFUSED:
            return  # a helper's, or nothing that is tried again
        self._attempt = self._attempt + 1 if turn == self._turn else 1
        self._turn, self._repeats = turn, REPEATS
        self._last = Signal(What.RETRYING, turn, text, source=Source.TRANSCRIPT, attempt=self._attempt)


def _record_of(session: Path) -> str:
    """The record that the hook at the session's start named; empty where there is none yet."""
    try:
        found = json.loads(session.read_bytes())
    except (OSError, ValueError):
        return ""
    return _text(found, "transcript_path") if isinstance(found, dict) else ""


def _text(event: Mapping[str, Any], key: str) -> str:
    value = event.get(key)
    return value if isinstance(value, str) else ""
