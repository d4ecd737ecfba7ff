"""Captures of the real programs and cases from public bug reports: no missed failure, and no false one."""

from __future__ import annotations

import pytest

from fleetd.agents import ADAPTERS
from tests.agents.corpus import CORPUS, DISPUTED, Capture, captures, reports

AGENTS = [agent for agent in ADAPTERS if (CORPUS / agent).is_dir()]


def labelled(capture: Capture) -> object:
    """The capture as a parameter; where its label is disputed, the test must fail."""
    name = str(capture)
    why = DISPUTED.get(name.rpartition(".")[0])
    return pytest.param(capture, id=name, marks=[pytest.mark.xfail(strict=True, reason=why)] if why else [])


@pytest.mark.parametrize("capture", [labelled(each) for agent in AGENTS for each in captures(agent)])
def test_a_capture_of_the_real_program_gets_the_verdict_that_its_backend_gave_cause_for(capture: Capture) -> None:
    row = capture.judged()
    assert row.verdict in capture.verdicts, row


@pytest.mark.parametrize("capture", [each for agent in AGENTS for each in reports(agent)], ids=str)
def test_a_pane_from_a_public_bug_report_gets_the_verdict_that_its_reporter_missed(capture: Capture) -> None:
    row = capture.judged()
    assert row.verdict in capture.verdicts, row
    if capture.resets_at is not None and row.verdict == "exhausted":
        assert row.resets_at == capture.resets_at
