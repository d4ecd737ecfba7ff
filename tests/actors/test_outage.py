"""The outage policy, rule and actor: two failures close together are one outage of the credential."""

from __future__ import annotations

from itertools import permutations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from actors.clock import NS_PER_S, ceil_seconds, from_seconds
from actors.gate import GateCheck, GateRead
from actors.leads import Incident
from actors.outage import (
    DEFAULT,
    BackendErrorSeen,
    Cooling,
    CoolOffs,
    Crossing,
    Evidence,
    OutagePolicy,
    OutageSettings,
    Retune,
)
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, driven

S = NS_PER_S


def error(at_ns: int, *, credential: str = "c", target: str = "m-1", ticket: str = "", profile: str = "p") -> Evidence:
    return Evidence(credential, target, ticket or f"t-{target}-{at_ns}", profile, "lead-1", at_ns)


def record(rule: CoolOffs, *evidence: Evidence) -> list[Crossing]:
    return [crossing for each in evidence if (crossing := rule.record(each)) is not None]


@pytest.fixture
def rule() -> CoolOffs:
    return CoolOffs(DEFAULT)


@pytest.mark.criterion("U2.1")
def test_one_error_makes_no_incident_and_cools_nothing(rule: CoolOffs) -> None:
    assert record(rule, error(0)) == []
    assert rule.cooling(0) == {}


@pytest.mark.criterion("U2.2")
def test_two_errors_within_the_window_make_one_incident_and_cool_for_sixty_seconds(rule: CoolOffs) -> None:
    first, second = error(0), error(10 * S, target="m-2")
    assert record(rule, first, second) == [Crossing((first, second), 70 * S)]
    assert rule.until("c", 70 * S - 1) == 70 * S
    assert rule.until("c", 70 * S) is None


@pytest.mark.criterion("U2.3")
def test_two_errors_further_apart_than_the_window_make_no_incident(rule: CoolOffs) -> None:
    assert record(rule, error(0), error(60 * S + 1)) == []


@pytest.mark.criterion("U2.4")
@pytest.mark.parametrize(("apart_ns", "incidents"), [(60 * S - 1, 1), (60 * S, 1), (60 * S + 1, 0)])
def test_the_window_is_inclusive_to_the_nanosecond(rule: CoolOffs, apart_ns: int, incidents: int) -> None:
    assert len(record(rule, error(5), error(5 + apart_ns))) == incidents


@pytest.mark.criterion("U2.5")
def test_credentials_never_share_evidence(rule: CoolOffs) -> None:
    assert record(rule, error(0, credential="a"), error(1, credential="b")) == []


@pytest.mark.criterion("U2.6")
def test_profiles_of_one_credential_share_evidence(rule: CoolOffs) -> None:
    (crossing,) = record(rule, error(0, profile="p"), error(1, profile="q"))
    assert [each.profile for each in crossing.evidence] == ["p", "q"]


@pytest.mark.criterion("U2.7")
def test_errors_during_a_cool_off_neither_extend_it_nor_open_another_incident(rule: CoolOffs) -> None:
    assert len(record(rule, error(0), error(1))) == 1
    assert record(rule, error(2), error(30 * S), error(60 * S)) == []
    assert rule.until("c", 60 * S) == 60 * S + 1


@pytest.mark.criterion("U2.8")
def test_after_a_cool_off_two_fresh_errors_are_needed(rule: CoolOffs) -> None:
    record(rule, error(0), error(1 * S), error(60 * S))
    assert record(rule, error(61 * S)) == []
    assert len(record(rule, error(62 * S))) == 1


@pytest.mark.criterion("U2.9")
@pytest.mark.parametrize(("left_ns", "seconds"), [(1, 1), (S, 1), (S + 1, 2), (60 * S, 60), (0, 0), (-5, 0)])
def test_remaining_seconds_round_up(left_ns: int, seconds: int) -> None:
    assert ceil_seconds(left_ns) == seconds


def test_the_same_send_counts_once(rule: CoolOffs) -> None:
    assert record(rule, error(0, ticket="t-1"), error(1, ticket="t-1")) == []


def test_an_error_from_before_the_end_of_a_cool_off_cannot_open_another_however_late_it_comes(rule: CoolOffs) -> None:
    record(rule, error(0), error(1 * S))
    assert record(rule, error(60 * S, target="m-8"), error(61 * S, target="m-9")) == []
    assert len(record(rule, error(61 * S + 1, target="m-10"))) == 1


@pytest.mark.parametrize("threshold", [1, 2, 3, 4])
def test_the_threshold_is_the_number_of_errors_that_it_takes(threshold: int) -> None:
    rule = CoolOffs(OutageSettings(threshold=threshold))
    assert record(rule, *(error(at) for at in range(threshold - 1))) == []
    assert len(record(rule, error(threshold))) == 1


def test_a_threshold_of_three_needs_all_three_in_one_window() -> None:
    rule = CoolOffs(OutageSettings(threshold=3))
    assert record(rule, error(0), error(50 * S), error(61 * S)) == []
    assert len(record(rule, error(110 * S))) == 1


def oracle(events: list[tuple[int, str]]) -> int:
    """Incidents of one credential, told from the seed's sentences and not from the code."""
    incidents, until, pending = 0, 0, []
    for at, ticket in events:
        if at < until:
            continue
        pending = [(then, other) for then, other in pending if at - then <= 60 * S and other != ticket]
        pending.append((at, ticket))
        if len(pending) == 2:
            incidents, until, pending = incidents + 1, at + 60 * S, []
    return incidents


