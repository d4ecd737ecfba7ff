"""The health monitor: a slow, periodic look at the members, apart from the outage path.

It samples what stands still for too long; it is never evidence and never speaks to a lead's pane. What it finds goes to
the webhook where one is configured, once when it begins and once when it is over.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from enum import StrEnum
from typing import Final

import msgspec
import outcome

from actors.actor import Actor, Ask, Message
from actors.clock import NS_PER_S, floor_seconds, from_seconds
from actors.member import MemberState

#: How long a member may stay in a state before it is a finding, in nanoseconds.
PATIENCE_NS: Final[Mapping[MemberState, int]] = {
    MemberState.STARTING: 120 * NS_PER_S,
    MemberState.BLOCKED: 300 * NS_PER_S,
    MemberState.BUSY: 3600 * NS_PER_S,
    MemberState.LOST: 0,
}


class Coverage(StrEnum):
    """``healthCoverage``: whether anybody would hear of a finding."""

    OFF = "off"
    #: Findings are logged and shown by ``fleet_health``; no webhook is configured.
    DETECTION_ONLY = "detection-only"
    FULL = "full"


class HealthSettings(msgspec.Struct, frozen=True):
    """``health`` in the configuration."""

    enabled: bool = True
    interval_ns: int = from_seconds(30)
    webhook: str | None = None

    @property
    def coverage(self) -> Coverage:
        if not self.enabled:
            return Coverage.OFF
        return Coverage.DETECTION_ONLY if self.webhook is None else Coverage.FULL


class Sample(msgspec.Struct, frozen=True):
    """One member at one look."""

    target: str
    state: MemberState
    since_ns: int


class Finding(msgspec.Struct, frozen=True):
    target: str
    state: MemberState
    for_seconds: int


class Findings(Ask[tuple[Finding, ...]], frozen=True):
    """What is wrong now."""


class SetHealth(Message, frozen=True):
    settings: HealthSettings


class Sampled(Message, frozen=True):
    """What a look at the roster gave."""

    samples: tuple[Sample, ...]


class _Look(Message, frozen=True):
    pass


class _Posted(Message, frozen=True):
    result: outcome.Outcome[None]


class Health(Actor):
    """Owns the findings.

    Args:
        sample: looks at the roster.
        post: delivers one event to the webhook.
    """

    def __init__(
        self,
        settings: HealthSettings,
        *,
        sample: Callable[[], Awaitable[tuple[Sample, ...]]],
        post: Callable[[str, Mapping[str, object]], Awaitable[None]],
    ) -> None:
        super().__init__("health")
        self._settings = settings
        self._sample = sample
        self._post = post
        self._findings: dict[str, Finding] = {}

    def __repr__(self) -> str:
        return f"<Health {self._settings.coverage}, {len(self._findings)} findings>"

    async def run(self) -> None:
        self.tell(_Look())
        await super().run()

    def handle(self, message: Message) -> object:
        match message:
            case _Look():
                self.after(self._settings.interval_ns, _Look())
                if self._settings.enabled:
                    self.start(self._sample, self._sampled, "sample")
            case Sampled(samples=samples):
                self._judge(samples)
            case _Posted(result=outcome.Error(error=error)):
                self.log.warning("webhook failed", extra={"fleet_reason": str(error)})
            case _Posted():
                pass
            case Findings():
                return tuple(self._findings.values())
            case SetHealth(settings=settings):
                self._settings = settings
            case _:
                raise self.unknown(message)
        return None

    def _sampled(self, result: outcome.Outcome[tuple[Sample, ...]]) -> Message:
        if isinstance(result, outcome.Value):
            return Sampled(result.value)
        self.log.warning("roster not sampled", extra={"fleet_reason": str(result)})
        return Sampled(())

    def _judge(self, samples: tuple[Sample, ...]) -> None:
        now = self.now()
        found = {
            sample.target: Finding(sample.target, sample.state, floor_seconds(now - sample.since_ns))
            for sample in samples
            if (patience := PATIENCE_NS.get(sample.state)) is not None and now - sample.since_ns >= patience
        }
        for target, finding in found.items():
            known = self._findings.get(target)
            if known is None or known.state is not finding.state:
                self._say("begun", finding)
        for target, finding in self._findings.items():
            if target not in found:
                self._say("over", finding)
        self._findings = found

    def _say(self, event: str, finding: Finding) -> None:
        self.log.warning("health %s", event, extra={"fleet_member": finding.target, "fleet_state": finding.state})
        webhook = self._settings.webhook
        if webhook is None:
            return
        body = {
            "event": event,
            "target": finding.target,
            "state": str(finding.state),
            "forSeconds": finding.for_seconds,
        }
        self.start(lambda: self._post(webhook, body), _Posted, "webhook")
