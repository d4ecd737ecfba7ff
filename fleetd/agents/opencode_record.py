"""OpenCode's own events, as a plugin of the member's alone writes them down, one JSON object a line.

The events of every session of the program are in it: of a person's turns, of helpers' sessions, which have a parent,
and of summaries, which are prompts that nobody wrote. A turn is a prompt with words in a session without a parent,
until that session is idle or goes on with the next prompt. An error is not its end: one that the program can deal with
is followed by more. So what a turn came to is said when it is over, by its last error or its last message.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping
from contextlib import aclosing
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import trio

from actors.actor import Tells, tell_if_alive
from actors.classify import Kind
from actors.host import PaneRef
from actors.resets import local_now
from actors.signal import Signal, What
from fleetd.agents.opencode_errors import cause_of
from fleetd.agents.record import follow

log = logging.getLogger("fleetd.opencode")

#: After so long without a record the plugin was not loaded, in seconds.
RECORD_S: Final = 120.0
LOOK_S: Final = 0.5
#: Sessions that are remembered, and prompts or texts of one.
SESSIONS: Final = 256
PROMPTS: Final = 64
#: Conversations that were too long, in one turn: the program sums them up and tries again, for ever.
OVERFLOWS: Final = 3

_ABORTED: Final = "MessageAbortedError"
_OVERFLOW: Final = "ContextOverflowError"
_ASKS: Final = ("permission.asked", "question.asked")
_ANSWERED: Final = ("permission.replied", "question.replied", "question.rejected")
#: Why a model stopped in the middle of its answer, and what that makes of a turn.
_CUT: Final = {
    "length": "the answer was cut at the model's output limit",
    "content-filter": "the provider's content filter cut the answer",
}
#: Reasons that are no end: the program goes on with the next request, unless something stops it.
_OPEN_END: Final = ("", "tool-calls", "unknown", "error")


class _Session:
    """One session without a parent."""

    def __init__(self) -> None:
        #: Prompts without their words so far, and those that wait behind the open turn.
        self.asked: dict[str, None] = {}
        self.queued: dict[str, str] = {}
        self.clear("", "")

    def clear(self, turn: str, prompt: str) -> None:
        #: The open turn, by the message that holds its prompt; empty between turns.
        self.turn, self.prompt = turn, prompt
        #: The assistant's last message, the parts of its text, and why its model stopped.
        self.message, self.finish = "", ""
        self.texts: dict[str, str] = {}
        self.error: Mapping[str, Any] | None = None
        self.overflow: Mapping[str, Any] | None = None
        self.overflows = 0


class Turns:
    """From the program's events to signals."""

    def __init__(self) -> None:
        self._sessions: dict[str, _Session] = {}
        self._helpers: dict[str, None] = {}
        #: The session whose turn began last.
        self._last: _Session | None = None

    def began(self) -> Signal | None:
        """The turn that is open now."""
        last = self._last
        return Signal(What.BEGAN, last.turn, last.prompt, pattern="message") if last is not None and last.turn else None

    def take(self, event: Mapping[str, Any], now: datetime) -> Iterator[Signal]:
        """What one event says.

        Args:
            now: the present by the wall clock.
        """
        kind, said = _text(event, "type"), _object(event, "properties")
        if kind in _ASKS or kind in _ANSWERED:
            # A helper's question stands before the member's own session too.
            if self._last is not None and self._last.turn:
                yield Signal(What.WAITING if kind in _ASKS else What.WORKING, self._last.turn, pattern=kind)
            return
        if kind == "session.created":
            info = _object(said, "info")
            if info.get("parentID"):
                _remember(self._helpers, _text(info, "id"), None, SESSIONS)
            return
        info, part = _object(said, "info"), _object(said, "part")
        session = self._session(_text(said, "sessionID") or _text(info, "sessionID") or _text(part, "sessionID"))
        if session is None:
            return
        match kind:
            case "message.updated" if info.get("role") == "user":
                _asked(session, _text(info, "id"))
            case "message.updated":
                yield from self._message(session, info, now)
            case "message.part.updated":
                yield from self._part(session, part)
            case "session.error":
                _note_error(session, said.get("error"))
                if _object(said, "error").get("name") == _OVERFLOW:
                    session.overflow, session.overflows = _object(said, "error"), session.overflows + 1
            case "session.status" | "session.idle" if session.turn:
                yield from self._status(session, _object(said, "status"), now)

    def _session(self, name: str) -> _Session | None:
        """A session of the member's own; ``None`` for a helper's."""
        if not name or name in self._helpers:
            return None
        if name not in self._sessions:
            _remember(self._sessions, name, _Session(), SESSIONS)
        return self._sessions[name]

    def _status(self, session: _Session, status: Mapping[str, Any], now: datetime) -> Iterator[Signal]:
        """What the session does now; nothing more is said of one that is idle in old versions."""
        match status.get("type", "idle"):
            case "idle":
                yield _end(session, now)
                session.clear("", "")
            case "retry":
                yield _retrying(session.turn, status, now)

    def _message(self, session: _Session, info: Mapping[str, Any], now: datetime) -> Iterator[Signal]:
        message, parent = _text(info, "id"), _text(info, "parentID")
        if parent in session.queued:
            # The program goes on with the next prompt, without a rest.
            if session.turn:
                yield _end(session, now)
            yield self._begin(session, parent, session.queued.pop(parent))
        if not session.turn or info.get("summary") is True:
            return
        if message != session.message:
            session.message, session.texts, session.error = message, {}, None
        session.finish = _text(info, "finish")
        _note_error(session, info.get("error"))

    def _part(self, session: _Session, part: Mapping[str, Any]) -> Iterator[Signal]:
        message, text = _text(part, "messageID"), _text(part, "text")
        spoken = part.get("type") == "text" and not part.get("synthetic") and not part.get("ignored")
        if message in session.asked and spoken and text.strip():
            del session.asked[message]
            if not session.turn:
                yield self._begin(session, message, text)
            elif text != session.prompt:  # else the program repeats it behind a summary
                _remember(session.queued, message, text, PROMPTS)
        elif session.turn and message == session.message:
            if part.get("type") == "step-start":
                session.texts = {}  # another attempt at the same message
            elif spoken:
                _remember(session.texts, _text(part, "id"), text, PROMPTS)

    def _begin(self, session: _Session, turn: str, prompt: str) -> Signal:
        session.clear(turn, prompt)
        self._last = session
        return Signal(What.BEGAN, turn, prompt, pattern="message")


