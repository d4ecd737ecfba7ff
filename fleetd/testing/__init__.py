"""The test harness: a whole fleet on Trio's fake clock, with scripted panes.

For fleetd's own tests, and for those of people who write profiles, adapters and policies for it.
"""

from fleetd.testing.clock import advance, settle
from fleetd.testing.fleet import FleetInMemory, Lead, fleet_in_memory

__all__ = ["FleetInMemory", "Lead", "advance", "fleet_in_memory", "settle"]
