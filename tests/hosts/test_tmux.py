"""The tmux host on real, private servers: the contract, and what only tmux can get wrong."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import trio

from actors.host import HostError, OpenFailed, PaneDead, PaneEnded, PaneGone, PaneInMode, PaneRef, PaneSpec
from fleetd.hosts import tmux_commands, tmux_control
from fleetd.hosts.tmux import TmuxHost
from fleetd.hosts.tmux_commands import NoServer, server_pid
from tests.hosts.contract import ENV, ProcessContract, ProcessStage, alive, ended, eventually, shown, until

pytestmark = pytest.mark.live


class TmuxStage(ProcessStage):
    host: TmuxHost

    @property
    def socket(self) -> str:
        return str(self.directory / "host" / "tmux.sock")

    async def tmux(self, *words: str) -> str:
        """Run a tmux command as a person would, from outside."""
        run = await trio.run_process(["tmux", "-u", "-S", self.socket, *words], capture_stdout=True)
        return run.stdout.decode().rstrip("\n")

    def sh(self, script: str, target: str = "m-1") -> PaneSpec:
        return PaneSpec(target, ("sh", "-c", script), ENV, "/")


@pytest.fixture
async def stage(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[TmuxStage]:
    host = TmuxHost(tmp_path / "host")
    await nursery.start(host.run)
    stage = TmuxStage(host, tmp_path)
    nursery.start_soon(stage.follow)
    yield stage
    await host.kill_server()


class TestTmuxKeepsTheContract(ProcessContract):
    pass


# -- modes, sizes, captures -----------------------------------------------------------------------------------------


async def test_nothing_is_typed_while_a_person_scrolls_and_the_mode_can_be_ended(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.spec("reader"))
    await shown(stage.host, pane, "ready")
    await stage.tmux("copy-mode", "-t", pane.id)
    assert (await stage.host.capture([pane]))[pane].in_mode
    with pytest.raises(PaneInMode):
        await stage.host.paste(pane, "two\nlines")
    with pytest.raises(PaneInMode):
        await stage.host.press(pane, "Enter")
    assert await stage.tmux("list-buffers") == ""
    await stage.host.leave_mode(pane)
    assert not (await stage.host.capture([pane]))[pane].in_mode
    await stage.host.press(pane, "Enter")
    await until(lambda: stage.received("m-1") == b"\r")


async def test_what_a_pane_prints_is_never_taken_for_tmux_speaking(stage: TmuxStage) -> None:
    fakes = [
        "%exit gone",
        "%end 1 1 1",
        "%error 1 1 1",
        "%begin 1 1 1",
        "%pane-mode-changed %0",
        "%session-changed $0 x",
    ]
    loud = await stage.host.open(stage.spec("show", "%exit", *fakes, "last", target="m-1"))
    quiet = await stage.host.open(stage.spec("show", "", "quiet", target="m-2"))
    await shown(stage.host, quiet, "quiet")
    await shown(stage.host, loud, "last")
    for _ in range(20):
        frames = await stage.host.capture([loud, quiet, loud])
        assert frames[loud].lines == (*fakes, "last")
        assert frames[quiet].lines == ("quiet",)


async def test_fifty_panes_are_captured_in_one_call(stage: TmuxStage) -> None:
    panes: dict[PaneRef, str] = {}
    for number in range(50):
        text = f"this is number {number}."
        panes[await stage.host.open(stage.sh(f"echo '{text}'; exec sleep 1000", f"m-{number}"))] = text
    for pane, text in panes.items():
        await shown(stage.host, pane, text)
    frames = await stage.host.capture(list(panes))
    assert {pane: frame.lines for pane, frame in frames.items()} == {pane: (text,) for pane, text in panes.items()}


async def test_a_capture_reaches_into_the_scrollback(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.sh("seq 1 3000; exec sleep 1000"))
    frame = await shown(stage.host, pane, "\n3000")
    assert frame.lines[-1] == "3000"
    assert 2000 <= len(frame.lines) <= 2000 + frame.height
    assert await stage.tmux("display-message", "-p", "-t", pane.id, "#{history_limit}") == "5000"


async def test_a_window_has_the_size_that_was_asked_for_from_the_start(stage: TmuxStage) -> None:
    for width, height in ((200, 44), (80, 24)):
        spec = PaneSpec("m-1", ("stty", "size"), ENV, "/", width=width, height=height)
        pane = await stage.host.open(spec)
        frame = await shown(stage.host, pane, f"{height} {width}")
        assert (frame.width, frame.height) == (width, height)


async def test_a_size_that_tmux_does_not_take_leaves_no_pane(stage: TmuxStage) -> None:
    with pytest.raises(OpenFailed, match=r"size|width|height"):
        await stage.host.open(PaneSpec("m-1", ("sleep", "1000"), ENV, "/", width=0, height=0))
    assert await stage.tmux("list-windows", "-F", "#{window_name}") == "fleetd"


async def test_a_pane_says_whose_it_is(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text", target="m-17"))
    name, tag = (await stage.tmux("display-message", "-p", "-t", pane.id, "#{window_name} #{@fleetd_member}")).split(
        " "
    )
    said = json.loads(tag)
    assert (name, said["target"], said["pid"], said["started"]) == ("m-17", "m-17", pane.pid, pane.started)


# -- ends -----------------------------------------------------------------------------------------------------------


async def test_a_shim_that_is_killed_leaves_the_question_to_tmux(stage: TmuxStage) -> None:
    """tmux before 3.6 misses a part of these deaths until it is told to look again."""
    panes = [await stage.host.open(stage.spec("show", "", "text", target=f"m-{number}")) for number in range(10)]
    started = trio.current_time()
    for pane in panes:
        os.kill(pane.pid, signal.SIGKILL)
    for pane in panes:
        assert await ended(stage, pane) == PaneEnded(pane, None, int(signal.SIGKILL))
    assert trio.current_time() - started < 5, "an end is told promptly"


async def test_a_window_that_a_person_closes_is_told_as_ended(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text"))
    await stage.tmux("kill-window", "-t", pane.id)
    assert await ended(stage, pane) == PaneEnded(pane, None, int(signal.SIGHUP))
    assert dict(await stage.host.capture([pane])) == {}
    with pytest.raises(PaneGone):
        await stage.host.paste(pane, "text")
    await stage.host.close(pane)


async def test_a_session_that_a_person_closes_is_made_again(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text"))
    await stage.tmux("kill-session", "-t", "=fleetd")
    await ended(stage, pane)
    other = await stage.host.open(stage.spec("show", "", "again"))
    await shown(stage.host, other, "again")


async def test_nothing_is_left_of_a_closed_pane(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.spec("reader"))
    await shown(stage.host, pane, "ready")
    await stage.host.paste(pane, "text")
    await stage.host.close(pane)
    await ended(stage, pane)
    await until(lambda: not list((stage.directory / "host" / "panes").iterdir()))
    assert {path.name for path in (stage.directory / "host").iterdir()} == {"panes", "tmux.conf", "tmux.sock"}
    assert await stage.tmux("list-buffers") == ""


async def test_an_open_that_is_cancelled_leaves_no_pane(stage: TmuxStage) -> None:
    await stage.host.open(stage.spec("show", "", "text", target="m-1"))
    for delay_s in (0, 0.001, 0.005, 0.02):
        with trio.move_on_after(delay_s):
            await stage.host.open(stage.spec("stubborn", "0", target="m-2"))
            pytest.fail("it was to be cancelled")
    assert (await stage.tmux("list-windows", "-F", "#{window_name}")).split() == ["fleetd", "m-1"]
    assert len(list((stage.directory / "host" / "panes").iterdir())) == 1


# -- the server and the client --------------------------------------------------------------------------------------


async def test_when_the_server_dies_every_pane_has_ended_and_the_host_goes_on(stage: TmuxStage) -> None:
    panes = [await stage.host.open(stage.spec("show", "", "text", target=f"m-{number}")) for number in range(3)]
    os.kill(server_pid(stage.socket), signal.SIGKILL)
    for pane in panes:
        assert await ended(stage, pane) == PaneEnded(pane, None, None)
    assert dict(await stage.host.capture(panes)) == {}
    with pytest.raises(PaneGone):
        await stage.host.paste(panes[0], "text")
    await stage.host.close(panes[0])
    again = await stage.host.open(stage.spec("reader", target="m-9"))
    await shown(stage.host, again, "ready")
    # Its id was the first one's: what is meant for that one does not reach it.
    assert again.id == panes[0].id
    assert list(await stage.host.capture([panes[0], again])) == [again]
    with pytest.raises(PaneGone):
        await stage.host.press(panes[0], "Enter")
    await stage.host.close(panes[0])
    await stage.host.press(again, "C-u")
    await until(lambda: stage.received("m-9") == b"\x15")
    assert len(stage.endings) == len(panes)


async def test_a_capture_under_way_when_the_server_dies_is_an_error_or_empty(stage: TmuxStage) -> None:
    panes = [await stage.host.open(stage.spec("show", "", "text", target=f"m-{number}")) for number in range(3)]
    outcomes: list[object] = []

    async def capture() -> None:
        try:
            outcomes.append(dict(await stage.host.capture(panes)))
        except HostError as error:
            outcomes.append(error)

    async with trio.open_nursery() as nursery:
        for _ in range(30):
            nursery.start_soon(capture)
        os.kill(server_pid(stage.socket), signal.SIGKILL)
    assert len(outcomes) == 30
    assert all(isinstance(one, HostError) or one == {} or set(one) == set(panes) for one in outcomes)  # type: ignore[call-overload]


async def test_panes_outlive_their_host_and_the_next_one_reaches_them(stage: TmuxStage, tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        first = TmuxHost(tmp_path / "shared")
        await nursery.start(first.run)
        pane = await first.open(stage.spec("reader"))
        await shown(first, pane, "ready")
        nursery.cancel_scope.cancel()
    assert alive(pane.pid)
    with pytest.raises(HostError, match="start it"):
        await first.capture([pane])
    async with trio.open_nursery() as nursery:
        second = TmuxHost(tmp_path / "shared")
        await nursery.start(second.run)
        await second.press(pane, "Enter")
        await until(lambda: stage.received("m-1") == b"\r")
        other = await second.open(stage.spec("show", "", "text", target="m-2"))
        assert set(await second.capture([pane, other])) == {pane, other}
        await second.kill_server()
        nursery.cancel_scope.cancel()
    assert not alive(pane.pid)


async def test_a_lost_client_is_replaced_with_the_next_command(stage: TmuxStage) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text"))
    await shown(stage.host, pane, "text")

    async def attached() -> str:
        await _capture_or_error(stage.host, pane)
        return await stage.tmux("list-clients", "-F", "#{client_pid}")

    killed = {""}
    for _ in range(3):
        client = await eventually(attached, lambda client: client not in killed)
        os.kill(int(client), signal.SIGKILL)
        killed.add(client)
    await eventually(lambda: _capture_or_error(stage.host, pane), lambda panes: panes == (pane,))
    assert stage.endings == []


async def _capture_or_error(host: TmuxHost, pane: PaneRef) -> tuple[PaneRef, ...]:
    try:
        return tuple(await host.capture([pane]))
    except HostError:
        return ()


async def test_a_server_that_hangs_is_an_error_and_no_dead_member(
    stage: TmuxStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text"))
    await shown(stage.host, pane, "text")
    server = server_pid(stage.socket)
    os.kill(server, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(tmux_control, "ANSWER_S", 0.3)
            for attempt in (stage.host.capture([pane]), stage.host.paste(pane, "x"), stage.host.press(pane, "Enter")):
                with trio.fail_after(5), pytest.raises(HostError, match="did not answer") as caught:
                    await attempt
                assert not isinstance(caught.value, PaneGone | PaneDead)
    finally:
        os.kill(server, signal.SIGCONT)
    await shown(stage.host, pane, "text")
    assert stage.endings == []


async def test_a_key_that_a_stalled_server_finds_late_is_not_pressed(
    stage: TmuxStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    pane = await stage.host.open(stage.spec("reader"))
    await shown(stage.host, pane, "ready")
    server = server_pid(stage.socket)
    os.kill(server, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(tmux_control, "ANSWER_S", 0.3)
            patch.setattr(tmux_commands, "ANSWER_S", 0)
            with pytest.raises(HostError, match="did not answer"):
                await stage.host.press(pane, "Enter")
            given_up = time.time()
            await until(lambda: time.time() > given_up + 1)
    finally:
        os.kill(server, signal.SIGCONT)
    await eventually(lambda: _capture_or_error(stage.host, pane), lambda frames: pane in frames)
    await stage.host.press(pane, "C-u")
    await until(lambda: stage.received("m-1"))
    assert stage.received("m-1") == b"\x15"


async def test_a_client_of_another_version_does_not_make_the_server_dead(stage: TmuxStage, tmp_path: Path) -> None:
    pane = await stage.host.open(stage.spec("show", "", "text"))
    newer = tmp_path / "tmux"
    newer.write_text(
        f"#!{sys.executable}\n"
        "import sys\n"
        "print('tmux 3.9') if '-V' in sys.argv else sys.exit('server exited unexpectedly')\n"
    )
    newer.chmod(0o755)
    async with trio.open_nursery() as nursery:
        upgraded = TmuxHost(tmp_path / "host", tmux=str(newer))
        await nursery.start(upgraded.run)
        for attempt in (upgraded.capture([pane]), upgraded.paste(pane, "x"), upgraded.open(stage.spec("show", ""))):
            with pytest.raises(HostError, match=r"lives.*server exited unexpectedly") as caught:
                await attempt
            assert not isinstance(caught.value, NoServer | PaneGone)
        nursery.cancel_scope.cancel()
    await shown(stage.host, pane, "text")


@pytest.mark.parametrize(("said", "why"), [("tmux 3.1c", "too old"), ("tmux 2.9", "too old")])
async def test_an_old_tmux_is_refused_with_its_version(tmp_path: Path, said: str, why: str) -> None:
    old = tmp_path / "tmux"
    old.write_text(f"#!{sys.executable}\nprint({said!r})\n")
    old.chmod(0o755)
    with pytest.raises(HostError, match=f"{said} is {why}"):
        await TmuxHost(tmp_path / "host", tmux=str(old)).run()


async def test_a_missing_tmux_is_named(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="/nowhere/tmux was not found"):
        await TmuxHost(tmp_path / "host", tmux="/nowhere/tmux").run()


async def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "host").mkdir()
    (tmp_path / "host").chmod(0o777)
    with pytest.raises(HostError, match="not a private directory"):
        await TmuxHost(tmp_path / "host").run()


async def test_a_directory_too_long_for_a_socket_is_refused(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="shorter path"):
        await TmuxHost(tmp_path / ("long" * 30)).run()


def command_lines() -> list[bytes]:
    return [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]


def environment_of(pid: int) -> bytes:
    return Path(f"/proc/{pid}/environ").read_bytes()


# -- secrets, people ------------------------------------------------------------------------------------------------


async def test_secrets_stay_out_of_command_lines_and_of_the_server(
    stage: TmuxStage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAEMON_SECRET", "sesame-daemon")
    spec = stage.spec("reader")
    pane = await stage.host.open(PaneSpec(spec.target, spec.argv, {**ENV, "API_KEY": "sesame-env"}, spec.cwd))
    await shown(stage.host, pane, "ready")
    await stage.host.paste(pane, "sesame-paste")
    lines = command_lines()
    environ = environment_of(server_pid(stage.socket))
    assert any(stage.socket.encode() in line for line in lines)
    assert not any(b"sesame" in line for line in [*lines, environ])
    for words in (["show-environment", "-g"], ["show-environment", "-t", "=fleetd:"], ["list-buffers"]):
        assert "sesame" not in await stage.tmux(*words)
    for path in (stage.directory / "host").rglob("*"):
        assert path.is_socket() or path.is_dir() or "sesame" not in path.read_text()


async def test_a_person_can_attach_and_drive_a_member_and_changes_nothing_for_others(
    stage: TmuxStage, tmp_path: Path
) -> None:
    await stage.host.open(stage.spec("show", "", "the first", target="m-1"))
    pane = await stage.host.open(stage.spec("reader", target="m-2"))
    await shown(stage.host, pane, "ready")
    before = await stage.tmux("list-sessions", "-F", "#{session_name} #{window_name}")
    outer = ["tmux", "-u", "-S", str(tmp_path / "person")]

    async def person(*words: str) -> str:
        return (await trio.run_process([*outer, *words], capture_stdout=True)).stdout.decode()

    terminal = tmp_path / "terminal"
    terminal.write_text(
        f"#!{sys.executable}\nimport os\nargv = {stage.host.attach_argv(pane)!r}\nos.execvp(argv[0], argv)\n"
    )
    terminal.chmod(0o755)
    await person("-f", "/dev/null", "new-session", "-d", "-x", "70", "-y", "20", str(terminal))
    try:
        await eventually(lambda: person("capture-pane", "-p"), lambda text: "ready" in text and "C-b d leaves" in text)
        assert before in await stage.tmux("list-sessions", "-F", "#{session_name} #{window_name}")
        await person("send-keys", "-l", "hi")
        await until(lambda: stage.received("m-2") == b"hi")
        frame = (await stage.host.capture([pane]))[pane]
        assert (frame.width, frame.height) == (160, 60)
        other = await stage.host.open(stage.spec("show", "", "made meanwhile", target="m-3"))
        assert (await shown(stage.host, other, "made meanwhile")).width == 160
        await person("send-keys", "C-b", "d")
        await eventually(lambda: stage.tmux("list-sessions", "-F", "#{session_name}"), lambda text: text == "fleetd")
        assert "ready" in (await stage.host.capture([pane]))[pane].lines
    finally:
        await trio.run_process([*outer, "kill-server"], check=False, capture_stderr=True)


async def test_a_pane_of_another_host_cannot_be_attached_to(stage: TmuxStage) -> None:
    with pytest.raises(PaneGone):
        stage.host.attach_argv(PaneRef("tmux", "%99", 1, 1))
