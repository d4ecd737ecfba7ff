"""A canary in every place that a secret can be, and a look at every place that it must not get to.

    python bench/canary.py                            on tmux and on pty

A daemon of its own is started with canaries

* in a profile's ``env``, under a name that says that it is a secret and under one that does not,
* in a variable that ``envFrom`` names, and in a variable of the daemon's environment that nobody names,
* in the webhook's address, as user and password and as a query; the webhook refuses, and then is not there,
* in configurations that a reload refuses: the value of a wrong type, under a wrong key, as a broken address.

Members are launched, fail to launch, work and die; everything that a lead can ask for is asked, on the command line and
over MCP; each signal is sent. Then the canaries are looked for in: the command lines of all processes of this machine,
the environments of the tmux server and of the shims, every file below the runtime directory (log, journal with its
write-ahead log, configuration of tmux, members' files), tmux's buffers, environments and options, and every result.

One canary is printed by its member, in several drawings. What a member shows or answers is data that its lead has a
right to see, so that one may stand in results and, with them, in the journal. It must not stand in a capture made with
``fleetd record``, nor anywhere else. The same goes for a prompt: the journal keeps it because it is what the lead sent.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import trio

from fleetd.client import connect
from fleetd.rundir import socket_path

HERE: Final = Path(__file__).parent
#: How long anything may take, in seconds.
PATIENCE_S: Final = 60.0

CONFIG: Final = """
host: {host}
health: {{intervalSeconds: 1, webhook: "{webhook}"}}
profiles:
  teller:
    command: ["{python}", "-I", "{teller}"]
    idlePattern: "^ask> ?$"
    busyPattern: "^[.]{{3}} thinking$"
    answerMarker: "="
    minTurnSeconds: 0
    capacity: 8
    env: {{API_KEY: "{env_named}", PLAIN: "{env_plain}", SPOKEN: "{spoken}"}}
    envFrom: [CANARY_FROM]
  lacking:
    command: ["{python}", "-I", "{teller}"]
    env: {{API_KEY: "{env_named}"}}
    envFrom: [NOT_THERE]
  missing:
    command: ["/no/such/program"]
    env: {{API_KEY: "{env_named}"}}
    envFrom: [CANARY_FROM]
