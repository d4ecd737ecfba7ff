"""One tmux control client: commands in, blocks out, over two pipes.

Commands are sent in batches, and a batch does not wait for the one before it. Each is closed by printing a word that
nobody can guess: one command may answer with more than one block, and only that word says which blocks belong to which
batch.

The client is attached with ``no-output`` from its first moment: tmux has crashed under clients that turned output on or
off later, and a client that does not read its output stalls the panes. It listens to no notification either. That a
process has ended is known from the process (see :mod:`fleetd.hosts.tmux`), at once and also without a client.

A client that is lost, or that does not answer in time, is ended, and the next batch starts another one if the server
still lives. Only a client that waits to be attached is left waiting: a stalled server that finds two dead control
clients when it goes on is killed by them (3.3a). No command is sent before the client is attached, so none is carried
out long after its sender has given it up. Every batch ends with an answer or an error within :data:`ANSWER_S`.
"""

from __future__ import annotations

import logging
import secrets
import subprocess
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Final

import trio

from actors.host import HostError
from fleetd.hosts.tmux_blocks import Block, Parser, TerminalLost
from fleetd.hosts.tmux_commands import ANSWER_S, NoServer, command, environment, server_pid

log = logging.getLogger("fleetd.tmux")

#: Batches that may wait to be sent.
WAITING: Final = 256
#: The most that one batch may answer, in characters.
BATCH_CHARACTERS: Final = 256 * 1024 * 1024
#: Bytes taken from the pipe at once.
READ_BYTES: Final = 256 * 1024


class CommandFailed(HostError):
    """tmux refused a command; the message is its own."""


class _Batch:
    """Commands on their way, and the blocks that came back."""

    def __init__(self, commands: Sequence[str]) -> None:
        self._nonce = secrets.token_hex(16)
        lines = [*commands, command("display-message", "-p", self._nonce)]
        self.data = "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")
        self.blocks: list[Block] = []
        self.error: HostError | None = None
        self.done = trio.Event()
        #: Its sender has given it up.
        self.withdrawn = False
        self._characters = 0

    def take(self, block: Block) -> bool:
        """Take the next block; say whether the batch is complete."""
        if block.text == self._nonce and not block.failed:
            self.done.set()
            return True
        self._characters += len(block.text)
        if self._characters > BATCH_CHARACTERS:
            raise TerminalLost(f"tmux answered with more than {BATCH_CHARACTERS} characters: the client is given up")
        self.blocks.append(block)
        return False

    def fail(self, error: HostError) -> None:
        self.error = error
        self.done.set()


