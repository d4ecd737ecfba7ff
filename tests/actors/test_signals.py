"""Typed signals: what the program itself reports, against the screen and against other turns."""

from __future__ import annotations

from datetime import UTC, datetime

import msgspec
import pytest

from actors.classify import Kind
from actors.member import Blocked, RetryNoted, TurnDone, Unblocked
from actors.panes import Confirm, Observed, TypePrompt
from actors.screen import Frame, Reading, Retrying, Sent
from actors.sends import TimedOut
from actors.signal import Signal, What
from actors.turn import Failure, LateReply, Source, Status
from tests.actors.bench import SETUP, Bench, S
from tests.actors.recorders import TableGrammar, frame


@pytest.fixture
def bench() -> Bench:
    return Bench()


def began(turn: str = "p-1", text: str = "prompt of t-1") -> Signal:
    return Signal(What.BEGAN, turn, text)


def failed(kind: Kind = Kind.BACKEND_ERROR, turn: str = "p-1", text: str = "API Error: 529", **more: int) -> Signal:
    return Signal(What.FAILED, turn, text, kind, pattern="StopFailure server_error", **more)


def ended(turn: str = "p-1", text: str = "the answer") -> Signal:
    return Signal(What.ENDED, turn, text, pattern="Stop")


def test_a_typed_end_completes_the_send_with_its_text_however_fast_it_came(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.clock.advance(0.4)
    bench.tell(ended())
    assert (bench.outcome.status, bench.outcome.text, bench.outcome.source) == (
        Status.COMPLETED,
        "the answer",
        Source.HOOK,
    )
    assert len(bench.outlet.only(TurnDone)) == 1


@pytest.mark.parametrize(
    ("kind", "status", "failure"),
    [
        (Kind.BACKEND_ERROR, Status.BACKEND_ERROR, None),
        (Kind.EXHAUSTED, Status.EXHAUSTED, None),
        (Kind.AUTH, Status.FAILED, Failure.AUTH),
        (Kind.REQUEST, Status.FAILED, Failure.REQUEST),
        (Kind.FAILED, Status.FAILED, None),
    ],
)
def test_a_typed_failure_ends_the_send_as_what_it_is(
    bench: Bench, kind: Kind, status: Status, failure: Failure | None
) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(failed(kind))
    assert (bench.outcome.status, bench.outcome.failure) == (status, failure)
    assert (bench.outcome.reason, bench.outcome.pattern) == ("API Error: 529", "StopFailure server_error")


def test_a_typed_failure_beats_a_screen_that_shows_an_answer(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.rests_on("idle", "* all tests pass", after_s=5)
    bench.tell(failed())
    assert bench.outcome.status is Status.BACKEND_ERROR


def test_a_typed_end_beats_a_screen_that_quotes_an_error(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.rests_on("idle", "* backend down, said the log", after_s=5)
    bench.tell(ended())
    assert bench.outcome.status is Status.COMPLETED


def test_a_screen_at_rest_decides_once_the_programs_own_word_stays_away(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.rests_on("idle", "* backend down", after_s=5)
    assert not bench.ended()
    bench.shows("idle", "* backend down", at_s=bench.clock.ns / S + 1.6)
    assert (bench.outcome.status, bench.outcome.source) == (Status.BACKEND_ERROR, Source.BLOCK)


def test_a_failed_turn_stays_failed_whatever_comes_later(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(failed())
    bench.tell(ended())
    bench.rests_on("idle", "* all is well", after_s=5)
    assert [each.outcome.status for each in bench.ended()] == [Status.BACKEND_ERROR]
    assert not bench.outlet.only(TurnDone)


def test_a_typed_failure_without_an_open_turn_is_logged_and_no_evidence(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.tell(failed())
    assert not bench.ended()
    assert "outside of a turn of ours" in caplog.text


def test_a_failure_of_another_turn_than_the_open_one_is_no_evidence(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(failed(turn="p-helper"))
    assert not bench.ended()


def test_a_turn_that_a_person_typed_is_not_taken_for_ours(bench: Bench) -> None:
    bench.begin()
    bench.tell(began("p-person", "something quite different"))
    bench.tell(failed(turn="p-person"))
    assert not bench.ended()
    bench.tell(began())
    bench.tell(ended())
    assert bench.outcome.status is Status.COMPLETED


def test_a_prompt_that_the_program_wraps_is_still_ours(bench: Bench) -> None:
    bench.begin()
    bench.tell(began(text="<pasted>\nprompt\n of t-1\n</pasted>"))
    bench.tell(ended())
    assert bench.outcome.status is Status.COMPLETED


def test_a_start_that_the_program_confirms_while_it_is_typed_stops_further_enters(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    bench.tell(began())
    assert [told.job for told in bench.panes.only(Confirm)] == ["t-1"]


def test_an_end_before_the_typing_is_known_to_be_done_counts_once_the_start_was_confirmed(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    bench.tell(began())
    bench.tell(ended())
    bench.typed()
    assert bench.outcome.status is Status.COMPLETED


def test_an_end_while_a_prompt_is_typed_belongs_to_what_was_before(bench: Bench) -> None:
    bench.deliver()
    bench.gate_says()
    bench.tell(ended(turn="p-0"))
    assert not bench.ended()


def test_an_end_without_a_text_is_a_failure(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(ended(text=""))
    assert (bench.outcome.status, bench.outcome.reason) == (Status.FAILED, "the turn ended without an answer")


def test_a_turn_that_somebody_stopped_is_interrupted(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(Signal(What.STOPPED, "p-1"))
    assert bench.outcome.status is Status.INTERRUPTED


def test_an_answer_that_comes_after_the_time_out_is_kept_beside_it(bench: Bench) -> None:
    bench.begin(timeout_s=10)
    bench.tell(began())
    bench.clock.advance(10)
    bench.tell(TimedOut("t-1"))
    bench.tell(ended())
    assert bench.outcome.status is Status.TIMED_OUT
    assert [late.text for late in bench.outlet.only(LateReply)] == ["the answer"]


def test_a_dialog_that_is_announced_before_it_is_drawn_shows_until_the_work_goes_on(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(Signal(What.WAITING, "p-1"))
    bench.shows("idle", "nothing drawn yet", at_s=1.0)
    assert len(bench.outlet.only(Blocked)) == 1
    assert not bench.outlet.only(Unblocked)
    bench.shows("busy", at_s=1.25)
    assert len(bench.outlet.only(Unblocked)) == 1


def test_retries_are_told_to_the_roster_with_their_first_moment(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.clock.advance(1)
    bench.tell(Signal(What.RETRYING, "p-1", "529 Overloaded", attempt=1, wait_s=2))
    bench.clock.advance(3)
    bench.tell(Signal(What.RETRYING, "p-1", "529 Overloaded", attempt=2, wait_s=4))
    assert [(note.retrying and note.retrying.attempt, note.since_ns) for note in bench.outlet.only(RetryNoted)] == [
        (1, 1 * S),
        (2, 1 * S),
    ]


def test_a_retry_that_is_hours_away_is_a_used_up_quota(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(Signal(What.RETRYING, "p-1", "Usage limit reached", attempt=1, wait_s=6 * 3600))
    assert (bench.outcome.status, bench.outcome.resets_in_ns) == (Status.EXHAUSTED, 6 * 3600 * S)


class Retries(TableGrammar):
    """The table grammar, with a banner where the line says so."""

    def read(self, frame: Frame, sent: Sent | None = None) -> Reading:
        reading, line = super().read(frame, sent), frame.lines[-1]
        return msgspec.structs.replace(reading, retrying=Retrying(3, line, 5) if "retry" in line else None)


def test_a_retry_banner_on_the_screen_goes_when_it_has_been_away_for_ten_seconds() -> None:
    bench = Bench(msgspec.structs.replace(SETUP, grammar=Retries()))
    bench.begin()
    for at_s, line in ((1, "retry"), (2, "busy"), (3, "retry"), (9, "busy"), (14, "busy")):
        bench.tell(Observed(frame("busy", line, at_s=at_s)))
    assert [note.retrying is not None for note in bench.outlet.only(RetryNoted)] == [True, False]


def test_the_last_prompt_is_named_as_a_leftover_of_ours(bench: Bench) -> None:
    bench.begin()
    bench.tell(began())
    bench.tell(ended())
    bench.deliver("t-2")
    bench.gate_says("t-2")
    assert [ask.leftover for ask in bench.panes.only(TypePrompt)] == ["", "prompt of t-1"]


def test_a_screen_that_names_a_reset_time_carries_it_as_a_span() -> None:
    at = datetime(2026, 11, 29, 18, 0, tzinfo=UTC)
    bench = Bench(msgspec.structs.replace(SETUP, wall=lambda: at))
    bench.begin()
    bench.rests_on("idle", "* quota is used up · resets 8:30pm (UTC)", after_s=5)
    assert (bench.outcome.status, bench.outcome.resets_in_ns) == (Status.EXHAUSTED, 9000 * S)
