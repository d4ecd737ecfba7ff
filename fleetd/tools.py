"""The tool table: who may call what, with which arguments, and what comes back.

The schemas come from the structs that decode the arguments and shape the results, so they cannot disagree with the
code. Every call is checked for its role here, whatever list of tools the caller was given.
"""

from __future__ import annotations

import inspect
import logging
import typing
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from actors.actor import ActorError, Refused
from actors.leads import LoopOf
from actors.prompt import harmless
from actors.push import TakeNotices
from fleetd import lead_tools, member_tools, views
from fleetd.callers import Caller, Role
from fleetd.lead_tools import Tooling
from fleetd.render import render
from fleetd.toolarg import Args
from fleetd.toolbox import ToolResult, ToolSpec

log = logging.getLogger("fleetd.tools")

Function = Callable[[Tooling, Caller, Any], Awaitable[views.View]]


class Tool:
    """One row of the table."""

    def __init__(self, function: Function, *roles: Role) -> None:
        hints = typing.get_type_hints(function)
        self.function = function
        self.roles = frozenset(roles)
        self.args: type[Args] = next(hint for hint in hints.values() if issubclass(hint, Args))
        result: type[views.View] = hints["return"]
        description = inspect.cleandoc(function.__doc__ or "")
        self.spec = ToolSpec(
            getattr(function, "__name__", ""), " ".join(description.split()), schema(self.args), schema(result)
        )


def schema(struct: type[msgspec.Struct]) -> dict[str, Any]:
    """A struct's JSON Schema with an object at the root, as MCP wants it."""
    (root,), components = msgspec.json.schema_components([struct], ref_template="#/$defs/{name}")
    name = root["$ref"].rsplit("/", 1)[1]
    built = dict(components.pop(name))
    built.pop("title", None)
    built.pop("description", None)
    if components:
        built["$defs"] = components
    return built


_LEAD_TOOLS: Final[tuple[Function, ...]] = (
    lead_tools.fleet_profiles,
    lead_tools.fleet_list,
    lead_tools.fleet_spawn,
    lead_tools.fleet_send,
    lead_tools.fleet_wait,
    lead_tools.fleet_collect,
    lead_tools.fleet_peek,
    lead_tools.fleet_answer,
    lead_tools.fleet_interrupt,
    lead_tools.fleet_release,
    lead_tools.fleet_explain,
    lead_tools.fleet_health,
)
_MEMBER_TOOLS: Final[tuple[Function, ...]] = (member_tools.fleet_reply, member_tools.fleet_ask)

TABLE: Final[Mapping[str, Tool]] = {
    tool.spec.name: tool
    for tool in (
        *(Tool(function, Role.LEAD) for function in _LEAD_TOOLS),
        *(Tool(function, Role.MEMBER) for function in _MEMBER_TOOLS),
        Tool(member_tools.fleet_whoami, Role.LEAD, Role.MEMBER),
    )
}


def refusal(error: str, message: str, **data: object) -> ToolResult:
    """A call that came to nothing, as its caller sees it."""
    return ToolResult({"error": error, **data, "message": message}, message, is_error=True)


class Tools:
    """The tools of one daemon; see :class:`fleetd.toolbox.Toolbox`."""

    def __init__(self, tooling: Tooling) -> None:
        self._tooling = tooling

    def specs(self, role: Role) -> Sequence[ToolSpec]:
        return [tool.spec for tool in TABLE.values() if role in tool.roles]

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Answers, questions and screens are members' words, and end on somebody's terminal: no control leaves here."""
        result = await self._call(caller, name, arguments)
        return ToolResult(_harmless(dict(result.structured)), harmless(result.text), result.is_error)

    async def _call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        tool = TABLE.get(name)
        if tool is None:
            return refusal("unknown_tool", f"no tool is called {name}")
        if caller.role not in tool.roles:
            who = "leads" if Role.LEAD in tool.roles else "members"
            return refusal("not_allowed", f"{name} is for {who}, and fleetd takes you for {caller.role} {caller.id}")
        try:
            args = msgspec.convert(dict(arguments), tool.args, strict=False)
        except msgspec.ValidationError as exc:
            return refusal("bad_arguments", f"{name} cannot be called like that: {exc}")
        try:
            view = await tool.function(self._tooling, caller, args)
        except Refused as no:
            result = ToolResult(no.data(), str(no), is_error=True)
        except ActorError as broken:
            log.error("tool not answered", extra={"fleet_tool": name, "fleet_reason": str(broken)})
            result = refusal("daemon_stalled", f"fleetd could not answer {name}: {broken}")
        else:
            failed = isinstance(view, views.SendResult) and view.status not in (msgspec.UNSET, "completed")
            result = ToolResult(views.dump(view), render(view), is_error=failed)
        return await self._with_notices(caller, result)

    async def _with_notices(self, caller: Caller, result: ToolResult) -> ToolResult:
        """What the lead could not be told in a pane goes with the result."""
        if caller.role is not Role.LEAD:
            return result
        loop = await self._tooling.fleet.leads.ask(LoopOf(caller.id))
        notices = await loop.ask(TakeNotices())
        if not notices:
            return result
        structured = {**result.structured, "notices": list(notices)}
        return ToolResult(structured, "\n".join([result.text, "", *notices]), result.is_error)


def _harmless(value: Any) -> Any:
    """A structure of builtins with every text in it made :func:`actors.prompt.harmless`."""
    match value:
        case str():
            return harmless(value)
        case dict():
            return {key: _harmless(inner) for key, inner in value.items()}
        case list() | tuple():
            return [_harmless(inner) for inner in value]
        case _:
            return value
