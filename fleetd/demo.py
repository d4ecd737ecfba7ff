"""``fleetd demo``: the outage story on real panes, checked as it is told.

A whole daemon runs in this process, on a runtime directory of its own, with a real terminal host and real programs in
it. The story is told by the lead's own tool calls. Each sentence that is printed is checked first; one that is not true
is named and the exit code is 1.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import trio

from actors.host import PaneRef
from actors.panes import Look
from actors.supervise import leaf
from fleetd.agents import ADAPTERS
from fleetd.bootclock import BootClock
from fleetd.callers import Caller, Role
from fleetd.config import HostName, load
from fleetd.daemon import Daemon, choose_host
from fleetd.demo_screen import ECHO
from fleetd.hosts.tmux import TmuxHost
from fleetd.logs import log_to

#: Seconds of the cool-off, as configured by default, and with ``--fast``.
COOL_OFF_S: Final = 60
FAST_COOL_OFF_S: Final = 8

SHARED: Final = "shared-account"
OTHER: Final = "other-account"

_PROFILES: Final = f"""
profiles:
  demo-a:
    agent: demo
    credentialId: {SHARED}
    capacity: 4
    errorPattern: "@demo"
    exhaustedPattern: "@demo"
  demo-b:
    agent: demo
    credentialId: {SHARED}
    errorPattern: "@demo"
    exhaustedPattern: "@demo"
"""
_ANOTHER: Final = f"""  demo-c:
    agent: demo
    credentialId: {OTHER}
    errorPattern: "@demo"
    exhaustedPattern: "@demo"
