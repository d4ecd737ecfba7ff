"""The bridge as the process that an agent starts: real pipes, a real socket, real signals."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio
from mcp import Client, StdioServerParameters

from fleetd.callers import Caller
from fleetd.connection import UnknownMethod
from fleetd.door import Door
from fleetd.frames import FRAME_BYTES
from fleetd.jsonrpc import INVALID_REQUEST, answer, notification, request
from fleetd.mcp.relay import AWAY, OUTCOME_UNKNOWN, REPLAY_ID
from fleetd.peer import Peer, process_start
from fleetd.rundir import bind_socket, make_runtime_dir, socket_path
from tests.mcp.fakes import LEAD, FakeToolbox, Plain, initialize_params
from tests.mcp.test_relay import Link

pytestmark = pytest.mark.live

DEADLINE_S = 15.0

#: The bridge, with a daemon to start that is given as a JSON list, and less patience than it really has.
BRIDGE = """
import json, sys
from functools import partial
from pathlib import Path
import fleetd.mcp.relay
from fleetd.mcp.bridge import run_bridge, spawn_daemon
if len(sys.argv) > 3:
    fleetd.mcp.relay.PATIENCE_S = float(sys.argv[3])
sys.exit(run_bridge(Path(sys.argv[1]), partial(spawn_daemon, json.loads(sys.argv[2]))))
"""

#: The same, where everything that should be quiet is not.
NOISY = """
import os, subprocess, sys
from pathlib import Path
from fleetd.mcp.bridge import run_bridge
print("before", flush=True, file=sys.stderr)
def start():
    print("stray print", flush=True)
    os.write(1, b"stray write\\n")
    sys.stdout.write("left in the buffer")
    return subprocess.Popen([sys.executable, "-c", "print('stray child', input('stray prompt'))"])
sys.exit(run_bridge(Path(sys.argv[1]), start))
"""

#: A daemon that answers each request with its own pid and method; only one of them gets the lock.
DAEMON = """
import os, sys, trio
from pathlib import Path
from fleetd.frames import LineReader, decode, encode
from fleetd.jsonrpc import answer
from fleetd.rundir import DaemonLock, bind_socket, make_runtime_dir
print("stray print of the daemon", flush=True)

async def serve(stream):
    lines = LineReader(stream)
    while (line := await lines.receive()) is not None:
        message = decode(line)
        if "id" in message:
            await stream.send_all(encode(answer(message["id"], {"pid": os.getpid(), "sid": os.getsid(0)})))

directory = Path(sys.argv[1])
make_runtime_dir(directory)
with DaemonLock(directory, "0"):
    trio.run(trio.serve_listeners, serve, [bind_socket(directory)])
