"""What every pane host must do, written once against the protocol.

A test module derives ``TestSomething`` from :class:`HostContract` and provides a fixture ``stage``. A host whose panes
hold real processes derives from :class:`ProcessContract`, which has more to keep.

Programs are named by their files in ``programs/``; what a test needs to know of their doings goes through the stage, so
that a host without processes can play them.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from signal import SIGKILL
from typing import Final, Protocol, TypeVar

import pytest
import trio

from actors.host import OpenFailed, PaneDead, PaneEnded, PaneGone, PaneHost, PaneRef, PaneSpec
from actors.screen import Frame
from fleetd.peer import ancestry

T = TypeVar("T")

#: Enough for a machine under load where half a second is expected.
DEADLINE_S: Final = 20.0
PROGRAMS: Final = Path(__file__).parent / "programs"
ENV: Final = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "HOME": "/"}

#: 10,000 characters of what goes wrong: wide, joined and combining characters, quotes, the shell's and tmux's own.
NASTY: Final = (
    "line one\n\ttab 'single' \"double\" `back` $(reboot) ${HOME} ~ #{pane_id} #S %end %1 {braces} \\n \\\\ é 漢字 "
    "😀 👩‍👩‍👧 e\u0301\n" * 100
)[:9_990] + "; \\ end ;;"


class Stage(Protocol):
    """A host, and the programs that it plays."""

    host: PaneHost
    #: Filled from the host's endings as they come.
    endings: list[PaneEnded]

    def spec(self, program: str, *args: str, target: str = "m-1") -> PaneSpec:
        """How to start a program of ``programs/``. Where it takes a path, the stage gives it."""
        ...

    def received(self, target: str) -> bytes:
        """What ``reader`` in this target's pane has got from the terminal."""
        ...


class ProcessStage:
    """A stage whose programs are real."""

    def __init__(self, host: PaneHost, directory: Path) -> None:
        self.host, self.directory = host, directory
        self.endings: list[PaneEnded] = []

    async def follow(self) -> None:
        """Collect the endings, for ever. Run it beside the test."""
        async for ended in self.host.endings():
            self.endings.append(ended)

    def path(self, target: str) -> Path:
        return self.directory / f"{target}.out"

    def spec(self, program: str, *args: str, target: str = "m-1") -> PaneSpec:
        if program in ("reader", "dump", "stubborn"):
            args = (str(self.path(target)), *args)
        argv = (sys.executable, "-I", str(PROGRAMS / f"{program}.py"), *args)
        return PaneSpec(target, argv, ENV, str(self.directory))

    def received(self, target: str) -> bytes:
        return self.path(target).read_bytes()


async def eventually(look: Callable[[], Awaitable[T]], seen: Callable[[T], object]) -> T:
    """Look until ``seen`` says so; fail with the last look after :data:`DEADLINE_S`."""
    deadline = trio.current_time() + DEADLINE_S
    while True:
        found = await look()
        if seen(found):
            return found
        assert trio.current_time() < deadline, f"not seen within {DEADLINE_S:g} s; last: {found!r}"
        await trio.sleep(0.02)


async def until(happened: Callable[[], object]) -> None:
    """Wait until ``happened`` says so; fail after :data:`DEADLINE_S`."""

    async def look() -> object:
        return happened()

    await eventually(look, bool)


async def shown(host: PaneHost, pane: PaneRef, text: str) -> Frame:
    """The first frame with ``text`` in it."""

    async def look() -> Frame | None:
        return (await host.capture([pane])).get(pane)

    frame = await eventually(look, lambda frame: frame is not None and text in "\n".join(frame.lines))
    assert frame is not None
    return frame


async def ended(stage: Stage, pane: PaneRef) -> PaneEnded:
    """The ending that is told of a pane."""
    await until(lambda: any(one.pane == pane for one in stage.endings))
    return next(one for one in stage.endings if one.pane == pane)


