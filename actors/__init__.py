"""The actor kernel of fleetd and its actors: no sockets, no subprocesses, no YAML.

Start reading at :mod:`actors.actor` (the kernel), then :mod:`actors.resolver`, :mod:`actors.outage` and
:mod:`actors.push`, which carry the three ideas that fleetd exists for. What an actor takes stands in its own module.
"""
