"""``fleetd init`` and ``fleetd doctor``: the first two minutes with fleetd."""

from __future__ import annotations

from pathlib import Path

import pytest

from fleetd.agents import ADAPTERS
from fleetd.cli import main
from fleetd.config import load
from fleetd.doctor import Finding, Weight, examine
from fleetd.init import first_config


def test_the_first_configuration_has_a_profile_for_each_program_that_is_installed() -> None:
    text, agents = first_config(lambda program: f"/usr/bin/{program}" if program in ("claude", "codex") else None)
    assert agents == ("claude", "codex")
    config = load(text, shipped=ADAPTERS)
    assert [(profile.agent, profile.credential_id) for profile in config.profiles.values()] == [
        ("claude", "claude-account"),
        ("codex", "codex-account"),
    ]
    assert all(profile.error_pattern and profile.exhausted_pattern for profile in config.profiles.values())


def test_where_no_agent_is_installed_the_first_configuration_has_the_scripted_one() -> None:
    text, agents = first_config(lambda _: None)
    assert agents == ("demo",)
    assert list(load(text, shipped=ADAPTERS).profiles) == ["demo"]


def test_init_writes_no_file_over_another(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "fleetd.yaml"
    assert main(["init", str(file)]) == 0
    written = file.read_text()
    assert main(["init", str(file)]) == 1
    assert "cannot be written: File exists" in capsys.readouterr().err
    assert file.read_text() == written


def examined(tmp_path: Path, text: str | None, **environ: str) -> dict[str, Finding]:
    file = tmp_path / "fleetd.yaml"
    if text is not None:
        file.write_text(text)
    environ.setdefault("PATH", "/usr/bin:/bin")
    return {found.what: found for found in examine(file if text else None, tmp_path / "run", environ, tmp_path)}


def test_without_a_configuration_it_says_how_to_get_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    found = examined(tmp_path, None)["configuration"]
    assert (found.weight, found.said) == (Weight.WRONG, "there is none: write one with fleetd init")


def test_a_configuration_that_does_not_load_is_wrong_and_says_where(tmp_path: Path) -> None:
    found = examined(tmp_path, "profiles: {a: {agent: nonesuch}}")["configuration"]
    assert found.weight is Weight.WRONG
    assert "profiles.a.agent" in found.said


def test_a_profile_on_the_legacy_pattern_is_a_warning(tmp_path: Path) -> None:
    found = examined(tmp_path, "profiles: {a: {command: [/bin/sh]}}")
    assert found["configuration"].weight is Weight.WARNING
    assert "a run on the legacy errorPattern" in found["configuration"].said
    assert found["profile a"].weight is Weight.OK


def test_a_program_that_is_not_there_and_a_variable_that_is_not_set_are_wrong(tmp_path: Path) -> None:
    text = """
host: pty
profiles:
  gone: {command: [no-such-agent]}
  poor: {command: [sh], envFrom: [NO_SUCH_KEY]}
  nowhere: {command: [/no/such/agent]}
"""
    found = examined(tmp_path, text)
    assert "no-such-agent is not in PATH" in found["profile gone"].said
    assert "NO_SUCH_KEY" in found["profile poor"].said
    assert found["profile nowhere"].weight is Weight.WRONG
    assert found["terminal"] == Finding("terminal", Weight.WARNING, "host is pty: members end with the daemon")


def test_a_runtime_directory_that_lets_others_in_is_wrong_and_says_what_to_run(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir(mode=0o755)
    found = examined(tmp_path, "profiles: {a: {agent: demo}}")["runtime directory"]
    assert found.weight is Weight.WRONG
    assert "chmod 700" in found.said
