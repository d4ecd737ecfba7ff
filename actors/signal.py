"""Typed signals: what a member's program itself reports of its turn, by hook, record file or event stream.

They are believed over the screen, because a screen can quote an error and can hide one. They name the program's own
turn where it has names, so that a record of another turn (a person's, a helper query's) is not taken for ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Any, Protocol

from actors.actor import Message
from actors.classify import Kind
from actors.turn import Source


class What(StrEnum):
    #: A prompt was taken and its turn runs.
    BEGAN = "began"
    #: The turn ended well; ``text`` is the whole answer, empty where there was none.
    ENDED = "ended"
    #: The turn failed of ``kind``; ``text`` is the program's words.
    FAILED = "failed"
    #: It waits for a person: a permission, a question.
    WAITING = "waiting"
    #: It goes on after waiting or retrying.
    WORKING = "working"
    #: It retries by itself after ``text``.
    RETRYING = "retrying"
    #: Somebody stopped the turn.
    STOPPED = "stopped"


class Signal(Message, frozen=True):
    """One report. Received by the member's resolver."""

    what: What
    #: The program's own identifier of the turn; empty where it gives none.
    turn: str = ""
    #: BEGAN: the prompt as the program took it, empty where it does not say. Else see :class:`What`.
    text: str = ""
    #: FAILED: one of the failure kinds of :class:`actors.classify.Kind`.
    kind: Kind = Kind.FAILED
    source: Source = Source.HOOK
    #: What decided, for explanations: the event's name and its error class.
    pattern: str = ""
    #: FAILED with :attr:`Kind.EXHAUSTED`: until the quota comes back, in nanoseconds from now.
    resets_in_ns: int | None = None
    #: RETRYING: which attempt, and the announced wait in seconds.
    attempt: int | None = None
    wait_s: int | None = None


class Events(Protocol):
    """What the events of a program's hooks say; the program's adapter knows them."""

    async def __call__(self, event: Mapping[str, Any], now: datetime) -> tuple[Signal, ...]: ...
