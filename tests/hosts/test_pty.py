"""The embedded pty host on real programs: the contract, and what only a terminal of our own can get wrong."""

from __future__ import annotations

import os
import resource
import signal
import sys
from pathlib import Path

import pytest
import trio

from actors.host import HostError, OpenFailed, PaneEnded, PaneRef, PaneSpec
from fleetd.hosts.pty import PtyHost
from fleetd.hosts.pty_pane import ATTACHED_CHUNKS, Attachment, AttachmentLagged
from tests.hosts.contract import ENV, ProcessContract, ProcessStage, alive, ended, shown, until

pytestmark = pytest.mark.live

#: Waits until the file named by its first argument exists, then writes down what it reads as ``reader`` does.
LATE_READER = """
import os, sys, time, tty
tty.setraw(0)
os.write(1, b"\\033[?2004hready\\r\\n")
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
with open(sys.argv[2], "wb", buffering=0) as file:
    while data := os.read(0, 512):
        file.write(data)
        time.sleep(0.001)
"""
#: Shows its terminal's size, again after each change of it.
SIZES = """
import os, signal
def show(*_):
    print("size %d x %d" % os.get_terminal_size(), flush=True)
signal.signal(signal.SIGWINCH, show)
show()
while True:
    signal.pause()
"""


class PtyStage(ProcessStage):
    host: PtyHost

    def python(self, script: str, *args: str, target: str = "m-1") -> PaneSpec:
        return PaneSpec(target, (sys.executable, "-I", "-c", script, *args), ENV, "/")


@pytest.fixture
async def stage(tmp_path: Path, nursery: trio.Nursery) -> PtyStage:
    host = PtyHost(tmp_path / "host", patience_s=10.0)
    await nursery.start(host.run)
    stage = PtyStage(host, tmp_path)
    nursery.start_soon(stage.follow)
    return stage


class TestThePtyHostKeepsTheContract(ProcessContract):
    pass


# -- the terminal that a program gets -------------------------------------------------------------------------------


async def test_a_program_has_a_controlling_terminal_of_the_panes_size(stage: PtyStage) -> None:
    script = "import os; os.write(os.open('/dev/tty', 2), b'tty %d x %d\\n' % os.get_terminal_size(0)); input()"
    spec = stage.python(script)
    await shown(stage.host, await stage.host.open(spec), "tty 160 x 60")


async def test_control_c_interrupts_a_program_that_did_not_ask_for_raw_keys(stage: PtyStage) -> None:
    """And only the program: the shim lives on to say how it ended."""
    pane = await stage.host.open(PaneSpec("m-1", ("sleep", "1000"), ENV, "/"))
    await stage.host.press(pane, "C-c")
    assert await ended(stage, pane) == PaneEnded(pane, None, int(signal.SIGINT))


async def test_a_programs_questions_are_answered_while_it_waits(stage: PtyStage) -> None:
    script = """
import os, tty
tty.setraw(0)
os.write(1, b"abc\\033[6n")
answer = os.read(0, 100)
os.write(1, b"\\r\\nanswer %r\\r\\n" % answer)
os.read(0, 1)
"""
    await shown(stage.host, await stage.host.open(stage.python(script)), r"answer b'\x1b[1;4R'")


async def test_a_frame_says_whether_a_paste_would_be_bracketed(stage: PtyStage) -> None:
    plain = await stage.host.open(stage.spec("show", "", "text", target="m-1"))
    asking = await stage.host.open(stage.spec("reader", target="m-2"))
    assert (await shown(stage.host, plain, "text")).bracketed is False
    assert (await shown(stage.host, asking, "ready")).bracketed is True


async def test_the_end_of_a_shim_that_was_killed_is_told_as_its_own(stage: PtyStage) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text"))
    os.kill(pane.pid, signal.SIGKILL)
    assert await ended(stage, pane) == PaneEnded(pane, None, int(signal.SIGKILL))


async def test_a_host_that_does_not_run_opens_nothing(tmp_path: Path) -> None:
    with pytest.raises(OpenFailed, match="does not run"):
        await PtyHost(tmp_path).open(PaneSpec("m-1", ("true",), ENV, "/"))


