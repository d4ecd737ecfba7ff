"""``fleetd doctor``: whether fleetd could work here, looked at before anything is started.

Each finding is one line that says what was looked at and, where something is wrong, what to do. Nothing is changed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path

import msgspec
import trio

from actors.host import HostError
from fleetd.agents import ADAPTERS
from fleetd.config import Config, ConfigError, HostName, find, read
from fleetd.coverage import degraded
from fleetd.hosts.tmux_commands import check_version
from fleetd.profiles import Profile
from fleetd.rundir import RuntimeDirError, check_runtime_dir


class Weight(StrEnum):
    OK = "ok"
    #: It works, with less than it could.
    WARNING = "warning"
    #: Something will not work.
    WRONG = "wrong"


class Finding(msgspec.Struct, frozen=True):
    what: str
    weight: Weight
    said: str


def examine(explicit: Path | None, directory: Path, environ: Mapping[str, str], cwd: Path) -> Iterator[Finding]:
    """Look at the terminal, the runtime directory, the configuration and each profile's program.

    Args:
        explicit: the configuration that was named, else the usual places are looked at.
        directory: the runtime directory.
    """
    yield _runtime(directory)
    path = find(explicit, environ, cwd, Path.home())
    if path is None:
        yield Finding("configuration", Weight.WRONG, "there is none: write one with fleetd init")
        yield _terminal(None)
        return
    try:
        config = read(path, shipped=ADAPTERS)
    except ConfigError as bad:
        yield Finding("configuration", Weight.WRONG, str(bad))
        yield _terminal(None)
        return
    yield _configuration(path, config)
    yield _terminal(config.host)
    for profile in config.profiles.values():
        yield _program(profile, environ)


def _runtime(directory: Path) -> Finding:
    try:
        check_runtime_dir(directory)
    except FileNotFoundError:
        return Finding("runtime directory", Weight.OK, f"{directory} will be made by fleetd up")
    except RuntimeDirError as unsafe:
        return Finding("runtime directory", Weight.WRONG, str(unsafe))
    return Finding("runtime directory", Weight.OK, str(directory))


def _configuration(path: Path, config: Config) -> Finding:
    if not config.profiles:
        return Finding("configuration", Weight.WRONG, f"{path} has no profile, so nothing can be spawned: add one")
    if weak := degraded(config):
        return Finding(
            "configuration",
            Weight.WARNING,
            f"{path}: {', '.join(weak)} run on the legacy errorPattern, which misses real errors: give them one",
        )
    return Finding("configuration", Weight.OK, f"{path}, {len(config.profiles)} profiles")


def _terminal(wanted: HostName | None) -> Finding:
    if wanted is HostName.PTY:
        return Finding("terminal", Weight.WARNING, "host is pty: members end with the daemon")
    tmux = shutil.which("tmux")
    if tmux is None and wanted is HostName.TMUX:
        return Finding("terminal", Weight.WRONG, "host is tmux, and tmux is not installed: install it or use pty")
    if tmux is None:
        return Finding("terminal", Weight.WARNING, "tmux is not installed: members end with the daemon")
    try:
        trio.run(check_version, tmux)
    except HostError as bad:
        return Finding("terminal", Weight.WRONG, str(bad))
    return Finding("terminal", Weight.OK, tmux)


def _program(profile: Profile, environ: Mapping[str, str]) -> Finding:
    what = f"profile {profile.name}"
    argv = profile.command or (ADAPTERS[profile.agent].command if profile.agent else ())
    missing = [name for name in profile.env_from if name not in environ]
    if missing:
        return Finding(what, Weight.WRONG, f"envFrom names {', '.join(missing)}, which the environment does not have")
    path = profile.env.get("PATH", environ.get("PATH", os.defpath))
    program = argv[0] if "/" in argv[0] else shutil.which(argv[0], path=path)
    if program is None or not os.access(program, os.X_OK):
        return Finding(what, Weight.WRONG, f"{argv[0]} is not in PATH: install it or give its full path")
    return Finding(what, Weight.OK, str(program))
