"""The plugin as somebody outside uses it, and docs/testing.md word for word."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.live

DOCS = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", DOCS, re.MULTILINE | re.DOTALL)


def test_every_example_of_the_documentation_passes_for_somebody_outside(pytester: pytest.Pytester) -> None:
    (config,) = blocks("yaml")
    pytester.path.joinpath("fleetd.yaml").write_text(config)
    pytester.makepyfile(test_stories="\n\n".join(blocks("python")))
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(passed=6)


def test_a_failing_story_prints_its_timeline_by_actor(pytester: pytest.Pytester) -> None:
    (config,) = blocks("yaml")
    pytester.path.joinpath("fleetd.yaml").write_text(config)
    pytester.makepyfile(
        """
        async def test_wrong(fleet):
            helper = await fleet.spawn("a", profile="helper")
            helper.shows("> ")
            await fleet.advance(seconds=1)
            await fleet.lead().send("a", "hello")
            assert await helper.state() == "lost"
        """
    )
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(failed=1)
    text = result.stdout.str()
    assert "fleetd timeline" in text
    for word in ("resolver:m-1", "PromptTyped", "roster", "Delivered(target='m-1')", "mail", "OpenTicket"):
        assert word in text
    assert "Observed" not in text


@pytest.mark.parametrize(
    "opens",
    ["open('there.txt', 'w')", "__import__('socket').socket()", "__import__('subprocess').run(['true'])"],
)
def test_a_story_that_opens_a_descriptor_is_refused(pytester: pytest.Pytester, opens: str) -> None:
    (config,) = blocks("yaml")
    pytester.path.joinpath("fleetd.yaml").write_text(config)
    pytester.makepyfile(f"async def test_wrong(fleet):\n    {opens}\n")
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*DescriptorOpened*"])


def test_without_a_configuration_the_fixture_says_what_to_do(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("async def test_story(fleet):\n    pass\n")
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*fleetd.yaml: add one, override fleet_config*"])


def test_a_configuration_that_is_refused_fails_with_its_sentence(pytester: pytest.Pytester) -> None:
    pytester.path.joinpath("fleetd.yaml").write_text("profiles:\n  a: {agent: nonesuch}\n")
    pytester.makepyfile("async def test_story(fleet):\n    pass\n")
    result = pytester.runpytest_subprocess("-q")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*profiles.a.agent: no agent is called nonesuch*"])
