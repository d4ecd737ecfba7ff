"""What a service manager hears: datagrams on its socket, and silence when an actor hangs."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from actors.actor import Actor, Message
from fleetd import notify as notifying
from fleetd.notify import notify, watch_dog, watchdog_s


class Manager:
    """A service manager's socket."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.setblocking(False)

    @property
    def environ(self) -> dict[str, str]:
        return {"NOTIFY_SOCKET": self.address}

    def heard(self) -> list[str]:
        """What has come since the last look."""
        states: list[str] = []
        while True:
            try:
                states.append(self.socket.recv(1024).decode())
            except BlockingIOError:
                return states


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Manager]:
    path = str(tmp_path / "notify")
    manager = Manager(path if request.param == "path" else f"@fleetd-test-{os.getpid()}-{tmp_path.name}")
    yield manager
    manager.socket.close()


class Echo(Actor):
    """Does nothing, in time."""

    def handle(self, message: Message) -> object:
        raise self.unknown(message)


def test_each_state_is_one_datagram(manager: Manager) -> None:
    for state in ("READY=1", "WATCHDOG=1", "STOPPING=1"):
        notify(state, manager.environ)
    assert manager.heard() == ["READY=1", "WATCHDOG=1", "STOPPING=1"]


def test_the_environment_of_the_process_says_where(manager: Manager, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    notify("READY=1")
    assert manager.heard() == ["READY=1"]


def test_without_a_manager_nobody_is_told(caplog: pytest.LogCaptureFixture) -> None:
    notify("READY=1", {})
    notify("READY=1", {"NOTIFY_SOCKET": ""})
    assert caplog.records == []


@pytest.mark.parametrize("where", ["/nonexistent/socket", "@fleetd-nobody-listens", "/" + "x" * 200])
def test_a_manager_that_is_not_there_is_logged_and_stops_nothing(where: str, caplog: pytest.LogCaptureFixture) -> None:
    notify("READY=1", {"NOTIFY_SOCKET": where})
    assert [record.message for record in caplog.records] == ["service manager not told"]


@pytest.mark.parametrize(
    ("environ", "period_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
    ],
)
def test_a_sign_of_life_is_given_at_half_of_what_is_allowed(environ: dict[str, str], period_s: float | None) -> None:
    assert watchdog_s(environ) == period_s


async def test_signs_of_life_come_while_every_actor_answers_and_stop_when_one_hangs(
    manager: Manager, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("NOTIFY_SOCKET", manager.address)
    monkeypatch.setattr(notifying, "PING_S", 0.05)
    caplog.set_level(logging.ERROR, "fleetd.notify")
    well, hangs = Echo("well"), Echo("hangs")
    heard: list[str] = []

    async def until(count: int) -> None:
        with trio.fail_after(20):
            while len(heard) < count:
                heard.extend(manager.heard())
                await trio.sleep(0.01)

    async def hung(times: int) -> None:
        with trio.fail_after(20):
            while True:
                if sum("actor hangs did not answer Ping" in record.message for record in caplog.records) >= times:
                    return
                await trio.sleep(0.01)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(well.run)
        with trio.CancelScope() as running:
            async with trio.open_nursery() as both:
                both.start_soon(watch_dog, [well], 0.01)
                await until(3)
                running.cancel()
        assert set(heard) == {"WATCHDOG=1"}
        manager.heard()
        # An actor whose loop does not come to its mailbox: here, because it does not run at all.
        nursery.start_soon(watch_dog, [well, hangs], 0.01)
        await hung(2)
        assert manager.heard() == []
        # It comes back to itself, and is heard of again.
        nursery.start_soon(hangs.run)
        await until(len(heard) + 1)
        nursery.cancel_scope.cancel()
