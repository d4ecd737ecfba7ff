"""MCP over ``fleetd mcp``, as agents start it: the SDK's client, a plain one, both eras, leads and members."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import trio
from mcp import Client, StdioServerParameters

from fleetd.tools import TABLE
from tests.live.persons import UserTmux
from tests.live.running import PATIENCE_S, Running
from tests.mcp.fakes import STATELESS, Plain, initialize_params

pytestmark = pytest.mark.live

PROGRAMS = Path(__file__).with_name("programs")
MEMBER_TOOLS = {"fleet_reply", "fleet_ask"}


def bridge(running: Running) -> list[str]:
    return [sys.executable, "-m", "fleetd", "--runtime-dir", str(running.daemon.directory), "mcp"]


async def lead_story(call: Any) -> set[str]:
    """Each of a lead's tools once, on a real member; the names called."""
    target = (await call("fleet_spawn", profile="demo-a"))["target"]
    ticket = (await call("fleet_send", target=target, prompt="demo: work 3; ask which?; say done"))["ticket"]
    with trio.fail_after(PATIENCE_S):
        while True:
            if questions := (await call("fleet_list"))["questions"]:
                break
            await trio.sleep(0.1)
    await call("fleet_answer", question=questions[0]["question"], text="this")
    assert (await call("fleet_wait", tickets=[ticket], waitSeconds=30))["ended"]
    assert (await call("fleet_collect", ticket=ticket))["status"] == "completed"
    assert (await call("fleet_explain", ticket=ticket))["verdict"] == "completed"
    assert (await call("fleet_peek", target=target))["lines"]
    assert (await call("fleet_interrupt", target=target))["error"] == "no_open_turn"
    await call("fleet_profiles")
    await call("fleet_health")
    assert (await call("fleet_whoami"))["role"] == "lead"
    assert (await call("fleet_release", target=target))["state"] == "released"
    return {name for name in TABLE if name not in MEMBER_TOOLS}


@pytest.mark.parametrize("mode", ["legacy", "auto", "2026-07-28"])
async def test_the_sdks_client_leads_over_the_bridge(running: Running, mode: str) -> None:
    called = set()
    command, *args = bridge(running)
    env = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    async with Client(StdioServerParameters(command=command, args=args, env=env), mode=mode) as client:

        async def call(tool: str, **arguments: Any) -> dict[str, Any]:
            called.add(tool)
            content = (await client.call_tool(tool, arguments)).structured_content
            assert isinstance(content, dict)
            return content

        assert await lead_story(call) == called


@pytest.mark.parametrize("era", ["handshake", "stateless"])
async def test_a_plain_client_leads_over_the_bridge(running: Running, era: str, nursery: trio.Nursery) -> None:
    process = await trio.lowlevel.open_process(bridge(running), stdin=-1, stdout=-1)
    assert process.stdio is not None
    plain = Plain(process.stdio, nursery)
    extra: dict[str, Any] = STATELESS if era == "stateless" else {}
    if era == "handshake":
        assert "result" in await plain.answer(plain.start("initialize", initialize_params()), PATIENCE_S)
        plain.notify("notifications/initialized")
    called = set()

    async def call(tool: str, **arguments: Any) -> dict[str, Any]:
        called.add(tool)
        id = plain.start("tools/call", {"name": tool, "arguments": arguments, **extra})
        answer = await plain.answer(id, PATIENCE_S * 2)
        return dict(answer["result"]["structuredContent"])

    assert await lead_story(call) == called
    await process.stdin.aclose()  # type: ignore[union-attr]
    with trio.fail_after(PATIENCE_S):
        assert await process.wait() == 0