"""
#: Configurations that are refused, made of a good one: what is replaced, and by what.
REFUSED: Final = (
    ('API_KEY: "{env_named}"', "API_KEY: [{refused}]"),
    ('API_KEY: "{env_named}"', "API_KEY: {{{refused}: 1}}"),
    ('PLAIN: "{env_plain}"', "PLAIN: {digits}"),
    ("envFrom: [CANARY_FROM]", "envFrom: {refused}"),
    ('webhook: "{webhook}"', 'webhook: "ftp://user:{refused}@localhost/"'),
    ('webhook: "{webhook}"', "webhook: {digits}"),
    ("profiles:", "profiles: {refused}\nothers:"),
)


class Leak(AssertionError):
    """A canary stands where it must not."""


class Webhook(http.server.BaseHTTPRequestHandler):
    """Refuses each event."""

    posted = 0

    def do_POST(self) -> None:
        type(self).posted += 1
        self.send_error(403)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


class Run:
    """One daemon with canaries.

    Args:
        directory: for its configuration and its runtime directory.
        host: ``tmux`` or ``pty``.
    """

    def __init__(self, directory: Path, host: str) -> None:
        self.directory, self.host = directory, host
        self.run_dir = directory / "run"
        self.config = directory / "fleetd.yaml"
        names = ("env_named", "env_plain", "spoken", "env_from", "unnamed", "user", "password", "query", "refused")
        #: By the place that it is put in.
        self.canaries = {name: f"cnry{secrets.token_hex(16)}" for name in names}
        self.canaries["digits"] = str(10**20 + secrets.randbelow(10**20))
        self.env = {
            **os.environ,
            "FLEETD_RUNTIME_DIR": str(self.run_dir),
            "CANARY_FROM": self.canaries["env_from"],
            "UNNAMED_TOKEN": self.canaries["unnamed"],
        }
        #: Everything that the daemon has said to anybody, by what was asked.
        self.heard: dict[str, str] = {}
        #: Places that were looked at.
        self.looked: dict[str, int] = {}
        self._asked = 0

    def configuration(self, webhook: str, change: tuple[str, str] = ("", "")) -> str:
        found = CONFIG.replace(*change) if change[0] else CONFIG
        return found.format(
            host=self.host, webhook=webhook, python=sys.executable, teller=HERE / "canary_teller.py", **self.canaries
        )

    # -- what is done ------------------------------------------------------------------------------------------------

    def shell(self, *argv: str, code: int | None = 0, stdin: str | None = None) -> str:
        """A verb of the command line; what it said."""
        done = subprocess.run(
            [sys.executable, "-m", "fleetd", *argv],
            env=self.env,
            cwd=self.directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S * 2,
            check=False,
        )
        if code is not None and done.returncode != code:
            raise AssertionError(f"{argv} ended with {done.returncode}: {done.stdout} {done.stderr}")
        self._asked += 1
        self.heard[f"{self._asked}: fleetd {' '.join(argv)}"] = done.stdout + done.stderr
        return done.stdout

    def call(self, tool: str, **arguments: object) -> dict[str, Any]:
        """A tool, by the command line's way in; what it gave."""

        async def ask() -> dict[str, Any]:
            async with connect(socket_path(self.run_dir)) as client:
                return dict(await client.request("fleetd/call", {"tool": tool, "arguments": arguments}))

        result = trio.run(ask)
        self._asked += 1
        self.heard[f"{self._asked}: {tool} {arguments}"] = json.dumps(result)
        return dict(result["structured"])

    def until(self, true: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not true():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {PATIENCE_S:g} s: {what}; log: {self.log()[-2000:]}")
            time.sleep(0.1)

    def log(self) -> str:
        return (self.run_dir / "fleetd.log").read_text(encoding="utf-8")

    def story(self, webhook: str) -> None:
        """Everything in which a secret could be carried along."""
        self.config.write_text(self.configuration(webhook))
        pid = int(json.loads(self.shell("up", "--json"))["pid"])
        worker = self.call("fleet_spawn", profile="teller", name="worker", cwd="/")["target"]
        for profile in ("lacking", "missing"):
            assert self.call("fleet_spawn", profile=profile, cwd="/")["error"] == "spawn_failed"
        ticket = self.call("fleet_send", target=worker, prompt="say hello", waitSeconds=40)["ticket"]
        self.call("fleet_wait", tickets=[ticket])
        self.call("fleet_explain", ticket=ticket)
        for verb in ("list", "profiles", "status"):
            self.shell(verb)
        self.mcp(worker)
        for change in REFUSED:
            self.config.write_text(self.configuration(webhook, change))
            refused = self.log().count("configuration not reloaded")
            os.kill(pid, signal.SIGHUP)
            self.until(lambda known=refused: self.log().count("configuration not reloaded") > known, "it is refused")
        self.shell("reload", code=1)
        self.config.write_text(self.configuration(webhook))
        self.shell("reload")
        os.kill(pid, signal.SIGUSR1)
        self.until(lambda: "depth" in self.log(), "the state dump is in the log")
        self.crash()
        self.call("fleet_list")

    def crash(self) -> None:
        """A member dies; the health monitor finds it and tells the webhook, which refuses and then is not there."""
        known = self.log().count("webhook failed")
        doomed = self.call("fleet_spawn", profile="teller", cwd="/")["target"]
        for process in Path("/proc").glob("[0-9]*"):
            try:
                environ = (process / "environ").read_bytes()
                if f"FLEETD_MEMBER={doomed} {self.run_dir}".encode() in environ:
                    os.kill(int(process.name), signal.SIGKILL)
            except (OSError, ValueError):
                continue  # it has ended, or is somebody else's
        self.until(lambda: self.log().count("webhook failed") > known, "the webhook has refused an event")

    def mcp(self, target: str) -> None:
        """Each of a lead's tools by way of the bridge."""
        calls: list[tuple[str, Mapping[str, object]]] = [
            ("fleet_profiles", {}),
            ("fleet_list", {}),
            ("fleet_health", {}),
            ("fleet_whoami", {}),
            ("fleet_peek", {"target": target}),
            ("fleet_explain", {"target": target}),
            ("fleet_send", {"target": target, "prompt": "say hello", "waitSeconds": 30}),
            ("fleet_spawn", {"profile": "missing"}),
            ("fleet_spawn", {"profile": "lacking"}),
            ("fleet_interrupt", {"target": target}),
            ("fleet_nonesuch", {}),
        ]
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "canary", "version": "1"}}
        messages: list[dict[str, object]] = [
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello},
            {"jsonrpc": "2.0", "method": "notifications/initialized"},
            {"jsonrpc": "2.0", "id": "list", "method": "tools/list"},
        ]
        for id, (tool, arguments) in enumerate(calls, start=1):
            params = {"name": tool, "arguments": arguments}
            messages.append({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
        argv = [sys.executable, "-m", "fleetd", "mcp"]
        with subprocess.Popen(argv, env=self.env, stdin=-1, stdout=-1, stderr=-1, text=True, bufsize=1) as bridge:
            assert bridge.stdin is not None
            assert bridge.stdout is not None
            answers = []
            for message in messages:
                bridge.stdin.write(json.dumps(message) + "\n")
                if "id" in message:
                    answers.append(bridge.stdout.readline())
            bridge.stdin.close()
            self.heard["mcp"] = "".join(answers) + bridge.stdout.read()
        assert len(answers) == len(calls) + 2, answers

    def spoken(self) -> str:
        """A member prints what it was given, and its screen is recorded."""
        teller = self.call("fleet_spawn", profile="teller", cwd="/")["target"]
        prompt = "tell API_KEY PLAIN CANARY_FROM SPOKEN"
        sent = self.call("fleet_send", target=teller, prompt=prompt, waitSeconds=40)
        assert sent["status"] == "completed", sent
        assert self.canaries["spoken"] in sent["text"], "the member has not printed it"
        return self.shell("record", teller)

    # -- where it must not be ----------------------------------------------------------------------------------------

    def look(self) -> None:
        """Look everywhere. Raises :class:`Leak`."""
        for asked, said in self.heard.items():
            self._look_at("results", asked, said.encode())
        self._look_at_processes()
        for path in self.run_dir.rglob("*"):
            if path.is_file():
                self._look_at("files", str(path.relative_to(self.run_dir)), path.read_bytes())
        if self.host == "tmux":
            for words in (
                *(["show-environment", "-g"], ["show-environment", "-t", "=fleetd:"], ["list-buffers"]),
                *(["show-options", "-g"], ["show-options", "-s"], ["show-options", "-wg"], ["show-messages"]),
                [
                    "list-panes",
                    "-a",
                    "-F",
                    "#{pane_start_command} #{pane_title} #{pane_current_command} #{@fleetd_member}",
                ],
                ["list-windows", "-a"],
            ):
                argv = ["tmux", "-S", str(self.run_dir / "tmux.sock"), *words]
                done = subprocess.run(argv, capture_output=True, check=False)
                self._look_at("tmux", " ".join(words), done.stdout + done.stderr)

    def _look_at_processes(self) -> None:
        ours = str(self.run_dir).encode()
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line, environ = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
            except OSError:
                continue  # it has ended
            self._look_at("command lines", line.replace(b"\0", b" ").decode(errors="replace"), line)
            server = b"tmux.sock" in line
            if server and ours in line:
                self._look_at("tmux", "the server's environment", environ)
            if b"shim" in line and ours in line:
                self._look_at("environments", "a shim", environ)

    def _look_at(self, kind: str, place: str, data: bytes) -> None:
        self.looked[kind] = self.looked.get(kind, 0) + 1
        for name, canary in self.canaries.items():
            if canary.encode() in data:
                at = data.index(canary.encode())
                around = data[max(0, at - 200) : at + 200].decode(errors="replace")
                raise Leak(f"the canary in {name} stands in {kind}, {place}: ...{around}...")

    def record_is_clean(self, capture: str) -> None:
        """None of the canaries is in a capture, in one piece or in halves. Raises :class:`Leak`."""
        if "it is [redacted]" not in capture:
            raise AssertionError(f"the capture does not show what it should: {capture[-2000:]}")
        for name, canary in self.canaries.items():
            for half in (canary[: len(canary) // 2], canary[len(canary) // 2 :]):
                if half in capture:
                    raise Leak(f"the canary in {name} stands in a capture: {capture[-3000:]}")
        self.looked["captures"] = 1


@contextmanager
def webhook() -> Iterator[int]:
    """A server that refuses events; its port."""
    server = http.server.HTTPServer(("127.0.0.1", 0), Webhook)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()


def run(directory: Path, host: str) -> Run:
    """One whole run. Raises :class:`Leak`."""
    one = Run(directory, host)
    canary = one.canaries
    try:
        with webhook() as port:
            one.story(f"http://{canary['user']}:{canary['password']}@127.0.0.1:{port}/hook?token={canary['query']}")
        one.crash()
        if Webhook.posted == 0:
            raise AssertionError("no event came to the webhook")
        one.look()
        one.record_is_clean(one.spoken())
        log = one.log().encode()
        one._look_at("files", "the log after it was printed", log)
        one._look_at_processes()
    finally:
        one.shell("down", "--kill-members", code=None)
    return one


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", choices=("tmux", "pty"), action="append")
    for host in parser.parse_args().host or ("tmux", "pty"):
        with tempfile.TemporaryDirectory(prefix="fleetd-canary-") as temporary:
            begun = time.monotonic()
            try:
                one = run(Path(temporary), host)
            except Leak as leak:
                print(f"leak: {leak}", file=sys.stderr)
                return 1
        places = ", ".join(f"{count} {kind}" for kind, count in one.looked.items())
        print(f"{host}: {len(one.canaries)} canaries, not in {places}; {time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
