"""The demo fleet on real terminals, for tests of what only real panes can show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from fleetd.agents import ADAPTERS
from fleetd.callers import Caller, Role
from fleetd.hosts.pty import PtyHost
from fleetd.hosts.tmux import TmuxHost
from tests.live.running import Running, private_run, serving

CONFIG = """
outage: {coolOffSeconds: 6}
quarantineCooldownSeconds: 600
profiles:
  demo-a: {agent: demo, credentialId: shared, capacity: 8, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-b: {agent: demo, credentialId: shared, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-c: {agent: demo, credentialId: other, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""


@pytest.fixture(params=["tmux", "pty"])
async def running(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Running]:
    directory = private_run(tmp_path)
    host = TmuxHost(directory) if request.param == "tmux" else PtyHost(directory)
    async with serving(tmp_path, CONFIG, host) as running:
        lead, _ = await running.daemon.who.open_lead(ADAPTERS["demo"], str(tmp_path))
        running.lead = Caller(Role.LEAD, lead, str(tmp_path))
        yield running
