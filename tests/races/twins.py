"""Broken twins: each race is run against an actor with the mistake that the race is about, too, and must catch it."""

from __future__ import annotations

from typing import Any

import pytest


def twin(broken: Any, *more: Any) -> Any:
    """A parameter with which the test must fail."""
    return pytest.param(
        broken, *more, marks=pytest.mark.xfail(strict=True, raises=AssertionError), id=f"twin-{broken.__name__}"
    )
