"""When a used-up quota comes back, from what a program prints about it.

The texts name a time of day, a date, or a span, in the words of many programs (``resets 8:36pm (UTC)``, ``resets Dec 1,
7:55pm``, ``resets 21:13 on 2 Oct``, ``try again at Jan 15th, 2027 7:59 AM``, ``reset after 18h31m10s``). They are about
the wall clock, so they are turned into a *span* from now at once, and only the span is carried on: no wall clock
decides anything later. A text that cannot be read is none; nothing is guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_UNIT: Final = r"(?:d(?:ays?)?|h(?:(?:ou)?rs?)?|m(?:in(?:ute)?s?)?|s(?:ec(?:ond)?s?)?)(?![A-Za-z])"
_SPAN: Final = re.compile(
    rf"\b(?:in|after)\s+(?:about\s+)?((?:~?\d+(?:\.\d+)?\s*{_UNIT}[\s,]*(?:and\s+)?)+)", re.IGNORECASE
)
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([dhms])", re.IGNORECASE)
_ISO: Final = re.compile(r"\b(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d))?(?:\.\d+)?\s*(Z|UTC|[+-]\d\d:?\d\d)?")
#: Words that say that a time of return follows.
_LEAD: Final = (
    r"\b(?:resets?(?:\s+(?:at|on))?|again\s+(?:at|on|after)|resum(?:es?|ed|ing)\s+(?:at|on)|until|"
    r"available\s+(?:at|on|again\s+(?:at|on)))\s*:?\s+"
)
_CLOCK: Final = r"(?P<hour>\d{1,2})(?::(?P<minute>\d\d))?(?::\d\d)?\s*(?P<half>[ap]\.?m\b\.?)?"
_DATE: Final = (
    r"(?:(?P<month>[A-Z]{3})[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?|"
    r"(?P<day2>\d{1,2})(?:st|nd|rd|th)?\s+(?P<month2>[A-Z]{3})[a-z]*\.?)(?:,?\s+(?P<year>\d{4})\b)?"
)
_ZONE: Final = (
    r"(?:\s*\(?(?P<zone>(?:UTC|GMT)[+-]\d{1,2}(?::?\d\d)?|UTC|GMT|Z\b|[A-Z][A-Za-z]+(?:/[A-Za-z_+-]+\d*)+)\)?)?"
)
_WHEN: Final = (
    re.compile(rf"{_LEAD}{_DATE}\s*,?\s*(?:at\s+)?{_CLOCK}{_ZONE}", re.IGNORECASE),
    re.compile(rf"{_LEAD}{_CLOCK}{_ZONE}\s+on\s+{_DATE}", re.IGNORECASE),
    re.compile(rf"{_LEAD}{_CLOCK}{_ZONE}", re.IGNORECASE),
    re.compile(rf"{_LEAD}{_DATE}", re.IGNORECASE),
)


def local_now() -> datetime:
    """The present by the machine's wall clock and in its time zone."""
    return datetime.now().astimezone()


def moment(now: datetime, span_ns: int) -> str:
    """The moment a span from ``now`` on, as ISO 8601 in UTC to the second."""
    return (now + timedelta(microseconds=span_ns // 1000)).astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def resets_in(text: str, now: datetime) -> timedelta | None:
    """How long until the quota that ``text`` speaks of comes back.

    Args:
        text: what the program printed, in one line.
        now: the present, with a time zone: that of the machine, which a text without one means.

    Returns:
        A span that is not negative; ``None`` when the text names no time that can be read.
    """
    if (span := _SPAN.search(text)) is not None:
        seconds = sum(float(amount) * _SECONDS[unit.lower()] for amount, unit in _PART.findall(span[1]))
        return timedelta(seconds=seconds)
    at = _iso(text, now) or _when(text, now)
    return None if at is None else max(at - now, timedelta())


def _iso(text: str, now: datetime) -> datetime | None:
    found = _ISO.search(text)
    if found is None:
        return None
    year, month, day, hour, minute, second, zone = found.groups()
    offset = _zone(zone, now)
    try:
        return datetime(int(year), int(month), int(day), int(hour), int(minute), int(second or 0), tzinfo=offset)
    except ValueError:
        return None


def _when(text: str, now: datetime) -> datetime | None:
    for shape in _WHEN:
        if (found := shape.search(text)) is not None:
            return _at(found.groupdict(), now)
    return None


def _zone(name: str | None, now: datetime) -> tzinfo | None:
    if name is None:
        return now.tzinfo
    plain = name.upper().removeprefix("UTC").removeprefix("GMT")
    if plain in ("", "Z"):
        return UTC
    if plain[0] in "+-" and (digits := plain[1:].replace(":", "")).isdigit():
        hours, minutes = (int(digits), 0) if len(digits) <= 2 else (int(digits[:-2]), int(digits[-2:]))
        offset = timedelta(hours=hours, minutes=minutes)
        return timezone(-offset if plain[0] == "-" else offset) if offset < timedelta(hours=24) else None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        return None


def _at(found: dict[str, str | None], now: datetime) -> datetime | None:
    """The next moment that the parts of a text fit; ``None`` if there is none (13pm, Feb 30, an unknown zone)."""
    zone = _zone(found.get("zone"), now)
    month, day = found.get("month") or found.get("month2"), found.get("day") or found.get("day2")
    hour, minute, half = int(found.get("hour") or 0), int(found.get("minute") or 0), found.get("half")
    if zone is None or (half is None and month is None and found.get("minute") is None):
        return None
    if half is not None:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half[0].lower() == "p" else 0)
    here = now.astimezone(zone)
    try:
        if month is None:
            at = here.replace(hour=hour, minute=minute, second=0, microsecond=0)
            # A time that has passed is tomorrow's, but one that has just passed is that of a screen read late.
            return at if at >= here - timedelta(minutes=5) else at + timedelta(days=1)
        if month[:3].lower() not in _MONTHS or day is None:
            return None
        number, year = _MONTHS.index(month[:3].lower()) + 1, found.get("year")
        at = here.replace(
            year=int(year or here.year), month=number, day=int(day), hour=hour, minute=minute, second=0, microsecond=0
        )
        # A date without a year that lies far back is next year's: December prints what January brings.
        return at.replace(year=at.year + 1) if year is None and at < here - timedelta(days=30) else at
    except ValueError:
        return None
