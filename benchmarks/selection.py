"""What selection costs among many mongoses: ``PYTHONPATH=tests python benchmarks/selection.py``.

The topology is PyMongo's own, and is told what its servers answered.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator, cast

import pymongo
from clients import HOST_UNREACHABLE, READ, cooling, loop_of
from measure import (
    WARM,
    Pairs,
    Patch,
    Row,
    alone,
    batch_of,
    compare,
    enabled,
    main,
    turn,
    uncertainty,
)
from pymongo.errors import OperationFailure
from pymongo.server_selectors import writable_server_selector
from support import make_topology, select_arguments

if TYPE_CHECKING:
    from pymongo_deprio import Address

NUMBERS = (2, 10, 100)
TIMES = 100


def rows(quick: bool) -> Iterator[Row]:
    """Select with nothing, one and all deprioritized, in the ways that an application does."""
    seconds = 0.1 if quick else 1.0
    for number in NUMBERS:
        addresses: list[Address] = [(f"mongos{index}.example", 27017) for index in range(number)]
        topology = make_topology(dict.fromkeys(addresses, "mongos"))
        client = Fed(topology)
        yield from given(topology, number, seconds)
        yield from retried(client, number, seconds)
        yield from cooled(client, addresses, seconds)


def row(number: int, case: str, beside: str, pairs: Pairs) -> Row:
    """Return the figures of one case, as a part of another."""
    return {
        "mongoses": number,
        "case": case,
        "beside": beside,
        "beside_us": statistics.median(pairs.first),
        "us": statistics.median(pairs.second),
        "ratio": statistics.median(pairs.ratios),
        "uncertainty": uncertainty(pairs.ratios),
    }


def given(topology: Any, number: int, seconds: float) -> Iterator[Row]:
    """Select by ``Topology.select_server``, from a list that is given to it."""

    def select(**options: Any) -> Callable[[], object]:
        arguments = (writable_server_selector, *select_arguments())
        return lambda: topology.select_server(*arguments, **options)

    def side(patch: Patch, count: int = 0) -> Callable[[], float]:
        options = {"deprioritized_servers": servers[:count]} if count else {}
        return turn(patch, batch_of(select(**options)), TIMES, clock=time.thread_time)

    servers = topology.select_servers(writable_server_selector, *select_arguments())
    plain = compare(side(alone), side(enabled), seconds)
    yield row(number, "select_server", "alone", plain)
    for count, words in ((1, "one"), (number, "all")):
        pairs = compare(side(enabled), side(enabled, count), seconds)
        yield row(number, f"select_server, {words} deprioritized", "none", pairs)


class Fed:
    """A client of a topology that is told what its servers answer, and what its attempts take."""

    def __init__(self, topology: Any) -> None:
        self.client = cast("Any", pymongo.MongoClient(connect=False))
        self.client._topology = topology
        # The one or the other: what gives a connection, of which there is none.
        self.client._conn_from_server = self.client._secondaryok_for_server = self._no_connection
        self.selections: list[float] = []

    @contextlib.contextmanager
    def _no_connection(self, preference: Any, *arguments: Any) -> Iterator[tuple[None, Any]]:
        yield None, preference

    def failing(self, failures: int) -> Callable[[], object]:
        """Return an operation whose first attempts fail."""
        attempts = 0

        def send(*arguments: Any) -> None:
            nonlocal attempts
            attempts += 1
            if attempts <= failures:
                raise OperationFailure("sick", HOST_UNREACHABLE)

        def call() -> None:
            nonlocal attempts
            attempts = 0
            self.client._retryable_read(send, *READ)

        return call

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        """Note how long each attempt's selection takes, in µs."""
        owner, name = self._place()
        method = vars(owner)[name]

        def timed(instance: Any, *args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                # Bound anew each time, as PyMongo does.
                return method.__get__(instance)(*args, **kwargs)
            finally:
                self.selections.append((time.perf_counter() - began) * 1e6)

        setattr(owner, name, timed)
        try:
            yield
        finally:
            setattr(owner, name, method)
            self.selections.clear()

    def _place(self) -> tuple[type, str]:
        """Return where PyMongo's loop selects the server of an attempt."""
        module = vars(sys.modules[type(self.client).__module__])
        if "_ClientConnectionRetryable" in module:
            return module["_ClientConnectionRetryable"], "_get_server"
        return type(self.client), "_select_server"


def retried(fed: Fed, number: int, seconds: float) -> Iterator[Row]:
    """Select inside an operation whose attempts fail: the last of them beside the first one."""
    yield row(number, "retry", "first attempt", attempts(fed, 1, enabled, seconds))
    yield row(number, "retry, alone", "first attempt", attempts(fed, 1, alone, seconds))
    if hasattr(pymongo, "timeout"):
        with pymongo.timeout(600):  # by which it retries more than once
            pairs = attempts(fed, number, enabled, seconds)
        yield row(number, "retry after all failed", "first attempt", pairs)


def attempts(fed: Fed, failures: int, patch: Patch, seconds: float) -> Pairs:
    """Return how long the first and the last selection of operations took."""
    pairs = Pairs([], [])
    call = fed.failing(failures)
    with patch(), fed.timed():
        batch_of(call)(max(WARM // failures, 1))
        deadline = time.perf_counter() + seconds
        while len(pairs.first) < 10 or time.perf_counter() < deadline:
            fed.selections.clear()
            call()
            pairs.first.append(fed.selections[0])
            pairs.second.append(fed.selections[-1])
    return pairs


def cooled(fed: Fed, addresses: list[Address], seconds: float) -> Iterator[Row]:
    """Select while one or all but one are cooling."""
    loop = batch_of(loop_of(fed.client))

    def side(count: int) -> Callable[[], float]:
        patch = cooling(fed.client, set(addresses[:count]))

        def measured() -> float:
            with patch(), fed.timed():
                loop(TIMES)
                return statistics.median(fed.selections)

        return measured

    for count in sorted({1, len(addresses) - 1}):
        pairs = compare(side(0), side(count), seconds)
        yield row(len(addresses), f"{count} cooling", "none", pairs)


if __name__ == "__main__":
    main(rows)
