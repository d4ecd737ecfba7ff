"""The block for leads stands in three places, and is one text."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetd.cli import main

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- fleetd prompt: begin -->\n", "<!-- fleetd prompt: end -->\n"


def block(page: str) -> bytes:
    """What stands between the marks, byte for byte."""
    text = (ROOT / page).read_bytes()
    return text.partition(BEGIN.encode())[2].partition(END.encode())[0]


@pytest.mark.criterion("U5.16")
def test_the_block_is_byte_identical_in_claude_md_and_the_use_case_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prompt"]) == 0
    printed = capsys.readouterr().out.encode()
    assert block("CLAUDE.md") == block("docs/use-cases.md") == printed
    assert printed


@pytest.mark.criterion("U5.16")
def test_the_block_tells_leads_how_a_cool_off_is_reported() -> None:
    text = block("CLAUDE.md").decode()
    for word in (
        "fleet_profiles",
        "`coolingOff`",
        "fleet_list",
        "`coolingOffForSeconds`",
        "`free: 0`",
        "`credentialId`",
    ):
        assert word in text
