"""A person's own tmux server, private to a test."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import trio


class UserTmux:
    """A tmux server with one session, as a person has one."""

    def __init__(self, directory: Path) -> None:
        self.socket = directory / "user.sock"
        self._tmux = ["tmux", "-u", "-S", str(self.socket), "-f", "/dev/null"]

    async def run(self, *args: str, env: Mapping[str, str] | None = None) -> str:
        if env is None:
            env = {"PATH": os.environ["PATH"], "HOME": "/", "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        done = await trio.run_process([*self._tmux, *args], capture_stdout=True, capture_stderr=True, env=env)
        return done.stdout.decode()

    async def start(self, *argv: str, env: Mapping[str, str] | None = None, cwd: str = "/") -> None:
        """Start the server with one window that runs ``argv`` in exactly this environment."""
        await self.run("new-session", "-d", "-x", "200", "-y", "50", "-c", cwd, *argv, env=env)

    async def type(self, text: str) -> None:
        """Type a line and press Enter."""
        await self.run("send-keys", "-l", text)
        await self.run("send-keys", "Enter")

    async def text(self) -> str:
        return await self.run("capture-pane", "-p", "-J")

    async def end(self) -> None:
        with trio.CancelScope(shield=True):
            if self.socket.exists():
                await self.run("kill-server")
