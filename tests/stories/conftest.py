"""Whole stories on the fake clock."""

from __future__ import annotations

import pytest

CONFIG = """
profiles:
  demo-a: {agent: demo, credentialId: shared, capacity: 4, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-b: {agent: demo, credentialId: shared, capacity: 2, errorPattern: "@demo", exhaustedPattern: "@demo"}
  demo-c: {agent: demo, credentialId: other, capacity: 2, errorPattern: "@demo", exhaustedPattern: "@demo"}
"""


@pytest.fixture
def fleet_config() -> str:
    return CONFIG