@given(st.lists(st.tuples(st.integers(0, 90 * S), st.integers(0, 3)), max_size=30))
def test_any_sequence_agrees_with_the_oracle(steps: list[tuple[int, int]]) -> None:
    at, events = 0, []
    for step, ticket in steps:
        at += step
        events.append((at, f"t-{ticket}"))
    rule = CoolOffs(DEFAULT)
    assert len(record(rule, *(error(at, ticket=ticket) for at, ticket in events))) == oracle(events)


# -- the actor ------------------------------------------------------------------------------------------------------


def seen(evidence: Evidence) -> BackendErrorSeen:
    outcome = Outcome(Status.BACKEND_ERROR, reason="API Error: 529")
    return BackendErrorSeen(evidence, TurnEnded(evidence.target, evidence.ticket, outcome, evidence.at_ns))


class Bench:
    """An outage policy between recorders, on the test's clock."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.order: list[tuple[str, object]] = []
        self.leads, self.mail = Recorder("leads", self.order), Recorder("mail", self.order)  # type: ignore[arg-type]
        self.policy = OutagePolicy(DEFAULT, leads=self.leads, mail=self.mail)
        driven(self.policy, self.clock)

    def gate(self, *credentials: str, exhausted: dict[str, int] | None = None) -> GateRead:
        back = Recorder()
        self.policy.handle(GateCheck("g", credentials, back, exhausted or {}))
        (read,) = back.only(GateRead)
        return read


@pytest.mark.criterion("U2.10")
@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_three_errors_together_make_one_incident_in_any_order(order: tuple[int, ...]) -> None:
    bench = Bench()
    for index in order:
        bench.policy.handle(seen(error(index, target=f"m-{index}")))
    (incident,) = bench.leads.only(Incident)
    assert len(incident.targets) == 2
    assert len(bench.mail.only(TurnEnded)) == 2  # the third result travels with the incident


def test_an_incident_names_credential_members_profiles_and_leads_once_each() -> None:
    bench = Bench()
    bench.policy.handle(seen(error(0, target="m-1", profile="p")))
    bench.policy.handle(seen(error(4, target="m-2", profile="q")))
    (incident,) = bench.leads.only(Incident)
    assert (incident.id, incident.credential, incident.targets) == ("inc-1", "c", ("m-1", "m-2"))
    assert (incident.profiles, incident.leads) == (("p", "q"), ("lead-1",))
    assert (incident.evidence_count, incident.until_ns) == (2, 4 + 60 * S)
    assert incident.cause.target == "m-2"


def test_without_an_incident_the_result_goes_to_mail_and_the_leads_hear_nothing() -> None:
    bench = Bench()
    bench.policy.handle(seen(error(0)))
    assert [name for name, _ in bench.order] == ["mail"]


def test_the_gate_reports_what_cools_and_passes_on_what_is_exhausted() -> None:
    bench = Bench()
    bench.policy.handle(seen(error(0)))
    bench.policy.handle(seen(error(0, target="m-2")))
    read = bench.gate("c", "d", exhausted={"d": 99})
    assert (read.cooling_until, read.exhausted_until, read.hold_sends) == ({"c": 60 * S}, {"d": 99}, True)
    bench.clock.advance(60)
    assert bench.gate("c").cooling_until == {}


async def test_a_check_told_after_evidence_sees_it(nursery: trio.Nursery) -> None:
    """The gate stands behind the evidence in the same mailbox: there is no order of tasks in which it is missed."""
    policy = OutagePolicy(DEFAULT, leads=Recorder(), mail=Recorder())
    now = round(trio.current_time() * S)
    policy.tell(seen(error(now)))
    policy.tell(seen(error(now, target="m-2")))
    back = Recorder()
    policy.tell(GateCheck("g", ("c",), back))
    nursery.start_soon(policy.run)
    await trio.testing.wait_all_tasks_blocked()
    assert back.only(GateRead)[0].cooling_until == {"c": now + 60 * S}
    assert await policy.ask(Cooling()) == {"c": now + 60 * S}


def test_a_quarantine_that_ends_between_the_two_halves_of_a_check_is_not_in_what_the_gate_said() -> None:
    """Else a spawn would be refused "for 0 s more"."""
    bench = Bench()
    bench.clock.ns = 10 * S
    assert bench.gate("c", exhausted={"c": 10 * S}).exhausted_until == {}


def test_new_settings_hold_from_now_on_and_leave_a_running_cool_off_alone() -> None:
    bench = Bench()
    bench.policy.handle(seen(error(0)))
    bench.policy.handle(seen(error(0, target="m-2")))
    bench.policy.handle(Retune(OutageSettings(threshold=1, cool_off_ns=from_seconds(5), hold_sends=False)))
    assert bench.gate("c").cooling_until == {"c": 60 * S}
    bench.policy.handle(seen(error(61 * S, credential="d")))
    bench.clock.ns = 61 * S
    read = bench.gate("d")
    assert (read.cooling_until, read.hold_sends) == ({"d": 66 * S}, False)


def test_its_repr_is_its_state() -> None:
    bench = Bench()
    assert repr(bench.policy) == "<OutagePolicy [] cooling, 0 incidents>"
