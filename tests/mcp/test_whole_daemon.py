"""Every tool, called by the SDK's own client against the whole daemon: in virtual time, over streams in memory."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from mcp import Client
from trio.testing import MockClock, memory_stream_pair

from fleetd.callers import Caller, Role
from fleetd.hosts.memory import ScriptedAgent
from fleetd.testing import Fleet
from fleetd.tools import TABLE
from tests.mcp.fakes import sdk_transport
from tests.stories.conftest import CONFIG


class Called:
    """An SDK client, and which tools it has called."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self.names: set[str] = set()

    async def __call__(self, tool: str, **arguments: Any) -> dict[str, Any]:
        self.names.add(tool)
        result = await self._client.call_tool(tool, arguments)
        assert isinstance(result.structured_content, dict)
        assert result.content
        return result.structured_content


def open_client(fleet: Fleet, caller: Caller, mode: str, nursery: trio.Nursery) -> Client:
    """A client of this caller, served by the daemon's own door."""
    ours, theirs = memory_stream_pair()
    nursery.start_soon(fleet.door.serve_stream, theirs, caller)
    return Client(sdk_transport(ours), mode=mode)


def agent_of(fleet: Fleet, target: str) -> ScriptedAgent:
    program = fleet.host.of(target).program
    assert isinstance(program, ScriptedAgent)
    return program


@pytest.mark.parametrize("mode", ["legacy", "2026-07-28"])
async def test_the_sdks_client_calls_every_tool(mode: str, autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with Fleet(CONFIG, clock=autojump_clock).running() as fleet:
        lead = await fleet.add_lead("headless", pane=False)
        async with open_client(fleet, lead.caller, mode, nursery) as as_lead:
            call = Called(as_lead)
            target = (await call("fleet_spawn", profile="demo-a", name="parser"))["target"]
            member = Caller(Role.MEMBER, target)
            async with open_client(fleet, member, mode, nursery) as as_member:
                answer = Called(as_member)
                assert (await call("fleet_whoami"))["role"] == "lead"
                assert (await answer("fleet_whoami"))["name"] == "parser"
                ticket = (await call("fleet_send", target=target, prompt="say which branch"))["ticket"]
                await trio.sleep(3)

                async def ask() -> None:
                    asked = await answer("fleet_ask", text="which branch?")
                    await answer("fleet_reply", text=f"on {asked['answer']}")

                nursery.start_soon(ask)
                await trio.sleep(1)
                (question,) = (await call("fleet_list"))["questions"]
                await call("fleet_answer", question=question["question"], text="main")
                ended = (await call("fleet_wait", tickets=[ticket]))["ended"]
                assert [row["status"] for row in ended] == ["completed"]
                assert (await call("fleet_collect", ticket=ticket))["text"] == "on main"
                assert (await call("fleet_explain", ticket=ticket))["source"] == "reply"
                assert (await call("fleet_peek", target=target))["lines"]
                await call("fleet_interrupt", target=target)
                assert set((await call("fleet_profiles"))["coolingOff"]) == set()
                assert (await call("fleet_health"))["healthCoverage"] == "detection-only"
                assert (await call("fleet_release", target=target))["state"] == "released"
                refused = await call("fleet_send", target=target, prompt="again")
                assert refused["error"] == "unknown_member"
                assert call.names | answer.names == set(TABLE)


async def test_each_role_is_offered_its_own_tools_and_checked_again(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    async with Fleet(CONFIG, clock=autojump_clock).running() as fleet:
        lead = await fleet.add_lead("headless", pane=False)
        target = (await lead.call("fleet_spawn", profile="demo-a"))["target"]
        async with open_client(fleet, Caller(Role.MEMBER, target), "legacy", nursery) as as_member:
            offered = [tool.name for tool in (await as_member.list_tools()).tools]
            assert offered == ["fleet_reply", "fleet_ask", "fleet_whoami"]
            refused = await as_member.call_tool("fleet_spawn", {"profile": "demo-a"})
            assert refused.is_error
            assert refused.structured_content is not None
            assert refused.structured_content["error"] == "not_allowed"
        async with open_client(fleet, lead.caller, "legacy", nursery) as as_lead:
            refused = await as_lead.call_tool("fleet_reply", {"text": "no"})
            assert refused.structured_content is not None
            assert refused.structured_content["error"] == "not_allowed"


async def test_a_failed_send_is_an_error_with_its_data(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    async with Fleet(CONFIG, clock=autojump_clock).running() as fleet:
        lead = await fleet.add_lead("headless", pane=False)
        target = (await lead.call("fleet_spawn", profile="demo-a"))["target"]
        async with open_client(fleet, lead.caller, "legacy", nursery) as client:

            async def fail() -> None:
                await trio.sleep(5)
                agent_of(fleet, target).fails()

            nursery.start_soon(fail)
            result = await client.call_tool("fleet_send", {"target": target, "prompt": "go", "waitSeconds": 30})
            assert result.is_error
            assert result.structured_content is not None
            assert result.structured_content["status"] == "backend_error"
            assert "529" in result.structured_content["reason"]
