"""Whole stories on the fake clock."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from trio.testing import MockClock

from fleetd.testing import FleetInMemory, fleet_in_memory

CONFIG = """
profiles:
  demo-a: {agent: demo, credentialId: shared, capacity: 4, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-b: {agent: demo, credentialId: shared, capacity: 2, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-c: {agent: demo, credentialId: other, capacity: 2, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""


@pytest.fixture
async def fleet(mock_clock: MockClock) -> AsyncIterator[FleetInMemory]:
    async with fleet_in_memory(CONFIG, mock_clock) as fleet:
        yield fleet
