"""The face between the tools and whoever carries calls to them: MCP sessions, the command line, tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from fleetd.callers import Caller, Role

#: Characters of text in one tool result; longer ones are paged.
RESULT_CHARS = 20_000


class ToolSpec(msgspec.Struct, frozen=True):
    """A tool as a client sees it."""

    name: str
    description: str
    #: JSON Schema objects.
    input_schema: Mapping[str, Any]
    output_schema: Mapping[str, Any]


class ToolResult(msgspec.Struct, frozen=True):
    """What a call came to. A refused call is a result with ``is_error``, never a protocol error."""

    structured: Mapping[str, Any]
    #: The same as short text.
    text: str
    is_error: bool = False


class Toolbox(Protocol):
    """The tools of one daemon."""

    def specs(self, role: Role) -> Sequence[ToolSpec]:
        """The tools that a caller of this role gets, in a fixed order."""
        ...

    async def call(self, caller: Caller, name: str, arguments: Mapping[str, Any]) -> ToolResult:
        """Call a tool. The role is checked again; bad arguments, unknown tools and refusals are results."""
        ...
