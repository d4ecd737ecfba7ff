"""A fleet that lives for hours with failures of every kind: ``bench/soak.py`` in small, on the same fake clock."""

from __future__ import annotations

import random

import pytest

from bench.soak import Soak, Wrong, config
from fleetd.testing import Fleet

MEMBERS = 12


@pytest.mark.fleet_config(config(MEMBERS))
async def test_hours_of_failures_leave_nothing_behind_and_every_send_ends_once(fleet: Fleet) -> None:
    soak = Soak(fleet, MEMBERS, random.Random(4))
    await soak.run(hours=3)
    assert soak.sends == soak.ended.total() == 3 * 2 * (MEMBERS // 6)
    assert len(soak.ended) > 1
    assert len(soak.readings) == 3
    fleet.actors.roster.forgotten = [0] * 1000  # type: ignore[attr-defined]
    await soak._measure()
    with pytest.raises(Wrong, match=r"roster\.forgotten holds 1000"):
        soak._check_growth()
