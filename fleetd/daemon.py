"""The daemon: builds everything in order, opens the door, and ends cleanly.

A start takes the lock before it touches anything, checks the configuration whole, starts the terminal, then the actors,
and opens the door last: whoever gets in finds a fleet that works. SIGTERM and SIGINT end it, SIGHUP reads the
configuration again, SIGUSR1 logs each actor with its mailbox and its last message.
"""

from __future__ import annotations

import logging
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import Final

import trio

from actors.actor import Refused, running
from actors.clock import from_seconds, now_ns
from actors.host import HostError, PaneHost, PaneRef
from actors.journal import NotKept
from actors.panes import Quiet
from actors.roster import Members, ReleaseMember
from actors.supervise import leaf
from fleetd import __version__
from fleetd.agents import ADAPTERS
from fleetd.bootclock import BootClock
from fleetd.callers import Caller
from fleetd.captures import Redactor
from fleetd.config import Config, ConfigError, HostName, find, read
from fleetd.connection import Connection
from fleetd.controls import Attachment, DaemonControls, Status
from fleetd.coverage import by_profile, degraded, report
from fleetd.door import Door
from fleetd.fleet import Fleet
from fleetd.hosts.pty import PtyHost
from fleetd.hosts.tmux import TmuxHost
from fleetd.hosts.user_tmux import UserTmuxHost
from fleetd.identity import Identities
from fleetd.instructions import INSTRUCTIONS
from fleetd.launching import ProfileLaunching
from fleetd.lead_tools import Facts, Tooling
from fleetd.leadpanes import LeadPanes
from fleetd.logs import log_to
from fleetd.notify import notify, watch_dog, watchdog_s
from fleetd.recovery import recover
from fleetd.reload import ReloadPlan, plan
from fleetd.rundir import (
    AlreadyRunning,
    DaemonLock,
    RuntimeDirError,
    bind_socket,
    make_runtime_dir,
    runtime_dir,
    socket_path,
)
from fleetd.store import SqliteStore, StoreBroken
from fleetd.tools import Tools
from fleetd.webhook import post

log = logging.getLogger("fleetd.daemon")

#: What a client that asked for the end is given to take the answer, in seconds.
LAST_WORD_S: Final = 1.0
#: What a prompt that is being typed is given to arrive before the end, in seconds.
FINISH_S: Final = 20.0


class BadConfig(Refused):
    """A reload whose file is not valid; the old configuration stays in force."""

    error = "bad_config"


