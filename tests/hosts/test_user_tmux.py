"""A lead's pane on a person's own tmux server."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from actors.host import HostError, PaneDead, PaneGone, PaneInMode, PaneRef, PaneSpec
from fleetd.hosts import user_tmux
from fleetd.hosts.tmux_commands import server_pid
from fleetd.hosts.user_tmux import UserTmuxHost
from tests.hosts.contract import ENV, NASTY, PROGRAMS, eventually, shown, until

pytestmark = pytest.mark.live


class Person:
    """A person's tmux server, its socket in a directory that is hard to quote."""

    def __init__(self, directory: Path) -> None:
        self.socket = str(directory / "so, 'cket #{x}")
        self.directory = directory / "daemon #{pid} 'own'"
        self.host = UserTmuxHost(self.directory)
        self.out = directory / "received"

    async def tmux(self, *words: str) -> str:
        run = await trio.run_process(["tmux", "-u", "-S", self.socket, *words], capture_stdout=True)
        return run.stdout.decode().rstrip("\n")

    async def run(self, program: str, *args: str) -> PaneRef:
        """Start a program in a window of the server, as a person would; return its pane as the host finds it."""
        line = shlex.join([sys.executable, "-I", str(PROGRAMS / f"{program}.py"), *args])
        pid = await self.tmux("new-window", "-d", "-P", "-F", "#{pane_pid}", f"exec {line}")
        pane = await self.host.pane_of(self.socket, [1, os.getpid(), int(pid)])
        assert pane is not None
        return pane


@pytest.fixture
async def person(tmp_path: Path) -> AsyncIterator[Person]:
    person = Person(tmp_path)
    await person.tmux("-f", "/dev/null", "new-session", "-d", "-x", "100", "-y", "30", "exec sleep 1000")
    await person.tmux("set-option", "-g", "remain-on-exit", "on")
    yield person
    if server_pid(person.socket):
        await person.tmux("kill-server")


async def test_the_pane_of_a_caller_is_found_by_its_process(person: Person) -> None:
    pane = await person.run("show", "", "text")
    assert pane.host == "user-tmux"
    assert pane.id == f"{person.socket},%1"
    assert await person.host.pane_of(person.socket, [1, os.getpid()]) is None
    assert await person.host.pane_of(person.socket + "-other", [pane.pid]) is None


async def test_a_dead_pane_is_nobodys(person: Person) -> None:
    pane = await person.run("show", "", "text")
    os.kill(pane.pid, signal.SIGKILL)
    await eventually(lambda: person.tmux("display-message", "-p", "-t", "%1", "#{pane_dead}"), lambda dead: dead == "1")
    assert await person.host.pane_of(person.socket, [pane.pid]) is None


async def test_it_is_captured_with_its_title_and_size(person: Person) -> None:
    pane = await person.run("show", "✳ a title", "漢字 😀", "  ⎿  last")
    frame = await shown(person.host, pane, "last")
    assert frame.lines == ("漢字 😀", "  ⎿  last")
    assert (frame.title, frame.width, frame.height) == ("✳ a title", 100, 30)
    styled = (await person.host.capture([pane], styled=True))[pane]
    assert styled.styled == styled.lines == frame.lines


async def test_panes_that_are_gone_are_absent_from_a_capture_of_several(person: Person) -> None:
    here = await person.run("show", "", "one")
    gone = await person.run("show", "", "two")
    other = await person.run("show", "", "three")
    await shown(person.host, other, "three")
    await person.tmux("kill-pane", "-t", "%2")
    nowhere = PaneRef("user-tmux", f"{person.socket}-other,%1", 1, 1)
    frames = await person.host.capture([gone, here, nowhere, other])
    assert {pane: frame.lines for pane, frame in frames.items()} == {here: ("one",), other: ("three",)}


async def test_a_paste_arrives_byte_for_byte_and_leaves_nothing_behind(person: Person) -> None:
    pane = await person.run("reader", str(person.out))
    await shown(person.host, pane, "ready")
    await person.host.paste(pane, NASTY)
    expected = b"\033[200~" + NASTY.replace("\n", "\r").encode() + b"\033[201~"
    await until(lambda: len(person.out.read_bytes()) >= len(expected))
    await person.host.press(pane, "Enter")
    await until(lambda: person.out.read_bytes() == expected + b"\r")
    assert await person.tmux("list-buffers") == ""
    assert list(person.directory.iterdir()) == []


