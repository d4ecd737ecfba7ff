"""A journal's store in memory, for restarts and full disks in virtual time."""

from __future__ import annotations

from collections.abc import Sequence

import trio

from actors.journal import Entry, StoreRefused


class MemoryStore:
    """Records in memory; see :class:`actors.journal.Store`. Give it to the next fleet to play a restart."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], bytes] = {}
        #: While set, every write is refused with it, as a full disk refuses.
        self.refuses = ""

    def load(self) -> list[Entry]:
        """Every record."""
        return [Entry(kind, id, body) for (kind, id), body in self._records.items()]

    async def write(self, entries: Sequence[Entry]) -> None:
        await trio.lowlevel.checkpoint()
        if self.refuses:
            raise StoreRefused(self.refuses)
        for entry in entries:
            if entry.body is None:
                self._records.pop((entry.kind, entry.id), None)
            else:
                self._records[entry.kind, entry.id] = entry.body
