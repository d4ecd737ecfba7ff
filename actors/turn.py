"""What a turn is and how it ends: the words that resolver, roster, policy and mail share."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

import msgspec

from actors.actor import Message

#: An answer kept for a ticket, in bytes of UTF-8; a longer one is cut and says ``truncated``.
ANSWER_BYTES: Final = 256 * 1024
#: Characters of a member's or a backend's own words in a ``reason``.
REASON_CHARS: Final = 200


class Status(StrEnum):
    """How a send ended. To its caller everything but ``completed`` is a failed send."""

    COMPLETED = "completed"
    FAILED = "failed"
    BACKEND_ERROR = "backend_error"
    EXHAUSTED = "backend_exhausted"
    INTERRUPTED = "interrupted"
    TIMED_OUT = "timed_out"
    REFUSED = "refused"
    LOST = "lost"


class Source(StrEnum):
    """Where a verdict came from, the most trusted first."""

    REPLY = "reply"
    HOOK = "hook"
    TRANSCRIPT = "transcript"
    BLOCK = "block"
    RAW = "raw"


class Failure(StrEnum):
    """What a failed turn failed of, where its program says it and the credential's health has no part in it."""

    #: The key or the login is not accepted: waiting does not help, a person does.
    AUTH = "auth"
    #: The backend refuses this request and would serve another: too long, malformed, no such model.
    REQUEST = "request"


class Considered(msgspec.Struct, frozen=True):
    """One thing that was looked at on the way to a verdict, and what came of it."""

    what: str
    found: str


class Outcome(msgspec.Struct, frozen=True):
    """The end of one send."""

    status: Status
    text: str = ""
    truncated: bool = False
    #: Why it did not complete: fleetd's sentence or the program's own line, cleaned and cut.
    reason: str = ""
    source: Source | None = None
    #: From the prompt's arrival to the end of the turn, in nanoseconds.
    turn_ns: int = 0
    pattern: str = ""
    line: str = ""
    #: The last lines of the frame that was judged.
    frame: tuple[str, ...] = ()
    considered: tuple[Considered, ...] = ()
    failure: Failure | None = None
    #: For an exhausted quota: how long until it comes back, in nanoseconds from the verdict, where the program says so.
    resets_in_ns: int | None = None


class TurnEnded(Message, frozen=True):
    """A send has ended: published once, by the resolver, after its waiter was settled by exactly this outcome.

    It travels resolver, roster, then outage policy or quarantine where it is evidence, then mail. Each of them acts
    before it passes the message on, so whoever sees the ticket's result also sees the roster and the gate it led to.
    """

    target: str
    ticket: str
    outcome: Outcome
    #: When the verdict was made, in nanoseconds: the moment that counts as evidence.
    at_ns: int


def clean(text: str, limit: int = REASON_CHARS) -> str:
    """Somebody else's words as one line of data: control and formatting characters out, cut at ``limit``."""
    shown = "".join(ch if ch.isprintable() else " " for ch in text)
    line = " ".join(shown.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def spoken(line: str) -> str:
    """A line of a program's screen without the marks that the program draws before its words."""
    words = line.lstrip()
    while words and not (words[0].isalnum() or words[0] in "\"'`([{<"):
        words = words[1:].lstrip()
    return clean(words or line)


def bounded(text: str, limit: int = ANSWER_BYTES) -> tuple[str, bool]:
    """An answer within ``limit`` bytes, and whether it was cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return text, False
    return raw[:limit].decode("utf-8", "ignore"), True


class Phase(StrEnum):
    """Where a send is before it has ended."""

    #: Behind other sends of its member, or its member is still starting.
    QUEUED = "queued"
    #: Its member's credential is cooling off.
    HELD = "held"
    TYPING = "typing"
    RUNNING = "running"


class Progress(Message, frozen=True):
    """A send has moved on. Received by mail."""

    ticket: str
    phase: Phase
    #: For ``held``: the end of the cool-off, in nanoseconds.
    until_ns: int = 0


class LateReply(Message, frozen=True):
    """A member has answered a send that had ended without it (timed out): kept beside the result. Received by mail."""

    target: str
    ticket: str
    text: str