async def test_an_opening_that_is_cancelled_leaves_nothing_behind(stage: PtyStage) -> None:
    """At whatever point: neither a process nor the file with the program's environment."""
    for wait_s in (0.0, 0.005, 0.01, 0.02, 0.03, 0.05):
        opened: list[PaneRef] = []
        with trio.move_on_after(wait_s):
            opened.append(await stage.host.open(stage.spec("show", "", "text")))
        for pane in opened:
            await stage.host.close(pane)
            await ended(stage, pane)
        assert list((stage.directory / "host" / "panes").iterdir()) == []


async def test_every_process_ends_with_the_host(tmp_path: Path) -> None:
    pane: PaneRef | None = None
    async with trio.open_nursery() as nursery:
        host = PtyHost(tmp_path)
        await nursery.start(host.run)
        pane = await host.open(PaneSpec("m-1", ("sleep", "1000"), ENV, "/"))
        assert alive(pane.pid)
        nursery.cancel_scope.cancel()
    assert not alive(pane.pid)
    assert list((tmp_path / "panes").iterdir()) == []


# -- bounds ---------------------------------------------------------------------------------------------------------


async def test_a_flood_of_output_neither_grows_memory_nor_starves_the_loop(stage: PtyStage) -> None:
    pane = await stage.host.open(PaneSpec("m-1", ("yes",), ENV, "/"))
    other = await stage.host.open(stage.spec("reader", target="m-2"))
    await shown(stage.host, other, "ready")
    await shown(stage.host, pane, "y\ny\ny")
    size = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    slept = 0
    with trio.move_on_after(1.0):
        while True:
            await trio.sleep(0.001)
            slept += 1
    assert slept > 10, "a task that sleeps 1 ms ran less often than each 100 ms"
    assert len((await stage.host.capture([pane]))[pane].lines) <= 2060
    await stage.host.press(other, "Enter")
    await until(lambda: stage.received("m-2") == b"\r")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - size < 50_000
    await stage.host.close(pane)
    assert not alive(pane.pid)


async def test_a_long_paste_arrives_whole_at_a_program_that_reads_slowly(stage: PtyStage) -> None:
    go = stage.directory / "go"
    slow = await stage.host.open(stage.python(LATE_READER, str(go), str(stage.path("m-1"))))
    quick = await stage.host.open(stage.spec("reader", target="m-2"))
    await shown(stage.host, slow, "ready")
    await shown(stage.host, quick, "ready")
    text = "0123456789abcdef" * 10_000
    async with trio.open_nursery() as nursery:
        nursery.start_soon(stage.host.paste, slow, text)
        await stage.host.paste(quick, "meanwhile")
        await until(lambda: b"meanwhile" in stage.received("m-2"))
        go.touch()
    await stage.host.press(slow, "Enter")
    expected = b"\033[200~" + text.encode() + b"\033[201~\r"
    await until(lambda: len(stage.received("m-1")) >= len(expected))
    assert stage.received("m-1") == expected


