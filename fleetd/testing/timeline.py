"""What happened: each message, when, and the actor that handled it. A failing story prints it."""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec
import trio

from actors.actor import Actor, Ask, Message
from actors.panes import Observed, Watched
from actors.roster import Members

#: Messages kept; a story that goes wrong goes wrong near its end.
KEPT: Final = 2000
#: Characters of one line.
LINE_CHARS: Final = 200
#: Frames and questions of a poll: what came of them is on the timeline.
_QUIET: Final = (Observed, Watched, Members)


class Timeline:
    """The newest messages of a fleet, in the order in which they were handled."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, str, Message]] = deque(maxlen=KEPT)

    def note(self, actor: Actor, message: Message) -> None:
        """Take a message that an actor is about to handle."""
        if not isinstance(message, _QUIET):
            self._rows.append((trio.current_time(), actor.name, message))

    def __str__(self) -> str:
        if not self._rows:
            return "no message was handled"
        width = max(len(name) for _, name, _ in self._rows)
        return "\n".join(f"{at:10.3f} s  {name:{width}}  {brief(message)}" for at, name, message in self._rows)


def brief(message: Message) -> str:
    """A message in one line, without addresses and without what an asker waits on."""
    fields = []
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if name == "reply" and isinstance(message, Ask):
            continue
        if isinstance(value, str | int | float | bool | tuple | dict | None):
            fields.append(f"{name}={value!r}")
        elif isinstance(value, msgspec.Struct):
            fields.append(f"{name}={type(value).__name__}(...)")
    text = f"{type(message).__name__}({', '.join(fields)})"
    return text if len(text) <= LINE_CHARS else f"{text[: LINE_CHARS - 1]}…"
