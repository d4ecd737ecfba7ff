"""The results of the tools as short text, for people and for the text part of an MCP result."""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch

from msgspec import UNSET

from fleetd import views


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns of left-aligned text, two spaces apart."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (header, *rows)]
    return "\n".join(line.rstrip() for line in lines)


@singledispatch
def render(view: views.View) -> str:
    """One result as text."""
    raise TypeError(f"{type(view).__name__} has no text form")


@render.register
def _(view: views.Listing) -> str:
    parts = []
    if view.members:
        rows = [
            (
                row.target,
                row.name,
                row.profile,
                row.state,
                f"{row.for_seconds} s",
                row.failure_reason if isinstance(row.failure_reason, str) else "",
            )
            for row in view.members
        ]
        parts.append(table(("TARGET", "NAME", "PROFILE", "STATE", "FOR", "REASON"), rows))
    else:
        parts.append("no members")
    rooms = []
    for room in view.profiles:
        shut = []
        if isinstance(room.quarantined_for_seconds, int):
            shut.append(f"{room.credential_id} exhausted, {room.quarantined_for_seconds} s")
        if isinstance(room.cooling_off_for_seconds, int):
            shut.append(f"{room.credential_id} cooling off, {room.cooling_off_for_seconds} s")
        rooms.append((room.name, f"{room.members}/{room.capacity}", str(room.free), "; ".join(shut)))
    if rooms:
        parts.append(table(("PROFILE", "MEMBERS", "FREE", "CREDENTIAL"), rooms))
    if view.tickets:
        sends = [(row.ticket, row.target, row.status or row.state) for row in view.tickets]
        parts.append(table(("TICKET", "TARGET", "STATE"), [(a, b, str(c)) for a, b, c in sends]))
    if view.questions:
        parts.append("\n".join(f"{row.question} from {row.target}: {row.text}" for row in view.questions))
    return "\n\n".join(parts)


@render.register
def _(view: views.Profiles) -> str:
    rows = [
        (
            row.name,
            row.agent if isinstance(row.agent, str) else "-",
            row.credential_id,
            f"{row.members}/{row.capacity}",
            str(row.free),
            row.coverage.error_pattern,
        )
        for row in view.profiles
    ]
    parts = [table(("PROFILE", "AGENT", "CREDENTIAL", "MEMBERS", "FREE", "ERRORS"), rows) if rows else "no profiles"]
    parts += [f"credential {name}: exhausted, {left} s remaining" for name, left in view.quarantined.items()]
    parts += [f"credential {name}: cooling off, {left} s remaining" for name, left in view.cooling_off.items()]
    return "\n".join(parts)


@render.register
def _(view: views.SpawnedView) -> str:
    sent = f", first prompt {view.ticket}" if isinstance(view.ticket, str) else ""
    return f"{view.target} ({view.name}) from {view.profile} in {view.cwd}{sent}"


@render.register
def _(view: views.SendResult) -> str:
    if view.status is UNSET:
        held = f", {view.held_for_seconds} s left" if isinstance(view.held_for_seconds, int) else ""
        return f"{view.ticket} to {view.target}: {view.state}{held}; still running, wait for it with fleet_wait"
    head = f"{view.ticket} to {view.target}: {view.status}"
    if isinstance(view.reason, str):
        head = f"{head}: {view.reason}"
    parts = [head]
    if isinstance(view.text, str) and view.text:
        parts.append(view.text)
    if isinstance(view.pages, int) and view.pages > 1:
        parts.append(f"(page {view.page} of {view.pages}: fleet_collect with page)")
    if view.truncated is True:
        parts.append("(the answer was longer than fleetd keeps and has been cut)")
    if isinstance(view.late_reply, str):
        parts.append(f"answered late:\n{view.late_reply}")
    return "\n".join(parts)


@render.register
def _(view: views.Waited) -> str:
    lines = []
    for row in view.ended:
        said = row.reason if isinstance(row.reason, str) else row.preview if isinstance(row.preview, str) else ""
        lines.append(f"{row.ticket} to {row.target}: {row.status}{': ' if said else ''}{said}")
    for running in view.running:
        held = f", {running.held_for_seconds} s left" if isinstance(running.held_for_seconds, int) else ""
        lines.append(f"{running.ticket} to {running.target}: still running ({running.state}{held})")
    return "\n".join(lines)


@render.register
def _(view: views.Peeked) -> str:
    return "\n".join(view.lines)


@render.register
def _(view: views.Answered) -> str:
    return f"{view.question} of {view.target} answered"


@render.register
def _(view: views.Interrupted) -> str:
    ended = ", ".join(view.tickets) if view.tickets else "no send was open"
    return f"{view.target} interrupted: {ended}"


@render.register
def _(view: views.ReleasedView) -> str:
    return f"{view.target} released"


@render.register
def _(view: views.Explanation) -> str:
    lines = [f"{view.target}: {view.verdict}"]
    for name in ("ticket", "reason", "source", "pattern", "line", "turn_seconds"):
        value = getattr(view, name)
        if value is not UNSET:
            lines.append(f"  {name.replace('_', ' ')}: {value}")
    lines += [f"  considered {row.what}: {row.found}" for row in view.considered]
    if isinstance(view.lost_races, dict) and view.lost_races:
        races = ", ".join(f"{name} {count}" for name, count in view.lost_races.items())
        lines.append(f"  came second: {races}")
    lines.append("  frame:")
    lines += [f"    {line}" for line in view.frame]
    return "\n".join(lines)


@render.register
def _(view: views.Health) -> str:
    lines = [
        f"fleetd {view.version}, pid {view.pid}, up {view.uptime_seconds} s, host {view.host}",
        f"health coverage: {view.health_coverage}",
        *view.coverage,
    ]
    lines += [f"{row.target} has been {row.state} for {row.for_seconds} s" for row in view.findings]
    if view.deferred:
        lines.append(f"waits for a restart: {', '.join(view.deferred)}")
    return "\n".join(lines)


@render.register
def _(view: views.Replied) -> str:
    return f"your answer is with your lead ({view.ticket})"


@render.register
def _(view: views.AskedView) -> str:
    if isinstance(view.answer, str):
        return view.answer
    return f"no answer yet: call fleet_ask with question {view.question} to go on waiting"


@render.register
def _(view: views.WhoAmI) -> str:
    return f"{view.role} {view.id}"
