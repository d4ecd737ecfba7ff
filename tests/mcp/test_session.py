"""MCP as clients see it, in both eras, over in-memory streams and in virtual time.

Each test names the clock itself: one that only a fixture asks for is not used.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from mcp import Client
from mcp_types.methods import validate_server_result
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION
from trio.testing import memory_stream_pair, wait_all_tasks_blocked

import fleetd
from fleetd.callers import Caller
from fleetd.frames import LineStream
from fleetd.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, REFUSED, Envelope
from fleetd.mcp.era import CLIENT_NAME_CHARS, Era, client_name, era_of
from fleetd.mcp.session import MAX_CALLS, serve_mcp
from fleetd.toolbox import ToolResult
from tests.mcp.fakes import LEAD, MEMBER, STATELESS, FakeToolbox, Plain, initialize_params, sdk_transport

INSTRUCTIONS = "Spawn members, send them work, collect what they found."


def stateless(**params: object) -> dict[str, object]:
    return params | STATELESS


class Served:
    """One connection that is served in the background."""

    def __init__(self, nursery: trio.Nursery, caller: Caller = LEAD, toolbox: FakeToolbox | None = None) -> None:
        self.toolbox = toolbox or FakeToolbox()
        self.stream, self._ours = memory_stream_pair()
        self.ended = trio.Event()
        self._caller = caller
        nursery.start_soon(self._serve)

    async def _serve(self) -> None:
        lines = LineStream(self._ours, "client")
        messages, inbox = trio.open_memory_channel[Envelope](0)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(lines.write_out)

            async def serve() -> None:
                await serve_mcp(inbox, lines.send, self.toolbox, self._caller, instructions=INSTRUCTIONS)
                self.ended.set()

            nursery.start_soon(serve)
            async with messages:
                while (message := await lines.receive()) is not None:
                    await messages.send(message)


@pytest.fixture
def served(nursery: trio.Nursery) -> Served:
    return Served(nursery)


@pytest.fixture
def plain(served: Served, nursery: trio.Nursery) -> Plain:
    return Plain(served.stream, nursery)


# -- the SDK's own client --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28"), ("2026-07-28", "2026-07-28")]
)
async def test_the_sdk_s_client_works_in_each_era(
    served: Served, mode: str, version: str, autojump_clock: object
) -> None:
    with trio.fail_after(60):
        async with Client(sdk_transport(served.stream), mode=mode) as client:
            assert client.protocol_version == version
            if mode != "2026-07-28":  # which asks for nothing before the first call
                assert client.server_info is not None
                assert (client.server_info.name, client.server_info.version) == ("fleetd", fleetd.__version__)
                assert client.instructions == INSTRUCTIONS
            tools = (await client.list_tools()).tools
            assert [tool.name for tool in tools] == ["wait", "echo", "refuse", "crash"]
            assert all(tool.input_schema and tool.output_schema and tool.description for tool in tools)
            result = await client.call_tool("echo", {"text": "hi"})
            assert result.structured_content == {"said": "hi"}
            assert result.content[0].text == "said hi"
            assert not result.is_error
            refused = await client.call_tool("refuse", {})
            assert refused.is_error
            assert refused.structured_content == {"error": "not_allowed"}
    assert served.toolbox.calls[0] == (LEAD, "echo", {"text": "hi"})


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_cancelled_call_of_the_sdk_s_client_cancels_the_tool(
    served: Served, mode: str, autojump_clock: object
) -> None:
    async with Client(sdk_transport(served.stream), mode=mode) as client:
        with trio.move_on_after(5) as scope:
            await client.call_tool("wait", {})
        assert scope.cancelled_caught
        await wait_all_tasks_blocked()
        assert (served.toolbox.waiting, served.toolbox.cancelled) == (0, 1)
        assert (await client.call_tool("echo", {"text": "still here"})).structured_content == {"said": "still here"}


# -- eras on one connection ------------------------------------------------------------------------------------------


async def test_discover_and_then_initialize_both_work(plain: Plain, autojump_clock: object) -> None:
    """Claude Code sends exactly this. The SDK alone answers the second one with -32022."""
    discovered = await plain.request("server/discover", stateless())
    assert discovered["result"]["supportedVersions"] == ["2026-07-28"]
    assert (await plain.initialize())["result"]["protocolVersion"] == "2025-11-25"
    assert (await plain.call("echo", text="a"))["result"]["structuredContent"] == {"said": "a"}
    modern = await plain.request("tools/call", stateless(name="echo", arguments={"text": "b"}))
    assert modern["result"]["structuredContent"] == {"said": "b"}
    assert modern["result"]["resultType"] == "complete"
    assert "resultType" not in (await plain.call("echo"))["result"]


async def test_the_era_is_that_of_each_request_and_never_changes_back(plain: Plain, autojump_clock: object) -> None:
    await plain.initialize("2025-06-18")
    for _ in range(2):
        assert "ttlMs" in (await plain.request("tools/list", stateless()))["result"]
        assert "ttlMs" not in (await plain.request("tools/list"))["result"]


async def test_initialize_again_starts_afresh(plain: Plain, served: Served, autojump_clock: object) -> None:
    await plain.initialize("2025-11-25")
    open_call = plain.start("tools/call", {"name": "wait"})
    await wait_all_tasks_blocked()
    assert (await plain.initialize("2025-03-26"))["result"]["protocolVersion"] == "2025-03-26"
    assert "error" in await plain.answer(open_call)
    assert served.toolbox.cancelled == 1
    assert (await plain.call("echo", text="x"))["result"]["structuredContent"] == {"said": "x"}


async def test_a_second_handshake_leaves_the_other_era_s_calls_alone(
    plain: Plain, served: Served, autojump_clock: object
) -> None:
    modern = plain.start("tools/call", stateless(name="wait", arguments={"text": "m"}))
    await plain.initialize()
    await plain.initialize()
    await wait_all_tasks_blocked()
    assert (served.toolbox.waiting, served.toolbox.cancelled) == (1, 0)
    served.toolbox.go_on.set()
    assert (await plain.answer(modern))["result"]["structuredContent"] == {"said": "m"}


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
async def test_a_known_version_is_echoed(plain: Plain, version: str, autojump_clock: object) -> None:
    assert (await plain.initialize(version))["result"]["protocolVersion"] == version


@pytest.mark.parametrize("version", ["2026-07-28", "2099-01-01", "latest", ""])
async def test_an_unknown_version_gets_an_offer_and_never_an_error(
    plain: Plain, version: str, autojump_clock: object
) -> None:
    assert (await plain.initialize(version))["result"]["protocolVersion"] == LATEST_HANDSHAKE_VERSION


async def test_a_request_before_the_handshake_does_not_spoil_it(plain: Plain, autojump_clock: object) -> None:
    assert "error" in await plain.request("tools/list")
    assert "result" in await plain.initialize()
    assert "result" in await plain.request("tools/list")


async def test_a_handshake_that_was_malformed_can_be_made_again(plain: Plain, autojump_clock: object) -> None:
    assert "error" in await plain.request("initialize", {"protocolVersion": 7})
    assert "result" in await plain.initialize()


async def test_a_stateless_version_that_is_not_served_is_told_which_is(plain: Plain, autojump_clock: object) -> None:
    meta = STATELESS["_meta"] | {"io.modelcontextprotocol/protocolVersion": "2031-01-01"}
    error = (await plain.request("tools/list", {"_meta": meta}))["error"]
    assert error["code"] == -32022
    assert error["data"]["supported"] == ["2026-07-28"]


# -- what the wire says ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", HANDSHAKE_PROTOCOL_VERSIONS)
async def test_results_have_the_shapes_of_each_handshake_revision(
    plain: Plain, version: str, autojump_clock: object
) -> None:
    validate_server_result("initialize", version, (await plain.initialize(version))["result"])
    validate_server_result("tools/list", version, (await plain.request("tools/list"))["result"])
    for tool in ("echo", "refuse"):
        validate_server_result("tools/call", version, (await plain.call(tool))["result"])


async def test_results_have_the_shapes_of_the_stateless_revision(plain: Plain, autojump_clock: object) -> None:
    for method, params in [
        ("server/discover", {}),
        ("tools/list", {}),
        ("tools/call", {"name": "echo", "arguments": {}}),
        ("tools/call", {"name": "refuse", "arguments": {}}),
    ]:
        reply = await plain.request(method, params | STATELESS)
        validate_server_result(method, "2026-07-28", reply["result"])


async def test_the_tools_come_in_their_own_order_with_both_schemas(plain: Plain, autojump_clock: object) -> None:
    await plain.initialize()
    first = (await plain.request("tools/list"))["result"]["tools"]
    assert [tool["name"] for tool in first] == ["wait", "echo", "refuse", "crash"]
    assert set(first[0]) == {"name", "description", "inputSchema", "outputSchema"}
    assert (await plain.request("tools/list"))["result"]["tools"] == first


async def test_a_member_gets_a_member_s_tools_and_calls_as_itself(
    nursery: trio.Nursery, autojump_clock: object
) -> None:
    served = Served(nursery, MEMBER)
    plain = Plain(served.stream, nursery)
    await plain.initialize()
    assert [tool["name"] for tool in (await plain.request("tools/list"))["result"]["tools"]] == ["echo"]
    await plain.call("wait_no_such_tool", text="x")
    assert served.toolbox.calls == [(MEMBER, "wait_no_such_tool", {"text": "x"})]


async def test_a_result_carries_data_text_and_whether_it_failed(plain: Plain, autojump_clock: object) -> None:
    await plain.initialize()
    assert (await plain.call("echo", text="ü"))["result"] == {
        "content": [{"type": "text", "text": "said ü"}],
        "structuredContent": {"said": "ü"},
        "isError": False,
    }
    assert (await plain.call("refuse"))["result"]["isError"] is True


async def test_arguments_may_be_left_out(plain: Plain, served: Served, autojump_clock: object) -> None:
    await plain.initialize()
    await plain.request("tools/call", {"name": "echo"})
    assert served.toolbox.calls == [(LEAD, "echo", {})]


@pytest.mark.parametrize("id", [0, -1, 7, "7", "", "ü", 2**63, 2**70, "x" * 1000])
async def test_an_identifier_comes_back_as_it_was(plain: Plain, id: str | int, autojump_clock: object) -> None:
    assert (await plain.request("initialize", initialize_params(), id))["id"] == id
    assert type(plain.heard[-1]["id"]) is type(id)


async def test_an_unknown_method_is_not_found(plain: Plain, autojump_clock: object) -> None:
    await plain.initialize()
    assert (await plain.request("resources/list"))["error"]["code"] == METHOD_NOT_FOUND
    assert (await plain.request("no/such"))["error"]["code"] == METHOD_NOT_FOUND


# -- failures --------------------------------------------------------------------------------------------------------


class Unlistable(FakeToolbox):
    def specs(self, role: object) -> list[Any]:
        raise RuntimeError("the password is hunter2")


class Unsendable(FakeToolbox):
    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        return ToolResult({"said": object()}, "the password is hunter2")


@pytest.mark.parametrize("params", [{}, STATELESS])
@pytest.mark.parametrize(
    ("toolbox", "method", "call"),
    [
        (FakeToolbox, "tools/call", {"name": "crash"}),
        (Unlistable, "tools/list", {}),
        (Unsendable, "tools/call", {"name": "echo"}),
    ],
)
async def test_a_crash_is_logged_and_its_text_stays_inside(
    toolbox: type[FakeToolbox],
    method: str,
    call: dict[str, Any],
    params: dict[str, Any],
    nursery: trio.Nursery,
    autojump_clock: object,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain = Plain(Served(nursery, toolbox=toolbox()).stream, nursery)
    await plain.initialize()
    with caplog.at_level(logging.ERROR):
        reply = await plain.request(method, call | params)
    assert reply["error"]["code"] == INTERNAL_ERROR
    assert "hunter2" not in str(plain.heard)
    (record,) = caplog.records
    assert record.name == "fleetd.mcp"
    assert record.exc_info is not None
    assert (await plain.request("ping"))["result"] == {}


@pytest.mark.parametrize("params", [{}, STATELESS])
async def test_a_crash_of_the_sdk_s_session_answers_what_was_open_and_the_next_session_works(
    plain: Plain,
    served: Served,
    params: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    autojump_clock: object,
) -> None:
    await plain.initialize()
    open_call = plain.start("tools/call", {"name": "wait"} | params)
    await wait_all_tasks_blocked()
    assert served.toolbox.waiting == 1

    def broken(*_: object) -> None:
        raise RuntimeError("broken")

    with monkeypatch.context() as patch, caplog.at_level(logging.ERROR):
        patch.setattr("mcp.shared.jsonrpc_dispatcher.JSONRPCDispatcher._dispatch", broken)
        doomed = plain.start("tools/list", params)
        for id in (open_call, doomed):
            assert (await plain.answer(id))["error"]["code"] in (INTERNAL_ERROR, -32000)
    assert "mcp session crashed" in caplog.text
    if not params:
        await plain.initialize()
    assert "result" in await plain.request("tools/list", params)


# -- concurrency and cancellation ------------------------------------------------------------------------------------


async def test_calls_run_beside_each_other(plain: Plain, served: Served, autojump_clock: object) -> None:
    await plain.initialize()
    slow = [plain.start("tools/call", {"name": "wait", "arguments": {"text": str(n)}}) for n in range(10)]
    assert (await plain.call("echo", text="quick"))["result"]["structuredContent"] == {"said": "quick"}
    assert served.toolbox.waiting == 10
    served.toolbox.go_on.set()
    for n, id in enumerate(slow):
        assert (await plain.answer(id))["result"]["structuredContent"] == {"said": str(n)}


@pytest.mark.parametrize("params", [{"name": "wait"}, {"name": "wait", **STATELESS}])
async def test_a_cancellation_reaches_the_tool_and_is_not_answered(
    plain: Plain, served: Served, params: dict[str, object], autojump_clock: object
) -> None:
    await plain.initialize()
    plain.start("tools/call", params, "doomed")
    await wait_all_tasks_blocked()
    assert served.toolbox.waiting == 1
    plain.notify("notifications/cancelled", {"requestId": "doomed", "reason": "changed my mind"})
    await wait_all_tasks_blocked()
    assert (served.toolbox.waiting, served.toolbox.cancelled) == (0, 1)
    await plain.request("tools/list", STATELESS)
    assert "doomed" not in [message.get("id") for message in plain.heard]
    served.toolbox.go_on.set()
    assert "result" in await plain.request("tools/call", params, "doomed")


async def test_a_cancellation_means_one_identifier_of_one_type(
    plain: Plain, served: Served, autojump_clock: object
) -> None:
    """The SDK alone takes the text "7" for the number 7."""
    await plain.initialize()
    number = plain.start("tools/call", {"name": "wait", "arguments": {"text": "number"}}, 7)
    plain.start("tools/call", stateless(name="wait"), "7")
    await wait_all_tasks_blocked()
    plain.notify("notifications/cancelled", {"requestId": "7"})
    await wait_all_tasks_blocked()
    assert (served.toolbox.waiting, served.toolbox.cancelled) == (1, 1)
    served.toolbox.go_on.set()
    assert (await plain.answer(number))["result"]["structuredContent"] == {"said": "number"}


@pytest.mark.parametrize("params", [None, {}, {"requestId": "unknown"}, {"requestId": None}, {"requestId": [1]}])
async def test_a_cancellation_of_nothing_changes_nothing(plain: Plain, params: object, autojump_clock: object) -> None:
    await plain.initialize()
    plain.notify("notifications/cancelled", params)
    assert "result" in await plain.request("ping")


async def test_an_identifier_can_be_used_again_once_it_is_answered_and_not_before(
    plain: Plain, served: Served, autojump_clock: object
) -> None:
    await plain.initialize()
    plain.start("tools/call", {"name": "wait"}, "a")
    assert (await plain.request("tools/list", id="a"))["error"]["code"] == INVALID_REQUEST
    served.toolbox.go_on.set()
    assert "result" in await plain.answer("a")
    assert "result" in await plain.request("tools/list", id="a")


async def test_a_connection_has_a_bounded_number_of_open_requests(
    plain: Plain, served: Served, autojump_clock: object
) -> None:
    await plain.initialize()
    opened = [plain.start("tools/call", {"name": "wait"}) for _ in range(MAX_CALLS)]
    error = (await plain.call("echo"))["error"]
    assert error["code"] == REFUSED
    assert error["data"]["error"] == "too_many_calls"
    assert str(MAX_CALLS) in error["message"]
    served.toolbox.go_on.set()
    for id in opened:
        assert "result" in await plain.answer(id)
    assert "result" in await plain.call("echo")


async def test_the_end_of_the_client_cancels_what_it_asked_for(
    plain: Plain, served: Served, autojump_clock: object
) -> None:
    await plain.initialize()
    plain.start("tools/call", {"name": "wait"})
    plain.start("tools/call", stateless(name="wait"))
    await wait_all_tasks_blocked()
    started = trio.current_time()
    await served.stream.aclose()
    with trio.fail_after(10):
        await served.ended.wait()
    assert served.toolbox.cancelled == 2
    assert trio.current_time() - started < 0.5


async def test_answers_and_stray_notifications_are_ignored(plain: Plain, autojump_clock: object) -> None:
    plain.notify("notifications/initialized")
    plain.send({"jsonrpc": "2.0", "id": 1, "result": {}})
    await plain.initialize()
    plain.notify("notifications/roots/list_changed")
    plain.notify("notifications/no_such", {"x": 1})
    assert "result" in await plain.request("ping")


# -- what a message says ---------------------------------------------------------------------------------------------


def test_only_the_version_in_a_request_makes_it_stateless() -> None:
    bare = {"_meta": {"progressToken": 1}}
    assert era_of({"method": "tools/list", "params": STATELESS}) is Era.STATELESS
    assert era_of({"method": "initialize", "params": STATELESS}) is Era.HANDSHAKE
    for params in (None, {}, bare, {"_meta": None}, {"_meta": "io.modelcontextprotocol/protocolVersion"}):
        assert era_of({"method": "tools/list", "params": params}) is Era.HANDSHAKE
    assert era_of({"method": "tools/list"}) is Era.HANDSHAKE


def test_a_client_is_named_by_its_handshake_or_by_each_request() -> None:
    assert client_name({"method": "initialize", "params": initialize_params()}) == "plain"
    assert client_name({"method": "tools/list", "params": STATELESS}) == "plain"
    assert client_name({"method": "tools/list", "params": initialize_params()}) is None
    for info in (None, "x", {}, {"name": 7}, {"name": ""}, {"name": "\n\x1b"}):
        assert client_name({"method": "initialize", "params": {"clientInfo": info}}) is None


def test_a_client_s_name_is_cut_and_holds_no_control_characters() -> None:
    named = {"method": "initialize", "params": {"clientInfo": {"name": "a\x1b[31m\nb" + "x" * 1000}}}
    name = client_name(named)
    assert name is not None
    assert name.startswith("a[31mb")
    assert len(name) <= CLIENT_NAME_CHARS
