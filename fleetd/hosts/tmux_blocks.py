"""The output of a tmux control client, cut into blocks and the lines between them.

tmux answers each command with a block between ``%begin T N F`` and ``%end T N F`` (or ``%error T N F``). A pane can
print anything, such lines included, and a capture hands them over as they are. So a block ends only at the very triple
that opened it, and whatever stands in a block is text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from actors.host import HostError

#: The longest line outside a block, in bytes.
LINE_BYTES: Final = 64 * 1024
#: The longest block, in bytes: one pane's whole scrollback with styles is below 2 MiB.
BLOCK_BYTES: Final = 16 * 1024 * 1024
#: Characters kept of a reason that tmux gives.
REASON: Final = 200

_BEGIN: Final = re.compile(rb"%begin (\d+ \d+ (\d+))")


class TerminalLost(HostError):
    """The connection to the terminal server is lost. The panes may live on."""


class Block(NamedTuple):
    """What one command printed."""

    text: str
    failed: bool


class Parser:
    """The control client's output, cut into blocks and the lines between them."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: What ends the open block, well or badly; ``None`` between blocks.
        self._ends: tuple[bytes, bytes] | None = None
        #: The open block answers one of our commands, not one that the server ran by itself.
        self._ours = False
        self._searched = 0

    def feed(self, data: bytes | bytearray) -> Iterator[Block | str]:
        """Blocks that answer our commands, lines outside any block, and why the server's own commands failed.

        Raises:
            TerminalLost: a line or a block is longer than may be.
        """
        self._buffer += data
        while True:
            if self._ends is None:
                line = self._line()
                if line is None:
                    return
                if found := _BEGIN.fullmatch(line):
                    self._ends = b"\n%end " + found[1] + b"\n", b"\n%error " + found[1] + b"\n"
                    self._ours = bool(int(found[2]) & 1)
                else:
                    yield line.decode("utf-8", "replace")
            else:
                block = self._block(*self._ends)
                if block is None:
                    return
                self._ends = None
                if self._ours:
                    yield block
                elif block.failed:
                    yield block.text[:REASON]

    def _line(self) -> bytes | None:
        # The newline before the line stands first in the buffer, except at the very start.
        if self._buffer.startswith(b"\n"):
            del self._buffer[0]
        end = self._buffer.find(b"\n", self._searched)
        if end < 0:
            self._searched = len(self._buffer)
            self._bound(LINE_BYTES, "line")
            return None
        return self._take(end)

    def _block(self, end: bytes, error: bytes) -> Block | None:
        start = max(0, self._searched - max(len(end), len(error)))
        found = sorted((at, mark) for mark in (end, error) if (at := self._buffer.find(mark, start)) >= 0)
        if not found:
            self._searched = len(self._buffer)
            self._bound(BLOCK_BYTES, "block")
            return None
        at, mark = found[0]
        text = self._take(at)[1:].decode("utf-8", "replace")
        del self._buffer[: len(mark) - 1]
        return Block(text, failed=mark == error)

    def _take(self, end: int) -> bytes:
        """Take what stands before a newline; the newline stays, because a block's end mark may begin with it."""
        taken = bytes(self._buffer[:end])
        del self._buffer[:end]
        self._searched = 0
        return taken

    def _bound(self, most: int, what: str) -> None:
        if len(self._buffer) > most:
            raise TerminalLost(f"tmux sent a {what} of more than {most} bytes: its connection is given up")
