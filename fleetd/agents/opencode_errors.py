"""How OpenCode's failures are told apart.

Its screen shows nothing but the provider's message, so words must do there; its events bring the answer's status too,
which decides. The words are those of many providers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from actors.classify import Kind
from actors.clock import NS_PER_S
from actors.resets import resets_in
from fleetd.agents.failure_words import FailureWords

#: Where an error stands: behind its bar, or, in old versions, as the raw object.
_AT: Final = r"^ {0,4}(?:┃ .*|\{\"(?:type|error|message|code)\".*)"
_USED_UP: Final = (
    r"(?i:exceed(?:s|ed|ing)? your (?:current |daily |weekly |monthly )?(?:quota|usage|spend)|insufficient[_ ]quota|"
    r"usage[_ ]limit(?: has been| was)?[_ ](?:reached|exceeded|hit)|"
    r"(?:hit|reached|exceeded) your (?:[a-z0-9-]+ ){0,3}limit|"
    r"(?:hour|dai|week|month)(?:ly)? (?:[a-z]+ ){0,2}(?:limit|quota)(?: has been| was)? (?:reached|exceeded|hit)|"
    r"quota (?:has been |is |was )?(?:exhausted|used up)|exhausted your (?:[a-z]+ ){0,3}quota|"
    r"free usage exceeded|free limit reached|go limit reached|free[- ]models[- ]per[- ]day|"
    r"insufficient (?:account )?(?:balance|credits?|funds)|requires more credits|out of credits|no credits|"
    r"credit balance is too low|credits? (?:have been |has been )?(?:exhausted|depleted)|usage[_ ]not[_ ]included|"
    r"billing[_ ](?:hard[_ ]limit|not[_ ]active|error)|payment required|spend(?:ing)? (?:limit|cap)|arrearage|"
    r"premium requests? (?:allowance|quota|limit))"
)
_BROKEN: Final = (
    r"(?i:overloaded|not your usage limit|model_capacity|at capacity|"
    r"no capacity|capacity (?:exceeded|constraints)|server(?: had an)?[ _]error|"
    r"internal (?:server )?error|internal_error|api_error|service[ _-]?unavailable|temporarily unavailable|bad gateway|"
    r"gateway time-?out|too many requests|rate[ _-]?limit|rate increased too quickly|throttl|resource[ _]exhausted|"
    r"terminated|connection (?:error|closed|reset|refused|aborted|lost|timed out)|(?:unable|cannot|failed) to connect|"
    r"fetch failed|failed to fetch|socket|network[ _-]error|premature close|upstream connect|provider returned error|"
    r"econn[a-z]+|enotfound|eai_again|etimedout|epipe|und_err|tim(?:ed|e)[ -]?out|stream (?:error|ended)|"
    r"try again later|retry your request|no response from|<html|<!doctype)"
)
_NO_KEY: Final = (
    r"(?i:(?:incorrect|invalid|missing|expired|revoked|no) (?:or missing )?(?:x-)?api[ _-]?key|invalid x-api-key|"
    r"api key (?:not valid|is missing|expired)|unauthori[sz]ed|unauthenticated|permission[ _]denied|permission_error|"
    r"authentication|not (?:logged|signed) in|log ?in again|re-?authenticate|"
    r"token (?:has |is )?(?:expired|invalid|revoked)|(?:expired|invalid) (?:access |refresh |bearer )?token|"
    r"token refresh failed|missing (?:key|credentials|authorization)|"
    r"forbidden|access denied|country, region|only authorized for use with)"
)
_TOO_MUCH: Final = (
    r"(?i:context (?:window|length|is too|limit)|context_length|too (?:large|long|many (?:images|tokens))|"
    r"maximum (?:context|number|allowed)|token (?:count|limit)|output (?:token )?limit|"
    r"invalid[ _-](?:argument|value|request|parameter|schema|prompt|type)|does not exist|not[ _]found|not supported|"
    r"unsupported|content filter|content policy|blocked by|flagged|malformed|bad request|is required|"
    r"unknown (?:model|name))"
)

EXHAUSTED: Final = _AT + _USED_UP
BACKEND: Final = _AT + _BROKEN
AUTH: Final = _AT + _NO_KEY
REQUEST: Final = _AT + _TOO_MUCH
#: Any other error, and a mark without a duration where the program rests.
FAILED: Final = r"^ {0,4}┃ +\S|^ {0,6}▣ "

#: The words of failures in the classifier's order.
_WORDS: Final = FailureWords("@opencode", exhausted=EXHAUSTED, backend=BACKEND, auth=AUTH, request=REQUEST)
#: The program's own classes of failures that say what they are.
_NAMES: Final = {
    "ProviderAuthError": Kind.AUTH,
    "ContextOverflowError": Kind.REQUEST,
    "MessageOutputLengthError": Kind.REQUEST,
    "ContentFilterError": Kind.REQUEST,
    "StructuredOutputError": Kind.REQUEST,
    "ProviderModelNotFoundError": Kind.REQUEST,
}
#: Statuses that say that the backend, not the request, is the matter.
_BACKEND_STATUS: Final = frozenset({408, 409, 425, 429})


class Cause(msgspec.Struct, frozen=True):
    """Why a turn failed."""

    kind: Kind
    text: str
    #: The error's name and the answer's status.
    pattern: str
    #: Until the quota comes back, in nanoseconds, where the answer says so.
    resets_in_ns: int | None = None


def cause_of(error: Mapping[str, Any], now: datetime) -> Cause:
    """What an error of the program's events says.

    Args:
        error: its name, and its data with the message, the answer's status, its headers and its body.
        now: the present by the wall clock.
    """
    name = str(error.get("name") or "")
    found = error.get("data")
    data: Mapping[str, Any] = found if isinstance(found, Mapping) else {}
    text, body = str(data.get("message") or name), str(data.get("responseBody") or "")
    status = data.get("statusCode")
    status = status if isinstance(status, int) else None
    kind = _kind_of(name, status, text, body)
    resets = _resets_in_ns(text, body, data.get("responseHeaders"), now) if kind is Kind.EXHAUSTED else None
    return Cause(kind, text, f"{name} {status or ''}".strip(), resets)


def _kind_of(name: str, status: int | None, text: str, body: str) -> Kind:
    words = _kind_by_words(text)
    if words is Kind.EXHAUSTED or status == 402 or (status == 429 and _kind_by_words(body) is Kind.EXHAUSTED):
        return Kind.EXHAUSTED
    if name in _NAMES:
        return _NAMES[name]
    if status is None or status < 400:
        return words or Kind.FAILED
    if status >= 500 or status in _BACKEND_STATUS:
        return Kind.BACKEND_ERROR
    return Kind.AUTH if status in (401, 403, 407) else Kind.REQUEST


def _kind_by_words(text: str) -> Kind | None:
    line = f"  ┃  {' '.join(text.split())}"
    return _WORDS.kind(line)


_EPOCH: Final = re.compile(r'"(?:resets?_at|resetsAt|reset_time)"\s*:\s*"?(\d{10}(?:\d{3})?)\b')
_SECONDS: Final = re.compile(
    r'"(?:resets?_in_seconds|resetsInSeconds|retry_after(?:_seconds)?)"\s*:\s*"?(\d+(?:\.\d+)?)'
)
#: Headers that name the seconds to wait.
_HEADERS: Final = ("retry-after", "x-ratelimit-reset-after")


def _resets_in_ns(text: str, body: str, headers: object, now: datetime) -> int | None:
    """How long until the quota comes back, by the answer's body, its headers, or its words."""
    seconds: float | None = None
    if found := _SECONDS.search(body):
        seconds = float(found[1])
    elif found := _EPOCH.search(body):
        seconds = int(found[1][:10]) - now.timestamp()
    elif isinstance(headers, Mapping):
        named = next((str(headers[name]) for name in _HEADERS if name in headers), "")
        seconds = float(named) if named.replace(".", "", 1).isdigit() else None
    if seconds is None and (span := resets_in(text, now)) is not None:
        seconds = span.total_seconds()
    return None if seconds is None else max(0, round(seconds * NS_PER_S))
