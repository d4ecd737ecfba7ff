"""The private tmux server's process: its configuration, its start and its end.

It is started under a clean environment, because its first client's environment becomes every pane's.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Final

import trio

from actors.host import HostError
from fleetd.hosts.launch import children, end_tree, ended, private_directory, process_start, send_signal, write_private
from fleetd.hosts.tmux_commands import ANSWER_S, check_version, environment, server_pid

SESSION: Final = "fleetd"
#: Columns and rows of a window that nobody asked a size for.
SIZE: Final = (160, 120)
#: Lines of scrollback that tmux keeps per pane.
HISTORY: Final = 5000
#: The longest socket path that the kernel takes, in bytes.
SOCKET_BYTES: Final = 107
#: How long the server may take to end, in seconds.
END_S: Final = 5.0

#: ``-q`` passes over what an older tmux does not know. The keys that are unbound paste or respawn, and would kill the
#: server (tmux 3.3a) when a person pressed them in a dead pane. No ``window-size manual`` here: given globally, it
#: kills the server with the next window (up to 3.6).
CONFIGURATION: Final = f"""\
set-option -s exit-empty off
set-option -s escape-time 0
set-option -s set-clipboard off
set-option -s default-terminal tmux-256color
set-option -g update-environment ''
set-option -g default-size {SIZE[0]}x{SIZE[1]}
set-option -g history-limit {HISTORY}
set-option -g status off
set-option -g bell-action none
set-option -wg remain-on-exit on
set-option -wgq remain-on-exit-format ''
set-option -wg allow-rename off
set-option -wg automatic-rename off
unbind-key -q ]
unbind-key -q =
unbind-key -q <
unbind-key -q >
"""


class Server:
    """The tmux server of one directory, whichever process it is at the moment.

    Args:
        directory: the daemon's own; the socket and the configuration stand there.
        tmux: the tmux program.
    """

    def __init__(self, directory: Path, tmux: str) -> None:
        self._directory, self._tmux = directory, tmux
        self.socket = str(directory / "tmux.sock")
        #: A tmux client of this server, without a command.
        self.client = [tmux, "-u", "-S", self.socket]

    async def check(self) -> None:
        """See that a server could be started.

        Raises:
            HostError: tmux is missing or too old, or the directory cannot be used.
        """
        await check_version(self._tmux)
        if len(self.socket.encode()) > SOCKET_BYTES:
            raise HostError(f"{self.socket} is longer than the {SOCKET_BYTES} bytes of a socket: choose a shorter path")
        try:
            private_directory(self._directory)
        except OSError as exc:
            raise HostError(f"tmux cannot be run in {self._directory}: {exc.strerror}") from exc

    async def start(self) -> tuple[int, int]:
        """See that the server runs and has its session; return its pid and start time.

        Raises:
            HostError: it cannot be started, or the one that runs is of another version.
        """
        configuration = self._directory / "tmux.conf"
        try:
            configuration.unlink(missing_ok=True)
            write_private(configuration, CONFIGURATION.encode())
        except OSError as exc:
            # A server that runs has read it already, so a full disk is no obstacle to it.
            if not server_pid(self.socket):
                raise HostError(f"tmux cannot be configured: {exc.strerror}: {configuration}") from exc
        size = ["-x", str(SIZE[0]), "-y", str(SIZE[1])]
        # A session needs a window. This one's process lives, because a paste into a dead pane may kill the server.
        session = ["new-session", "-d", "-s", SESSION, "-n", SESSION, *size, "--", "tail", "-f", "/dev/null"]
        run = None
        with trio.move_on_after(ANSWER_S):
            run = await trio.run_process(
                [*self.client, "-f", str(configuration), *session],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=environment(),
                cwd="/",
            )
        pid = server_pid(self.socket)
        if run is None:
            what = f"the tmux server (pid {pid}) did not answer" if pid else "tmux did not start"
            raise HostError(f"{what} within {ANSWER_S:g} s: look at it, and at the machine's load")
        said = run.stderr.decode(errors="replace").strip() or "it gave no reason"
        if run.returncode == 0 or "duplicate session" in said:
            if pid and (started := process_start(pid)):
                return pid, started
        elif pid:
            raise HostError(
                f"the tmux server (pid {pid}) lives, but a client was refused: {said}. "
                "After an upgrade of tmux the old server runs on and takes clients of its own version only"
            )
        raise HostError(f"the tmux server did not start or ended at once: {said}")

    async def kill(self) -> None:
        """End every process in every pane, then the server. Nothing lives on.

        Raises:
            HostError: a process does not end.
        """
        pid = server_pid(self.socket)
        started = process_start(pid)
        if not pid or not started:
            return
        async with trio.open_nursery() as nursery:
            for child in children(pid):
                nursery.start_soon(end_tree, *child)
        for number in (signal.SIGTERM, signal.SIGKILL):
            send_signal(pid, started, number)
            with trio.move_on_after(END_S):
                await ended(pid, started)
                return
        raise HostError(f"the tmux server (pid {pid}) does not end, not even by SIGKILL")
