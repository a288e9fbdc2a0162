"""The rule, by itself: against properties that hold for any servers and any list."""

from __future__ import annotations

from typing import AbstractSet, Callable

from hypothesis import given
from hypothesis import strategies as st

from pymongo_deprio._selection import select

SERVERS = "abcdefgh"
some_servers = st.frozensets(st.sampled_from(SERVERS))
# More than one address that is not known at all, as a server may have left the topology.
lists = st.lists(st.sampled_from(SERVERS + "yz"), unique=True)


def asks(
    suitable: AbstractSet[str], calls: list[AbstractSet[str]]
) -> Callable[[AbstractSet[str]], list[str]]:
    """Return a selection of these servers, which notes what it was asked to leave out."""

    def answer(left_out: AbstractSet[str]) -> list[str]:
        calls.append(left_out)
        return sorted(suitable - left_out)

    return answer


@given(suitable=some_servers, others=some_servers, deprioritized=lists, sharded=st.booleans())
def test_nothing_deprioritized_while_another_is_suitable(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str], sharded: bool
) -> None:
    """While a suitable server is not on the list, exactly these are selected, in one question."""
    calls: list[AbstractSet[str]] = []
    well = suitable - set(deprioritized)
    selected = select(asks(suitable, calls), deprioritized, suitable | others, sharded=sharded)
    if well:
        assert set(selected) == well
        assert len(calls) == 1


@given(suitable=some_servers, others=some_servers, deprioritized=lists, sharded=st.booleans())
def test_never_worse_than_without_a_list(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str], sharded: bool
) -> None:
    """Only suitable servers are selected, and one whenever there is one."""
    selected = select(asks(suitable, []), deprioritized, suitable | others, sharded=sharded)
    assert set(selected) <= suitable
    assert bool(selected) == bool(suitable)


@given(suitable=some_servers, others=some_servers, deprioritized=lists)
def test_the_oldest_failure_is_taken_back_first(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str]
) -> None:
    """With every suitable server on the list, a sharded cluster gives the one that failed first."""
    selected = select(asks(suitable, []), deprioritized, suitable | others, sharded=True)
    if suitable and suitable <= set(deprioritized):
        assert selected == [next(server for server in deprioritized if server in suitable)]


@given(suitable=some_servers, others=some_servers, deprioritized=lists)
def test_other_topologies_take_all_back_at_once(
    suitable: AbstractSet[str], others: AbstractSet[str], deprioritized: list[str]
) -> None:
    """With every suitable server on the list, a replica set gives them all, as specified."""
    calls: list[AbstractSet[str]] = []
    selected = select(asks(suitable, calls), deprioritized, suitable | others, sharded=False)
    if suitable <= set(deprioritized):
        assert set(selected) == suitable
    assert len(calls) <= 2


@given(suitable=some_servers, deprioritized=lists, sharded=st.booleans())
def test_never_asks_with_nobody_left(
    suitable: AbstractSet[str], deprioritized: list[str], sharded: bool
) -> None:
    """An application's selector is never called for no servers because of the list."""
    calls: list[AbstractSet[str]] = []
    select(asks(suitable, calls), deprioritized, suitable, sharded=sharded)
    assert all(suitable - left_out for left_out in calls if left_out)
