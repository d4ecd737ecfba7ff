"""What a service manager is told: that fleetd is ready, that it ends, and that its actors still work.

The protocol is systemd's: one datagram to the socket in ``NOTIFY_SOCKET``. Where that is not set, nobody is told.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Mapping
from typing import Final

import trio

from actors.actor import Actor, ActorError, Ping

log = logging.getLogger("fleetd.notify")

#: What one actor is given to come to a ping, in seconds.
PING_S: Final = 10.0


def notify(state: str, environ: Mapping[str, str] | None = None) -> None:
    """Tell the service manager: ``READY=1``, ``STOPPING=1``, ``WATCHDOG=1``."""
    where = (os.environ if environ is None else environ).get("NOTIFY_SOCKET", "")
    if not where:
        return
    # A leading @ stands for the abstract namespace's NUL.
    address = "\0" + where[1:] if where.startswith("@") else where
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
            # A manager that does not read must not stop the daemon.
            out.setblocking(False)
            out.sendto(state.encode(), address)
    except OSError as exc:
        log.warning("service manager not told", extra={"fleet_state": state, "fleet_reason": str(exc)})


def watchdog_s(environ: Mapping[str, str]) -> float | None:
    """How often the service manager wants a sign of life, in seconds: half of what it allows. ``None``: it does not."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    allowed = environ.get("WATCHDOG_USEC", "")
    return int(allowed) / 2_000_000 if allowed.isdigit() and int(allowed) else None


async def watch_dog(actors: Iterable[Actor], period_s: float) -> None:
    """Give a sign of life each time every actor has answered; a fleet that hangs is restarted by the manager."""
    while True:
        try:
            for actor in actors:
                await actor.ask(Ping(), within_s=PING_S)
            notify("WATCHDOG=1")
        except ActorError as stuck:
            log.error("no sign of life given: %s", stuck)
        await trio.sleep(period_s)