"""


class NotSo(Exception):
    """Something that the story tells did not happen."""


def demo(*, host: str | None, fast: bool) -> int:
    """Tell the story; return 0 if all of it is true, else 1."""
    directory = Path(tempfile.mkdtemp(prefix="fleetd-demo-"))
    wanted = None if host is None else HostName(host)
    if wanted is HostName.TMUX and shutil.which("tmux") is None:
        print("fleetd: tmux is not installed: install it, or run fleetd demo --host pty", file=sys.stderr)
        return 1
    handler = log_to(directory / "fleetd.log")
    try:
        trio.run(_tell, directory, wanted, FAST_COOL_OFF_S if fast else COOL_OFF_S, fast, clock=BootClock())
    except BaseException as exc:
        match leaf(exc):
            case NotSo() as lie:
                print(f"\nfleetd demo: not so: {lie}\nthe daemon's log is kept in {directory}", file=sys.stderr)
                return 1
            case KeyboardInterrupt():
                print("\ninterrupted; everything that was started has been ended", file=sys.stderr)
                code = 130
            case _:
                raise
    else:
        code = 0
    finally:
        logging.getLogger().removeHandler(handler)
        handler.close()
    shutil.rmtree(directory)
    return code


async def _tell(directory: Path, host: HostName | None, cool_off_s: int, fast: bool) -> None:
    path = directory / "fleetd.yaml"
    path.write_text(f"outage:\n  coolOffSeconds: {cool_off_s}\n{_PROFILES}", encoding="utf-8")
    config = load(path.read_text(encoding="utf-8"), shipped=ADAPTERS, path=str(path))
    daemon = Daemon(directory, config, path, choose_host(host, directory))
    async with trio.open_nursery() as nursery:
        await nursery.start(daemon.run)
        try:
            await _Story(daemon, cool_off_s, fast).tell()
        finally:
            with trio.CancelScope(shield=True):
                if isinstance(daemon.host, TmuxHost):
                    await daemon.host.kill_server()
            nursery.cancel_scope.cancel()


class _Story:
    """The lead's side of the outage, told and checked."""

    def __init__(self, daemon: Daemon, cool_off_s: int, fast: bool) -> None:
        self._daemon = daemon
        self._cool_off_s = cool_off_s
        self._fast = fast
        self._began = trio.current_time()
        self._lead = Caller(Role.LEAD, "")
        self._lead_pane = PaneRef("", "")

    def _say(self, text: str) -> None:
        print(f"{trio.current_time() - self._began:6.1f} s  {text}", flush=True)

    @staticmethod
    def _check(true: bool, what: str) -> None:
        if not true:
            raise NotSo(what)

    async def _call(self, tool: str, **arguments: Any) -> tuple[Mapping[str, Any], bool]:
        result = await self._daemon.tools.call(self._lead, tool, arguments)
        return result.structured, result.is_error

    async def _do(self, tool: str, **arguments: Any) -> Mapping[str, Any]:
        """A call that must succeed."""
        structured, failed = await self._call(tool, **arguments)
        self._check(not failed, f"{tool} was refused: {structured.get('message')}")
        return structured

    async def _until_some(self, look: Callable[[], Awaitable[list[str]]], missing: str, within_s: float) -> list[str]:
        """Look until there is something."""
        with trio.move_on_after(within_s):
            while True:
                if seen := await look():
                    return seen
                await trio.sleep(0.1)
        raise NotSo(f"{missing} within {within_s:g} s")

    async def tell(self) -> None:
        outage = self._daemon.config.outage
        policy = f"{outage.threshold} errors within {outage.window_ns // 10**9} s cool for {self._cool_off_s} s"
        self._say(f"a daemon with host {self._daemon.host.name}; policy: {policy}")
        if self._fast:
            self._say(f"--fast: the cool-off is {self._cool_off_s} s here and {COOL_OFF_S} s by default")
        if not self._daemon.host.outlives_daemon:
            self._say("its members end with it: the terminals are the daemon's own")
        await self._open()
        await self._first_failure()
        await self._second_failure()
        await self._refusals()
        await self._nudge()
        await self._views()
        await self._another_credential()
        await self._after()
        self._say("all of it happened as told")

    async def _open(self) -> None:
        lead, self._lead_pane = await self._daemon.who.open_lead(ADAPTERS["demo"], os.getcwd())
        self._lead = Caller(Role.LEAD, lead, os.getcwd())
        for profile in ("demo-a", "demo-b"):
            await self._do("fleet_spawn", profile=profile)
        how = f"fleetd --runtime-dir {self._daemon.directory} attach"
        self._say(f"a lead pane ({lead}) and two members (m-1, m-2) on one credential, {SHARED}")
        self._say(f"watch them from other terminals: {how} m-1   (or m-2, {lead})")

    async def _fail(self, target: str, seconds: int) -> Mapping[str, Any]:
        """Send work whose backend fails; the ended send."""
        ticket = (await self._do("fleet_send", target=target, prompt=f"demo: work {seconds}; fail"))["ticket"]
        waited = await self._do("fleet_wait", tickets=[ticket], waitSeconds=30)
        self._check(bool(waited["ended"]), f"{target}'s turn did not end within 30 s")
        result, failed = await self._call("fleet_collect", ticket=ticket)
        self._check(failed and result["status"] == "backend_error", f"{target}'s send ended {result.get('status')}")
        return result

    async def _first_failure(self) -> None:
        result = await self._fail("m-1", 3)
        self._say(f"m-1 fails: {result['status']}, {result['reason']!r}")
        profiles = await self._do("fleet_profiles")
        self._check(profiles["coolingOff"] == {}, f"one failure cooled {profiles['coolingOff']}")
        self._say("one failure is no outage: nothing cools off")

    async def _second_failure(self) -> None:
        result = await self._fail("m-2", 3)
        self._say(f"m-2 fails within the window: {result['status']}")
        cooling = (await self._do("fleet_profiles"))["coolingOff"]
        self._check(set(cooling) == {SHARED}, f"two failures within the window cooled {cooling}")
        self._say(f"two failures are one outage of {SHARED}: cooling off, {cooling[SHARED]} s left")

    def _processes(self) -> set[str]:
        """The processes below this daemon's panes: those that were given its runtime directory."""
        mark = f"FLEETD_RUNTIME_DIR={self._daemon.directory}".encode()
        found = set()
        for environ in Path("/proc").glob("[0-9]*/environ"):
            with suppress(OSError):  # it has ended meanwhile, or is another user's
                if mark in environ.read_bytes().split(b"\0"):
                    found.add(environ.parent.name)
        return found

    async def _refusals(self) -> None:
        before = self._processes()
        for kind, arguments in (("an explicit", {"profile": "demo-a"}), ("an automatic", {})):
            refusal, failed = await self._call("fleet_spawn", **arguments)
            message = str(refusal.get("message"))
            self._check(failed, f"{kind} spawn was not refused")
            self._check("cooling off" in message and "exhausted" not in message, f"{kind} refusal said: {message}")
            self._check(0 < int(str(refusal.get("retryAfterSeconds", 0))) <= self._cool_off_s, "no seconds left given")
            self._say(f"{kind} spawn is refused: {message}")
        self._check(not self._processes() - before, "a refused spawn started a process")
        self._say("no process was started")

    async def _nudges(self) -> list[str]:
        """The nudges in the lead's pane: prompts that begin as they do."""
        frame = await self._daemon.fleet.panes.ask(Look(self._lead_pane))
        return [line for line in frame.lines if line.startswith(f"{ECHO}[fleetd]")]

    async def _nudge(self) -> None:
        nudges = await self._until_some(self._nudges, "the lead's pane showed no nudge", 15)
        self._check(len(nudges) == 1, f"the lead's pane shows {len(nudges)} nudges")
        self._say("the lead's pane shows exactly one nudge:")
        frame = await self._daemon.fleet.panes.ask(Look(self._lead_pane))
        for line in textwrap.wrap(next(line for line in frame.lines if line in nudges), 100):
            print(f"             | {line}")

    async def _views(self) -> None:
        listing = await self._do("fleet_list")
        profiles = await self._do("fleet_profiles")
        print(f"          fleet_list      {json.dumps(listing, ensure_ascii=False)}")
        print(f"          fleet_profiles  {json.dumps(profiles, ensure_ascii=False)}")
        for row in listing["members"]:
            self._check(row["state"] == "backend_error", f"{row['target']} is {row['state']} in fleet_list")
            self._check("API Error" in row.get("failureReason", ""), f"{row['target']} has no failureReason")
        for row in listing["profiles"]:
            self._check(row["free"] == 0, f"{row['name']} has free {row['free']} while it cools off")
            self._check(row.get("credentialId") == SHARED, f"{row['name']} names no credential")
            self._check(row.get("coolingOffForSeconds", 0) > 0, f"{row['name']} says no seconds")
            self._check("quarantinedForSeconds" not in row, f"{row['name']} looks exhausted")
        self._check(set(profiles["coolingOff"]) == {SHARED}, "fleet_profiles does not show the cool-off")
        self._check(profiles["quarantined"] == {}, "fleet_profiles shows a quarantine")
        self._say("both members are backend_error with their reason; no profile of the credential has room")

    async def _another_credential(self) -> None:
        path = self._daemon.config_path
        assert path is not None
        with path.open("a", encoding="utf-8") as file:
            file.write(_ANOTHER)
        applied = (await self._daemon.reload()).applied
        self._say(f"a profile on another credential is added and reloaded: {', '.join(applied)}")
        spawned = await self._do("fleet_spawn", profile="demo-c")
        self._say(f"it still spawns: {spawned['target']} on {spawned['credentialId']}")
        automatic = await self._do("fleet_spawn")
        self._check(automatic["profile"] == "demo-c", f"placement chose {automatic['profile']}")
        self._say(f"and placement goes around the outage: {automatic['target']} on {automatic['credentialId']}")

    async def _after(self) -> None:
        while left := (await self._do("fleet_profiles"))["coolingOff"].get(SHARED):
            self._say(f"cooling off: {left} s left")
            await trio.sleep(min(left, 10))
        spawned = await self._do("fleet_spawn", profile="demo-b")
        self._say(f"the cool-off is over: demo-b spawns {spawned['target']}")
        prompt = "demo: work 3; say Good as new."
        sent = await self._do("fleet_send", target=spawned["target"], prompt=prompt, waitSeconds=30)
        self._check(sent.get("status") == "completed", f"its first send ended {sent.get('status')}")
        self._say(f"and it works: {sent['text']!r}")
        nudges = await self._nudges()
        self._check(len(nudges) == 1, f"the lead's pane shows {len(nudges)} nudges at the end")
        self._say("the lead was told once, and not again")
