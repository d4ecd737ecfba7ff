"""How hard a model is tried: modestly by default, more under a Hypothesis profile that asks for more."""

from __future__ import annotations

from typing import Final

from hypothesis import HealthCheck, settings

#: ``max_examples`` of Hypothesis itself: what the numbers given to :func:`modest` are meant for.
USUAL: Final = 100


def modest(examples: int, steps: int = 50) -> settings:
    """So many examples, scaled by what the profile in force asks for; ``steps`` at most in one of a state machine."""
    return settings(
        max_examples=max(1, examples * settings().max_examples // USUAL),
        stateful_step_count=steps,
        deadline=None,
        report_multiple_bugs=False,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
