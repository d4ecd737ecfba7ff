"""Following a file that a program writes its turns to."""

from __future__ import annotations

from contextlib import aclosing
from pathlib import Path

import pytest
import trio

from fleetd.agents import record
from fleetd.agents.record import follow

pytestmark = pytest.mark.live


async def read(path: Path, count: int, changes: list[bytes | None]) -> list[object]:
    """The first ``count`` records while the file is changed step by step; ``None`` empties it."""
    got: list[object] = []
    async with trio.open_nursery() as nursery:

        async def write() -> None:
            for change in changes:
                await trio.sleep(3 * record.LOOK_S)
                with path.open("wb" if change is None else "ab") as file:
                    file.write(change or b"")

        nursery.start_soon(write)
        with trio.fail_after(20):
            async with aclosing(follow(path)) as records:
                async for each in records:
                    got.append(each)
                    if len(got) == count:
                        break
        nursery.cancel_scope.cancel()
    return got


async def test_records_come_as_they_are_written_also_in_parts(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    got = await read(path, 3, [b'{"n": 1}\n{"n"', b": 2}\n", b'not json\n[3]\n{"n": 4}\n'])
    assert got == [{"n": 1}, {"n": 2}, {"n": 4}]


async def test_a_file_that_was_emptied_is_read_from_its_start(tmp_path: Path) -> None:
    path = tmp_path / "record.jsonl"
    assert await read(path, 2, [b'{"n": "a long one"}\n', None, b'{"n": 2}\n']) == [{"n": "a long one"}, {"n": 2}]


async def test_a_line_beyond_the_bound_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record, "LINE_BYTES", 64)
    path = tmp_path / "record.jsonl"
    assert await read(path, 1, [b"x" * 100, b"x" * 100 + b"\n", b'{"n": 1}\n']) == [{"n": 1}]