async def test_nothing_is_typed_while_the_person_scrolls_and_the_mode_is_theirs(person: Person) -> None:
    pane = await person.run("reader", str(person.out))
    await shown(person.host, pane, "ready")
    await person.tmux("copy-mode", "-t", "%1")
    assert (await person.host.capture([pane]))[pane].in_mode
    with pytest.raises(PaneInMode):
        await person.host.paste(pane, "text")
    with pytest.raises(PaneInMode):
        await person.host.press(pane, "Enter")
    with pytest.raises(HostError, match="does not end copy mode"):
        await person.host.leave_mode(pane)
    assert (await person.host.capture([pane]))[pane].in_mode
    assert await person.tmux("list-buffers") == ""


async def test_keys_that_would_reach_other_panes_too_are_not_pressed(person: Person) -> None:
    pane = await person.run("reader", str(person.out))
    await shown(person.host, pane, "ready")
    await person.tmux("set-option", "-w", "-t", "%1", "synchronize-panes", "on")
    with pytest.raises(HostError, match="go to other panes too"):
        await person.host.press(pane, "Enter")
    await person.tmux("set-option", "-w", "-t", "%1", "synchronize-panes", "off")
    await person.tmux("select-pane", "-d", "-t", "%1")
    with pytest.raises(HostError, match="its input is off"):
        await person.host.paste(pane, "text")
    assert person.out.read_bytes() == b""


async def test_nothing_is_typed_into_a_dead_pane_nor_into_one_that_is_gone(person: Person) -> None:
    pane = await person.run("show", "", "text")
    os.kill(pane.pid, signal.SIGKILL)
    await eventually(lambda: person.tmux("display-message", "-p", "-t", "%1", "#{pane_dead}"), lambda dead: dead == "1")
    with pytest.raises(PaneDead):
        await person.host.paste(pane, "text")
    with pytest.raises(PaneDead):
        await person.host.press(pane, "Enter")
    await person.tmux("kill-pane", "-t", "%1")
    with pytest.raises(PaneGone):
        await person.host.paste(pane, "text")
    await person.tmux("kill-server")
    with pytest.raises(PaneGone):
        await person.host.press(pane, "Enter")
    assert dict(await person.host.capture([pane])) == {}


async def test_a_server_that_hangs_is_an_error_and_leaves_no_trace(
    person: Person, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane = await person.run("reader", str(person.out))
    await shown(person.host, pane, "ready")
    server = server_pid(person.socket)
    os.kill(server, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(user_tmux, "ANSWER_S", 0.3)
            with pytest.raises(HostError, match="did not answer"):
                await person.host.capture([pane])
            with pytest.raises(HostError, match="did not answer"):
                await person.host.paste(pane, "text")
    finally:
        os.kill(server, signal.SIGCONT)
    await shown(person.host, pane, "ready")
    assert await person.tmux("list-buffers") == ""
    assert person.out.read_bytes() == b""


async def test_no_client_is_attached_to_a_persons_server(person: Person) -> None:
    pane = await person.run("show", "", "text")
    await shown(person.host, pane, "text")
    assert await person.tmux("list-clients") == ""


async def test_panes_of_a_person_are_neither_started_nor_ended(person: Person) -> None:
    pane = await person.run("show", "", "text")
    with pytest.raises(HostError, match="starts no panes"):
        await person.host.open(PaneSpec("m-1", ("true",), ENV, "/"))
    with pytest.raises(HostError, match="ends no panes"):
        await person.host.close(pane)
    await shown(person.host, pane, "text")
    with trio.move_on_after(0.05) as scope:
        async for ended in person.host.endings():
            pytest.fail(f"told {ended}")
    assert scope.cancelled_caught


async def test_an_id_that_is_no_address_is_refused(person: Person) -> None:
    for id in ("%1", "/socket", "/socket,1", ",%1"):
        with pytest.raises(HostError, match="no pane of a person's tmux server"):
            await person.host.press(PaneRef("user-tmux", id, 1, 1), "Enter")
