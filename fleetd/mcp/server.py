"""The tools as the official SDK serves them. Importing this costs 1 to 2 s: only the session module does."""

from __future__ import annotations

import logging

import msgspec
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INTERNAL_ERROR,
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
)

from fleetd import __version__
from fleetd.callers import Caller
from fleetd.toolbox import Toolbox

log = logging.getLogger("fleetd.mcp")

SERVER_NAME = "fleetd"


def build_server(toolbox: Toolbox, caller: Caller, instructions: str) -> Server[dict[str, object]]:
    """A server for one client, which gets the tools of its role and nothing else."""

    async def list_tools(
        _: ServerRequestContext[dict[str, object]], __: PaginatedRequestParams | None
    ) -> ListToolsResult:
        try:
            specs = toolbox.specs(caller.role)
        except Exception:
            raise _internal_error(caller, "tools/list") from None
        return ListToolsResult(
            tools=[
                Tool(
                    name=spec.name,
                    description=spec.description,
                    input_schema=dict(spec.input_schema),
                    output_schema=dict(spec.output_schema),
                )
                for spec in specs
            ]
        )

    async def call_tool(_: ServerRequestContext[dict[str, object]], params: CallToolRequestParams) -> CallToolResult:
        try:
            result = await toolbox.call(caller, params.name, params.arguments or {})
            structured = msgspec.to_builtins(dict(result.structured))
        except Exception:
            raise _internal_error(caller, params.name) from None
        return CallToolResult(
            content=[TextContent(text=result.text)], structured_content=structured, is_error=result.is_error
        )

    return Server(
        SERVER_NAME,
        version=__version__,
        instructions=instructions or None,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _internal_error(caller: Caller, what: str) -> MCPError:
    """Log the exception in hand and say nothing of it to the client: its text may hold anything."""
    log.exception("tool crashed", extra={"fleet_tool": what, "fleet_caller": caller.id})
    return MCPError(INTERNAL_ERROR, "fleetd failed inside this call; its log has the reason")