class HostContract:
    """What holds for every host."""

    async def test_a_capture_shows_the_text_in_its_raw_columns(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "", "first", "  ⎿  indented", "漢字 😀 é", "last"))
        frame = await shown(stage.host, pane, "last")
        assert frame.lines == ("first", "  ⎿  indented", "漢字 😀 é", "last")
        assert (frame.dead, frame.in_mode, frame.title, frame.styled) == (False, False, "", ())
        assert (frame.width, frame.height) == (160, 60)
        assert frame.at_ns > 0

    async def test_the_screen_is_the_visible_rows_and_no_scrollback(self, stage: Stage) -> None:
        """Empty rows below the text are a part of the screen: old lines must not move up into it."""
        short = await stage.host.open(stage.spec("show", "", "only", "these", target="m-1"))
        long = await stage.host.open(stage.spec("show", "", *(f"line {n}" for n in range(200)), "end", target="m-2"))
        assert (await shown(stage.host, short, "these")).screen == ("only", "these")
        frame = await shown(stage.host, long, "end")
        assert len(frame.lines) == 201
        assert frame.screen[-1] == "end"
        assert 58 <= len(frame.screen) <= 60

    async def test_a_later_capture_has_a_later_time(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "", "text"))
        first = await shown(stage.host, pane, "text")
        await trio.sleep(0.001)
        assert (await shown(stage.host, pane, "text")).at_ns > first.at_ns

    async def test_the_title_that_the_program_set_is_captured(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "✳ 10 % of #{it} é 😀", "text"))
        assert (await shown(stage.host, pane, "text")).title == "✳ 10 % of #{it} é 😀"

    async def test_a_pane_that_was_closed_is_absent_from_a_capture(self, stage: Stage) -> None:
        gone = await stage.host.open(stage.spec("show", "", "one", target="m-1"))
        here = await stage.host.open(stage.spec("show", "", "two", target="m-2"))
        await shown(stage.host, here, "two")
        await stage.host.close(gone)
        assert list(await stage.host.capture([gone, here])) == [here]

    async def test_a_capture_of_no_panes_is_empty(self, stage: Stage) -> None:
        assert dict(await stage.host.capture([])) == {}

    async def test_a_paste_arrives_byte_for_byte_in_its_brackets_and_submits_nothing(self, stage: Stage) -> None:
        """Newlines arrive as every terminal pastes them: as CR."""
        pane = await stage.host.open(stage.spec("reader"))
        await shown(stage.host, pane, "ready")
        await stage.host.paste(pane, NASTY)
        expected = b"\033[200~" + NASTY.replace("\n", "\r").encode() + b"\033[201~"
        await until(lambda: len(stage.received("m-1")) >= len(expected))
        await stage.host.press(pane, "C-u")
        await until(lambda: stage.received("m-1").endswith(b"\x15"))
        assert stage.received("m-1") == expected + b"\x15"

    @pytest.mark.parametrize("text", ["x", ";", "\\", "it's; \\;", "-p", "$HOME", "~", "two\nlines"])
    async def test_a_short_paste_arrives_too(self, stage: Stage, text: str) -> None:
        pane = await stage.host.open(stage.spec("reader"))
        await shown(stage.host, pane, "ready")
        await stage.host.paste(pane, text)
        expected = b"\033[200~" + text.replace("\n", "\r").encode() + b"\033[201~"
        await until(lambda: stage.received("m-1") == expected)

    async def test_pressed_keys_arrive_in_their_order(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("reader"))
        await shown(stage.host, pane, "ready")
        await stage.host.press(pane, "Enter")
        await until(lambda: stage.received("m-1") == b"\r")
        await stage.host.press(pane, "C-c", "C-u")
        await until(lambda: stage.received("m-1") == b"\r\x03\x15")
        await stage.host.press(pane, "Escape")
        await until(lambda: stage.received("m-1") == b"\r\x03\x15\033")

    async def test_nothing_is_typed_into_a_pane_whose_process_has_ended(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("leave", "exit", "0"))
        await ended(stage, pane)
        with pytest.raises(PaneDead):
            await stage.host.paste(pane, "text")
        with pytest.raises(PaneDead):
            await stage.host.press(pane, "Enter")

    async def test_a_dead_pane_still_shows_what_its_process_left(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("leave", "exit", "0"))
        await ended(stage, pane)
        frame = await shown(stage.host, pane, "last words")
        assert frame.dead
        assert frame.lines == ("last words",)

    async def test_nothing_is_typed_into_a_pane_that_was_closed(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "", "text"))
        await stage.host.close(pane)
        with pytest.raises(PaneGone):
            await stage.host.paste(pane, "text")
        with pytest.raises(PaneGone):
            await stage.host.press(pane, "Enter")
        with pytest.raises(PaneGone):
            await stage.host.leave_mode(pane)

    async def test_leaving_a_mode_that_nobody_is_in_does_nothing(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "", "text"))
        await stage.host.leave_mode(pane)
        assert not (await shown(stage.host, pane, "text")).in_mode

    @pytest.mark.parametrize(
        ("how", "number", "status", "signal"),
        [("exit", "0", 0, None), ("exit", "7", 7, None), ("kill", str(int(SIGKILL)), None, int(SIGKILL))],
    )
    async def test_the_end_of_a_process_is_told_with_its_number(
        self, stage: Stage, how: str, number: str, status: int | None, signal: int | None
    ) -> None:
        pane = await stage.host.open(stage.spec("leave", how, number))
        assert await ended(stage, pane) == PaneEnded(pane, status, signal)

    async def test_an_end_is_told_once_whatever_happens_to_the_pane_afterwards(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("leave", "exit", "3", target="m-1"))
        await ended(stage, pane)
        await stage.host.capture([pane])
        await stage.host.close(pane)
        other = await stage.host.open(stage.spec("leave", "exit", "4", target="m-2"))
        await ended(stage, other)
        assert [(one.pane, one.status) for one in stage.endings] == [(pane, 3), (other, 4)]

    async def test_the_end_of_a_closed_pane_is_told_too(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "", "text"))
        await stage.host.close(pane)
        await ended(stage, pane)

    async def test_closing_twice_is_closing_once(self, stage: Stage) -> None:
        pane = await stage.host.open(stage.spec("show", "", "text"))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.host.close, pane)
            nursery.start_soon(stage.host.close, pane)
        await stage.host.close(pane)
        assert dict(await stage.host.capture([pane])) == {}

    async def test_two_panes_do_not_disturb_each_other(self, stage: Stage) -> None:
        one = await stage.host.open(stage.spec("reader", target="m-1"))
        other = await stage.host.open(stage.spec("reader", target="m-10"))
        assert one != other
        for pane in (one, other):
            await shown(stage.host, pane, "ready")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(stage.host.paste, one, "to the one")
            nursery.start_soon(stage.host.paste, other, "to the other")
        await until(lambda: stage.received("m-1") == b"\033[200~to the one\033[201~")
        await until(lambda: stage.received("m-10") == b"\033[200~to the other\033[201~")
        await stage.host.close(one)
        await stage.host.press(other, "Enter")
        await until(lambda: stage.received("m-10").endswith(b"\r"))
        assert [pane for pane, frame in (await stage.host.capture([one, other])).items() if not frame.dead] == [other]


