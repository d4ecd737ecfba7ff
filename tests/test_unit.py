"""The unit for a service manager."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetd.unit import Unquotable, unit


def command(python: str, config: str) -> str:
    text = unit(python, Path(config), None)
    return next(line for line in text.splitlines() if line.startswith("ExecStart="))


def test_a_plain_command_stands_as_it_is() -> None:
    assert command("/usr/bin/python3", "/etc/fleetd.yaml") == (
        "ExecStart=/usr/bin/python3 -m fleetd up --foreground --config /etc/fleetd.yaml"
    )


def test_what_a_unit_would_expand_or_split_is_quoted() -> None:
    assert command("/opt/a b/python", '/x/100%/$HOME/q"uote/back\\slash.yaml') == (
        'ExecStart="/opt/a b/python" -m fleetd up --foreground --config "/x/100%%/$$HOME/q\\"uote/back\\\\slash.yaml"'
    )


def test_a_path_that_would_end_the_line_is_refused() -> None:
    with pytest.raises(Unquotable, match="control character"):
        unit("/usr/bin/python3", Path("/tmp/a\nExecStartPost=rm"), None)


def test_without_anything_chosen_the_usual_places_hold() -> None:
    assert "ExecStart=/p -m fleetd up --foreground\n" in unit("/p", None, None)
