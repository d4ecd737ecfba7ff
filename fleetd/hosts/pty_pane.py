"""One pane of the embedded host: a pseudo-terminal, the program behind it, and the persons who look at it.

One task reads the program's output for ever, 4 KiB at a time and with a checkpoint between: a program that floods its
terminal is slowed down by the kernel and starves nobody. Input has no task. Whoever writes holds the pane's lock until
every byte is taken, so a paste is never mixed with another key, and gives up after a deadline. What is then still owed
goes before the next input: the end of a paste's bracket, without which every later key would be pasted text, and the
answers to the program's own questions.

A person's terminal gets output through a bounded channel. One that does not keep up is cut off; the pane never waits.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import termios
from types import TracebackType
from typing import Final

import trio

from actors.host import HostError, PaneDead, PaneGone, PaneRef
from fleetd.hosts.launch import Launch, process_start
from fleetd.hosts.terminal import PASTE_END, Terminal

log = logging.getLogger("fleetd.pty")

#: Bytes taken in one go, in either direction.
CHUNK_BYTES: Final = 4096
#: How long a program may take to read what is typed into it, in seconds.
WRITE_S: Final = 20.0
#: Bytes that are owed to a program that does not read; answers beyond them are dropped, and the log says so.
OWED_BYTES: Final = 4096
#: Chunks of output that may wait for a person's terminal before it is cut off.
ATTACHED_CHUNKS: Final = 256


def set_size(descriptor: int, width: int, height: int) -> None:
    """Tell a terminal's programs its size."""
    fcntl.ioctl(descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))


class AttachmentLagged(HostError):
    """A person's terminal did not take the output fast enough and was cut off. The pane is not touched by it."""


class PtyPane:
    """One pane: the terminal, the descriptor behind it, and who else looks at it."""

    def __init__(
        self, launch: Launch, process: trio.Process, terminal: Terminal, master: int, patience_s: float
    ) -> None:
        self.launch, self.process, self.terminal = launch, process, terminal
        self.ref = PaneRef("pty", f"pty-{process.pid}", process.pid, process_start(process.pid))
        self.dead = False
        self.drained = trio.Event()
        self._stream = trio.lowlevel.FdStream(master)
        self._patience_s = patience_s
        self._lock = trio.Lock()
        self._owed = b""
        #: Answers have been dropped, and the log has said so.
        self._deaf = False
        self._attached: set[Attachment] = set()
        self._own_size = terminal.size
        #: The sizes that persons asked for; the latest counts.
        self._sizes: dict[Attachment, tuple[int, int]] = {}

    # -- out of the program --------------------------------------------------------------------------------------

    async def read(self) -> None:
        """Take output until there is none to come."""
        try:
            while data := await self._stream.receive_some(CHUNK_BYTES):
                shown, answers = self.terminal.feed(data)
                self._answer(answers)
                self._show(shown)
        except (trio.BrokenResourceError, trio.ClosedResourceError) as end:
            # EIO is how a terminal says that nobody has its other side open any more.
            log.debug("pane read to its end", extra={"fleet_pane": self.ref.id, "fleet_reason": str(end.__cause__)})
        finally:
            self.drained.set()
            for attachment in list(self._attached):
                attachment.end()

    def _show(self, text: str) -> None:
        if text and self._attached:
            chunk = text.encode()
            for attachment in list(self._attached):
                attachment.put(chunk)

    def _answer(self, answers: bytes) -> None:
        if not answers and not self._owed:
            return
        if len(self._owed) + len(answers) <= OWED_BYTES:
            self._owed += answers
        elif not self._deaf:
            self._deaf = True
            log.warning("answers dropped: the program does not read them", extra={"fleet_pane": self.ref.id})
        if not self._lock.locked():
            try:
                self._owed = self._owed[os.write(self._stream.fileno(), self._owed) :]
            except OSError as full:
                log.debug("answer waits", extra={"fleet_pane": self.ref.id, "fleet_reason": str(full)})

    # -- into it -------------------------------------------------------------------------------------------------

    async def write(self, data: bytes) -> None:
        """Write every byte.

        Raises:
            PaneDead, PaneGone: there is nobody to read it.
            HostError: not every byte was read within the deadline.
        """
        self.check()
        with trio.move_on_after(self._patience_s):
            async with self._lock:
                await self._put(data)
            self._answer(b"")  # those to questions that came meanwhile
            return
        raise HostError(
            f"pane {self.ref.id} was not typed into: its program has not read the {len(data)} bytes within "
            f"{self._patience_s:g} s"
        )

    async def _put(self, data: bytes) -> None:
        owed, self._owed = self._owed, b""
        rest = memoryview(owed + data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._stream.fileno(), rest[:CHUNK_BYTES]) :]
                    await trio.lowlevel.checkpoint()
                except BlockingIOError:
                    await trio.lowlevel.wait_writable(self._stream.fileno())
        except (OSError, trio.ClosedResourceError):
            self.check()
            raise PaneDead(f"pane {self.ref.id} takes nothing: its program has closed the terminal") from None
        finally:
            written = len(owed) + len(data) - len(rest)
            if written < len(owed):
                self._owed = owed[written:] + self._owed
            elif rest and written > len(owed) and data.endswith(PASTE_END):
                self._owed = PASTE_END + self._owed

    def check(self) -> None:
        """Raises :class:`PaneDead` or :class:`PaneGone` when nothing can be typed."""
        if self.dead:
            raise PaneDead(f"pane {self.ref.id} is dead: its process has ended")
        if self._stream.fileno() < 0:
            raise PaneGone(f"pane {self.ref.id} is closed")

    # -- persons -------------------------------------------------------------------------------------------------

    def attach(self) -> Attachment:
        attachment = Attachment(self)
        if self.drained.is_set():
            attachment.end()
        else:
            self._attached.add(attachment)
        return attachment

    def detach(self, attachment: Attachment) -> None:
        self._attached.discard(attachment)
        if self._sizes.pop(attachment, None):
            self._resize()

    def fit(self, attachment: Attachment, width: int, height: int) -> None:
        if attachment in self._attached:
            self._sizes.pop(attachment, None)
            self._sizes[attachment] = (width, height)
            self._resize()

    def _resize(self) -> None:
        wanted = list(self._sizes.values())[-1] if self._sizes else self._own_size
        if self.dead or self._stream.fileno() < 0:
            return
        self.terminal.resize(*wanted)
        set_size(self._stream.fileno(), *self.terminal.size)

    async def aclose(self) -> None:
        await self._stream.aclose()


