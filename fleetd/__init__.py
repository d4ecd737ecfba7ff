"""The fleetd daemon and its clients: everything that touches the world. The decisions are taken in :mod:`actors`."""

__version__ = "0.1.0"
