"""What holds for all tests: Hypothesis has no deadline, and what runs in virtual time touches nothing real."""

from __future__ import annotations

from collections.abc import Generator
from functools import wraps
from inspect import iscoroutinefunction
from typing import Any

import pytest
from hypothesis import settings
from trio.testing import MockClock

from fleetd.testing import no_descriptors

# The machines are noisy: a slow example is no failing one. The same tests draw the same examples, so that no change is
# refused for what it did not touch; ``--hypothesis-profile=deep`` goes looking, after a change of a rule.
settings.register_profile("fleetd", deadline=None, derandomize=True, database=None)
settings.register_profile("deep", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile("fleetd")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """A test whose time is virtual opens no descriptor. Those that take ``fleet`` are guarded by the plugin itself."""
    if not isinstance(item, pytest.Function) or not iscoroutinefunction(item.obj):
        return (yield)
    if any(isinstance(value, MockClock) for value in item.funcargs.values()):
        test = item.obj

        @wraps(test)
        async def guarded(*args: Any, **kwargs: Any) -> None:
            with no_descriptors():
                await test(*args, **kwargs)

        item.obj = guarded
    return (yield)