class Attachment:
    """A person's terminal on a pane: an asynchronous iterator over the pane's output. Close it when the person leaves.

    Iterating ends when the pane's program does, and raises :class:`AttachmentLagged` when this side was too slow.
    """

    def __init__(self, pane: PtyPane) -> None:
        self._pane = pane
        #: What to draw first.
        self.snapshot = pane.terminal.snapshot()
        self._put, self._chunks = trio.open_memory_channel[bytes](ATTACHED_CHUNKS)
        self._lagged = False

    async def __aenter__(self) -> Attachment:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __aiter__(self) -> Attachment:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self._chunks.receive()
        except trio.EndOfChannel:
            if self._lagged:
                raise AttachmentLagged(
                    f"the view of pane {self._pane.ref.id} was closed: more than {ATTACHED_CHUNKS} chunks of output "
                    f"waited for it; attach again"
                ) from None
            raise StopAsyncIteration from None

    async def write(self, data: bytes) -> None:
        """What the person types, as their terminal sends it. Raises as :meth:`PtyHost.press`."""
        await self._pane.write(data)

    async def resize(self, width: int, height: int) -> None:
        """Give the pane the size of the person's terminal, until this attachment is closed."""
        await trio.lowlevel.checkpoint()
        self._pane.fit(self, width, height)

    def close(self) -> None:
        """Leave. The pane gets its size back. Idempotent."""
        self._pane.detach(self)
        self.end()

    def put(self, chunk: bytes) -> None:
        """Hand over output; for the pane."""
        try:
            self._put.send_nowait(chunk)
        except trio.WouldBlock:
            self._lagged = True
            log.warning("view was too slow", extra={"fleet_pane": self._pane.ref.id})
            self.close()

    def end(self) -> None:
        """There will be no more output; for the pane."""
        self._put.close()
