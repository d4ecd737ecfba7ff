"""The pytest plugin: fixtures for stories on the fake clock. It needs pytest-trio beside it.

``fleet``
    A running :class:`fleetd.testing.Fleet`, which is also the clock of the test. A failing test prints its timeline.
``fleet_config``
    The text of the configuration; by default that of ``fleetd.yaml`` beside the tests' root. Override it in a module,
    or give one test its own with ``@pytest.mark.fleet_config("...")``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fleetd.testing.fleet import Fleet


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fleet_config(text): the fleetd.yaml of this test's fleet")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "fleet" in getattr(item, "fixturenames", ()):
            item.add_marker("trio")


@pytest.fixture
def fleet_config(pytestconfig: pytest.Config) -> str:
    path = Path(pytestconfig.rootpath) / "fleetd.yaml"
    if not path.is_file():
        pytest.fail(f"there is no {path}: add one, override fleet_config, or mark the test with fleet_config(text)")
    return path.read_text(encoding="utf-8")


@pytest.fixture
def fleet(request: pytest.FixtureRequest) -> Fleet:
    # Imported here: pytest loads this module in every project where fleetd is installed.
    from fleetd.testing.fleet import Fleet

    marker = request.node.get_closest_marker("fleet_config")
    text = marker.args[0] if marker is not None else request.getfixturevalue("fleet_config")
    return Fleet(text)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, None, None]:
    """Run the fleet around the test's body, inside the run whose clock it is."""
    if isinstance(item, pytest.Function) and "fleet" in item.funcargs:
        fleet: Fleet = item.funcargs["fleet"]  # type: ignore[assignment]
        item.obj = _in_fleet(item, item.obj, fleet)
    return (yield)


def _in_fleet(item: pytest.Item, test: Callable[..., Awaitable[None]], fleet: Fleet) -> Callable[..., Awaitable[None]]:
    from fleetd.testing.descriptors import no_descriptors

    @wraps(test)
    async def run(*args: Any, **kwargs: Any) -> None:
        try:
            with no_descriptors():
                async with fleet.running():
                    await test(*args, **kwargs)
        except Exception:
            item.add_report_section("call", "fleetd timeline", str(fleet.timeline))
            raise

    return run
