"""What mutation testing found that no other test of the classifier noticed; see ``bench/mutants.md``."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from actors.classify import OUTAGE_SCALE_S, Kind, Verdict, classify, hopeless, word
from actors.clock import NS_PER_S
from actors.ending import outcome_of
from actors.patterns import LEGACY, BadPattern, Hit, Lines, Pattern, Patterns
from actors.screen import Reading, Retrying, Sent, State
from actors.turn import Considered, Failure, Source, Status
from tests.actors.recorders import frame

S = NS_PER_S
NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
EACH = Patterns(
    exhausted=(Pattern("quota", "exhaustedPattern"),),
    error=(Pattern("529", "errorPattern"),),
    auth=(Pattern("401", "authPattern"),),
    request=(Pattern("400", "requestPattern"),),
    failed=(Pattern("broke", "failedPattern"),),
)


def judged(*lines: str, patterns: Patterns = EACH, fast: bool = False, **more: object) -> Verdict:
    reading = Reading(State.IDLE, scope=lines, answer="\n".join(lines), **more)  # type: ignore[arg-type]
    return classify(reading, patterns, width=80, fast=fast, wall=NOON)


@pytest.mark.parametrize(
    ("line", "kind", "status", "failure"),
    [
        ("quota 529 401 400 broke", Kind.EXHAUSTED, Status.EXHAUSTED, None),
        ("529 401 400 broke", Kind.BACKEND_ERROR, Status.BACKEND_ERROR, None),
        ("401 400 broke", Kind.AUTH, Status.FAILED, Failure.AUTH),
        ("400 broke", Kind.REQUEST, Status.FAILED, Failure.REQUEST),
        ("broke", Kind.FAILED, Status.FAILED, None),
        ("all good", Kind.COMPLETED, Status.COMPLETED, None),
    ],
)
def test_the_gravest_kind_of_failure_decides(line: str, kind: Kind, status: Status, failure: Failure | None) -> None:
    verdict = judged(line)
    assert (verdict.kind, verdict.source) == (kind, Source.RAW)
    shown = frame(line)
    reading = Reading(State.IDLE, scope=(line,), answer=line)
    outcome = outcome_of(verdict, shown, reading, 5 * S, 2 * S)
    assert (outcome.status, outcome.failure) == (status, failure)
    assert outcome.text == ("all good" if kind is Kind.COMPLETED else "")
    assert outcome.reason == ("" if kind is Kind.COMPLETED else line)
    assert (outcome.turn_ns, outcome.frame, outcome.truncated) == (5 * S, (line,), False)
    assert outcome.line == verdict.line
    assert outcome.considered == verdict.considered


def test_what_matched_nothing_names_no_pattern_and_no_line() -> None:
    verdict = judged("all good")
    assert (verdict.pattern, verdict.line) == ("", "")


def test_what_was_considered_is_said_in_order() -> None:
    assert judged("401").considered == (
        Considered("exhausted exhaustedPattern", "no match"),
        Considered("backend_error errorPattern", "no match"),
        Considered("auth authPattern", "matched"),
    )
    assert judged("fine", patterns=Patterns(error=()), fast=True).considered == (Considered("floor", "ended too soon"),)
    assert judged(" ", patterns=Patterns(error=())).considered == (Considered("answer", "none on the screen"),)
    sent = Sent("p", frame("same"))
    stale = classify(Reading(State.IDLE), EACH, width=80, sent=sent, screen=("same",), fast=False)
    assert stale.kind is Kind.STALE
    assert stale.considered == (Considered("baseline", "the screen has not changed since the prompt"),)


def test_a_program_that_says_it_ended_well_is_not_searched_for_failures() -> None:
    assert judged("the 529 is explained", finished=True).kind is Kind.COMPLETED
    assert judged("half", interrupted=True).kind is Kind.INTERRUPTED
    # A failure is one, also of a turn that was cut short, and a cut is one also under the floor.
    assert judged("529", interrupted=True).kind is Kind.BACKEND_ERROR
    assert judged("half", interrupted=True, fast=True).kind is Kind.INTERRUPTED
    assert judged("", fast=True).kind is Kind.TOO_FAST


def test_a_block_is_where_the_verdict_comes_from_where_there_is_one() -> None:
    assert judged("chrome", "529", block_at=1).source is Source.BLOCK
    assert judged("529", "fine", block_at=1).kind is Kind.COMPLETED
    assert judged("529", block_at=0).source is Source.BLOCK


def test_a_reset_time_is_read_from_the_deciding_line_or_from_the_end_of_the_turn() -> None:
    assert judged("quota, try again in 2 hours").resets_in_ns == 7200 * S
    assert judged("quota used up", "resets in 90 s").resets_in_ns == 90 * S
    # Also from one that the screen broke in two, but never from the deciding line and what stands far above it.
    assert judged("quota: resets in", "3 hours").resets_in_ns == 3 * 3600 * S
    assert judged("5 hours", "quota: resets in").resets_in_ns is None
    assert judged("quota").resets_in_ns is None
    assert judged("529, try again in 2 hours").resets_in_ns is None
    reading = Reading(State.IDLE, scope=("quota resets in 2 hours",))
    assert classify(reading, EACH, width=80, fast=False).resets_in_ns is None


def test_a_retry_beyond_the_scale_of_outages_is_a_used_up_quota() -> None:
    assert hopeless(None) is None
    assert hopeless(Retrying(1, "soon")) is None
    assert hopeless(Retrying(1, "in ten minutes", 600)) is None
    verdict = hopeless(Retrying(1, "in a while", 601))
    assert OUTAGE_SCALE_S == 600
    assert verdict == Verdict(
        Kind.EXHAUSTED,
        Source.RAW,
        "retry",
        "in a while",
        (Considered("retry", "it is announced for 601 s from now, beyond the 600 s of outages"),),
        601 * S,
    )


def word_of(kind: Kind, state: State = State.IDLE, *, pattern: str = "", echoed: bool = True) -> str:
    return word(Reading(state, echoed=echoed), Verdict(kind, Source.RAW, pattern))


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (Kind.STALE, "idle"),
        (Kind.EXHAUSTED, "exhausted"),
        (Kind.BACKEND_ERROR, "backend_error"),
        (Kind.AUTH, "auth"),
        (Kind.REQUEST, "request"),
        (Kind.FAILED, "failed"),
        (Kind.INTERRUPTED, "interrupted"),
        (Kind.EMPTY, "failed"),
        (Kind.TOO_FAST, "failed"),
        (Kind.COMPLETED, "completed"),
    ],
)
def test_a_screen_has_one_word(kind: Kind, expected: str) -> None:
    assert word_of(kind) == expected
    assert word_of(kind, State.UNKNOWN) == expected
    assert word_of(kind, State.BUSY) == "working"
    assert word_of(kind, State.BLOCKED) == "blocked"
    assert word_of(kind, echoed=False) == ("idle" if kind is Kind.EMPTY else expected)


def test_a_program_that_waits_for_its_quota_is_exhausted_though_it_works() -> None:
    assert word_of(Kind.EXHAUSTED, State.BUSY, pattern="retry") == "exhausted"
    assert word_of(Kind.BACKEND_ERROR, State.BUSY, pattern="retry") == "working"


def test_an_end_without_words_of_the_program_has_a_reason_of_ours() -> None:
    def reason(kind: Kind) -> str:
        verdict = Verdict(kind, Source.RAW, line="* its line")
        return outcome_of(verdict, frame("x"), Reading(State.IDLE), 1_500_000_000, 2 * S).reason

    assert reason(Kind.INTERRUPTED) == "somebody stopped the turn in its pane"
    assert reason(Kind.EMPTY) == "the turn ended without an answer"
    assert reason(Kind.TOO_FAST) == "it ended after 1.5 s, under the floor of 2 s"
    assert reason(Kind.COMPLETED) == ""
    assert reason(Kind.FAILED) == "its line"


def test_forty_lines_of_the_judged_frame_are_kept() -> None:
    lines = tuple(f"line {number}" for number in range(41))
    outcome = outcome_of(Verdict(Kind.FAILED, Source.RAW), frame(*lines), Reading(State.IDLE), 0, 0)
    assert outcome.frame == lines[1:]


# -- patterns ----------------------------------------------------------------------------------------------------------


def test_a_pattern_that_re2_does_not_take_is_refused_with_its_reason_and_nothing_else_is_printed(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(BadPattern, match=r"missing \): \(half \(patterns use RE2: no lookaround, no back-references\)"):
        Pattern("(half", "errorPattern")
    for text in ("x*", "^$"):
        with pytest.raises(BadPattern, match="it matches the empty line, so every turn would match"):
            Pattern(text, "errorPattern")
    assert capfd.readouterr().err == ""


def test_patterns_are_equal_by_text_and_name() -> None:
    one = Pattern("529", "errorPattern")
    assert one == Pattern("529", "errorPattern")
    assert hash(one) == hash(Pattern("529", "errorPattern"))
    for other in (Pattern("529", "legacy"), Pattern("530", "errorPattern"), "529"):
        assert one != other
    assert repr(one) == "<Pattern errorPattern '529'>"
    assert (one.text, one.name) == ("529", "errorPattern")


def test_a_match_names_the_line_as_it_was_drawn() -> None:
    pattern = Pattern("backend down", "errorPattern")
    assert pattern.find(Lines(("fine", "", "  the backend down"), 80)) == Hit("errorPattern", "  the backend down")
    # One that the program wrapped is joined; one over lines of their own is found in the text as a whole.
    assert pattern.find(Lines(("the backend", "  down"), 80)) == Hit("errorPattern", "the backend down")
    across = Pattern("(?s)first.*second", "errorPattern")
    assert across.find(Lines(("the first", "", "x", "", "second one"), 80)) == Hit("errorPattern", "first  x  second")
    assert pattern.find(Lines(("fine",), 80)) is None
    assert pattern.matches("so the backend down")
    assert not pattern.matches("fine")


def test_a_pattern_that_asks_for_the_ends_of_a_text_finds_a_line_that_has_them() -> None:
    assert Pattern(r"\Aquota\z", "p").find(Lines(("fine", "quota", "fine"), 80)) == Hit("p", "quota")


def test_a_line_that_was_joined_begins_where_its_first_part_does() -> None:
    assert Pattern("backend down", "p").find(Lines(("the backend down", "  again"), 80)) == Hit("p", "the backend down")
    lines = Lines(("one", "  two", "the backend", "  down"), 80)
    assert Pattern("^the backend down$", "p").find(lines) == Hit("p", "the backend down")


def test_a_match_over_many_lines_is_cut_at_four_hundred_characters() -> None:
    lines = ("first", "", "x" * 500, "", "second")
    hit = Pattern("(?s)first.*second", "p").find(Lines(lines, 80))
    assert hit is not None
    assert len(hit.line) == 400


def test_the_legacy_pattern_finds_an_api_error_in_any_case_and_no_word_that_ends_in_it() -> None:
    (legacy,) = LEGACY.error
    assert legacy.name == "legacy"
    for line in ("API Error: 529", "api error : x", "! API ERROR:"):
        assert legacy.matches(line)
    for line in ("xAPI Error: 529", "API Errors: 529", "API Error 529"):
        assert not legacy.matches(line)
    assert (LEGACY.exhausted, LEGACY.auth, LEGACY.request, LEGACY.failed) == ((), (), (), ())
