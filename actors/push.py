"""The push loop: what one lead must still be told, and the one nudge that tells it.

Everything that wants a lead's attention (incidents, ended tickets, late answers, questions, dialogs) waits here, and
one tick builds one combined nudge from all that is due. Two sources can therefore never type two competing turns.

An incident is one-shot: after one successful injection no later tick mentions it, and the same incident told again is
known. Tickets, late answers and questions are reminded of, ever more rarely, until they are taken care of. A busy lead
costs nothing, however long it is busy: only a *failed* typing uses up an attempt, and when the attempts are used up, or
where a lead has no pane, the items are handed over as ``notices`` with the lead's next tool result.

The text is composed at the moment it is typed, so the seconds in it are true.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import msgspec

from actors.actor import LATER, Actor, Ask, Message, Tells
from actors.clock import NS_PER_S, from_seconds
from actors.host import PaneRef
from actors.inject import STILL_NS, NotTyped, Typing
from actors.nudge import Item, compose
from actors.panes import PromptNotTyped, PromptTyped, TypePrompt
from actors.screen import Grammar

#: Between a nudge and its first reminder, in nanoseconds; each further one waits twice as long.
REMIND_NS: Final = 60 * NS_PER_S
#: One-shot items remembered as told.
REMEMBERED: Final = 256
#: How long a nudge waits for a screen without idle pattern to stand still before the tick gives up, in seconds.
STILL_PATIENCE_S: Final = STILL_NS / NS_PER_S + 1.0


class PushSettings(msgspec.Struct, frozen=True):
    """``push`` in the configuration."""

    tick_ns: int = from_seconds(1)
    max_attempts: int = 5
    reminders: int = 3


class LeadPane(msgspec.Struct, frozen=True):
    """Where a lead reads, and how its program is read and typed to."""

    pane: PaneRef
    grammar: Grammar
    typing: Typing
    #: How long one attempt looks for an open input line, in seconds: a single look where the grammar knows idle.
    patience_s: float = 0.0


# -- what a push loop takes -----------------------------------------------------------------------------------------


class Put(Message, frozen=True):
    """Tell the lead of this. An item with a key that waits, or a one-shot that was told, is known: nothing happens."""

    item: Item
    #: Told once, and never reminded of.
    once: bool = False


class Drop(Message, frozen=True):
    """The item has been taken care of."""

    key: str


class SetPane(Message, frozen=True):
    """The lead's pane, or ``None`` when it has none (any more)."""

    pane: LeadPane | None


class SetPush(Message, frozen=True):
    settings: PushSettings


class TakeNotices(Ask[tuple[str, ...]], frozen=True):
    """Hand over what goes with a tool result: all that is due where there is no pane, else what typing failed for."""


class StopPush(Message, frozen=True):
    """The lead is gone: forget everything and end."""


class Tick(Message, frozen=True):
    pass


class _Waiting:
    def __init__(self, item: Item, *, once: bool, due_ns: int) -> None:
        self.item = item
        self.once = once
        self.due_ns = due_ns
        self.attempts = 0
        self.told = 0


