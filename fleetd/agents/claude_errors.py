"""How Claude Code words its failures: on its screen, and with a class in its hooks and its transcript.

The class decides where it says something, but all refusals by a limit share ``rate_limit``, and only the words or the
transcript's record tell a used-up quota from a throttle. ``unknown`` says nothing: a malformed request has it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import trio

from actors.classify import Kind
from fleetd.agents.claude_transcript import RESEND
from fleetd.agents.failure_words import FailureWords

#: How long the record of a failed turn is waited for, in seconds: it is written a moment after the hook.
RECORD_S: Final = 1.0
#: Between two looks at the transcript, in seconds.
LOOK_S: Final = 0.05
#: Bytes at the end of a transcript in which that record stands.
RECORD_BYTES: Final = 256 * 1024
#: Later than any reset, in seconds since the epoch: what is beyond it is not one.
EPOCHS_END: Final = 1e11

#: Where the program draws what it says itself: its glyph in column 0, or ``⎿`` in column 2, or nothing.
_OWN: Final = r"^(?:[●⏺] |  ⎿[ \x{a0}]+)?"
EXHAUSTED: Final = (
    _OWN + r"(?:Please run /login · )?(?:API Error: ?(?:\d{3} )?)?(?:"
    r"You['’]ve (?:hit|reached|used up) your\b.*\b(?:limit|quota|allowance)\b"
    r"|You['’]re out of (?:extra )?usage\b"
    r"|Your organization is out of (?:extra )?usage\b"
    r"|Credit balance (?:is )?too low|Your credit balance is too low"
    r"|Usage credits ran out\b"
    r"|(?:Claude (?:AI )?)?[Uu]sage limit reached"
    r"|(?:(?:5-hour|[Ss]ession|[Ww]eekly|Opus|Sonnet|Fable|Opus weekly) )?[Ll]imit reached [·∙] resets)"
)
BACKEND: Final = (
    _OWN + r"(?:(?:API Error|Error)[: (]+(?:5\d\d|429|408|409)\b"
    r"|API Error\b.*(?i:repeated 529|overloaded|rejected \(429\)|not your usage limit|internal server|server error"
    r"|bad gateway|service unavailable|at capacity|server-side|usually temporary|try again in a"
    r"|connection|connect |econn|etimedout|epipe|enotfound|eai_again|socket|network|fetch failed|tls|ssl"
    r"|timed? ?-?out|stream|stall|mid-response|incomplete|could not be read|empty response|no response)"
    r"|Unable to connect to API|Request timed out|Connection error|Connection (?:refused|dropped|closed|lost)\b"
    r"|(?:Opus|Fable|Sonnet) is experiencing high load|Server is temporarily limiting requests)"
    rf"|^❯ {RESEND}"
)
AUTH: Final = (
    _OWN + r"(?:API Error[: (]+40[13]\b|.*Please run /login|Not logged in|Invalid (?:API key|auth token)"
    r"|Invalid ANTHROPIC_CUSTOM_HEADERS|Invalid request header|Authentication (?:error|required)|OAuth (?:token|error)"
    r"|Login (?:expired|reached)|Failed to authenticate|Could not refresh your login|Your ANTHROPIC_API_KEY belongs"
    r"|Your organization has disabled|Your apiKeyHelper|Anthropic profile login"
    r"|API Error: Could not load .* credentials)"
)
REQUEST: Final = (
    _OWN + r"(?:API Error[: (]+4\d\d\b|There's an issue with the selected model|Prompt is too long"
    r"|API Error: (?:Claude's response exceeded|Output blocked|Request rejected as unprocessable"
    r"|Usage credits required for|.* safeguards flagged|Claude Code is unable to respond)"
    r"|(?:Image|PDF) (?:was|is) too (?:large|big)|Request too large|Context limit reached)"
    r"|^❯ Run /rewind to go back"
)
#: Any other line that only a failure is drawn as.
FAILED: Final = r"^[●⏺] API Error\b|^  ⎿|^❯ Once fixed, resend"

#: What a failed turn's class says; of the others the text decides.
_CLASSES: Final = {
    "server_error": Kind.BACKEND_ERROR,
    "overloaded": Kind.BACKEND_ERROR,
    "rate_limit": Kind.BACKEND_ERROR,
    "billing_error": Kind.EXHAUSTED,
    "authentication_failed": Kind.AUTH,
    "oauth_org_not_allowed": Kind.AUTH,
    "account_on_hold": Kind.AUTH,
    "verification_required": Kind.AUTH,
    "cloud_credential_error": Kind.AUTH,
    "model_not_found": Kind.REQUEST,
    "invalid_request": Kind.REQUEST,
    "max_output_tokens": Kind.REQUEST,
}

#: The words of failures, in the classifier's order.
_WORDS: Final = FailureWords("@claude", exhausted=EXHAUSTED, backend=BACKEND, auth=AUTH, request=REQUEST)


def kind_of(error: str, text: str) -> Kind:
    """What a failure is: exhaustion by its text, else by its class, else by its text."""
    line = text.split("\n", 1)[0]
    says = _WORDS.kind(line) or Kind.FAILED
    return says if says is Kind.EXHAUSTED else _CLASSES.get(error, says)


async def quota_reset(transcript: Path, text: str) -> float | None:
    """When the used-up quota that a failed turn's record names comes back, in seconds since the epoch; else ``None``.

    The record may not be written yet.
    """
    with trio.move_on_after(RECORD_S):
        while True:
            record = await trio.to_thread.run_sync(_record, transcript, text)
            if record is not None:
                limits = record.get("quotaLimits")
                resets = limits.get("resetsAt") if isinstance(limits, dict) else None
                return resets if isinstance(resets, int | float) and 0 < resets < EPOCHS_END else None
            await trio.sleep(LOOK_S)
    return None


def _record(transcript: Path, text: str) -> Mapping[str, Any] | None:
    """The last record of a failed turn with this text."""
    try:
        if not transcript.is_file():
            return None
        with transcript.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - RECORD_BYTES))
            lines = file.read().splitlines()
    except OSError:
        return None
    for line in reversed(lines):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and record.get("isApiErrorMessage") and text in _texts(record):
            return record
    return None


def _texts(record: Mapping[str, Any]) -> str:
    message = record.get("message")
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else ()
    return "\n".join(str(part.get("text", "")) for part in parts if isinstance(part, dict))
