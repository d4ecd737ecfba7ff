"""Asks whose answers a model looks at itself."""

from __future__ import annotations

from typing import Any

import outcome

from actors.actor import Actor, Ask, Refused, Reply


def answered(reply: Reply[Any]) -> Any:
    """What an ask was answered with; raises what it was refused with. Unlike its asker, a model may look twice."""
    match reply._outcome:
        case outcome.Value(value=value):
            return value
        case outcome.Error(error=error):
            raise error
    raise AssertionError("it has not been answered")


def answer(actor: Actor, ask: Ask[Any]) -> Any:
    """Take one step as the actor's own loop does; the answer, which must be there at once."""
    actor._step(ask)
    return answered(ask.reply)


def refusal(actor: Actor, ask: Ask[Any]) -> Refused:
    """Take one step; how the ask was refused, which must be known at once."""
    actor._step(ask)
    return refused(ask.reply)


def refused(reply: Reply[Any]) -> Refused:
    try:
        value = answered(reply)
    except Refused as no:
        return no
    raise AssertionError(f"it was answered with {value!r}")
