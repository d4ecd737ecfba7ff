"""Following a file that a program writes its turns to, one JSON object a line."""

from __future__ import annotations

import json
import logging
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, Final

import trio

log = logging.getLogger("fleetd.record")

#: Between two looks at the file, in seconds.
LOOK_S: Final = 0.1
#: Bytes taken in one look; what is behind them waits for the next.
LOOK_BYTES: Final = 4 * 1024 * 1024
#: Bytes of one line; a longer one is skipped.
LINE_BYTES: Final = 2 * 1024 * 1024


async def follow(path: Path, *, position: int = 0) -> AsyncGenerator[dict[str, Any], None]:
    """The objects of a growing file, for ever, from ``position`` bytes on. A line that is no object is skipped.

    The file may not be there yet. One that has become shorter is read from its start again.
    """
    rest, skipping = b"", False
    while True:
        data = await trio.to_thread.run_sync(_read, path, position)
        if data is None:
            rest, position = b"", 0
            await trio.sleep(LOOK_S)
            continue
        position += len(data)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if skipping:
                skipping = False
            elif (record := _object(line)) is not None:
                yield record
        if len(rest) > LINE_BYTES:
            log.warning("record's line skipped", extra={"fleet_path": str(path), "fleet_bytes": len(rest)})
            rest, skipping = b"", True
        if not data:
            await trio.sleep(LOOK_S)


def _read(path: Path, position: int) -> bytes | None:
    """What stands behind ``position``; ``None`` where there is no such file, or it ends before."""
    try:
        with path.open("rb") as file:
            if file.seek(0, 2) < position:
                return None
            file.seek(position)
            return file.read(LOOK_BYTES)
    except OSError:
        return None


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
