"""What Codex writes down of its turns: its rollout, a file that grows by one JSON object at a time.

Every conversation has one, in a folder that all of a user's panes share. A member's own is told from all others by who
has it open: one of the pane's processes. The conversations of sub-agents are open in the same process and say so in
their first record; a conversation that is continued begins with old turns, which are older than the member.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import aclosing, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import trio

from actors.actor import Tells, tell_if_alive
from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.host import PaneRef
from actors.resets import local_now, resets_in
from actors.signal import Signal, What
from actors.turn import Source
from fleetd.agents.adapter import Watch
from fleetd.agents.codex_errors import kind_of
from fleetd.agents.record import follow

log = logging.getLogger("fleetd.codex")

#: Between two looks at the files that the pane's processes have open, in seconds.
LOOK_S: Final = 0.25
#: Rollouts of one member that are followed at a time, those that it opened first: the others are sub-agents'.
FOLLOWED: Final = 64
#: The first version that writes down how a turn failed. The bare end of a turn says nothing in an older one.
TELLS_FAILURES: Final = (0, 152)


class Rollout:
    """Reads the records of one rollout, in order.

    Args:
        since: what was written before is another process's history.
    """

    def __init__(self, since: datetime) -> None:
        self._since = since
        #: The conversation that the input line belongs to, and no sub-agent's; ``None`` before the first record.
        self._main: bool | None = None
        self._tells_failures = False
        #: The turn that runs, and the one that was reported to have begun.
        self._turn = ""
        self._begun = ""
        self._limits: Mapping[str, Any] = {}

    @property
    def is_foreign(self) -> bool:
        """Whether it is known to be a sub-agent's."""
        return self._main is False

    def signal(self, record: Mapping[str, Any], now: datetime) -> Signal | None:
        """What a record says of a turn that was typed.

        Args:
            now: the present by the wall clock, for the reset times in it.
        """
        payload = record.get("payload")
        if not isinstance(payload, Mapping):
            return None
        if record.get("type") == "session_meta":
            if self._main is None:
                self._main = isinstance(payload.get("source"), str) and payload.get("thread_source") in (None, "user")
                self._tells_failures = _version(payload.get("cli_version")) >= TELLS_FAILURES
            return None
        if not self._main or record.get("type") != "event_msg" or self._is_old(record):
            return None
        return self._event(payload, now)

    def _is_old(self, record: Mapping[str, Any]) -> bool:
        try:
            return datetime.fromisoformat(str(record.get("timestamp"))) < self._since
        except (ValueError, TypeError):
            return True

    def _event(self, payload: Mapping[str, Any], now: datetime) -> Signal | None:
        turn = str(payload.get("turn_id") or "")
        match payload.get("type"):
            case "task_started" | "turn_started":
                self._turn = turn
            case "user_message":
                return self._began(self._turn, str(payload.get("message") or ""))
            case "item_completed" if (item := _mapping(payload.get("item"))).get("type") == "UserMessage":
                return self._began(turn, _text(item.get("content")))
            case "token_count":
                self._limits = _mapping(payload.get("rate_limits"))
            case "task_complete" | "turn_complete" if turn and turn == self._begun:
                return self._ended(turn, payload, now)
            case "turn_aborted" if turn and turn == self._begun:
                reason = str(payload.get("reason") or "")
                return Signal(What.STOPPED, turn, source=Source.TRANSCRIPT, pattern=f"turn_aborted {reason}".strip())
        return None

    def _began(self, turn: str, text: str) -> Signal | None:
        # Without its words it could be anybody's.
        if not turn or not text.strip():
            return None
        self._begun = turn
        return Signal(What.BEGAN, turn, text, source=Source.TRANSCRIPT, pattern="user_message")

    def _ended(self, turn: str, payload: Mapping[str, Any], now: datetime) -> Signal | None:
        error, answer = payload.get("error"), str(payload.get("last_agent_message") or "")
        if isinstance(error, Mapping):
            text = str(error.get("message") or "")
            kind, name = kind_of(error.get("codex_error_info"), text)
            return Signal(
                What.FAILED,
                turn,
                text,
                kind=kind,
                source=Source.TRANSCRIPT,
                pattern=f"task_complete {name}".strip(),
                resets_in_ns=self._resets_in_ns(text, now) if kind is Kind.EXHAUSTED else None,
            )
        if not answer.strip() and not self._tells_failures:
            return None  # the screen says whether it failed
        return Signal(What.ENDED, turn, answer, source=Source.TRANSCRIPT, pattern="task_complete")

    def _resets_in_ns(self, text: str, now: datetime) -> int | None:
        """The reset time that the failure names, else that of the used-up limits."""
        if (span := resets_in(text, now)) is not None:
            return round(span.total_seconds() * NS_PER_S)
        limits = [_mapping(self._limits.get(name)) for name in ("primary", "secondary")]
        pairs = [(limit.get("used_percent"), limit.get("resets_at")) for limit in limits]
        known = [
            at for used, at in pairs if isinstance(used, int | float) and isinstance(at, int | float) and used >= 100
        ]
        return max(0, round((max(known) - now.timestamp()) * NS_PER_S)) if known else None


