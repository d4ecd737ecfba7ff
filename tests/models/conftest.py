"""What holds for all models."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """No log of thousands of incidents that never happened. A test that reads the log turns it on with ``caplog``."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