class Daemon:
    """One running daemon.

    Args:
        directory: the runtime directory, checked and locked.
        config: what is in force from the start.
        config_path: where it came from, and where a reload reads.
        host: the members' terminal.
    """

    def __init__(self, directory: Path, config: Config, config_path: Path | None, host: TmuxHost | PtyHost) -> None:
        self.directory = directory
        self.config = config
        self.config_path = config_path
        self.host = host
        self.user_tmux = UserTmuxHost(directory)
        hosts: dict[str, PaneHost] = {host.name: host, self.user_tmux.name: self.user_tmux}
        self.launching = ProfileLaunching(host, os.environ, directory)
        self.store = SqliteStore(directory / "journal.db")
        self.fleet = Fleet(config, hosts, self.launching, post, self.store)
        self.started_ns = now_ns()
        self.tools = Tools(Tooling(self.fleet, self._facts()))
        self.who = Identities(self.fleet, host, directory)
        self.lead_panes = LeadPanes(self.fleet.leads, self.user_tmux)
        controls = DaemonControls(
            self.fleet,
            self.tools,
            self,
            status=self.status,
            reload=self.reload,
            secrets=self.secrets,
            down=self.down,
        )
        self.door = Door(
            self.tools,
            controls,
            self.who.identify,
            instructions=INSTRUCTIONS,
            on_client=self._client_known,
            on_gone=self._client_gone,
        )
        self._deferred: tuple[str, ...] = ()
        self._ending = trio.Event()
        self._kill_members = False
        #: Targets of panes of ours that no journal knows.
        self._strangers: tuple[str, ...] = ()
        self._nursery: trio.Nursery | None = None

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until :meth:`down` or a signal. Members stay where the host lets them."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await nursery.start(self.host.run)
            await nursery.start(self.fleet.run)
            await self._recover()
            listener = bind_socket(self.directory)
            nursery.start_soon(self.door.serve, listener, name="door")
            nursery.start_soon(self._signals, name="signals")
            nursery.start_soon(self.door.warm_up, name="warm-up")
            self._report_start()
            if (period_s := watchdog_s(os.environ)) is not None:
                nursery.start_soon(watch_dog, self.fleet.actors, period_s, name="watchdog")
            task_status.started()
            notify("READY=1")
            await self._ending.wait()
            notify("STOPPING=1")
            # The door is shut first: nobody is told of an end that comes half-way.
            socket_path(self.directory).unlink(missing_ok=True)
            await self._finish()
            nursery.cancel_scope.cancel()
        self.store.close()
        log.info("daemon ended", extra={"fleet_pid": os.getpid()})

    async def _recover(self) -> None:
        """Take over what an earlier daemon left. Panes with our tag that it did not write down are left alone."""
        entries = self.store.load()
        adopted = await recover(self.fleet, entries, self.launching, await self.host.strangers())
        self._strangers = await self.host.strangers()
        if entries:
            log.info(
                "recovered",
                extra={
                    "fleet_members": len(adopted.members),
                    "fleet_turns": len(adopted.resumed),
                    "fleet_lost": len(adopted.lost),
                },
            )
        if self._strangers:
            log.warning("panes left alone that no journal knows", extra={"fleet_targets": self._strangers})

    async def _finish(self) -> None:
        """Finish what was promised: a prompt that is being typed, members that are to end, what is to be written."""
        with trio.move_on_after(FINISH_S):
            await self.fleet.panes.ask(Quiet(), within_s=FINISH_S)
        if self._kill_members:
            for member in await self.fleet.roster.ask(Members()):
                await self.fleet.roster.ask(ReleaseMember(member.identity.target))
            if isinstance(self.host, TmuxHost):
                await self.host.kill_server()
        try:
            await self.fleet.journal.keep()
        except NotKept as refused:
            log.error("ended with unwritten records: %s", refused)

    def _report_start(self) -> None:
        log.info(
            "daemon started",
            extra={"fleet_pid": os.getpid(), "fleet_host": self.host.name, "fleet_config": str(self.config_path)},
        )
        level = logging.WARNING if degraded(self.config) else logging.INFO
        for sentence in report(self.config):
            log.log(level, sentence)
        if not self.host.outlives_daemon:
            log.warning("members end with the daemon: host %s keeps their terminals in this process", self.host.name)

    # -- who calls -----------------------------------------------------------------------------------------------

    def _client_known(self, connection: Connection, caller: Caller, client: str) -> None:
        if connection.peer is not None and self._nursery is not None and self.who.lead_pane(caller.id) is None:
            self._nursery.start_soon(self.lead_panes.client_known, caller, connection.peer, client)

    def _client_gone(self, connection: Connection, caller: Caller) -> None:
        if connection.peer is not None:
            self.lead_panes.client_gone(caller, connection.peer)

    # -- controls ------------------------------------------------------------------------------------------------

    def status(self, members: int) -> Status:
        return Status(
            os.getpid(),
            __version__,
            (now_ns() - self.started_ns) // from_seconds(1),
            self.host.name,
            members,
            str(socket_path(self.directory)),
            None if self.config_path is None else str(self.config_path),
        )

    def secrets(self, profile: str) -> tuple[str, Redactor]:
        """A profile's agent (empty for none), and what takes out the secrets that its members' screens may show."""
        found = self.config.profiles.get(profile)
        named: list[str] = []
        if found is not None:
            named = [*found.env.values(), *(os.environ.get(name, "") for name in found.env_from)]
        return (found and found.agent) or "", Redactor(os.environ.items(), str(Path.home()), named)

    async def reload(self) -> ReloadPlan:
        """Read the configuration again and put in force what can be.

        Raises:
            BadConfig: it is not valid; nothing has changed.
        """
        if self.config_path is None:
            raise BadConfig("fleetd was started without a configuration file: restart it with one")
        try:
            new = read(self.config_path, shipped=ADAPTERS)
        except ConfigError as bad:
            log.error("configuration not reloaded: %s", bad)
            raise BadConfig(f"{bad}; the old configuration stays in force") from None
        planned = plan(self.config, new)
        self.config = planned.config
        self._deferred = planned.deferred
        self.fleet.configure(planned.config)
        log.info("configuration reloaded", extra={"fleet_applied": planned.applied, "fleet_deferred": planned.deferred})
        for sentence in report(planned.config):
            log.info(sentence)
        return planned

    def end(self) -> None:
        """End; members live on where the host lets them."""
        self._ending.set()

    def down(self, kill_members: bool, connection: Connection) -> str:
        """End as soon as whoever asked has the answer; say what becomes of the members."""
        self._kill_members = kill_members
        assert self._nursery is not None
        self._nursery.start_soon(self._end_after, connection)
        if kill_members:
            return "fleetd ends, and its members with it"
        if self.host.outlives_daemon:
            return "fleetd ends; its members live on in tmux"
        return "fleetd ends; its members end with it, because their terminals are the daemon's own"

    async def _end_after(self, connection: Connection) -> None:
        with trio.move_on_after(LAST_WORD_S):
            await connection.closed.wait()
        self.end()

    def command(self, pane: PaneRef) -> list[str] | None:
        """See :class:`fleetd.controls.AttachHow`."""
        return self.host.attach_argv(pane) if isinstance(self.host, TmuxHost) else None

    def lead_pane(self, lead: str) -> PaneRef | None:
        """See :class:`fleetd.controls.AttachHow`."""
        return self.who.lead_pane(lead)

    async def stream(self, pane: PaneRef) -> Attachment:
        assert isinstance(self.host, PtyHost)
        return await self.host.attach(pane)

    def _facts(self) -> Facts:
        return Facts(
            os.getpid(),
            __version__,
            now_ns(),
            self.host.name,
            lambda: {name: profile.agent for name, profile in self.config.profiles.items()},
            lambda: by_profile(self.config),
            lambda: report(self.config),
            lambda: str(self.config.health.coverage),
            lambda: list(self._deferred),
            lambda: list(self._strangers),
        )

    async def _signals(self) -> None:
        with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1) as signals:
            async for number in signals:
                match number:
                    case signal.SIGHUP:
                        try:
                            await self.reload()
                        except BadConfig as bad:
                            log.warning("reload refused: %s", bad)
                    case signal.SIGUSR1:
                        self._dump()
                    case _:
                        self.end()

    def _dump(self) -> None:
        for actor in running():
            log.warning("%r depth %d last %s", actor, actor.depth, type(actor.last).__name__)