def _mapping(value: object) -> Mapping[str, Any]:
    """An object of a record, empty where something else stands there."""
    return value if isinstance(value, Mapping) else {}


def _text(content: object) -> str:
    """The text of a message's parts."""
    parts = content if isinstance(content, list) else []
    return "\n".join(str(_mapping(part).get("text") or "") for part in parts)


def _version(text: object) -> tuple[int, ...]:
    numbers = str(text or "").partition("-")[0].split(".")
    return tuple(int(number) for number in numbers) if all(number.isdecimal() for number in numbers) else ()


# -- finding it -----------------------------------------------------------------------------------------------------


def watcher(since: datetime, *, resumed: bool = False) -> Watch:
    """What follows the rollouts of a pane's program.

    Args:
        since: when the program was started.
        resumed: it was started by an earlier daemon, which has told what stands in its rollouts by now.
    """

    async def watch(pane: PaneRef, resolver: Tells) -> None:
        if not pane.pid or not await trio.Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").exists():
            log.warning("rollout not followed: open files cannot be looked up here", extra={"fleet_pane": pane.id})
            return
        followed: dict[Path, trio.CancelScope] = {}
        told: set[Path] = set()
        closed: set[Path] = set()
        first = True
        async with trio.open_nursery() as nursery:
            while True:
                opened = (await trio.to_thread.run_sync(open_rollouts, pane.pid))[:FOLLOWED]
                told |= set(opened) if first and resumed else set()
                for path in opened:
                    if path not in followed:
                        followed[path] = trio.CancelScope()
                        nursery.start_soon(_follow, path, Rollout(since), resolver, followed[path], path in told)
                told |= set(opened)
                # One that has not been open for two looks has been read to its end.
                for path in closed.difference(opened):
                    log.debug("rollout let go", extra={"fleet_path": str(path)})
                    followed.pop(path).cancel()
                closed, first = followed.keys() - set(opened), False
                await trio.sleep(LOOK_S)

    return watch


async def _follow(path: Path, rollout: Rollout, resolver: Tells, scope: trio.CancelScope, told: bool) -> None:
    with scope:
        log.debug("rollout followed", extra={"fleet_path": str(path)})
        if not os.access(path, os.R_OK):
            log.warning("rollout not followed: it cannot be read", extra={"fleet_path": str(path)})
            return
        position = 0
        if told:
            position, running = await trio.to_thread.run_sync(_catch_up, path, rollout)
            if running is not None:
                tell_if_alive(resolver, running)
        async with aclosing(follow(path, position=position)) as records:
            async for record in records:
                if (signal := rollout.signal(record, local_now())) is not None:
                    tell_if_alive(resolver, signal)
                if rollout.is_foreign:
                    return


def _catch_up(path: Path, rollout: Rollout) -> tuple[int, Signal | None]:
    """Read what has been told already: to which byte, and the beginning of a turn that still runs."""
    position, running = 0, None
    with suppress(OSError), path.open("rb") as file:
        for line in file:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            with suppress(ValueError):
                if (signal := rollout.signal(_mapping(json.loads(line)), local_now())) is not None:
                    running = signal if signal.what is What.BEGAN else None
    return position, running


def open_rollouts(root: int) -> tuple[Path, ...]:
    """The rollouts that a pane's program has open: the one among its processes nearest to the root that has any."""
    level = [root]
    while level:
        for pid in level:
            if found := tuple(path for path in _open_files(pid) if _is_rollout(path)):
                return found
        level = [child for pid in level for child in _children(pid)]
    return ()


def _is_rollout(path: Path) -> bool:
    return path.name.startswith("rollout-") and path.suffix == ".jsonl"


def _open_files(pid: int) -> Iterator[Path]:
    # A process or a file that is gone by now, or another user's, has nothing to say.
    with suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                yield Path(os.readlink(f"/proc/{pid}/fd/{name}"))


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                yield from map(int, Path(f"/proc/{pid}/task/{task}/children").read_text().split())
