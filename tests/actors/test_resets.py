"""Reset times in the words of many programs."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from actors.resets import resets_in

NOW = datetime(2026, 9, 29, 10, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("resets 8:36pm (UTC)", "2026-09-29T20:36"),
        ("resets 5:40pm (Europe/Berlin)", "2026-09-29T15:40"),
        ("resets 1am (Asia/Singapore)", "2026-09-29T17:00"),
        ("You've hit your limit · resets 7:20pm", "2026-09-29T19:20"),
        ("resets 9:30am", "2026-09-30T09:30"),
        ("resets Sep 30, 6pm (America/New_York)", "2026-09-30T22:00"),
        ("resets Oct 5 at 9pm (America/New_York)", "2026-10-06T01:00"),
        ("resets Jan 2, 5pm (Europe/Paris)", "2027-01-02T16:00"),
        ("try again at Oct 16th, 2026 12:04 AM", "2026-10-16T00:04"),
        ("reset on October 2, 2026 at 2:00 AM", "2026-10-02T02:00"),
        ("resets 21:13 on 2 Oct", "2026-10-02T21:13"),
        ("Access resets at 11:32 PM GMT+2.", "2026-09-29T21:32"),
        ("try again at 7:01 PM.", "2026-09-29T19:01"),
        ("available again at 2026-09-29T12:00:00Z", "2026-09-29T12:00"),
        ("resets 2026-09-29 14:00 +0200", "2026-09-29T12:00"),
        ("quota will reset after 18h31m10s", "2026-09-30T04:31:10"),
        ("Resets in 143h57m55s", "2026-10-05T09:57:55"),
        ("resets in 3h 20m", "2026-09-29T13:20"),
        ("reset in 2 hours 5 minutes", "2026-09-29T12:05"),
        ("Try again in 17 seconds", "2026-09-29T10:00:17"),
        ("retrying in 6h16m", "2026-09-29T16:16"),
    ],
)
def test_a_printed_time_of_return_is_understood(text: str, at: str) -> None:
    expected = datetime.fromisoformat(at).replace(tzinfo=UTC)
    assert resets_in(text, NOW) == expected - NOW


@pytest.mark.parametrize(
    "text",
    [
        "You've hit your usage limit",
        "monthly cycle ends on 10/17/2026",
        "try again at 10 de out. de 2026, 11:52",
        "resets 13pm",
        "resets Feb 30, 5pm",
        "resets 5pm (Mars/Base)",
        "2 usage limit resets available",
    ],
)
def test_what_names_no_time_that_can_be_read_is_not_guessed(text: str) -> None:
    assert resets_in(text, NOW) is None


def test_a_time_without_a_zone_is_the_machines_own() -> None:
    now = datetime(2026, 9, 29, 12, 0, tzinfo=timezone(timedelta(hours=2)))
    assert resets_in("resets 1pm", now) == timedelta(hours=1)


def test_a_time_that_has_just_passed_is_now_and_not_tomorrow() -> None:
    assert resets_in("resets 9:58am", NOW) == timedelta(0)
