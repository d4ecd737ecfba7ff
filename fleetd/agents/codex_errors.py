"""How Codex words its failures: on its screen behind ``■`` in column 0, in its rollout with a class.

The class decides where it says something. ``other`` says nothing: broken streams and refused requests share it, and
their words tell them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from actors.classify import Kind
from fleetd.agents.codex_screen import FAILURE
from fleetd.agents.failure_words import FailureWords

#: Summing up an overlong conversation is a request too, and fails with these words before the failure's own.
_OWN: Final = r"^■ (?:Error running (?:remote )?compact task: )?"
EXHAUSTED: Final = (
    _OWN + r"(?:You['’]ve (?:hit|reached) your .*(?:limit|cap)\b"
    r"|You['’]re out of credits|Your (?:workspace|account) is out of credits"
    r"|You (?:hit|reached) your spend cap"
    r"|Your included usage is exhausted"
    r"|Quota exceeded\."
    r"|To use Codex with your ChatGPT plan"
    r"|unexpected status 402\b)"
)
#: A stream that ends with ``Incomplete response returned`` was cut on purpose: its answer was too long, or filtered.
BACKEND: Final = (
    _OWN + r"(?:unexpected status (?:5\d\d|408|409|425|429)\b"
    r"|exceeded retry limit, last status: (?:5\d\d|408|409|425|429)\b"
    r"|stream disconnected before completion: (?:[^I]|I[^n]|In[^c])"
    r"|We['’]re currently experiencing high demand"
    r"|(?:Selected model|Policy-restricted capacity|Flex capacity)\b.*(?:capacity|unavailable)"
    r"|rate limit exceeded\b"
    r"|(?:Connection failed|connection closed|error sending request|request timed out|timeout waiting for response)\b)"
    r"|^⚠ Selected model is at capacity"
)
AUTH: Final = (
    _OWN + r"(?:unexpected status 40[13]\b|exceeded retry limit, last status: 40[13]\b"
    r"|Your (?:access token|authentication session) could not be refreshed"
    r"|.*[Ll]og out and sign in again|Not logged in\b|Missing environment variable\b)"
)
REQUEST: Final = (
    _OWN + r"(?:unexpected status 4\d\d\b|exceeded retry limit, last status: 4\d\d\b"
    r"|\{.*\"error\""
    r"|stream disconnected before completion: Incomplete response returned"
    r"|Codex ran out of room in the model's context window"
    r"|The model `?.* does not exist"
    r"|Invalid (?:prompt|request|image|value)\b|This (?:request|content) (?:has been|was) (?:flagged|blocked))"
)
#: Everything else that is drawn as a failure. The grammar leaves out the line about an interruption.
FAILED: Final = r"^■ "

#: The words of failures in the classifier's order.
_WORDS: Final = FailureWords("@codex", exhausted=EXHAUSTED, backend=BACKEND, auth=AUTH, request=REQUEST)
_CLASSES: Final = {
    "usage_limit_exceeded": Kind.EXHAUSTED,
    "rate_limit_exceeded": Kind.BACKEND_ERROR,
    "server_overloaded": Kind.BACKEND_ERROR,
    "internal_server_error": Kind.BACKEND_ERROR,
    "flex_unavailable": Kind.BACKEND_ERROR,
    "policy_capacity_unavailable": Kind.BACKEND_ERROR,
    "unauthorized": Kind.AUTH,
    "bad_request": Kind.REQUEST,
    "context_window_exceeded": Kind.REQUEST,
    "model_not_found": Kind.REQUEST,
    "cyber_policy": Kind.REQUEST,
    "bio_policy": Kind.REQUEST,
    "misalignment_policy_violation": Kind.REQUEST,
}
#: Classes that come with the last answer's status, or without one where the connection was lost.
_CONNECTION: Final = frozenset(
    {
        "http_connection_failed",
        "response_stream_connection_failed",
        "response_stream_disconnected",
        "response_too_many_failed_attempts",
    }
)


def kind_of(info: object, text: str) -> tuple[Kind, str]:
    """What a failure is, and its class's name.

    Args:
        info: ``codex_error_info``: a class's name, or an object with one, whose value may hold the status.
        text: the program's words.
    """
    name, detail = next(iter(info.items()), ("", None)) if isinstance(info, Mapping) else (info, None)
    name = str(name or "")
    words = _WORDS.kind(FAILURE + text.partition("\n")[0])
    if name in _CONNECTION:
        return _of_status(detail), name
    return _CLASSES.get(name) or words or Kind.FAILED, name


def _of_status(detail: Any) -> Kind:
    status = detail.get("http_status_code") if isinstance(detail, Mapping) else None
    if not isinstance(status, int) or status >= 500 or status in (408, 409, 425, 429):
        return Kind.BACKEND_ERROR
    if status == 402:
        return Kind.EXHAUSTED
    return Kind.AUTH if status in (401, 403) else Kind.REQUEST