class _Link:
    """One control client process."""

    def __init__(self) -> None:
        self._scope = trio.CancelScope()
        self._send, self._receive = trio.open_memory_channel[_Batch](WAITING)
        self._sent: deque[_Batch] = deque()
        #: The last line that was no notification: where tmux says why it goes.
        self._said = ""
        self.attached = False
        self.lost = False

    async def ask(self, commands: Sequence[str]) -> list[Block]:
        """Queue a batch and wait for its blocks."""
        if self.lost:
            raise TerminalLost("the terminal connection is lost: it is opened again with the next command")
        batch = _Batch(commands)
        try:
            self._send.send_nowait(batch)
        except trio.WouldBlock:
            raise HostError(
                f"{WAITING} batches of commands wait for tmux and it takes no more: it is stalled"
            ) from None
        try:
            await batch.done.wait()
        finally:
            batch.withdrawn = True
        if batch.error is not None:
            raise batch.error
        return batch.blocks

    def abandon(self) -> None:
        """End the client process; whoever waits gets an error."""
        self.lost = True
        self._scope.cancel()

    async def run(self, argv: Sequence[str]) -> None:
        """Drive the process until it is gone or given up."""
        error = TerminalLost("the terminal connection is lost")
        try:
            with self._scope:
                async with trio.open_nursery() as nursery:
                    process: trio.Process = await nursery.start(
                        partial(
                            trio.run_process,
                            argv,
                            stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT,
                            check=False,
                            env=environment(),
                            cwd="/",
                            deliver_cancel=_kill,
                        )
                    )
                    assert process.stdin is not None
                    assert process.stdout is not None
                    nursery.start_soon(self._write, process.stdin)
                    await self._read(process.stdout)
                    nursery.cancel_scope.cancel()
        except* TerminalLost as lost:
            error = TerminalLost("; ".join(str(one) for one in lost.exceptions))
        except* OSError as failed:
            error = TerminalLost(f"the tmux client failed: {failed.exceptions[0]}")
        finally:
            self.lost = True
            if self._said:
                error = TerminalLost(f"{error}: tmux said: {self._said}")
            self._fail(error)

    def _fail(self, error: TerminalLost) -> None:
        self._send.close()
        while True:
            try:
                self._sent.append(self._receive.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                break
        while self._sent:
            self._sent.popleft().fail(error)

    async def _write(self, stdin: trio.abc.SendStream) -> None:
        try:
            greeting = _Batch([])
            self._sent.append(greeting)
            await stdin.send_all(greeting.data)
            await greeting.done.wait()
            self.attached = True
            log.info("control client attached")
            async for batch in self._receive:
                if not batch.withdrawn:
                    self._sent.append(batch)
                    await stdin.send_all(batch.data)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The reader sees the end of the process, and those who wait are told then.
            log.debug("control client takes no more commands")

    async def _read(self, stdout: trio.abc.ReceiveStream) -> None:
        parser = Parser()
        while data := await stdout.receive_some(READ_BYTES):
            for item in parser.feed(data):
                if isinstance(item, Block):
                    if self._sent and self._sent[0].take(item):
                        self._sent.popleft()
                elif item.startswith("%exit"):
                    self._said = item.removeprefix("%exit").strip() or self._said
                elif not item.startswith("%"):
                    self._said = item


async def _kill(process: trio.Process) -> None:
    process.kill()


class Control:
    """The control client of one server, whichever process it is at the moment.

    Args:
        argv: the tmux program with its socket, without a command.
        socket: the server's socket.
        session: the session to attach to.
    """

    def __init__(self, argv: Sequence[str], socket: str, session: str) -> None:
        self._argv = [*argv, "-C", "attach-session", "-t", f"={session}", "-f", "no-output,ignore-size"]
        self._socket = socket
        self._nursery: trio.Nursery | None = None
        self._link: _Link | None = None

    async def serve(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep client processes until cancelled. The server lives on."""
        try:
            async with trio.open_nursery() as nursery:
                self._nursery = nursery
                task_status.started()
                await trio.sleep_forever()
        finally:
            self._nursery = self._link = None

    @property
    def connected(self) -> bool:
        """A client is attached, as far as is known."""
        return self._link is not None and self._link.attached and not self._link.lost

    async def run(self, *words: str) -> list[str]:
        """Run one command; return the lines that it printed.

        Raises:
            CommandFailed: tmux refused it.
            NoServer, TerminalLost, HostError: as :meth:`batch`.
        """
        blocks = await self.batch([command(*words)])
        if failed := next((block for block in blocks if block.failed), None):
            raise CommandFailed(f"tmux refused {words[0]}: {failed.text}")
        return [line for block in blocks if block.text for line in block.text.split("\n")]

    async def batch(self, commands: Sequence[str]) -> list[Block]:
        """Run commands in order, and go on after errors. A cancelled caller's commands may still run.

        Raises:
            NoServer: there is no server.
            TerminalLost: the connection ended before the answer, there is none to be had, or no answer came in time.
            HostError: too much waits already.
        """
        link = self._link
        if link is None or link.lost:
            link = self._link = self._connect()
        try:
            with trio.move_on_after(ANSWER_S):
                return await link.ask(commands)
        except TerminalLost as lost:
            pid = server_pid(self._socket)
            if not pid:
                raise NoServer(f"the tmux server on {self._socket} has just ended") from lost
            if link.attached:
                raise
            raise TerminalLost(
                f"the tmux server (pid {pid}) lives, but no client can be attached to it: {lost}. "
                "After an upgrade of tmux the old server runs on and takes clients of its own version only"
            ) from lost
        if link.attached:
            link.abandon()
        raise TerminalLost(f"tmux did not answer within {ANSWER_S:g} s; its panes may be well")

    def _connect(self) -> _Link:
        if self._nursery is None:
            raise HostError("the tmux host does not run: start it before it is used")
        if not server_pid(self._socket):
            raise NoServer(f"no tmux server listens on {self._socket}")
        link = _Link()
        self._nursery.start_soon(link.run, self._argv)
        return link
