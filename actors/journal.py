"""The journal: what must outlive the daemon, written before it is acknowledged.

It is a table of records by kind and identifier; a record is replaced or deleted as a whole. Who owns a record alone
knows its form: the journal sees bytes. There are three ways in, all of one order, because they are one mailbox:

* ``record``: an actor's write-ahead. The actor goes on with a message of its own once the record is safe, so whatever
  anybody sees of that step survives. Where the disk refuses, it hears that instead and decides: a new send is refused,
  the result of a turn is shown all the same.
* ``note``: for what nobody has been promised yet. It is written in its turn.
* ``keep``: an edge or an effect waits until it is safe, or gets a refusal.

What the disk refused and nobody could take back is *owed*: it goes with each later write until one succeeds, newest
form only. Writes that wait while another one is under way go together in the next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

import msgspec
import outcome

from actors.actor import LATER, Actor, Ask, Message, Refused, Tells, tell_if_alive
from actors.clock import from_seconds

#: Between two tries to write what is owed, in nanoseconds.
AGAIN_NS: Final = from_seconds(5.0)
#: How long an edge waits for the disk, in seconds.
KEEP_S: Final = 30.0


class Entry(msgspec.Struct, frozen=True):
    """One record, or the deletion of one."""

    kind: str
    id: str
    #: ``None`` deletes.
    body: bytes | None


class StoreRefused(Exception):
    """The store could not write: the disk is full, or fails. The message says which; nothing was written."""


class Store(Protocol):
    """Where records are kept. ``write`` is all or nothing, and safe when it returns."""

    async def write(self, entries: Sequence[Entry]) -> None:
        """Raises :class:`StoreRefused`."""
        ...


class NotKept(Refused):
    """What was asked for would be forgotten by a crash, so it is refused."""

    error = "journal_full"

    @classmethod
    def because(cls, why: str) -> NotKept:
        return cls(f"fleetd could not write this down, so a crash would lose it: {why}")


class Recorded(Message, frozen=True):
    """The records are safe; go on with ``then``."""

    then: Message


class NotRecorded(Message, frozen=True):
    """The records could not be written."""

    then: Message
    why: str


class Journaling(Protocol):
    """How an actor has something kept."""

    def record(self, actor: Actor, then: Message, *entries: Entry) -> object:
        """Have ``actor`` take :class:`Recorded` or :class:`NotRecorded` with ``then`` once that is known.

        Returns:
            What the handler of the message that led to this returns.
        """
        ...

    def note(self, *entries: Entry) -> None: ...

    async def keep(self, *entries: Entry) -> None:
        """Raises :class:`NotKept`."""
        ...


class Forgetful:
    """Keeps nothing: for an actor whose records nobody will ask for."""

    def record(self, actor: Actor, then: Message, *entries: Entry) -> object:
        return actor.handle(Recorded(then))

    def note(self, *entries: Entry) -> None:
        """Nothing is kept."""

    async def keep(self, *entries: Entry) -> None:
        """Nothing is kept."""


class _Record(Message, frozen=True):
    entries: tuple[Entry, ...]
    then: Message
    back: Tells


class _Note(Message, frozen=True):
    entries: tuple[Entry, ...]


class _Keep(Ask[None], frozen=True):
    entries: tuple[Entry, ...]


class _Written(Message, frozen=True):
    batch: tuple[Message, ...]
    result: outcome.Outcome[None]


class _Again(Message, frozen=True):
    pass


class Journal(Actor):
    """Owns the order of writes to one store.

    Args:
        store: where they go.
    """

    capacity = 4096

    def __init__(self, store: Store) -> None:
        super().__init__("journal")
        self._store = store
        self._waiting: list[Message] = []
        self._owed_records: dict[tuple[str, str], Entry] = {}
        self._writing = False
        #: A next try to write what is owed has its time already.
        self._again = False
        #: Why the last write failed; empty while the disk takes what it is given.
        self.trouble = ""

    def __repr__(self) -> str:
        trouble = f", {len(self._owed_records)} owed: {self.trouble}" if self.trouble else ""
        return f"<Journal {len(self._waiting)} waiting{trouble}>"

    # -- for actors and edges ------------------------------------------------------------------------------------

    def record(self, actor: Actor, then: Message, *entries: Entry) -> object:
        """See :class:`Journaling`; a handler returns :data:`LATER` with it."""
        self.tell(_Record(entries, then, actor))
        return LATER

    def note(self, *entries: Entry) -> None:
        """Write these in their turn; what the disk refuses is owed."""
        self.tell(_Note(entries))

    async def keep(self, *entries: Entry) -> None:
        """Return when these, and all that came before them, are safe.

        Raises:
            NotKept: they are not.
        """
        await self.ask(_Keep(entries), within_s=KEEP_S)

    # -- writing -------------------------------------------------------------------------------------------------

    def handle(self, message: Message) -> object:
        match message:
            case _Record() | _Note():
                self._waiting.append(message)
                self._write()
            case _Keep():
                self._waiting.append(message)
                self._write()
                return LATER
            case _Written(batch=batch, result=result):
                self._writing = False
                self._written(batch, result)
                self._write()
            case _Again():
                self._again = False
                self._write(owed=True)
            case _:
                raise self.unknown(message)
        return None

    def _write(self, *, owed: bool = False) -> None:
        if self._writing or not (self._waiting or (owed and self._owed_records)):
            return
        self._writing = True
        batch, self._waiting = tuple(self._waiting), []
        entries = (*self._owed_records.values(), *(entry for message in batch for entry in _entries(message)))
        self.start(lambda: self._store.write(entries), lambda result: _Written(batch, result), "write")

    def _written(self, batch: tuple[Message, ...], result: outcome.Outcome[None]) -> None:
        match result:
            case outcome.Value():
                self._safe(batch)
            case outcome.Error(error=StoreRefused() as refused):
                self._refused(batch, str(refused))
            case outcome.Error(error=error):
                raise error

    def _safe(self, batch: tuple[Message, ...]) -> None:
        if self.trouble:
            self.log.info("journal written again", extra={"fleet_records": len(self._owed_records)})
        self._owed_records.clear()
        self.trouble = ""
        for message in batch:
            if isinstance(message, _Record):
                tell_if_alive(message.back, Recorded(message.then))
            elif isinstance(message, _Keep):
                message.reply.answer(None)

    def _refused(self, batch: tuple[Message, ...], why: str) -> None:
        if why != self.trouble:
            self.log.error("journal not written", extra={"fleet_reason": why})
        self.trouble = why
        for message in batch:
            if isinstance(message, _Record):
                tell_if_alive(message.back, NotRecorded(message.then, why))
            elif isinstance(message, _Keep):
                message.reply.refuse(NotKept(f"fleetd could not write this down, so a crash would lose it: {why}"))
            else:
                self._owed_records |= {(entry.kind, entry.id): entry for entry in _entries(message)}
        if self._owed_records and not self._again:
            self._again = True
            self.after(AGAIN_NS, _Again())


def _entries(message: Message) -> tuple[Entry, ...]:
    assert isinstance(message, _Record | _Note | _Keep)
    return message.entries


#: What was recovered: bodies by identifier, by kind.
Records = Mapping[str, Mapping[str, bytes]]


def by_kind(entries: Iterable[Entry]) -> Records:
    """Entries as :data:`Records`; deletions are no records."""
    found: dict[str, dict[str, bytes]] = {}
    for entry in entries:
        if entry.body is not None:
            found.setdefault(entry.kind, {})[entry.id] = entry.body
    return found


def count_of(name: str) -> int:
    """The count in an identifier of ours: ``t-17``."""
    return int(name.partition("-")[2])


def counted(what: str, number: int) -> Entry:
    """The highest number that was given to one of these: no restart gives it to another, whatever was forgotten."""
    return Entry("count", what, str(number).encode())


def count_in(records: Records, what: str) -> int:
    """The highest number that was given to one of these; 0 for none."""
    return int(records.get("count", {}).get(what, b"0"))
