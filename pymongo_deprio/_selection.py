"""The rule: which servers a selection leaves out, and when it takes them back.

Source: the server selection specification of the MongoDB drivers, which asks for a second look at
all servers when nothing is suitable without the deprioritized ones. For sharded clusters the second
look is refined here: the failures are taken back one by one, the oldest first, so that the server
that failed last is the last to be used again.
"""

from __future__ import annotations

from itertools import chain
from typing import AbstractSet, Callable, Hashable, Iterator, Sequence, TypeVar

A = TypeVar("A", bound=Hashable)
S = TypeVar("S")


def select(
    suitable: Callable[[frozenset[A]], list[S]],
    deprioritized: Sequence[A],
    known: AbstractSet[A],
    cooling: AbstractSet[A] = frozenset(),
    *,
    sharded: bool,
) -> list[S]:
    """Return the suitable servers, without deprioritized ones while others are suitable.

    :param suitable: selects from the topology without the given addresses, at once.
    :param deprioritized: addresses to leave out; those to take back first stand first.
    :param known: the addresses of the topology.
    :param cooling: addresses to leave out as well; all of them are taken back before the others.
    :param sharded: whether to take the addresses back one by one, or all at once.
    """
    steps = _narrowing([a for a in deprioritized if a in known], one_by_one=sharded)
    if cooling and cooling & known:
        steps = chain([frozenset(cooling & known).union(deprioritized) & known], steps)
    for left_out in steps:
        servers = suitable(left_out)
        if servers:
            return servers
    return suitable(frozenset())


def _narrowing(addresses: Sequence[A], *, one_by_one: bool) -> Iterator[frozenset[A]]:
    steps = len(addresses) if one_by_one else min(len(addresses), 1)
    return (frozenset(addresses[start:]) for start in range(steps))
