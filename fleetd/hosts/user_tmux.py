"""A lead's pane on a person's own tmux server: looked at and typed into, never started, ended or resized.

No client is attached to a person's server. Each call is one ``tmux source-file -`` process with the commands on its
standard input: what is typed stands in no command line, and a command that fails does not stop the next one.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from pathlib import Path
from typing import Final

import trio

from actors.host import HostError, PaneEnded, PaneGone, PaneHost, PaneRef, PaneSpec
from actors.screen import Frame
from fleetd.hosts import tmux_commands
from fleetd.hosts.launch import private_directory, process_start
from fleetd.hosts.tmux_blocks import Block
from fleetd.hosts.tmux_commands import ANSWER_S, NoServer, command, environment, server_pid

log = logging.getLogger("fleetd.tmux")

#: The most that one call may answer, in bytes.
ANSWER_BYTES: Final = 64 * 1024 * 1024


class _Calls:
    """One server, reached by one process per call."""

    def __init__(self, tmux: str, socket: str) -> None:
        self._tmux, self._socket = tmux, socket

    async def batch(self, commands: Sequence[str]) -> list[Block]:
        """See :class:`fleetd.hosts.tmux_commands.Runner`. Which command failed is not known, only what they printed."""
        pid = server_pid(self._socket)
        if not pid:
            raise NoServer(f"no tmux server listens on {self._socket}")
        nonce = secrets.token_hex(16)
        mark = command("display-message", "-p", nonce)
        lines = "".join(f"{line}\n{mark}\n" for line in commands)
        try:
            with trio.fail_after(ANSWER_S):
                run = await trio.run_process(
                    [self._tmux, "-u", "-S", self._socket, "source-file", "-"],
                    stdin=lines.encode("utf-8", "surrogateescape"),
                    capture_stdout=True,
                    capture_stderr=True,
                    check=False,
                    env=environment(),
                    cwd="/",
                )
        except trio.TooSlowError:
            raise HostError(f"the tmux server on {self._socket} did not answer within {ANSWER_S:g} s") from None
        except OSError as exc:
            raise HostError(f"{self._tmux} could not be run: {exc.strerror}; install tmux") from exc
        if len(run.stdout) > ANSWER_BYTES:
            raise HostError(f"the tmux server on {self._socket} answered with more than {ANSWER_BYTES} bytes")
        blocks = run.stdout.decode("utf-8", "replace").split(f"{nonce}\n")
        said = run.stderr.decode("utf-8", "replace").strip()
        if len(blocks) != len(commands) + 1:
            if not server_pid(self._socket):
                raise NoServer(f"the tmux server on {self._socket} has just ended")
            raise HostError(
                f"the tmux server on {self._socket} (pid {pid}) did not answer: {said or 'it gave no reason'}. "
                "After an upgrade of tmux the old server runs on and takes clients of its own version only"
            )
        if said:
            log.debug("tmux complained", extra={"fleet_socket": self._socket, "fleet_reason": said})
        return [Block(text.removesuffix("\n"), failed=False) for text in blocks[:-1]]


class UserTmuxHost(PaneHost):
    """Panes of people's own tmux servers. A pane's id is ``<socket>,%3``.

    Args:
        directory: the daemon's own; the text of a paste stands there for a moment.
        tmux: the tmux program.
    """

    name = "user-tmux"
    outlives_daemon = True

    def __init__(self, directory: Path, *, tmux: str = "tmux") -> None:
        self._directory, self._tmux = directory.absolute(), tmux
        self._never, self._nothing = trio.open_memory_channel[PaneEnded](0)

    async def pane_of(self, socket: str, pids: Collection[int]) -> PaneRef | None:
        """The living pane of a server whose root process is one of ``pids``; ``None`` when there is none.

        Raises:
            HostError: the server does not answer.
        """
        listing = command("list-panes", "-a", "-F", "#{pane_pid} #{pane_dead} #{pane_id}")
        try:
            blocks = await _Calls(self._tmux, socket).batch([listing])
        except NoServer:
            return None
        roots: dict[int, str] = {}
        for line in blocks[0].text.split("\n"):
            match line.split(" "):
                case [root, "0", pane_id]:
                    roots[int(root)] = pane_id
        for pid in pids:
            if pid in roots and (started := process_start(pid)):
                return PaneRef(self.name, f"{socket},{roots[pid]}", pid, started)
        return None

    # -- the protocol --------------------------------------------------------------------------------------------

    async def open(self, spec: PaneSpec) -> PaneRef:
        raise HostError(f"{spec.target} was not started: fleetd starts no panes in a person's own tmux server")

    async def capture(self, panes: Sequence[PaneRef], *, styled: bool = False) -> Mapping[PaneRef, Frame]:
        by_socket: dict[str, dict[PaneRef, str]] = {}
        for pane in panes:
            socket, pane_id = self._address(pane)
            by_socket.setdefault(socket, {})[pane] = pane_id
        frames: dict[PaneRef, Frame] = {}
        for socket, ids in by_socket.items():
            try:
                frames |= await tmux_commands.capture(_Calls(self._tmux, socket), ids, styled=styled)
            except NoServer:
                continue
        return frames

    async def paste(self, pane: PaneRef, text: str) -> None:
        socket, pane_id = self._address(pane)
        try:
            private_directory(self._directory)
            await tmux_commands.paste(_Calls(self._tmux, socket), pane, pane_id, text, self._directory)
        except NoServer as gone:
            raise PaneGone(f"pane {pane.id} is gone: {gone}") from gone
        except OSError as exc:
            raise HostError(f"nothing can be pasted by way of {self._directory}: {exc.strerror}") from exc

    async def press(self, pane: PaneRef, *keys: str) -> None:
        socket, pane_id = self._address(pane)
        try:
            await tmux_commands.press(_Calls(self._tmux, socket), pane, pane_id, keys)
        except NoServer as gone:
            raise PaneGone(f"pane {pane.id} is gone: {gone}") from gone

    async def leave_mode(self, pane: PaneRef) -> None:
        raise HostError(f"pane {pane.id} is its person's: fleetd does not end copy mode there")

    async def close(self, pane: PaneRef) -> None:
        raise HostError(f"pane {pane.id} is its person's: fleetd ends no panes of a person's own tmux server")

    def endings(self) -> AsyncIterator[PaneEnded]:
        """Nothing, until cancelled: fleetd does not watch over a person's panes."""
        return self._nothing

    def _address(self, pane: PaneRef) -> tuple[str, str]:
        """Socket and ``%id``."""
        socket, comma, pane_id = pane.id.rpartition(",")
        if not comma or not socket or not pane_id.startswith("%"):
            raise HostError(f"{pane.id} is no pane of a person's tmux server: give it as <socket>,%<number>")
        return socket, pane_id
