"""A fake model API on loopback, in a process of its own: ``backends/`` holds the two programs."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import trio

BACKENDS = Path(__file__).with_name("backends")


class Backend:
    """One running fake API.

    Args:
        port, control: where it listens for the program, and for us.
        bodies: where it writes each request's body; empty for a fake that does not.
    """

    def __init__(self, port: int, control: int, bodies: Path | None) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.control = f"http://127.0.0.1:{control}"
        self.bodies = bodies

    async def post(self, path: str, body: object) -> Any:
        """Tell its control port something."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.post(self.control + path, json=body, timeout=10)).json()

    async def get(self, path: str) -> Any:
        """Ask its control port something: ``/log``, ``/last``, ``/state``."""
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(self.control + path, timeout=10)).json()

    def requests(self) -> list[dict[str, Any]]:
        """The bodies of the requests so far, in order, of the fake that writes them down."""
        assert self.bodies is not None, "this fake keeps its last request only: see /last"
        return [json.loads(path.read_text())["body"] for path in sorted(self.bodies.glob("req_*.json"))]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@asynccontextmanager
async def anthropic(directory: Path) -> AsyncIterator[Backend]:
    """The fake Anthropic API."""
    bodies = directory / "requests"
    bodies.mkdir()
    port, control = free_port(), free_port()
    argv = ["fakeapi_anthropic.py", "--port", str(port), "--ctl", str(control), "--dump", str(bodies)]
    async with _running(argv, Backend(port, control, bodies)) as backend:
        yield backend


@asynccontextmanager
async def openai_gemini(directory: Path) -> AsyncIterator[Backend]:
    """The fake OpenAI (Responses and Chat Completions) and Gemini API."""
    port, control = free_port(), free_port()
    async with _running(["fakeapi_openai_gemini.py", str(port), str(control)], Backend(port, control, None)) as backend:
        yield backend


@asynccontextmanager
async def _running(argv: list[str], backend: Backend) -> AsyncIterator[Backend]:
    process = await trio.lowlevel.open_process(
        [sys.executable, str(BACKENDS / argv[0]), *argv[1:]], stdout=-3, stderr=-3, env={}
    )
    try:
        with trio.fail_after(60):
            while True:
                try:
                    await backend.get("/state")
                    break
                except httpx.TransportError:
                    await trio.sleep(0.05)
        yield backend
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
