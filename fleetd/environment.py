"""The environment that a member's program gets: chosen names, never the daemon's whole one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

#: Passed on from the daemon when it has them. No secret is among them, and nothing that says which terminal it is.
PASSED: Final = (
    "PATH",
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "TZ",
    "TMPDIR",
    "XDG_CONFIG_HOME",
    "XDG_CACHE_HOME",
    "XDG_DATA_HOME",
    "XDG_STATE_HOME",
    "XDG_RUNTIME_DIR",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
)
#: Says to a program below a member's pane which daemon is its own. It identifies nobody: the kernel does.
RUNTIME_DIR: Final = "FLEETD_RUNTIME_DIR"
#: Says which member of which daemon it was started as, for what leaves the pane; see :mod:`fleetd.strays`.
MEMBER: Final = "FLEETD_MEMBER"


class OwnMember(Exception):
    """A member has tried to start the daemon that it belongs to."""


def refuse_own_member(environ: Mapping[str, str], runtime_dir: str) -> None:
    """See that this process is not below a member of the daemon that it wants to start.

    Raises:
        OwnMember: it is; the daemon would stand below the member's pane and end with it.
    """
    target, _, daemon = environ.get(MEMBER, "").partition(" ")
    if target and daemon == runtime_dir:
        raise OwnMember(
            f"this process belongs to member {target} of the fleetd that it would start, which would end with it: "
            "start fleetd from a terminal of your own, or let a service manager do it"
        )


class MissingVariable(Exception):
    """A name in ``envFrom`` is not in the daemon's environment."""


def member_environment(
    daemon: Mapping[str, str], env: Mapping[str, str], env_from: Sequence[str], *, runtime_dir: str, target: str = ""
) -> dict[str, str]:
    """Compose a member's environment.

    Args:
        daemon: the daemon's own environment.
        env: values from the profile; they win.
        env_from: names that the profile takes from the daemon.
        runtime_dir: where the member's bridge finds this daemon.
        target: the member's; empty for a lead's program.

    Raises:
        MissingVariable: a name in ``env_from`` is not set.
    """
    missing = [name for name in env_from if name not in daemon]
    if missing:
        raise MissingVariable(
            f"envFrom names {', '.join(missing)}, which the daemon's environment does not have: "
            "set it before fleetd up, or take it out of the profile"
        )
    passed = {name: daemon[name] for name in (*PASSED, *env_from) if name in daemon}
    marks = {RUNTIME_DIR: runtime_dir, **({MEMBER: f"{target} {runtime_dir}"} if target else {})}
    return {**passed, **env, **marks}
