"""The health monitor: slow, apart from the outage path, and told once."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import trio
from trio.testing import MockClock

from actors.clock import NS_PER_S
from actors.health import Coverage, Findings, Health, HealthSettings, Sample, SetHealth
from actors.member import MemberState

S = NS_PER_S


class Bench:
    def __init__(self, settings: HealthSettings) -> None:
        self.samples: tuple[Sample, ...] = ()
        self.posted: list[tuple[str, Mapping[str, object]]] = []
        self.fails = False
        self.health = Health(settings, sample=self._sample, post=self._post)

    async def _sample(self) -> tuple[Sample, ...]:
        return self.samples

    async def _post(self, url: str, event: Mapping[str, object]) -> None:
        if self.fails:
            raise OSError("no route")
        self.posted.append((url, event))

    def member(self, state: MemberState) -> None:
        self.samples = (Sample("m-1", state, round(trio.current_time() * S)),)

    async def found(self) -> list[tuple[str, str]]:
        return [(each.target, each.state) for each in await self.health.ask(Findings())]


@pytest.mark.parametrize(
    ("settings", "coverage"),
    [
        (HealthSettings(enabled=False, webhook="http://x"), Coverage.OFF),
        (HealthSettings(), Coverage.DETECTION_ONLY),
        (HealthSettings(webhook="http://x"), Coverage.FULL),
    ],
)
def test_coverage_says_whether_anybody_would_hear(settings: HealthSettings, coverage: Coverage) -> None:
    assert settings.coverage is coverage


async def test_a_member_that_stands_too_long_is_told_once_when_it_begins_and_once_when_it_is_over(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    bench = Bench(HealthSettings(webhook="http://x"))
    nursery.start_soon(bench.health.run)
    bench.member(MemberState.BLOCKED)
    await trio.sleep(290)
    assert await bench.found() == []
    await trio.sleep(120)
    assert await bench.found() == [("m-1", "blocked")]
    bench.member(MemberState.IDLE)
    await trio.sleep(60)
    assert await bench.found() == []
    assert [(url, event["event"], event["target"]) for url, event in bench.posted] == [
        ("http://x", "begun", "m-1"),
        ("http://x", "over", "m-1"),
    ]


async def test_a_lost_member_is_a_finding_at_once(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    bench = Bench(HealthSettings())
    bench.member(MemberState.LOST)
    nursery.start_soon(bench.health.run)
    await trio.sleep(1)
    assert await bench.found() == [("m-1", "lost")]
    assert bench.posted == []


async def test_switched_off_it_does_not_look(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    bench = Bench(HealthSettings(enabled=False))
    bench.member(MemberState.LOST)
    nursery.start_soon(bench.health.run)
    await trio.sleep(120)
    assert await bench.found() == []
    bench.health.tell(SetHealth(HealthSettings()))
    await trio.sleep(60)
    assert await bench.found() == [("m-1", "lost")]


async def test_a_webhook_that_fails_is_logged_and_nothing_else(
    autojump_clock: MockClock, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    bench = Bench(HealthSettings(webhook="http://x"))
    bench.fails = True
    bench.member(MemberState.LOST)
    nursery.start_soon(bench.health.run)
    await trio.sleep(120)
    assert "webhook failed" in caplog.text
    assert await bench.found() == [("m-1", "lost")]
