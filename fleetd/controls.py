"""The daemon's own methods on the door: what a command line needs beside the tools."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, Protocol

import msgspec

from actors.actor import Refused
from actors.host import HostError, PaneRef
from actors.panes import Look
from actors.resets import local_now
from actors.roster import Find, Members
from fleetd.callers import Caller, Role
from fleetd.captures import Redactor, text_of
from fleetd.connection import Connection, UnknownMethod
from fleetd.events import take
from fleetd.fleet import Fleet
from fleetd.reload import ReloadPlan
from fleetd.toolbox import Toolbox


class NotAllowed(Refused):
    error = "not_allowed"


class BadParams(Refused):
    error = "bad_arguments"


class CannotAttach(Refused):
    error = "cannot_attach"


class Attachment(Protocol):
    """A live view of a pane; see :class:`fleetd.hosts.pty.Attachment`."""

    snapshot: bytes

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def write(self, data: bytes) -> None: ...

    async def resize(self, width: int, height: int) -> None: ...

    def close(self) -> None: ...


class AttachHow(Protocol):
    """How a person gets to a pane: a command to become, or a stream."""

    def command(self, pane: PaneRef) -> list[str] | None:
        """The command that attaches; ``None`` where the daemon must carry the bytes itself."""
        ...

    def lead_pane(self, lead: str) -> PaneRef | None:
        """The pane of a lead that fleetd itself has opened."""
        ...

    async def stream(self, pane: PaneRef) -> Attachment: ...


class Status(msgspec.Struct, frozen=True, rename="camel"):
    """``fleetd status``."""

    pid: int
    version: str
    uptime_seconds: int
    host: str
    members: int
    socket: str
    config: str | None


#: Largest size of a person's terminal that is passed on.
MAX_CELLS: Final = 1000


class DaemonControls:
    """What ``fleetd/...`` methods do. All but ``fleetd/call`` and ``fleetd/hook`` are for leads.

    Args:
        status: facts, given the number of members.
        reload: reads the configuration again; raises :class:`Refused` when it is not valid.
        secrets: the agent of a profile, and what takes its secrets out of a text.
        down: asks the daemon to end; with members, or without.
    """

    def __init__(
        self,
        fleet: Fleet,
        toolbox: Toolbox,
        attach: AttachHow,
        *,
        status: Callable[[int], Status],
        reload: Callable[[], Awaitable[ReloadPlan]],
        secrets: Callable[[str], tuple[str, Redactor]],
        down: Callable[[bool, Connection], str],
    ) -> None:
        self._fleet = fleet
        self._toolbox = toolbox
        self._attach = attach
        self._status = status
        self._reload = reload
        self._secrets = secrets
        self._down = down
        self._views: dict[str, Attachment] = {}
        self._opened = 0

    async def control(self, caller: Caller, method: str, params: Mapping[str, Any], connection: Connection) -> object:
        if method == "fleetd/call":
            return await self._call(caller, params)
        if method == "fleetd/hook":
            return await self._event(caller, params)
        if caller.role is not Role.LEAD:
            raise NotAllowed(f"{method} is for leads, and fleetd takes you for {caller.role} {caller.id}")
        match method:
            case "fleetd/status":
                members = await self._fleet.roster.ask(Members())
                return msgspec.to_builtins(self._status(len(members)))
            case "fleetd/reload":
                plan = await self._reload()
                return {"applied": list(plan.applied), "deferred": list(plan.deferred)}
            case "fleetd/down":
                return {"message": self._down(params.get("killMembers") is True, connection)}
            case "fleetd/record":
                return {"text": await self._record(params)}
            case "fleetd/attach":
                return await self._show(params, connection)
            case "fleetd/input":
                await self._type(self._view(params), _decoded(params))
                return {}
            case "fleetd/resize":
                await self._view(params).resize(_cells(params, "columns"), _cells(params, "rows"))
                return {}
            case _:
                raise UnknownMethod

    async def _call(self, caller: Caller, params: Mapping[str, Any]) -> object:
        tool, arguments = params.get("tool"), params.get("arguments", {})
        if not isinstance(tool, str) or not isinstance(arguments, dict):
            raise BadParams("fleetd/call needs a tool's name and an object of arguments")
        result = await self._toolbox.call(caller, tool, arguments)
        return {"structured": dict(result.structured), "text": result.text, "isError": result.is_error}

    async def _record(self, params: Mapping[str, Any]) -> str:
        """What a member's pane shows now, as a capture without its secrets."""
        target = params.get("target")
        if not isinstance(target, str):
            raise BadParams("fleetd/record needs a member's target")
        identity = (await self._fleet.roster.ask(Find(target))).identity
        frame = await self._fleet.panes.ask(Look(identity.pane, styled=True))
        agent, redact = self._secrets(identity.profile)
        return text_of(frame, agent, local_now().replace(microsecond=0), redact)

    async def _event(self, caller: Caller, params: Mapping[str, Any]) -> object:
        """An event of a member's own program. What it says settles that member's turn and nobody else's."""
        event = params.get("event")
        if caller.role is not Role.MEMBER:
            raise NotAllowed(
                f"fleetd/hook is for members' programs, and fleetd takes you for {caller.role} {caller.id}"
            )
        if not isinstance(event, dict):
            raise BadParams("fleetd/hook needs an object called event")
        member = await self._fleet.roster.ask(Find(caller.id))
        signals = await take(member.resolver, event)
        return {"taken": [signal.what for signal in signals]}

    # -- attach --------------------------------------------------------------------------------------------------

    async def _show(self, params: Mapping[str, Any], connection: Connection) -> object:
        """Answer with a command that attaches; or send what the pane prints until it ends, and answer then.

        What the person types comes over another connection, one request behind the other, so it stays in order.
        """
        target = params.get("target")
        if not isinstance(target, str):
            raise BadParams("fleetd/attach needs a member's target")
        pane = self._attach.lead_pane(target)
        if pane is None:
            pane = (await self._fleet.roster.ask(Find(target))).identity.pane
        self._opened += 1
        name = f"view-{self._opened}"
        try:
            command = self._attach.command(pane)
            if command is not None:
                return {"kind": "exec", "argv": command}
            view = self._views[name] = await self._attach.stream(pane)
            await view.resize(_cells(params, "columns"), _cells(params, "rows"))
            connection.notify("fleetd/output", {"view": name, "data": _encoded(view.snapshot)})
            async for chunk in view:
                connection.notify("fleetd/output", {"view": name, "data": _encoded(chunk)})
        except HostError as gone:
            raise CannotAttach(f"{target} is not shown: {gone}") from None
        finally:
            if name in self._views:
                self._views.pop(name).close()
        return {"kind": "stream"}

    async def _type(self, view: Attachment, data: bytes) -> None:
        try:
            await view.write(data)
        except HostError as gone:
            raise CannotAttach(f"not typed: {gone}") from None

    def _view(self, params: Mapping[str, Any]) -> Attachment:
        view = self._views.get(str(params.get("view")))
        if view is None:
            raise CannotAttach("there is no such view any more: the member has ended, or its view was closed")
        return view


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _decoded(params: Mapping[str, Any]) -> bytes:
    data = params.get("data")
    if not isinstance(data, str):
        raise BadParams("fleetd/input needs data in base64")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise BadParams("fleetd/input needs data in base64") from None


def _cells(params: Mapping[str, Any], name: str) -> int:
    value = params.get(name)
    if not isinstance(value, int) or not 1 <= value <= MAX_CELLS:
        raise BadParams(f"{name} is an integer from 1 to {MAX_CELLS}")
    return value
