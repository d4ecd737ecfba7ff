"""Processes that came from a member and have left its pane's tree.

A pane's root process adopts what its descendants leave behind, so a double fork alone leads nowhere else. What is left
are processes that outlive the root, and those that were started through something outside of the tree (a tmux server
that the member has started, a job of a service manager). They must not be taken for a person: the kernel still has the
session that they were born in, and the environment that they were started with.

Both can be shed by code that means to. ``docs/security.md`` says what that leaves.
"""

from __future__ import annotations

from collections.abc import Mapping

from fleetd.environment import MEMBER
from fleetd.peer import PeerRefused, Process, process_start, started_with


class Stray(PeerRefused):
    """It came from a member, and does not stand in the member's tree any more."""


def refuse_strays(ancestry: tuple[Process, ...], roots: Mapping[tuple[int, int], str], runtime_dir: str) -> None:
    """See that a process that stands in no pane's tree did not come out of one.

    Args:
        roots: pid and start time of each pane's root process, released ones too, and its target.
        runtime_dir: this daemon's; members of another one are people to it.

    Raises:
        Stray: it did.
    """
    target = _by_session(ancestry, roots) or _by_environment(ancestry, runtime_dir)
    if target is not None:
        raise Stray(
            f"this process came from member {target} and has left its pane: it is neither the member nor a person; "
            "call from the member's own process tree, or from a terminal that no member has started"
        )


def _by_session(ancestry: tuple[Process, ...], roots: Mapping[tuple[int, int], str]) -> str | None:
    """A pane's root process leads the session of its terminal, and a session outlives its leader."""
    by_pid = {pid: (started, target) for (pid, started), target in roots.items()}
    for process in ancestry:
        if process.session in by_pid:
            started, target = by_pid[process.session]
            if process_start(process.session) in (None, started):
                return target
    return None


def _by_environment(ancestry: tuple[Process, ...], runtime_dir: str) -> str | None:
    """Every member is started with its name and its daemon in the environment."""
    for value in started_with(MEMBER, ancestry):
        target, _, daemon = value.partition(" ")
        if daemon == runtime_dir:
            return target
    return None
