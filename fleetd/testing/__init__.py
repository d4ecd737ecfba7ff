"""The test harness: a whole fleet on Trio's fake clock, with scripted panes.

For fleetd's own tests, and for those of people who write profiles, adapters and policies for it; ``docs/testing.md``
says how. The pytest plugin is loaded where fleetd is installed.
"""

from fleetd.testing.clock import advance, settle
from fleetd.testing.descriptors import DescriptorOpened, no_descriptors
from fleetd.testing.fleet import Fleet
from fleetd.testing.people import Lead, Member, Ticket

__all__ = ["DescriptorOpened", "Fleet", "Lead", "Member", "Ticket", "advance", "no_descriptors", "settle"]