"""

FAILS = [sys.executable, "-c", "raise SystemExit(7)"]


async def until(condition: Callable[[], object]) -> None:
    """Wait until the condition holds."""
    with trio.fail_after(DEADLINE_S):
        while not condition():  # noqa: ASYNC110 - it is another process's doing, which sets no event here
            await trio.sleep(0.02)


class Bridge:
    """A bridge process and the agent that talks to it."""

    def __init__(self, process: trio.Process, agent: Plain, errors: Path) -> None:
        assert process.stdin is not None
        self.process = process
        self.stdin = process.stdin
        self.agent = agent
        self._errors = errors

    @property
    def stderr(self) -> str:
        return self._errors.read_text()

    async def wait(self) -> int:
        with trio.fail_after(DEADLINE_S):
            return await self.process.wait()


@asynccontextmanager
async def bridge(
    directory: Path, daemon: list[str] = FAILS, script: str = BRIDGE, patience_s: float = 10
) -> AsyncIterator[Bridge]:
    errors = directory.parent / f"stderr-{os.urandom(4).hex()}"
    argv = [sys.executable, "-c", script, os.fspath(socket_path(directory)), json.dumps(daemon), str(patience_s)]
    with errors.open("wb") as stderr:
        process = await trio.lowlevel.open_process(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        async with trio.open_nursery() as nursery:
            agent = Plain(trio.StapledStream(process.stdin, process.stdout), nursery)
            yield Bridge(process, agent, errors)
            nursery.cancel_scope.cancel()
    finally:
        with trio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.wait()
            await process.stdin.aclose()
            await process.stdout.aclose()


class HandDaemon:
    """A daemon that the test plays by hand, and can end as if it were killed."""

    def __init__(self, directory: Path) -> None:
        self._listener = bind_socket(directory)
        self._open: list[trio.SocketStream] = []

    async def link(self) -> Link:
        with trio.fail_after(DEADLINE_S):
            stream = await self._listener.accept()
        self._open.append(stream)
        return Link(stream)

    async def kill(self) -> None:
        for resource in (self._listener, *self._open):
            await trio.aclose_forcefully(resource)


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    made = tmp_path / "run"
    make_runtime_dir(made)
    return made


async def handshake(bridge: Bridge, daemon: HandDaemon) -> Link:
    id = bridge.agent.start("initialize", initialize_params())
    link = await daemon.link()
    await link.handshake()
    await bridge.agent.answer(id)
    bridge.agent.notify("notifications/initialized")
    assert await link.receive() == notification("notifications/initialized")
    return link


# -- restarts of the daemon ------------------------------------------------------------------------------------------


async def test_a_restarted_daemon_is_told_the_handshake_and_nothing_is_sent_twice(directory: Path) -> None:
    daemon = HandDaemon(directory)
    async with bridge(directory) as its:
        link = await handshake(its, daemon)
        spawn = its.agent.start("tools/call", {"name": "fleet_spawn"}, "spawn-1")
        await link.receive()
        await daemon.kill()
        lost = (await its.agent.answer(spawn))["error"]
        assert lost["code"] == OUTCOME_UNKNOWN
        assert lost["message"].startswith("outcome unknown: the daemon went away after it got this request")

        daemon = HandDaemon(directory)
        link = await daemon.link()
        assert await link.handshake() == request(REPLAY_ID, "initialize", initialize_params())
        assert await link.receive() == notification("notifications/initialized")
        next_one = its.agent.start("tools/list", id=2)
        assert (await link.receive())["id"] == 2
        await link.send(answer(next_one, {"tools": []}))
        await its.agent.answer(next_one)
        assert [message.get("method") for message in link.heard] == [
            "initialize",
            "notifications/initialized",
            "tools/list",
        ]
        assert REPLAY_ID not in str(its.agent.heard)
        await daemon.kill()


async def test_without_a_daemon_a_request_is_refused_in_time_and_notifications_leave_a_word(directory: Path) -> None:
    async with bridge(directory, patience_s=1) as its:
        its.agent.notify("notifications/roots/list_changed")
        with trio.fail_after(DEADLINE_S):
            error = (await its.agent.request("initialize", initialize_params()))["error"]
        assert error["code"] == AWAY
        assert "did not come up within 1 s" in error["message"]
        assert "ended with status 7" in error["message"]
        await until(lambda: "dropped notifications/roots/list_changed" in its.stderr)


async def test_a_runtime_directory_that_others_can_write_to_is_not_trusted(directory: Path) -> None:
    daemon = HandDaemon(directory)
    os.chmod(directory, 0o777)
    async with bridge(directory, patience_s=1) as its:
        error = (await its.agent.request("initialize", initialize_params()))["error"]
        assert f"chmod 700 {directory}" in error["message"]
    await daemon.kill()


async def test_a_daemon_that_accepts_nobody_is_away_and_gets_nothing(directory: Path) -> None:
    """Its backlog is full: the kernel refuses, and the library says that all went well."""
    path = os.fspath(socket_path(directory))
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(path)
        listener.listen(0)
        first.connect(path)
        async with bridge(directory, patience_s=1) as its:
            error = (await its.agent.request("initialize", initialize_params()))["error"]
            assert error["code"] == AWAY


# -- starting the daemon ---------------------------------------------------------------------------------------------


async def test_bridges_that_race_start_one_daemon_which_outlives_them_and_has_none_of_their_streams(
    directory: Path,
) -> None:
    argv = [sys.executable, "-c", DAEMON, os.fspath(directory)]
    pids: set[int] = set()
    try:
        async with bridge(directory, argv) as one, bridge(directory, argv) as two:
            for its in (one, two):
                result = (await its.agent.request("initialize", initialize_params()))["result"]
                pids.add(result["pid"])
                assert result["sid"] == result["pid"]
            assert len(pids) == 1
            for its in (one, two):
                await its.stdin.aclose()
                assert await its.wait() == 0
        (pid,) = pids
        assert process_start(pid) is not None
        for stream in (0, 1, 2):
            assert os.readlink(f"/proc/{pid}/fd/{stream}") == "/dev/null"
        assert "stray" not in one.stderr + two.stderr
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)


# -- standard streams ------------------------------------------------------------------------------------------------


async def test_standard_output_carries_the_protocol_and_nothing_else(directory: Path) -> None:
    async with bridge(directory, script=NOISY) as its:
        await until(lambda: "EOFError" in its.stderr)
        assert os.readlink(f"/proc/{its.process.pid}/fd/0") == "/dev/null"
        assert os.readlink(f"/proc/{its.process.pid}/fd/1").startswith(os.fspath(directory.parent / "stderr-"))
        daemon = HandDaemon(directory)
        await handshake(its, daemon)
        await its.stdin.aclose()
        assert await its.wait() == 0
        with trio.fail_after(DEADLINE_S):
            await its.agent.ended.wait()
        assert [message.get("id") for message in its.agent.heard] == [1]
        for stray in ("stray print", "stray write", "stray prompt", "left in the buffer"):
            assert stray in its.stderr
        await daemon.kill()


async def test_a_line_over_the_bound_is_answered_and_skipped(directory: Path) -> None:
    daemon = HandDaemon(directory)
    async with bridge(directory) as its:
        link = await handshake(its, daemon)
        with trio.fail_after(DEADLINE_S):
            await its.stdin.send_all(b'{"jsonrpc":"2.0","id":9,"method":"' + b"x" * FRAME_BYTES + b'"}\n')
        assert (await its.agent.answer(None))["error"]["code"] == INVALID_REQUEST
        its.agent.start("tools/list", id="next")
        assert (await link.receive())["id"] == "next"
        await daemon.kill()


async def test_a_large_message_passes_both_ways(directory: Path) -> None:
    daemon = HandDaemon(directory)
    text = "ü" * (FRAME_BYTES // 2 - 200)
    async with bridge(directory) as its:
        link = await handshake(its, daemon)
        id = its.agent.start("tools/call", {"name": "fleet_send", "arguments": {"prompt": text}})
        assert (await link.receive())["params"]["arguments"]["prompt"] == text
        await link.send(answer(id, {"text": text}))
        assert (await its.agent.answer(id))["result"]["text"] == text
        await daemon.kill()


# -- the end ---------------------------------------------------------------------------------------------------------


async def test_the_end_of_input_is_the_end_and_nothing_more_is_answered(directory: Path) -> None:
    daemon = HandDaemon(directory)
    async with bridge(directory) as its:
        link = await handshake(its, daemon)
        its.agent.start("tools/call", {"name": "fleet_wait"})
        await link.receive()
        await its.stdin.aclose()
        assert await its.wait() == 0
        assert len(its.agent.heard) == 1
        assert its.stderr == ""
        assert await link.pending() == b""
    await daemon.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
async def test_a_signal_ends_it_without_a_word(directory: Path, number: signal.Signals) -> None:
    daemon = HandDaemon(directory)
    async with bridge(directory) as its:
        await handshake(its, daemon)
        its.process.send_signal(number)
        assert await its.wait() == 0
        assert its.stderr == ""
    await daemon.kill()


#: Starts the bridge on this process's own pipes, says its pid, and lives until it is killed.
AGENT = """
import subprocess, sys, time
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True, file=sys.stderr)
time.sleep(600)
"""


async def test_it_ends_when_its_agent_was_killed_although_the_pipes_stay_open(directory: Path) -> None:
    daemon = HandDaemon(directory)
    argv = [sys.executable, "-c", BRIDGE, os.fspath(socket_path(directory)), json.dumps(FAILS)]
    pipe = subprocess.PIPE
    agent = await trio.lowlevel.open_process([sys.executable, "-c", AGENT, *argv], stdin=pipe, stdout=pipe, stderr=pipe)
    assert agent.stdin is not None
    assert agent.stdout is not None
    assert agent.stderr is not None
    try:
        with trio.fail_after(DEADLINE_S):
            pid = int(await agent.stderr.receive_some())
            link = await daemon.link()
            assert process_start(pid) is not None
            agent.kill()
            await agent.wait()
        await until(lambda: process_start(pid) is None)
        assert await link.pending() == b""
        assert await agent.stdout.receive_some() == b""
        assert b"the process that started this bridge has gone" in await agent.stderr.receive_some()
    finally:
        for stream in (agent.stdin, agent.stdout, agent.stderr):
            await trio.aclose_forcefully(stream)
        await daemon.kill()


# -- all of it -------------------------------------------------------------------------------------------------------


class NoControls:
    async def control(self, caller: Caller, method: str, params: object, connection: object) -> object:
        raise UnknownMethod


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_the_sdk_s_client_works_through_the_bridge_across_a_restart_of_the_daemon(
    directory: Path, nursery: trio.Nursery, mode: str
) -> None:
    seen: list[Peer] = []

    async def identify(peer: Peer) -> Caller:
        seen.append(peer)
        return LEAD

    toolbox = FakeToolbox()

    async def door(scope: trio.CancelScope) -> None:
        with scope:
            await Door(toolbox, NoControls(), identify).serve(bind_socket(directory))

    first, second = trio.CancelScope(), trio.CancelScope()
    nursery.start_soon(door, first)
    argv = ["-c", BRIDGE, os.fspath(socket_path(directory)), json.dumps(FAILS)]
    with trio.fail_after(2 * DEADLINE_S):
        async with Client(StdioServerParameters(command=sys.executable, args=argv), mode=mode) as client:
            assert (await client.call_tool("echo", {"text": "a"})).structured_content == {"said": "a"}
            first.cancel()
            nursery.start_soon(door, second)
            await until(lambda: len(seen) == 2)
            assert (await client.call_tool("echo", {"text": "b"})).structured_content == {"said": "b"}
            with trio.move_on_after(0.5):
                await client.call_tool("wait", {})
            await until(lambda: toolbox.cancelled == 1)
    assert seen[0].pid == seen[1].pid != os.getpid()
    assert os.getpid() in [process.pid for process in seen[0].ancestry]
    second.cancel()


def test_the_bridge_imports_neither_the_sdk_nor_yaml() -> None:
    script = "import sys, fleetd.mcp.bridge; print(*{name.split('.')[0] for name in sys.modules})"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert not set(run.stdout.split()) & {"mcp", "mcp_types", "pydantic", "anyio", "asyncio", "yaml", "re2", "avt"}