@pytest.mark.parametrize("era", ["legacy", "2026-07-28"])
async def test_the_sdks_client_is_a_member_over_the_bridge(running: Running, era: str, tmp_path: Path) -> None:
    path = running.daemon.config_path
    assert path is not None
    argv = [sys.executable, str(PROGRAMS / "sdk_member.py"), era, *bridge(running)]
    path.write_text(path.read_text() + f"  sdk: {{command: {argv}, idlePattern: '^ready>'}}\n")
    await running.daemon.reload()
    target = await running.spawn("sdk")
    ticket = await running.send(target, "go on")
    questions: list[dict[str, str]] = []

    async def asked() -> bool:
        questions[:] = (await running.call("fleet_list"))["questions"]
        return bool(questions)

    await running.until(asked, "the member asks")
    assert questions[0]["text"] == "may I go on?"
    await running.call("fleet_answer", question=questions[0]["question"], text="yes")
    result = await running.result(ticket)
    assert (result["source"], result["text"]) == ("reply", f"{target} was told yes")
    lines = (await running.screen(await running.pane(target))).lines
    assert "tools: fleet_ask fleet_reply fleet_whoami" in lines


# -- leads and members that fleetd knows nothing of -----------------------------------------------------------------


@pytest.fixture
async def user_tmux(tmp_path: Path):  # type: ignore[no-untyped-def]
    server = UserTmux(tmp_path)
    yield server
    await server.end()


async def test_any_program_with_an_mcp_client_in_a_persons_own_tmux_is_a_lead_and_is_nudged_there(
    running: Running, user_tmux: UserTmux
) -> None:
    """Its shell has the terminal before and after it, and is never typed into."""
    shell = shutil.which("bash") or "/bin/sh"
    await user_tmux.start(shell, "--norc", "--noprofile")
    program = [sys.executable, str(PROGRAMS / "plain_agent.py"), *bridge(running)]
    await user_tmux.type(" ".join(program))

    async def ready() -> bool:
        return "\nready" in await user_tmux.text()

    await running.until(ready, "the stranger is ready")
    text = await user_tmux.text()
    lead = text.split("I am ", 1)[1].split()[0]
    running.lead = type(running.lead)(running.lead.role, lead, "/")
    target = await running.spawn("demo-c")
    await running.send(target, "demo: work 3; say hello")

    async def nudged() -> bool:
        return "heard: [fleetd] Ended:" in await user_tmux.text()

    await running.until(nudged, "the stranger is nudged in its pane")
    assert (await user_tmux.text()).count("heard: [fleetd]") == 1

    told = (await user_tmux.text()).count("[fleetd]")
    await user_tmux.type("leave")
    unheard = await running.send(target, "demo: work 3; say bye")

    async def ended() -> bool:
        rows = (await running.daemon.tools.call(running.nobody, "fleet_list", {})).structured["tickets"]
        return any(row["ticket"] == unheard and row["state"] == "ended" for row in rows)

    await running.until(ended, "the second send has ended")
    await trio.sleep(6)
    assert (await user_tmux.text()).count("[fleetd]") == told
    assert any(unheard in notice for notice in (await running.call("fleet_whoami"))["notices"])


async def test_a_program_without_an_adapter_is_a_member(running: Running) -> None:
    path = running.daemon.config_path
    assert path is not None
    profile = f"""  lines:
    command: [{sys.executable}, "{PROGRAMS / "line_program.py"}"]
    idlePattern: "^ask> $|^ask>$"
    busyPattern: "^[.]{{3}} thinking$"
    answerMarker: "="
    errorPattern: "^service unavailable"
    exhaustedPattern: "^quota is used up"
"""
    path.write_text(path.read_text() + profile)
    await running.daemon.reload()
    target = await running.spawn("lines")
    result = await running.result(await running.send(target, "work 3 hello there"))
    assert (result["status"], result["text"]) == ("completed", "you said work 3 hello there")
    failed = await running.result(await running.send(target, "work 1 fail"))
    assert (failed["status"], failed["reason"]) == ("backend_error", "service unavailable: try again later")
    other = await running.spawn("lines")
    used_up = await running.result(await running.send(other, "work 1 quota"))
    assert used_up["status"] == "backend_exhausted"
