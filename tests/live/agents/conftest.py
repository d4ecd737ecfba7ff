"""Says at the end of a run which of the real agent programs were in it."""

from __future__ import annotations

import pytest

from tests.live.agents.programs import found


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found:
        terminalreporter.section("real agent programs")
        for package, what in sorted(found.items()):
            terminalreporter.write_line(f"{package}: {what}")
