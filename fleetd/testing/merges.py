"""Every interleaving of some senders' messages, each sender's own order kept.

For one mailbox this is a proof and not a sample: whatever the scheduler does, the actor handles one of these.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import factorial, prod
from typing import Final, TypeVar

T = TypeVar("T")

#: More interleavings than this are no test any more: use fewer senders, or shorter ones.
MERGES: Final = 200_000


class TooManyMerges(ValueError):
    """The senders' messages can be merged in more than :data:`MERGES` ways."""


def count(*senders: Sequence[T]) -> int:
    """How many interleavings there are."""
    return factorial(sum(map(len, senders))) // prod(factorial(len(sender)) for sender in senders)


def merges(*senders: Sequence[T]) -> Iterator[tuple[T, ...]]:
    """Yield each interleaving once.

    Raises:
        TooManyMerges: there are more than :data:`MERGES`.
    """
    total = count(*senders)
    if total > MERGES:
        raise TooManyMerges(f"{total} interleavings are more than {MERGES}: use fewer senders, or shorter ones")
    return _merges(tuple(tuple(sender) for sender in senders))


def _merges(senders: tuple[tuple[T, ...], ...]) -> Iterator[tuple[T, ...]]:
    if not any(senders):
        yield ()
    for index, sender in enumerate(senders):
        if sender:
            rest = (*senders[:index], sender[1:], *senders[index + 1 :])
            for merged in _merges(rest):
                yield (sender[0], *merged)
