"""The start-up coverage report."""

from __future__ import annotations

import pytest

from fleetd.config import Config, load
from fleetd.coverage import by_profile, degraded, report
from fleetd.views import Coverage
from tests.test_config import SHIPPED

MIXED = """
profiles:
  claude-a: {agent: claude, errorPattern: "", exhaustedPattern: "@claude"}
  codex-b: {agent: codex, errorPattern: "@codex"}
  other-c: {command: [other]}
"""


def config(text: str) -> Config:
    return load(text, shipped=SHIPPED)


@pytest.mark.criterion("U5.1")
def test_configured_and_legacy_profiles_are_reported_apart() -> None:
    assert report(config(MIXED)) == [
        "errorPattern: configured for codex-b; legacy default (degraded coverage) for claude-a, other-c",
        "exhaustedPattern: configured for claude-a; none (a used-up quota is not recognised) for codex-b, other-c",
    ]
    assert degraded(config(MIXED)) == ("claude-a", "other-c")


@pytest.mark.criterion("U5.1")
def test_each_profiles_coverage_is_data_for_the_tools() -> None:
    assert by_profile(config(MIXED)) == {
        "claude-a": Coverage(error_pattern="legacy default", exhausted_pattern="configured"),
        "codex-b": Coverage(error_pattern="configured", exhausted_pattern="none"),
        "other-c": Coverage(error_pattern="legacy default", exhausted_pattern="none"),
    }


def test_a_group_without_profiles_is_left_out() -> None:
    text = 'profiles: {claude-a: {agent: claude, errorPattern: "@claude", exhaustedPattern: "@claude"}}'
    assert report(config(text)) == [
        "errorPattern: configured for claude-a",
        "exhaustedPattern: configured for claude-a",
    ]
    assert degraded(config(text)) == ()


def test_a_configuration_without_profiles_says_so() -> None:
    assert report(Config()) == ["no profile is configured: nothing can be spawned until fleetd.yaml has one"]
    assert by_profile(Config()) == {}
