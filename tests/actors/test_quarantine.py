"""The quarantine: long deadlines by credential, and the first half of the gate."""

from __future__ import annotations

import pytest

from actors.clock import NS_PER_S
from actors.gate import GateCheck
from actors.quarantine import ExhaustionSeen, Quarantine, Quarantined, SetCooldown
from actors.turn import Outcome, Status, TurnEnded
from tests.actors.recorders import Clock, Recorder, driven

S = NS_PER_S


def seen(at_s: int, credential: str = "c", resets_in_s: int | None = None) -> ExhaustionSeen:
    span = None if resets_in_s is None else resets_in_s * S
    outcome = Outcome(Status.EXHAUSTED, resets_in_ns=span)
    return ExhaustionSeen(credential, TurnEnded("m-1", "t-1", outcome, at_s * S))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def policy() -> Recorder:
    return Recorder("policy")


@pytest.fixture
def mail() -> Recorder:
    return Recorder("mail")


@pytest.fixture
def quarantine(clock: Clock, policy: Recorder, mail: Recorder) -> Quarantine:
    actor = Quarantine(1800 * S, policy=policy, mail=mail)
    driven(actor, clock)
    return actor


def test_exhaustion_shuts_its_credential_for_the_cooldown(quarantine: Quarantine, clock: Clock) -> None:
    quarantine.handle(seen(0))
    assert quarantine.handle(Quarantined()) == {"c": 1800 * S}
    clock.advance(1800)
    assert quarantine.handle(Quarantined()) == {}


def test_a_repeat_restarts_the_one_deadline(quarantine: Quarantine) -> None:
    quarantine.handle(seen(0))
    quarantine.handle(seen(100))
    assert quarantine.handle(Quarantined()) == {"c": 1900 * S}


@pytest.mark.parametrize(("said_s", "shut_s"), [(7200, 7200), (60, 60), (5, 60), (0, 60), (7 * 86_400, 86_400)])
def test_a_quota_that_says_when_it_comes_back_shuts_its_credential_until_then_within_a_minute_and_a_day(
    quarantine: Quarantine, said_s: int, shut_s: int
) -> None:
    quarantine.handle(seen(0, resets_in_s=said_s))
    assert quarantine.handle(Quarantined()) == {"c": shut_s * S}


def test_the_result_reaches_mail_after_the_deadline_is_set(quarantine: Quarantine, mail: Recorder) -> None:
    quarantine.handle(seen(0))
    assert [message.ticket for message in mail.only(TurnEnded)] == ["t-1"]


def test_a_gate_check_leaves_with_the_deadlines_of_the_credentials_it_asks_for(
    quarantine: Quarantine, policy: Recorder
) -> None:
    quarantine.handle(seen(0, "c"))
    quarantine.handle(seen(0, "d"))
    quarantine.handle(GateCheck("g", ("c", "e"), Recorder()))
    (check,) = policy.only(GateCheck)
    assert check.exhausted_until == {"c": 1800 * S}


def test_a_new_cooldown_holds_for_the_next_exhaustion(quarantine: Quarantine) -> None:
    quarantine.handle(seen(0, "c"))
    quarantine.handle(SetCooldown(60 * S))
    quarantine.handle(seen(0, "d"))
    assert quarantine.handle(Quarantined()) == {"c": 1800 * S, "d": 60 * S}
