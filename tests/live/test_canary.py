"""Secrets stay where they were put: see ``bench/canary.py`` for the places that are looked at."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetd.agents import ADAPTERS
from fleetd.agents.adapter import LaunchContext
from tests.live.scripts import script

pytestmark = pytest.mark.live


@pytest.mark.parametrize("host", ["tmux", "pty"])
def test_a_canary_in_every_place_that_a_secret_can_be_gets_to_no_other(host: str) -> None:
    assert f"{host}: 10 canaries, not in" in script("canary.py", "--host", host)


@pytest.mark.parametrize("agent", ADAPTERS)
def test_no_adapter_writes_its_members_secrets_into_a_command_line_or_a_file(agent: str, tmp_path: Path) -> None:
    adapter = ADAPTERS[agent]
    private = tmp_path / "member"
    private.mkdir(mode=0o700)
    env = {
        "HOME": str(tmp_path),
        "PATH": "/nowhere",
        **{f"{name}_API_KEY": "sesame" for name in ("ANTHROPIC", "OPENAI", "GEMINI", "DASHSCOPE", "MY")},
    }
    plan = adapter.plan(LaunchContext("m-1", adapter.command, env, "/", private, ("hook",), ("bridge",)))
    assert not [word for word in plan.argv if "sesame" in word]
    assert plan.env["MY_API_KEY"] == "sesame"
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and "sesame" in path.read_text()]
