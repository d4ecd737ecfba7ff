"""A unit for systemd's user manager: ``fleetd unit > ~/.config/systemd/user/fleetd.service``.

The daemon says when it is ready and gives a sign of life each time every actor has answered. Only the daemon's own
process is stopped with the unit (``KillMode=process``): the terminal server with the members stays, and the next start
takes them over.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

_UNIT: Final = """\
[Unit]
Description=fleetd: launches coding agents for a lead and tells it truthfully how their turns end

[Service]
Type=notify
ExecStart={command}
ExecReload=kill -HUP $MAINPID
Restart=on-failure
RestartSec=1
WatchdogSec=60
TimeoutStopSec=30
KillMode=process
UMask=0077

[Install]
WantedBy=default.target
"""


class Unquotable(Exception):
    """A path with a control character has no place in a unit file."""


def unit(python: str, config: Path | None, runtime_dir: Path | None) -> str:
    """The unit's text.

    Args:
        python: the interpreter that fleetd is installed for.
        config: the configuration file; ``None`` leaves it to the usual places.
        runtime_dir: ``None`` for the user's own.

    Raises:
        Unquotable: a path cannot be written into a unit.
    """
    command = [python, "-m", "fleetd"]
    if runtime_dir is not None:
        command += ["--runtime-dir", str(runtime_dir.absolute())]
    command += ["up", "--foreground"]
    if config is not None:
        command += ["--config", str(config.absolute())]
    return _UNIT.format(command=_quoted(command))


def _quoted(words: Sequence[str]) -> str:
    """The words of a command line by systemd's rules: quotes, ``%%`` for ``%`` and ``$$`` for ``$``."""
    for word in words:
        if not word.isprintable():
            raise Unquotable(f"{word!r} cannot stand in a unit file: it has a control character")
    plain = [word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$") for word in words]
    return " ".join(f'"{word}"' if any(ch in word for ch in " \"';\\") else word for word in plain)