def choose_host(wanted: HostName | None, directory: Path) -> TmuxHost | PtyHost:
    """The members' terminal: as configured, else tmux where it is installed, else the embedded one."""
    if wanted is HostName.TMUX or (wanted is None and shutil.which("tmux") is not None):
        return TmuxHost(directory)
    return PtyHost(directory)


def main(chosen_dir: str | None, chosen_config: Path | None) -> int:
    """Run a daemon in this process; return its exit code. Errors go to standard error as one sentence."""
    try:
        directory = runtime_dir(chosen_dir, os.environ)
        make_runtime_dir(directory)
        with DaemonLock(directory, __version__):
            path = find(chosen_config, os.environ, Path.cwd(), Path.home())
            config = Config() if path is None else read(path, shipped=ADAPTERS)
            log_to(directory / "fleetd.log")
            trio.run(_serve, directory, config, path, clock=BootClock())
    except (RuntimeDirError, AlreadyRunning, ConfigError, StoreBroken) as refused:
        print(f"fleetd: {refused}", file=sys.stderr)
        return 1
    except BaseExceptionGroup as group:
        cause = leaf(group)
        if isinstance(cause, HostError | StoreBroken | RuntimeDirError):
            print(f"fleetd: {cause}", file=sys.stderr)
            return 1
        log.critical("daemon crashed", exc_info=group)
        raise
    return 0


async def _serve(directory: Path, config: Config, path: Path | None) -> None:
    await Daemon(directory, config, path, choose_host(config.host, directory)).run()
