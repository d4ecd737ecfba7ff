"""Members of a daemon that has died, taken over by the next: by pane, process and tag, never by name."""

from __future__ import annotations

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
import trio

from actors.host import PaneEnded, PaneGone, PaneRef, PaneSpec
from fleetd.hosts.launch import runs
from fleetd.hosts.tmux import TmuxHost
from tests.hosts.contract import ENV, shown, until

pytestmark = pytest.mark.live

SHOW = ("sh", "-c", "echo here; exec cat")


@asynccontextmanager
async def life(directory: Path) -> AsyncIterator[TmuxHost]:
    """One daemon's host on the one server; it dies at the end, and its panes do not."""
    host = TmuxHost(directory)
    async with trio.open_nursery() as nursery:
        await nursery.start(host.run)
        yield host
        nursery.cancel_scope.cancel()


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Path]:
    yield tmp_path / "host"
    async with life(tmp_path / "host") as host:
        await host.kill_server()


async def opened(directory: Path, target: str = "m-1", argv: tuple[str, ...] = SHOW) -> PaneRef:
    async with life(directory) as host:
        return await host.open(PaneSpec(target, argv, ENV, "/"))


async def tmux(directory: Path, *words: str) -> str:
    run = await trio.run_process(["tmux", "-u", "-S", str(directory / "tmux.sock"), *words], capture_stdout=True)
    return run.stdout.decode().rstrip("\n")


async def test_a_pane_is_seen_and_typed_to_by_the_next_daemon_and_its_end_is_told(server: Path) -> None:
    pane = await opened(server)
    async with life(server) as host:
        await host.adopt(pane, "m-1")
        await shown(host, pane, "here")
        await host.paste(pane, "typed")
        await shown(host, pane, "typed")
        assert await host.strangers() == ()
        os.kill(pane.pid, signal.SIGHUP)
        with trio.fail_after(20):
            assert await anext(host.endings()) == PaneEnded(pane, None, signal.SIGHUP)


async def test_a_process_that_ended_meanwhile_is_told_with_its_exit_status(server: Path) -> None:
    pane = await opened(server, argv=("sh", "-c", "sleep 0.5; exit 7"))
    await until(lambda: not runs(pane.pid, pane.started))  # tmux may leave it unreaped for ever
    async with life(server) as host:
        await host.adopt(pane, "m-1")
        with trio.fail_after(20):
            assert await anext(host.endings()) == PaneEnded(pane, 7, None)


Change = Callable[[Path, PaneRef], Awaitable[PaneRef]]


async def other_target(directory: Path, pane: PaneRef) -> PaneRef:
    await tmux(directory, "set-option", "-p", "-t", pane.id, "@fleetd_member", '{"target":"m-9"}')
    return pane


async def no_tag(directory: Path, pane: PaneRef) -> PaneRef:
    await tmux(directory, "set-option", "-p", "-u", "-t", pane.id, "@fleetd_member")
    return pane


async def other_process(directory: Path, pane: PaneRef) -> PaneRef:
    return msgspec.structs.replace(pane, started=pane.started + 1)


async def closed(directory: Path, pane: PaneRef) -> PaneRef:
    await tmux(directory, "kill-pane", "-t", pane.id)
    return pane


@pytest.mark.parametrize("change", [other_target, no_tag, other_process, closed])
async def test_a_pane_that_is_not_that_one_any_more_is_left_alone(server: Path, change: Change) -> None:
    pane = await opened(server)
    again = await opened(server, "m-2")
    pane = await change(server, pane)
    async with life(server) as host:
        with pytest.raises(PaneGone):
            await host.adopt(pane, "m-1")
        await host.adopt(again, "m-2")
        await shown(host, again, "here")


async def test_a_name_and_a_place_in_the_session_mean_nothing(server: Path) -> None:
    first, second = await opened(server, "m-1"), await opened(server, "m-2")
    await tmux(server, "swap-pane", "-s", first.id, "-t", second.id)
    await tmux(server, "rename-window", "-t", first.id, "m-2")
    async with life(server) as host:
        await host.adopt(first, "m-1")
        with pytest.raises(PaneGone):
            await host.adopt(second, "m-1")


async def test_a_tagged_pane_that_nobody_adopts_is_named_and_lives_on(server: Path) -> None:
    pane = await opened(server, "m-7")
    async with life(server) as host:
        assert await host.strangers() == ("m-7",)
    assert runs(pane.pid, pane.started)


async def test_a_pane_that_its_daemon_had_no_time_to_tag_is_named_and_taken_for_nobody(server: Path) -> None:
    pane = await opened(server, "m-7")
    await no_tag(server, pane)
    await tmux(server, "new-window", "-d", "--", "sleep", "60")
    async with life(server) as host:
        assert await host.strangers() == ("m-7",)
        with pytest.raises(PaneGone):
            await host.adopt(pane, "m-7")


async def test_without_a_server_every_pane_is_gone_and_none_is_started(tmp_path: Path) -> None:
    async with life(tmp_path / "host") as host:
        with pytest.raises(PaneGone, match="its tmux server has ended"):
            await host.adopt(PaneRef("tmux", "%1", 1, 1), "m-1")
        assert await host.strangers() == ()
    assert not (tmp_path / "host" / "tmux.sock").exists()
