"""Real agent programs: which of their tests always run, and which of the programs were in a run.

What each program must show is in the shared suite, and a lead of it in ``test_*_lead.py``. The rest are the traps of
one program or of an older version of it. They take an hour together, and are for whoever changes its adapter.
"""

from __future__ import annotations

import pytest

from tests.live.agents.programs import found
from tests.live.agents.suite import AgentSuite


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and item.cls is not None and "tests/live/agents" in item.path.as_posix():
            shared = item.function.__name__ in vars(AgentSuite) or item.path.stem.endswith("_lead")
            if not shared or "Older" in item.cls.__name__:
                item.add_marker("thorough")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found:
        terminalreporter.section("real agent programs")
        for package, what in sorted(found.items()):
            terminalreporter.write_line(f"{package}: {what}")