def _asked(session: _Session, message: str) -> None:
    if message != session.turn and message not in session.queued:
        _remember(session.asked, message, None, PROMPTS)


def _note_error(session: _Session, error: object) -> None:
    if isinstance(error, Mapping) and session.turn:
        session.error = error


def _retrying(turn: str, status: Mapping[str, Any], now: datetime) -> Signal:
    attempt, at = status.get("attempt"), status.get("next")
    wait = max(0, round(at / 1000 - now.timestamp())) if isinstance(at, int | float) else None
    return Signal(
        What.RETRYING,
        turn,
        _text(status, "message"),
        pattern="session.status retry",
        attempt=attempt if isinstance(attempt, int) else None,
        wait_s=wait,
    )


def _end(session: _Session, now: datetime) -> Signal:
    """What the turn that is over came to."""
    turn, error = session.turn, session.error
    if error is not None and error.get("name") == _ABORTED:
        if session.overflows < OVERFLOWS:
            return Signal(What.STOPPED, turn, pattern=_ABORTED)
        error = session.overflow
    if error is not None:
        cause = cause_of(error, now)
        return Signal(What.FAILED, turn, cause.text, cause.kind, pattern=cause.pattern, resets_in_ns=cause.resets_in_ns)
    text = "\n\n".join(text for text in session.texts.values() if text.strip())
    if session.finish in _CUT:
        return Signal(What.FAILED, turn, _CUT[session.finish], Kind.REQUEST, pattern=f"finish {session.finish}")
    if text and session.finish in _OPEN_END:
        why = "it came to rest in the middle of its work"
        return Signal(What.FAILED, turn, why, pattern=f"finish {session.finish}".rstrip())
    return Signal(What.ENDED, turn, text, pattern="session.idle")


def _remember(found: dict[str, Any], key: str, value: object, bound: int) -> None:
    found[key] = value
    while len(found) > bound:
        del found[next(iter(found))]


def _text(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _object(found: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = found.get(key)
    return value if isinstance(value, Mapping) else {}


class Events:
    """Follows a member's record.

    Args:
        record: written by the plugin.
        resumed: the member runs on from an earlier daemon, which has told what the record holds already.
    """

    def __init__(self, record: Path, *, resumed: bool = False) -> None:
        self._record, self._resumed = record, resumed
        self._turns = Turns()

    async def watch(self, pane: PaneRef, resolver: Tells) -> None:
        """See :data:`fleetd.agents.adapter.Watch`."""
        position = await self._catch_up(resolver) if self._resumed else 0
        await self._wait(pane)
        async with aclosing(follow(self._record, position=position)) as events:
            async for event in events:
                for signal in self._turns.take(event, local_now()):
                    tell_if_alive(resolver, signal)

    async def _catch_up(self, resolver: Tells) -> int:
        """Read what an earlier daemon has read, for the turn that is open now; return where that ends, in bytes."""
        data = await trio.to_thread.run_sync(_bytes_of, self._record)
        whole = data[: data.rfind(b"\n") + 1]
        for line in whole.splitlines():
            for _ in self._turns.take(_decoded(line), local_now()):
                pass
        if (began := self._turns.began()) is not None:
            tell_if_alive(resolver, began)
        return len(whole)

    async def _wait(self, pane: PaneRef) -> None:
        """Wait for the record to be there; say it once where it does not come."""
        deadline = trio.current_time() + RECORD_S
        while trio.current_time() < deadline:
            if await trio.Path(self._record).exists():
                return
            await trio.sleep(LOOK_S)
        log.warning(
            "program did not load fleetd's plugin; the screen decides until it does",
            extra={"fleet_pane": pane.id, "fleet_agent": "opencode"},
        )


def _bytes_of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def _decoded(line: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
