"""The words of a nudge: a fixed template, identifiers and integers.

Never a member's or a backend's own words. The lead's screen is read like any other, and a watchdog that quoted the
error to its lead re-triggered itself eight times; and a member that can speak to the lead's prompt can command it. A
property test shows that no nudge matches any shipped pattern.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec

from actors.clock import ceil_seconds

#: Characters of one nudge.
NUDGE_CHARS: Final = 600
#: Names listed before the rest is only counted; tried in turn until the nudge fits.
_LISTED: Final = (8, 4, 2, 1)


class Outage(msgspec.Struct, frozen=True):
    """Two failures were one outage: told once per incident and lead."""

    incident: str
    credential: str
    profiles: tuple[str, ...]
    workers: tuple[str, ...]
    until_ns: int

    @property
    def key(self) -> str:
        return self.incident


class Unattributed(msgspec.Struct, frozen=True):
    """A classified failure of a target that no credential is known for: correlation could not run."""

    target: str

    @property
    def key(self) -> str:
        return f"unattributed:{self.target}"


class EndedTicket(msgspec.Struct, frozen=True):
    ticket: str
    target: str
    status: str

    @property
    def key(self) -> str:
        return self.ticket


class LateAnswer(msgspec.Struct, frozen=True):
    """A member has answered after its send had ended."""

    ticket: str
    target: str

    @property
    def key(self) -> str:
        return f"late:{self.ticket}"


class OpenQuestion(msgspec.Struct, frozen=True):
    question: str
    target: str

    @property
    def key(self) -> str:
        return self.question


class AtDialog(msgspec.Struct, frozen=True):
    """A member waits for a person: a permission dialog, a question of its program."""

    target: str
    #: Which of its dialogs, counted by the roster: each is told once.
    episode: int

    @property
    def key(self) -> str:
        return f"dialog:{self.target}:{self.episode}"


Item = Outage | Unattributed | EndedTicket | LateAnswer | OpenQuestion | AtDialog


def _names(names: Sequence[str], listed: int) -> str:
    shown = ", ".join(names[:listed])
    return shown if len(names) <= listed else f"{shown} and {len(names) - listed} more"


def _outage(item: Outage, now_ns: int, listed: int) -> str:
    left = ceil_seconds(item.until_ns - now_ns)
    gate = f"no spawns on it for {left} s" if left else "its cool-off is over"
    return (
        f"Outage {item.incident}: credential {item.credential} (profiles {_names(item.profiles, listed)}), {gate}; "
        f"members hit: {_names(item.workers, listed)}. Run fleet_list."
    )


def _sentences(items: Sequence[Item], now_ns: int, listed: int) -> list[tuple[str, list[str]]]:
    """Each sentence with the keys of the items it tells."""
    told: list[tuple[str, list[str]]] = []
    for item in items:
        if isinstance(item, Outage):
            told.append((_outage(item, now_ns, listed), [item.key]))
    groups: list[tuple[type[Item], str]] = [
        (Unattributed, "Failed on an unknown credential, not correlated: {}. Run fleet_list."),
        (OpenQuestion, "Questions: {}. Use fleet_answer."),
        (AtDialog, "Waiting at a dialog: {}. Use fleet_peek."),
        (LateAnswer, "Answered late: {}. Use fleet_collect."),
        (EndedTicket, "Ended: {}. Use fleet_collect."),
    ]
    for kind, template in groups:
        found = [item for item in items if isinstance(item, kind)]
        if found:
            told.append(
                (template.format(_names([_label(item) for item in found], listed)), [each.key for each in found])
            )
    return told


def _label(item: Item) -> str:
    match item:
        case EndedTicket(ticket=ticket, target=target, status=status):
            return f"{ticket} ({target}, {status})"
        case LateAnswer(ticket=ticket, target=target):
            return f"{ticket} ({target})"
        case OpenQuestion(question=question, target=target):
            return f"{question} ({target})"
        case _:
            return item.target if isinstance(item, Unattributed | AtDialog) else item.key


def compose(items: Sequence[Item], now_ns: int) -> tuple[str, tuple[str, ...]]:
    """One paragraph of at most :data:`NUDGE_CHARS` characters, and the keys of the items that it tells.

    Items that do not fit are left for the next nudge. ``items`` must not be empty.
    """
    text = ""
    keys: list[str] = []
    for listed in _LISTED:
        text, keys = "[fleetd]", []
        complete = True
        for sentence, told in _sentences(items, now_ns, listed):
            if len(text) + 1 + len(sentence) > NUDGE_CHARS:
                complete = False
                continue
            text = f"{text} {sentence}"
            keys += told
        if complete:
            break
    return text, tuple(keys)
