"""README and the example cannot rot: what they show is run, or at least loaded."""

from __future__ import annotations

import re
from pathlib import Path

from fleetd.agents import ADAPTERS
from fleetd.config import load
from fleetd.usage import build_parser

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


def test_its_configuration_loads_and_has_two_profiles() -> None:
    (text,) = blocks("yaml")
    assert len(load(text, shipped=ADAPTERS).profiles) == 2


def test_each_verb_that_it_shows_is_one_that_the_command_line_takes() -> None:
    import shlex

    parser = build_parser()
    shown = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("fleetd ")]
    assert len(shown) >= 6
    for line in shown:
        parser.parse_args(shlex.split(line, comments=True)[1:])


def test_ci_runs_its_test_command_word_for_word() -> None:
    command = next(block for block in blocks("sh") if "pytest" in block)
    assert command.strip().endswith("&& .venv/bin/pytest")
    assert "awk '/^## Test it/" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
