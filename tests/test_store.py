"""The journal's file: what it has written stays, what it refuses it has not written, and what is no journal is none."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest
import trio

import fleetd.store
from actors.journal import Entry, StoreRefused
from fleetd.store import VERSION, SqliteStore, StoreBroken


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal.db"


def entry(id: str, body: bytes | None = b"x") -> Entry:
    return Entry("ticket", id, body)


def loaded(store: SqliteStore) -> dict[str, bytes | None]:
    return {each.id: each.body for each in store.load()}


def spoil(path: Path) -> None:
    """Damage all of the file but its first page."""
    data = path.read_bytes()
    path.write_bytes(data[:4096].ljust(len(data), b"\xa5"))


async def test_another_process_reads_at_once_what_was_written(path: Path) -> None:
    store = SqliteStore(path)
    await store.write([entry("t-1", b"\x00\xff body"), entry("t-2")])
    other = sqlite3.connect(path)
    assert other.execute("SELECT id, body FROM record ORDER BY id").fetchall() == [
        ("t-1", b"\x00\xff body"),
        ("t-2", b"x"),
    ]
    other.close()
    store.close()


async def test_records_are_replaced_and_deleted_as_wholes_and_outlive_the_store(path: Path) -> None:
    store = SqliteStore(path)
    await store.write([entry("t-1"), entry("t-2"), entry("t-3")])
    await store.write([entry("t-2", b"newer"), entry("t-3", None), entry("never-there", None)])
    await store.write([])
    # It is not closed: neither is one whose process is killed.
    again = SqliteStore(path)
    assert loaded(again) == {"t-1": b"x", "t-2": b"newer"}
    again.close()
    store.close()


async def test_a_write_waits_for_the_disk_before_it_returns(path: Path) -> None:
    store = SqliteStore(path)
    assert store._database.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    full = 2
    assert store._database.execute("PRAGMA synchronous").fetchone() == (full,)
    store.close()


async def test_its_files_are_for_nobody_else(path: Path) -> None:
    store = SqliteStore(path)
    await store.write([entry("t-1")])
    modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in path.parent.iterdir()}
    assert {"journal.db", "journal.db-wal"} <= modes.keys()
    assert {mode & 0o077 for mode in modes.values()} == {0}
    store.close()


async def test_a_write_that_fails_half_way_has_written_nothing(path: Path) -> None:
    store = SqliteStore(path)
    with pytest.raises(StoreRefused, match="NOT NULL"):
        await store.write([entry("t-1"), Entry("ticket", None, b"no record")])  # type: ignore[arg-type]
    assert loaded(store) == {}
    await store.write([entry("t-2")])
    assert loaded(store) == {"t-2": b"x"}
    store.close()


async def test_a_full_disk_refuses_writes_serves_reads_and_takes_them_again_when_there_is_room(path: Path) -> None:
    store = SqliteStore(path)
    await store.write([entry("t-1")])
    (pages,) = store._database.execute("PRAGMA page_count").fetchone()
    store._database.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StoreRefused, match="full"):
        await store.write([entry("t-2", bytes(100_000))])
    assert loaded(store) == {"t-1": b"x"}
    store._database.execute(f"PRAGMA max_page_count={pages + 1000}")
    await store.write([entry("t-2", bytes(100_000))])
    assert loaded(store).keys() == {"t-1", "t-2"}
    store.close()


async def test_somebody_else_who_holds_the_file_is_waited_for_and_then_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleetd.store, "BUSY_S", 0.05)
    store = SqliteStore(path)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreRefused, match="locked"):
        await store.write([entry("t-1")])
    other.execute("ROLLBACK")
    await store.write([entry("t-1")])
    assert loaded(store) == {"t-1": b"x"}
    other.close()
    store.close()


async def test_a_write_that_has_begun_is_finished_though_its_caller_goes(path: Path) -> None:
    store = SqliteStore(path)
    with trio.CancelScope() as scope:
        scope.cancel()
        await store.write([entry("t-1")])
    assert loaded(store) == {"t-1": b"x"}
    store.close()


async def test_a_start_writes_nothing_so_that_it_works_on_a_full_disk(path: Path) -> None:
    store = SqliteStore(path)
    await store.write([entry("t-1")])
    store.close()
    again = SqliteStore(path)
    assert loaded(again) == {"t-1": b"x"}
    log = path.with_name("journal.db-wal")
    assert not log.exists() or log.stat().st_size == 0
    again.close()


def test_what_is_no_database_is_refused_with_what_to_do(path: Path) -> None:
    path.write_bytes(b"this is no database, and it is longer than a header of one hundred bytes is " * 4)
    with pytest.raises(StoreBroken, match=r"journal\.db cannot be used.*move it away"):
        SqliteStore(path)
    assert path.read_bytes().startswith(b"this is no database")


def test_a_directory_in_its_place_is_refused(path: Path) -> None:
    path.mkdir()
    with pytest.raises(StoreBroken, match="cannot be used"):
        SqliteStore(path)


async def test_damage_further_down_is_refused_when_it_is_read(path: Path) -> None:
    store = SqliteStore(path)
    await store.write([entry(f"t-{number}", bytes(1000)) for number in range(100)])
    store.close()
    spoil(path)
    damaged = SqliteStore(path)
    with pytest.raises(StoreBroken, match="malformed"):
        damaged.load()
    damaged.close()


def test_a_journal_of_another_version_is_left_as_it_is(path: Path) -> None:
    SqliteStore(path).close()
    other = sqlite3.connect(path)
    other.execute(f"PRAGMA user_version={VERSION + 1}")
    other.close()
    with pytest.raises(StoreBroken, match=f"is of version {VERSION + 1} and this fleetd writes {VERSION}"):
        SqliteStore(path)
