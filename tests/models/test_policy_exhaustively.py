"""The policy's rule against an oracle, for every sequence of six steps: 8^6 = 262,144 of them.

The steps are an error of member a or of member b, both on one credential, and six leaps of the clock that lie around
every boundary of 60 s. After each step the two must agree on the incident, on what cools, and until when.

The oracle forgets nothing and keeps no state but what has happened: each question is answered from the whole history,
by the seed's sentences.
"""

from __future__ import annotations

from itertools import product

from actors.clock import NS_PER_S
from actors.outage import DEFAULT, CoolOffs, Evidence

S = NS_PER_S
STEPS: tuple[str | int, ...] = ("a", "b", 1, S, 59 * S, 60 * S - 1, 60 * S, 60 * S + 1)
LENGTH = 6


class History:
    """What has happened to one credential, and what the seed says of it."""

    def __init__(self) -> None:
        self.errors: list[tuple[int, str]] = []
        #: Each incident: the members in it, and the end of its cool-off.
        self.incidents: list[tuple[tuple[str, ...], int]] = []

    def cooling(self, now: int) -> int | None:
        # "Cool-off: 60 seconds, starting when the threshold is reached."
        ends = [end for _, end in self.incidents if now < end]
        return ends[-1] if ends else None

    def error(self, now: int, member: str) -> tuple[tuple[str, ...], int] | None:
        """An error of a member at ``now``, the latest so far; the incident that it makes."""
        if self.cooling(now) is not None:
            # "Errors during its cool-off do not extend it and do not create more lead notices."
            return None
        # "After expiry, old evidence is cleared. Two fresh errors are needed to create the next incident."
        last_end = max((end for _, end in self.incidents), default=0)
        # "Window: 60 seconds, measured from the first error to the second"; "use inclusive <= 60s".
        partners = [(at, other) for at, other in self.errors if at >= last_end and now - at <= 60 * S]
        self.errors.append((now, member))
        if not partners:
            # "A single classified error ... does not cool a credential and does not send an outage notice."
            return None
        # "The incident contains ... the distinct affected targets".
        members = (partners[-1][1],) if partners[-1][1] == member else (partners[-1][1], member)
        self.incidents.append((members, now + 60 * S))
        return self.incidents[-1]


def test_every_sequence_of_six_steps_agrees_with_the_seed() -> None:
    compared = incidents = 0
    for sequence in product(STEPS, repeat=LENGTH):
        rule, history, now = CoolOffs(DEFAULT), History(), 0
        for number, step in enumerate(sequence):
            if isinstance(step, int):
                now += step
            else:
                expected = history.error(now, step)
                crossing = rule.record(Evidence("c", step, f"t-{number}", "p", "lead-1", now))
                if crossing is None:
                    assert expected is None, (sequence, number)
                else:
                    found = tuple(dict.fromkeys(each.target for each in crossing.evidence)), crossing.until_ns
                    assert found == expected, (sequence, number)
                    incidents += 1
            assert rule.until("c", now) == history.cooling(now), (sequence, number)
        compared += 1
    assert compared == len(STEPS) ** LENGTH
    assert incidents > 50_000  # the sequences are not all harmless


def test_every_sequence_of_five_steps_on_two_credentials_leaves_each_as_it_would_be_alone() -> None:
    """Here a and b are two credentials. "Different credentials never share evidence." """
    for sequence in product(STEPS, repeat=LENGTH - 1):
        rule, alone, now = CoolOffs(DEFAULT), {"a": History(), "b": History()}, 0
        for number, step in enumerate(sequence):
            if isinstance(step, int):
                now += step
            else:
                crossing = rule.record(Evidence(step, "m-1", f"t-{number}", "p", "lead-1", now))
                assert (crossing is not None) == (alone[step].error(now, "m-1") is not None), (sequence, number)
        cooling = {name: end for name, history in alone.items() if (end := history.cooling(now)) is not None}
        assert rule.cooling(now) == cooling, sequence