class PushLoop(Actor):
    """Owns what one lead must still be told.

    Args:
        lead: the lead's identifier.
        panes: takes what is to be typed.
    """

    def __init__(self, lead: str, settings: PushSettings, *, panes: Tells) -> None:
        super().__init__(f"push:{lead}")
        self.lead = lead
        self._settings = settings
        self._panes = panes
        self._pane: LeadPane | None = None
        self._waiting: dict[str, _Waiting] = {}
        self._told_once: deque[str] = deque(maxlen=REMEMBERED)
        self._ticking = False
        #: The nudge being typed: its job and the keys that it tells, each with whether it is one-shot; those that did
        #: not fit leave when it is composed.
        self._in_flight: tuple[str, dict[str, bool]] | None = None
        #: A nudge that stands unsubmitted in the input line, and the keys that it tells.
        self._left: tuple[str, dict[str, bool]] = ("", {})
        self._nudges = 0

    def __repr__(self) -> str:
        flight = ", typing" if self._in_flight else ""
        return f"<PushLoop {self.lead}: {len(self._waiting)} waiting, {self._nudges} nudges{flight}>"

    def handle(self, message: Message) -> object:
        match message:
            case Put(item=item, once=once):
                self._put(item, once=once)
            case Drop(key=key):
                self._waiting.pop(key, None)
            case SetPane(pane=pane):
                self._pane, self._left = pane, ("", {})
                self._tick_soon()
            case SetPush(settings=settings):
                self._settings = settings
            case Tick():
                self._ticking = False
                self._tick()
            case PromptTyped(job=job, typed=typed):
                self._typed(job, typed.sent.prompt)
            case PromptNotTyped():
                self._not_typed(message)
            case TakeNotices():
                return LATER if message.reply.abandoned else self._notices()
            case StopPush():
                self._waiting.clear()
                self._told_once.clear()
                self._in_flight = None
                self.stop()
            case _:
                raise self.unknown(message)
        return None

    def _put(self, item: Item, *, once: bool) -> None:
        if item.key in self._waiting or item.key in self._told_once:
            return
        self._waiting[item.key] = _Waiting(item, once=once, due_ns=self.now())
        self._tick_soon()

    # -- the tick ------------------------------------------------------------------------------------------------

    def _tick_soon(self) -> None:
        """Tick while something waits. The first tick comes one period after the first item, so that what belongs
        together comes together."""
        if self._waiting and not self._ticking:
            self._ticking = True
            self.after(self._settings.tick_ns, Tick())

    def _tick(self) -> None:
        self._tick_soon()
        due = [waiting for waiting in self._due() if waiting.attempts < self._settings.max_attempts]
        if not due or self._in_flight is not None or self._pane is None:
            return
        keys = {waiting.item.key: waiting.once for waiting in due}

        def text() -> str:
            """What still waits at the moment of typing: the lead may have taken care of some of it meanwhile."""
            items = [self._waiting[key].item for key in keys if key in self._waiting]
            if not items:
                raise NotTyped("what it would tell has been taken care of", retry=True)
            composed, told = compose(items, self.now())
            for key in keys.keys() - set(told):
                del keys[key]
            return composed

        self._nudges += 1
        job = f"nudge:{self.lead}:{self._nudges}"
        self._in_flight = (job, keys)
        self._panes.tell(
            TypePrompt(
                self._pane.pane,
                job,
                text,
                self._pane.grammar,
                self._pane.typing,
                self,
                own=False,
                patience_s=self._pane.patience_s,
                resume=self._left[0],
            )
        )

    def _due(self) -> list[_Waiting]:
        now = self.now()
        return [waiting for waiting in self._waiting.values() if waiting.due_ns <= now]

    def _typed(self, job: str, text: str) -> None:
        if self._in_flight is None or self._in_flight[0] != job:
            return
        told, self._in_flight = self._in_flight[1], None
        if self._left[0] and text == self._left[0]:
            told = self._left[1]
        self._left = ("", {})
        self.log.info("lead nudged", extra={"fleet_lead": self.lead, "fleet_items": tuple(told)})
        for key, once in told.items():
            self._told(key, once=once)

    def _not_typed(self, no: PromptNotTyped) -> None:
        if self._in_flight is None or self._in_flight[0] != no.job:
            return
        tried, self._in_flight = self._in_flight[1], None
        if no.left != self._left[0]:
            self._left = (no.left, tried)
        if no.retry:
            return
        self.log.warning("nudge failed", extra={"fleet_lead": self.lead, "fleet_reason": no.why})
        for key, waiting in self._waiting.items():
            if key in tried:
                waiting.attempts += 1

    def _told(self, key: str, *, once: bool) -> None:
        """The lead knows of this item now: a one-shot is over, another is reminded of later."""
        if once:
            self._told_once.append(key)
        waiting = self._waiting.get(key)
        if waiting is None:
            return
        waiting.told += 1
        waiting.attempts = 0
        if waiting.once or waiting.told > self._settings.reminders:
            del self._waiting[key]
        else:
            waiting.due_ns = self.now() + REMIND_NS * 2 ** (waiting.told - 1)

    def _notices(self) -> tuple[str, ...]:
        in_flight = {} if self._in_flight is None else self._in_flight[1]
        due = [
            waiting
            for waiting in self._due()
            if (self._pane is None or waiting.attempts >= self._settings.max_attempts)
            and waiting.item.key not in in_flight
        ]
        notices: list[str] = []
        while due:
            text, told = compose([waiting.item for waiting in due], self.now())
            notices.append(text)
            for waiting in due:
                if waiting.item.key in told:
                    self._told(waiting.item.key, once=waiting.once)
            due = [waiting for waiting in due if waiting.item.key not in told]
        return tuple(notices)