class ProcessContract(HostContract):
    """What holds where panes are real processes."""

    async def test_a_program_gets_exactly_its_environment_directory_and_arguments(self, stage: ProcessStage) -> None:
        env = {**ENV, "SECRET": "s3cret; $(x) 'q' \"d\"\nsecond line 😀", "EMPTY": "", "TERM": "of-the-daemon"}
        args = ("a b", "", ";", "$HOME", "#{pane_id}", "é😀", "-x", "two\nlines")
        directory = stage.directory / "a directory; with $signs"
        directory.mkdir()
        plain = stage.spec("dump", *args)
        pane = await stage.host.open(PaneSpec("m-1", plain.argv, env, str(directory)))
        await until(stage.path("m-1").exists)
        told = json.loads(stage.path("m-1").read_text())
        terminal = {name: told["env"].pop(name, "") for name in ("TERM", "TERM_PROGRAM", "TERM_PROGRAM_VERSION")}
        told["env"].pop("COLORTERM", None)
        assert told["env"] == {name: value for name, value in env.items() if name != "TERM"}
        assert terminal["TERM"] not in ("", "of-the-daemon")
        assert told["cwd"] == str(directory)
        assert told["argv"][2:] == list(args)
        assert pane.pid > 1
        assert pane.started > 0

    @pytest.mark.parametrize(
        ("argv", "cwd", "why"),
        [
            (("/nowhere/program",), "/", r"No such file or directory: /nowhere/program"),
            (("no-such-program-anywhere",), "/", r"no-such-program-anywhere was not found"),
            ((sys.executable, "-c", ""), "/nowhere", r"No such file or directory: /nowhere"),
            (("/etc/passwd",), "/", r"Permission denied: /etc/passwd"),
            ((), "/", r"no command"),
            (("a\0b",), "/", r"NUL"),
        ],
    )
    async def test_what_cannot_be_started_says_why_and_leaves_no_pane(
        self, stage: ProcessStage, argv: tuple[str, ...], cwd: str, why: str
    ) -> None:
        with pytest.raises(OpenFailed, match=why):
            await stage.host.open(PaneSpec("m-1", argv, ENV, cwd))
        pane = await stage.host.open(stage.spec("leave", "exit", "5", target="m-2"))
        await ended(stage, pane)
        assert [one.pane for one in stage.endings] == [pane]

    async def test_a_styled_capture_has_the_same_lines_with_their_styles(self, stage: ProcessStage) -> None:
        lines = ["plain", "\033[2mdim", "still dim\033[0m", "", "\033[1;31mred and bold\033[0m end", "last"]
        pane = await stage.host.open(stage.spec("show", "", *lines))
        await shown(stage.host, pane, "last")
        frame = (await stage.host.capture([pane], styled=True))[pane]
        assert frame.lines == ("plain", "dim", "still dim", "", "red and bold end", "last")
        assert len(frame.styled) == len(frame.lines)
        plain, dim, still_dim, _, red, last = frame.styled
        assert plain == "plain"
        for line in (dim, still_dim):
            assert "\033[2m" in line, "each line shows its own style, also one that began further up"
        assert "31m" in red.split("red")[0]
        assert "31m" not in red.split("bold")[1] + last

    async def test_every_exit_status_is_told_of_twenty_panes(self, stage: ProcessStage) -> None:
        panes = {await stage.host.open(stage.spec("leave", "exit", str(code))): code for code in range(20)}
        for pane in panes:
            await ended(stage, pane)
        assert {one.pane: one.status for one in stage.endings} == panes
        assert len(stage.endings) == len(panes)

    async def test_every_death_by_sigkill_is_told_of_twenty_panes(self, stage: ProcessStage) -> None:
        panes = [await stage.host.open(stage.spec("leave", "kill", str(int(SIGKILL)))) for _ in range(20)]
        for pane in panes:
            assert await ended(stage, pane) == PaneEnded(pane, None, int(SIGKILL))
        assert len(stage.endings) == len(panes)

    async def test_closing_ends_programs_that_ignore_hang_up_and_termination(self, stage: ProcessStage) -> None:
        stage.path("m-1").mkdir()
        pane = await stage.host.open(stage.spec("stubborn"))
        await until(lambda: len(list(stage.path("m-1").iterdir())) == 3)
        pids = [int(path.name) for path in stage.path("m-1").iterdir()]
        assert all(alive(pid) for pid in pids)
        await stage.host.close(pane)
        assert not any(alive(pid) for pid in (pane.pid, *pids))
        assert await ended(stage, pane) == PaneEnded(pane, None, int(SIGKILL))

    async def test_what_a_program_leaves_behind_ends_with_it(self, stage: ProcessStage) -> None:
        """A child with a session of its own, and one without a parent: neither outlives the program."""
        script = (
            "import os, subprocess, sys, time\n"
            "print(subprocess.Popen(['sleep', '1000'], start_new_session=True).pid, flush=True)\n"
            "if not os.fork():\n"
            "    print(subprocess.Popen(['sleep', '1000']).pid, 'left', flush=True)\n"
            "    os._exit(0)\n"
            "time.sleep(1)\n"
        )
        pane = await stage.host.open(PaneSpec("m-1", (sys.executable, "-I", "-c", script), ENV, "/"))
        frame = await shown(stage.host, pane, "left")
        left = [int(line.split()[0]) for line in frame.lines[:2]]
        assert all(alive(pid) for pid in left)
        assert await ended(stage, pane) == PaneEnded(pane, 0, None)
        assert not any(alive(pid) for pid in left)

    async def test_a_double_fork_stays_below_the_panes_root_process(self, stage: ProcessStage) -> None:
        script = (
            "import os, subprocess, sys\n"
            "if not os.fork():\n"
            "    os.setsid()\n"
            "    print(subprocess.Popen(['sleep', '1000']).pid, 'apart', flush=True)\n"
            "    os._exit(0)\n"
            "import time; time.sleep(1000)\n"
        )
        pane = await stage.host.open(PaneSpec("m-1", (sys.executable, "-I", "-c", script), ENV, "/"))
        frame = await shown(stage.host, pane, "apart")
        apart = int(frame.lines[0].split()[0])
        await until(lambda: pane.pid in [process.pid for process in ancestry(apart)])
        await stage.host.close(pane)
        assert not alive(apart)


def alive(pid: int) -> bool:
    """Whether a process of this number runs, and does not only wait to be reaped."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] not in "ZX"
