"""The journal's store: one SQLite table in the runtime directory.

Write-ahead logging with ``synchronous=FULL``: a write is on the disk when it returns, so neither ``kill -9`` nor a
power cut takes it back. All of it runs in one worker thread, which the loop waits for without standing still.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import trio

from actors.journal import Entry, StoreRefused

#: The form of the table; a file of another one is set aside, not guessed at.
VERSION: Final = 1
#: How long a statement waits for another process's lock (a backup, a curious person), in seconds.
BUSY_S: Final = 5.0
#: Pages of the write-ahead log before it is folded back: it stays below some megabytes.
CHECKPOINT_PAGES: Final = 500


class StoreBroken(Exception):
    """The file cannot be used. The message says why and what to do."""


class SqliteStore:
    """Records in a file of mode 0600; see :class:`actors.journal.Store`.

    Raises:
        StoreBroken: it cannot be opened, or is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._thread = trio.CapacityLimiter(1)
        try:
            path.touch(mode=0o600)
            self._database = sqlite3.connect(path, timeout=BUSY_S, isolation_level=None, check_same_thread=False)
            self._prepare()
        except (sqlite3.Error, OSError) as exc:
            raise self._broken(exc) from exc

    def _prepare(self) -> None:
        run = self._database.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run(f"PRAGMA wal_autocheckpoint={CHECKPOINT_PAGES}")
        (version,) = run("PRAGMA user_version").fetchone()
        if version not in (0, VERSION):
            raise StoreBroken(
                f"the journal {self._path} is of version {version} and this fleetd writes {VERSION}: "
                "start the fleetd that wrote it, or move the file away"
            )
        if version == VERSION:
            return  # nothing is written, so that a full disk does not stop a start
        run(
            "CREATE TABLE IF NOT EXISTS record "
            "(kind TEXT NOT NULL, id TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (kind, id)) WITHOUT ROWID"
        )
        run(f"PRAGMA user_version={VERSION}")

    def _broken(self, exc: Exception) -> StoreBroken:
        return StoreBroken(
            f"the journal {self._path} cannot be used: {exc}. See that its disk has room and lets fleetd write; "
            "if the file is damaged, move it away to start without its members and sends"
        )

    def load(self) -> list[Entry]:
        """Every record. Raises :class:`StoreBroken` where the file is damaged."""
        try:
            rows = self._database.execute("SELECT kind, id, body FROM record").fetchall()
        except sqlite3.Error as exc:
            raise self._broken(exc) from exc
        return [Entry(kind, id, body) for kind, id, body in rows]

    async def write(self, entries: Sequence[Entry]) -> None:
        """Write all of them, or none.

        Raises:
            StoreRefused: the disk is full or fails.
        """
        if entries:
            # A write that has begun is not left alone: who asked may go, the records stay in order.
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(self._write, entries, limiter=self._thread)

    def _write(self, entries: Sequence[Entry]) -> None:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for entry in entries:
                if entry.body is None:
                    self._database.execute("DELETE FROM record WHERE kind = ? AND id = ?", (entry.kind, entry.id))
                else:
                    self._database.execute(
                        "INSERT OR REPLACE INTO record VALUES (?, ?, ?)", (entry.kind, entry.id, entry.body)
                    )
            self._database.execute("COMMIT")
        except sqlite3.Error as exc:
            # A full disk has often undone the transaction already, and then there is nothing to roll back.
            with suppress(sqlite3.Error):
                self._database.execute("ROLLBACK")
            raise StoreRefused(f"{self._path}: {exc}") from exc

    def close(self) -> None:
        self._database.close()
