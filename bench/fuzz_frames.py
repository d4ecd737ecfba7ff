"""Frames that no client should send, at a real daemon over its real socket, while another client is served.

    python bench/fuzz_frames.py                       10,000 frames
    python bench/fuzz_frames.py --frames 500 --seed 7

A daemon of its own is started. Frames are drawn from a seed: bytes, broken and bent JSON, wrong types, NUL, bad UTF-8,
lone surrogates, deep nesting, 1 MiB to the byte and one more, hostile requests to each of the daemon's methods and
tools, both eras of MCP with what they should not say. They come over connections that live for some frames and then end
in every way: in the middle of a line, by closing one side, by a reset. What a connection is answered is read, and must
be a JSON-RPC message each time.

Meanwhile one client asks ``fleetd/status`` and a tool all the time. It must never be refused, dropped or kept waiting.
At the end: the same process, no crash in its log, no connection left, and no more memory than after the first tenth.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from fleetd.client import connect
from fleetd.frames import FRAME_BYTES
from fleetd.start import start

CONFIG: Final = """
host: pty
profiles:
  demo-a: {agent: demo, credentialId: shared, capacity: 1, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""
#: How long the well-behaved client may be kept waiting, in seconds.
PATIENCE_S: Final = 15.0
#: Resident memory that may be added after the first tenth, in KiB: the interpreter's own unevenness.
GROWTH_KIB: Final = 16 * 1024
#: Connections at a time that send frames.
SENDERS: Final = 4
METHODS: Final = ("status", "call", "record", "attach", "input", "resize", "hook", "nonesuch", "")
TOOLS: Final = (
    *("fleet_list", "fleet_profiles", "fleet_peek", "fleet_send", "fleet_wait", "fleet_collect", "fleet_answer"),
    *("fleet_interrupt", "fleet_release", "fleet_explain", "fleet_health", "fleet_reply", "fleet_ask", "fleet_whoami"),
    *("fleet_spawn", "fleet_nonesuch"),
)


class Wrong(AssertionError):
    """The daemon did something that no frame may make it do."""


# -- frames ---------------------------------------------------------------------------------------------------------


class Frames:
    """Draws frames. The same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.drawn: Counter[str] = Counter()

    def frame(self) -> bytes:
        """One frame with its newline; it may hold further ones."""
        kinds: list[tuple[int, Callable[[], bytes]]] = [
            (12, self.noise),
            (14, self.bent),
            (14, self.typed_wrong),
            (14, self.control),
            (14, self.tool),
            (10, self.mcp),
            (8, self.deep),
            (6, self.text),
            (3, self.long),
            (3, self.identifier),
            (2, self.many),
        ]
        kind = self.random.choices([kind for _, kind in kinds], [weight for weight, _ in kinds])[0]
        self.drawn[kind.__name__.replace("_", " ")] += 1
        return kind() + self.random.choice([b"\n"] * 9 + [b"\r\n"])

    def noise(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 7, 200, 5000]))

    def text(self) -> bytes:
        """Whole JSON around bytes that are no text."""
        inside = self.random.choice(
            [
                b"\0",
                b"\\u0000",
                b"\xff\xfe",
                b"\xc0\xaf",
                b"\xed\xa0\x80",
                b"\\ud800",
                b"\\udfff\\ud800",
                b"\xf5\x80\x80\x80",
            ]
        )
        where = self.random.choice(
            [b'"method":"fleetd/%s"', b'"method":"fleetd/status","params":{"a":"%s"}', b'"%s":1']
        )
        return b'{"jsonrpc":"2.0","id":1,' + where.replace(b"%s", inside) + b"}"

    def bent(self) -> bytes:
        """A good request with a few bytes changed, cut or doubled."""
        line = bytearray(json.dumps(self._request("fleetd/call", {"tool": "fleet_list", "arguments": {}})).encode())
        for _ in range(self.random.randint(1, 5)):
            at = self.random.randrange(len(line))
            match self.random.randrange(4):
                case 0:
                    line[at] = self.random.randrange(256)
                case 1:
                    del line[at:]
                    line += b"{"
                case 2:
                    line[at:at] = line[at : at + 10]
                case _:
                    line[at:at] = self.random.choice([b"[", b"}", b'"', b"\\", b"-", b"1e999", b"null", b"NaN"])
        return bytes(line)

    def typed_wrong(self) -> bytes:
        message: dict[str, Any] = self._request("fleetd/status", {})
        for key in self.random.sample(["jsonrpc", "id", "method", "params"], self.random.randint(1, 3)):
            if self.random.random() < 0.3:
                message.pop(key)
            else:
                message[key] = self.value()
        if self.random.random() < 0.3:
            message[self.random.choice(["result", "error"])] = self.value()
        return json.dumps(message).encode()

    def control(self) -> bytes:
        names = ("target", "tool", "arguments", "event", "view", "data", "columns", "rows")
        params = {name: self.value() for name in self.random.sample(names, self.random.randint(0, 4))}
        return json.dumps(self._request(f"fleetd/{self.random.choice(METHODS)}", params)).encode()

    def tool(self) -> bytes:
        names = ("target", "ticket", "tickets", "prompt", "lines", "page", "question", "text", "waitSeconds", "profile")
        arguments = {name: self.value() for name in self.random.sample(names, self.random.randint(0, 4))}
        # A wait of its own length would only make the run longer.
        if self.random.random() < 0.9:
            arguments["waitSeconds"] = 0
        params = {"tool": self.random.choice(TOOLS), "arguments": arguments}
        return json.dumps(self._request("fleetd/call", params)).encode()

    def mcp(self) -> bytes:
        meta = {
            "io.modelcontextprotocol/protocolVersion": self.random.choice(["2026-07-28", "1", 7, None, "x" * 1000]),
            "io.modelcontextprotocol/clientInfo": self.value(),
            "io.modelcontextprotocol/clientCapabilities": self.value(),
        }
        method = self.random.choice(
            [
                *("initialize", "server/discover", "tools/list", "tools/call", "ping", "resources/list", "x" * 10_000),
                *("notifications/initialized", "notifications/cancelled", "notifications/x", "logging/setLevel"),
            ]
        )
        params: dict[str, Any] = {"name": self.random.choice(TOOLS), "arguments": {"target": self.value()}}
        if method == "initialize":
            params = {"protocolVersion": self.value(), "capabilities": self.value(), "clientInfo": self.value()}
            if self.random.random() < 0.5:
                params = {
                    "protocolVersion": "2025-11-25",
                    "capabilities": {},
                    "clientInfo": {"name": "f", "version": "1"},
                }
        if method == "notifications/cancelled":
            params = {"requestId": self.value()}
        if self.random.random() < 0.5:
            params["_meta"] = meta
        message = self._request(method, params)
        if method.startswith("notifications/"):
            message.pop("id")
        return json.dumps(message).encode()

    def deep(self) -> bytes:
        depth = self.random.choice([60, 63, 64, 65, 66, 1000, 100_000])
        opened, closed = self.random.choice([(b"[", b"]"), (b'{"a":', b"}")])
        nest = opened * depth + b"1" + closed * (depth if self.random.random() < 0.8 else depth - 1)
        if self.random.random() < 0.3:
            return nest
        return b'{"jsonrpc":"2.0","id":1,"method":"fleetd/status","params":{"a":' + nest + b"}}"

    def long(self) -> bytes:
        """A line at its bound, above it, and far above it."""
        head, tail = b'{"jsonrpc":"2.0","id":1,"method":"fleetd/status","params":{"a":"', b'"}}'
        size = self.random.choice([FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, FRAME_BYTES + 1, 3 * FRAME_BYTES])
        if self.random.random() < 0.3:
            return b"x" * size
        return head + b"y" * (size - len(head) - len(tail)) + tail

    def identifier(self) -> bytes:
        id = self.random.choice(["", "x" * 100_000, -1, 2**53, 2**64, 10**300, 1.5, True, None, [], {}, "\0", "é"])
        return json.dumps({"jsonrpc": "2.0", "id": id, "method": "fleetd/status"}).encode()

    def many(self) -> bytes:
        """Small requests in one go, all with one identifier, or with one each."""
        same = self.random.random() < 0.5
        lines = [{"jsonrpc": "2.0", "id": 1 if same else n, "method": "fleetd/status"} for n in range(80)]
        return b"\n".join(json.dumps(line).encode() for line in lines)

    def value(self) -> Any:
        pick = self.random.choice
        return pick(
            [
                *(
                    None,
                    True,
                    False,
                    0,
                    1,
                    -1,
                    2**31,
                    2**63,
                    10**30,
                    1.5,
                    -0.0,
                    1e308,
                    "",
                    "m-1",
                    "t-1",
                    "q-1",
                    "view-1",
                ),
                *("demo-a", "\u0000", "\u001b[2J", "é" * 50, "😀", "x" * 70_000, "../../etc/passwd", "/", "-1", "%s%n"),
                *(
                    [],
                    {},
                    [[]],
                    [None],
                    {"a": []},
                    ["t-1"] * 65,
                    {"": ""},
                    [1, "a", {}],
                    {"name": "x" * 500},
                    "2025-11-25",
                ),
            ]
        )

    def _request(self, method: str, params: object) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": self.random.choice([1, 2, "a", 10**9]), "method": method, "params": params}


# -- clients --------------------------------------------------------------------------------------------------------


class Fuzz:
    """One run against one daemon."""

    def __init__(self, directory: Path, pid: int, frames: Frames) -> None:
        self.directory, self.pid, self.frames = directory, pid, frames
        self.socket = directory / "fleetd.sock"
        self.sent = self.connections = self.answered = self.served = self.outlived = 0
        self.slowest_s = 0.0
        self.memory_kib: list[int] = []
        self._done = False
        self._sockets_before = self._sockets()

    async def run(self, count: int, progress: Callable[[str], None] = lambda _: None) -> None:
        """Send that many frames. Raises :class:`Wrong`."""
        await self._warm_up()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._be_served)
            for tenth in range(1, 11):
                async with trio.open_nursery() as senders:
                    for _ in range(SENDERS):
                        senders.start_soon(self._send, count * tenth // 10)
                self.memory_kib.append(self.resident_kib())
                progress(f"{self.sent} frames, {self.memory_kib[-1] / 1024:.1f} MiB")
            self._done = True
        await self._settled()

    async def _warm_up(self) -> None:
        """The daemon imports its protocol's SDK beside its work, and that is no growth: be served by it once."""
        who = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "fuzz", "version": "1"}}
        async with connect(self.socket) as client:
            await client.request("initialize", who)

    async def _send(self, count: int) -> None:
        while self.sent < count:
            await self._connection(min(self.frames.random.randint(1, 20), count - self.sent))

    async def _connection(self, frames: int) -> None:
        """One client's life."""
        self.connections += 1
        draw = self.frames.random
        data = [self.frames.frame() for _ in range(frames)]
        self.sent += frames
        stream = await trio.open_unix_socket(self.socket)
        async with stream, trio.open_nursery() as nursery:
            in_step = trio.Event()
            nursery.start_soon(self._read, stream, in_step)
            with suppress(trio.BrokenResourceError):  # dropped, which is the daemon's right
                for line in data:
                    at = 0
                    while at < len(line):
                        size = draw.choice([1, 100, 65536, 1 << 20]) if len(line) < 5000 else 1 << 18
                        await stream.send_all(line[at : at + size])
                        at += size
                match draw.randrange(6):
                    case 0:
                        await stream.send_all(b'{"jsonrpc":"2.0","id":1,"meth')
                    case 1:
                        await stream.send_eof()
                        await trio.sleep(0.01)
                    case 2:
                        await trio.sleep(0.02)  # and a reset, where answers were not read
                    case _:
                        await self._still_served(stream, in_step)
            nursery.cancel_scope.cancel()

    async def _still_served(self, stream: trio.SocketStream, in_step: trio.Event) -> None:
        """After all that, the connection takes a good request."""
        await stream.send_all(json.dumps({"jsonrpc": "2.0", "id": "end", "method": "fleetd/status"}).encode() + b"\n")
        with trio.move_on_after(PATIENCE_S) as late:
            await in_step.wait()
        if late.cancelled_caught:
            raise Wrong("a connection lives, and takes no good request behind bad frames")
        self.outlived += 1

    async def _read(self, stream: trio.SocketStream, in_step: trio.Event) -> None:
        rest = b""
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await stream.receive_some(1 << 18):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    message = json.loads(line)
                    if message.get("jsonrpc") != "2.0" or not {"result", "error", "method"} & set(message):
                        raise Wrong(f"this is no message: {line[:200]!r}")
                    self.answered += 1
                    if message.get("id") == "end":
                        in_step.set()

    async def _be_served(self) -> None:
        """The client that does nothing wrong."""
        async with connect(self.socket) as client:
            while not self._done:
                begun = time.monotonic()
                with trio.move_on_after(PATIENCE_S) as late:
                    status = await client.request("fleetd/status")
                    listing = await client.request("fleetd/call", {"tool": "fleet_list", "arguments": {}})
                if late.cancelled_caught:
                    raise Wrong(f"a client that does nothing wrong waited {PATIENCE_S:g} s")
                if status["pid"] != self.pid or listing["isError"]:
                    raise Wrong(f"a client that does nothing wrong was told {status} and {listing}")
                self.slowest_s = max(self.slowest_s, time.monotonic() - begun)
                self.served += 1
                await trio.sleep(0.01)

    async def _settled(self) -> None:
        """Nothing is left of the connections."""
        deadline = time.monotonic() + PATIENCE_S
        while (left := self._sockets() - self._sockets_before) > 0:
            if time.monotonic() > deadline:
                raise Wrong(f"{left} connections are left open in the daemon")
            await trio.sleep(0.05)
        self.memory_kib.append(self.resident_kib())

    def _sockets(self) -> int:
        links = [os.readlink(link) for link in Path(f"/proc/{self.pid}/fd").iterdir() if link.is_symlink()]
        return sum(1 for link in links if link.startswith("socket:"))

    def resident_kib(self) -> int:
        """The daemon's resident memory."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text()
        except FileNotFoundError:
            raise Wrong("the daemon has ended") from None
        return int(status.split("VmRSS:", 1)[1].split()[0])

    def check(self) -> None:
        """What must hold at the end. Raises :class:`Wrong`."""
        self.resident_kib()
        log = (self.directory / "fleetd.log").read_text()
        for word in ("crashed", "Traceback", "CRITICAL"):
            if word in log:
                at = log.index(word)
                raise Wrong(f"the daemon's log says: {log[max(0, at - 300) : at + 1500]}")
        if not self.served:
            raise Wrong("nobody was served meanwhile")
        if (grown := self.memory_kib[-1] - self.memory_kib[0]) > GROWTH_KIB:
            raise Wrong(f"the daemon has grown by {grown} KiB after the first tenth: {self.memory_kib}")


def fuzz(directory: Path, count: int, seed: int, progress: Callable[[str], None] = lambda _: None) -> Fuzz:
    """Start a daemon in ``directory``, send it that many frames, end it. Raises :class:`Wrong`."""
    config = directory / "fleetd.yaml"
    config.write_text(CONFIG)
    run = directory / "run"
    pid = int(start(str(run), config)["pid"])
    try:
        one = Fuzz(run, pid, Frames(seed))
        try:
            trio.run(one.run, count, progress)
        except* Wrong as wrong:
            raise wrong.exceptions[0] from None
        one.check()
    finally:
        subprocess.run(
            [sys.executable, "-m", "fleetd", "--runtime-dir", str(run), "down", "--kill-members"], check=False
        )
    return one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="fleetd-fuzz-") as temporary:
        begun = time.monotonic()
        try:
            one = fuzz(Path(temporary), arguments.frames, arguments.seed, print)
        except Wrong as wrong:
            print(f"wrong: {wrong}", file=sys.stderr)
            return 1
    first, most, last = (kib / 1024 for kib in (one.memory_kib[0], max(one.memory_kib), one.memory_kib[-1]))
    print(
        f"{one.sent} frames over {one.connections} connections in {time.monotonic() - begun:.0f} s, "
        f"{one.answered} answers; {one.outlived} connections took a good request behind them; "
        f"memory {first:.1f} MiB after the first tenth, at most {most:.1f}, {last:.1f} at the end; "
        f"another client was served {one.served} times, the slowest {one.slowest_s * 1000:.0f} ms"
    )
    print(", ".join(f"{count} {kind}" for kind, count in one.frames.drawn.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
