"""``fleetd attach`` in a person's real terminal: a pane of a tmux server of theirs."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest
import trio

from tests.live.persons import UserTmux
from tests.live.running import Running

pytestmark = pytest.mark.live


@pytest.fixture
async def user_tmux(tmp_path: Path):  # type: ignore[no-untyped-def]
    server = UserTmux(tmp_path)
    yield server
    await server.end()


async def test_a_person_sees_and_drives_a_member_and_has_their_terminal_back(
    running: Running, user_tmux: UserTmux
) -> None:
    target = await running.spawn()
    await running.until_state(target, "idle")
    shell = shutil.which("bash") or "/bin/sh"
    await user_tmux.start(shell, "--norc", "--noprofile")
    fleetd = [sys.executable, "-m", "fleetd", "--runtime-dir", str(running.daemon.directory)]
    await user_tmux.type(" ".join([*fleetd, "attach", target]))

    async def shows(text: str) -> None:
        async def so() -> bool:
            return text in await user_tmux.text()

        await running.until(so, f"the person sees {text!r}")

    await shows("ready · /exit quits")
    await user_tmux.type("demo: work 1; say typed by hand")
    await shows("● typed by hand")
    detach = ("C-b", "d") if running.daemon.host.name == "tmux" else ("C-\\",)
    await user_tmux.run("send-keys", *detach)
    await trio.sleep(1)
    await user_tmux.type("echo back in $((40 + 2)) shells")
    await shows("back in 42 shells")
    result = await running.result(await running.send(target, "demo: work 3; say still here"))
    assert result["text"] == "still here"


async def test_a_member_that_does_not_exist_is_said_so(running: Running, user_tmux: UserTmux) -> None:
    fleetd = [sys.executable, "-m", "fleetd", "--runtime-dir", str(running.daemon.directory)]
    await user_tmux.start("/bin/sh")
    await user_tmux.type(" ".join([*fleetd, "attach", "m-77"]))

    async def said() -> bool:
        return "fleetd: no member is called m-77" in await user_tmux.text()

    await running.until(said, "the refusal")
