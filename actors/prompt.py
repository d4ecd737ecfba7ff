"""The text of a prompt: made safe to type, and found again in an input line.

An input line shows a prompt wrapped, or its last lines only, so texts are compared without their white space.
"""

from __future__ import annotations

import re
from typing import Final

#: A first character that programs take as a command of their own, and the word that is put before it.
COMMAND_PREFIXES: Final = ("/", "!", "#", "@", "\\")
GUARD: Final = "Task: "
#: How much of a text's end stands for all of it; a few letters may be anybody's.
TELLING: Final = 20
_CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def harmless(text: str) -> str:
    """The text without anything that a terminal could take for an order, or that no terminal can take.

    Newlines and tabs stay; CR LF and CR become LF; the other C0 controls, DEL, C1 and lone surrogates go.
    """
    return _CONTROL.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def sanitise(text: str) -> str:
    """The text as it is safe to type: :func:`harmless`, without empty lines around it and blanks behind it."""
    return harmless(text).strip("\n").rstrip()


def guarded(text: str) -> str:
    """The text with a fixed first word where its first character would make it a command, or its last a line join."""
    if text.startswith(COMMAND_PREFIXES):
        text = GUARD + text
    return text + " ." if text.endswith("\\") else text


def flattened(text: str) -> str:
    """The text in one line."""
    return " ".join(part.strip() for part in text.split("\n") if part.strip())


def dense(text: str) -> str:
    """The text without its white space."""
    return "".join(text.split())


def is_part(draft: str, prompt: str) -> bool:
    """Whether a draft is a prompt, or a good part of it."""
    left, whole = dense(draft), dense(prompt)
    return bool(left) and len(left) >= min(len(whole), 16) and left in whole


def has_more(draft: str, prompt: str) -> bool:
    """Whether a draft shows a whole prompt, or its end, with somebody's words behind or before it."""
    shown, whole = dense(draft), dense(prompt)
    if whole in shown:
        more = shown.replace(whole, "", 1)
    else:
        _, found, behind = shown.rpartition(whole[-TELLING:])
        more = behind if found else ""
    return any(ch.isalnum() for ch in more)
