"""``--hypothesis-profile=deep``: the models with twenty times the examples, for a night or after a change of a rule."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

settings.register_profile("deep", deadline=None, max_examples=2000, print_blob=True)


@pytest.fixture(autouse=True, scope="module")
def _quiet() -> Iterator[None]:
    """No log of thousands of incidents that never happened. A test that reads the log turns it on with ``caplog``."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