async def test_a_program_that_does_not_read_is_given_up_and_its_paste_is_ended(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    """Without the end of the bracket every later key would be a part of the paste."""
    host = PtyHost(tmp_path / "host", patience_s=0.3)
    await nursery.start(host.run)
    stage = PtyStage(host, tmp_path)
    go = tmp_path / "go"
    pane = await host.open(stage.python(LATE_READER, str(go), str(stage.path("m-1"))))
    await shown(host, pane, "ready")
    with pytest.raises(HostError, match=r"has not read the 1000012 bytes within 0\.3 s"):
        await host.paste(pane, "x" * 1_000_000)
    go.touch()
    await until(lambda: stage.path("m-1").exists() and len(stage.received("m-1")) > 10_000)
    while True:
        try:
            await host.press(pane, "Enter")
            break
        except HostError:
            await trio.sleep(0.1)
    await until(lambda: stage.received("m-1").endswith(b"\r"))
    got = stage.received("m-1")
    assert got.startswith(b"\033[200~xxx")
    assert got.endswith(b"x\033[201~\r")


async def test_a_paste_that_is_cancelled_is_ended_too(stage: PtyStage) -> None:
    go = stage.directory / "go"
    pane = await stage.host.open(stage.python(LATE_READER, str(go), str(stage.path("m-1"))))
    await shown(stage.host, pane, "ready")
    with trio.move_on_after(0.2) as scope:
        await stage.host.paste(pane, "x" * 1_000_000)
    assert scope.cancelled_caught
    go.touch()
    await stage.host.press(pane, "Enter")
    await until(lambda: stage.path("m-1").exists() and stage.received("m-1").endswith(b"x\033[201~\r"))


async def test_a_program_that_asks_and_never_reads_is_not_waited_for(stage: PtyStage) -> None:
    script = "import tty, sys; tty.setraw(0); [sys.stdout.write('\\033[6n' * 100) for _ in range(3000)]; print('end'); "
    pane = await stage.host.open(stage.python(script + "sys.stdout.flush(); __import__('signal').pause()"))
    await shown(stage.host, pane, "end")


# -- persons --------------------------------------------------------------------------------------------------------


async def _seen(attachment: Attachment, text: bytes) -> bytes:
    """What comes through an attachment, up to a text."""
    got = b""
    with trio.fail_after(20):
        async for chunk in attachment:
            got += chunk
            if text in got:
                return got
    raise AssertionError(f"the attachment ended before {text!r}: {got!r}")


async def test_a_person_sees_the_screen_and_what_follows_and_can_type(stage: PtyStage) -> None:
    pane = await stage.host.open(PaneSpec("m-1", ("sh", "-c", "echo before; cat"), ENV, "/"))
    await shown(stage.host, pane, "before")
    async with await stage.host.attach(pane) as one, await stage.host.attach(pane) as other:
        assert b"before" in one.snapshot
        await one.write(b"typed by hand\r")
        for attachment in (one, other):
            await _seen(attachment, b"typed by hand\r\ntyped by hand\r\n")
    await shown(stage.host, pane, "typed by hand\ntyped by hand")


async def test_a_persons_terminal_is_not_asked_what_was_answered_already(stage: PtyStage) -> None:
    script = "print('ready', flush=True); input(); print('\\033[6nshown', flush=True); input()"
    pane = await stage.host.open(stage.python(script))
    await shown(stage.host, pane, "ready")
    async with await stage.host.attach(pane) as attachment:
        await attachment.write(b"\n")
        assert b"\033[6n" not in await _seen(attachment, b"shown")


async def test_a_pane_has_the_size_of_the_last_person_and_its_own_afterwards(stage: PtyStage) -> None:
    pane = await stage.host.open(stage.python(SIZES))
    await shown(stage.host, pane, "size 160 x 60")
    first, second = await stage.host.attach(pane), await stage.host.attach(pane)
    await first.resize(100, 30)
    frame = await shown(stage.host, pane, "size 100 x 30")
    assert (frame.width, frame.height) == (100, 30)
    await second.resize(90, 20)
    await shown(stage.host, pane, "size 90 x 20")
    second.close()
    await shown(stage.host, pane, "size 90 x 20\nsize 100 x 30")
    first.close()
    await shown(stage.host, pane, "size 100 x 30\nsize 160 x 60")
    first.close()
    await first.resize(20, 20)
    assert (await stage.host.capture([pane]))[pane].width == 160


async def test_a_view_that_is_too_slow_is_cut_off_and_the_pane_goes_on(stage: PtyStage) -> None:
    pane = await stage.host.open(stage.spec("show", "", *("x" * 4000 for _ in range(2 * ATTACHED_CHUNKS)), "shown"))
    slow = await stage.host.attach(pane)
    await slow.resize(150, 30)
    frame = await shown(stage.host, pane, "shown")
    assert frame.width == 160
    with pytest.raises(AttachmentLagged, match="256 chunks"):
        await _seen(slow, b"never")


async def test_a_view_ends_with_its_program(stage: PtyStage) -> None:
    pane = await stage.host.open(PaneSpec("m-1", ("sh", "-c", "read line; echo bye"), ENV, "/"))
    async with await stage.host.attach(pane) as attachment:
        await attachment.write(b"\r")
        assert b"bye" in b"".join([chunk async for chunk in attachment])
    await ended(stage, pane)
    late = await stage.host.attach(pane)
    assert b"bye" in late.snapshot
    assert [chunk async for chunk in late] == []
