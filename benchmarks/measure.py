"""What the benchmarks share: two ways in turn, and figures that a noisy machine hardly moves."""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import math
import statistics
from time import perf_counter
from typing import Any, Callable, ContextManager, Dict, Iterator, NamedTuple, Sequence

import pymongo_deprio

Row = Dict[str, Any]
Batch = Callable[[int], object]
Patch = Callable[[], ContextManager[object]]
Turn = Callable[[], float]

# After each switch Python looks attributes up anew: the first calls are slower.
WARM = 200
BATCH = 150
MANY = 2000
"""As warm-up and batch of what takes microseconds: it shows how Python runs when it has settled."""
CERTAIN = 0.003


class Pairs(NamedTuple):
    """What one call took in µs, in one way and in the other, turn by turn."""

    first: list[float]
    second: list[float]

    @property
    def added(self) -> list[float]:
        """How much longer the second took, for each pair."""
        return [second - first for first, second in zip(self.first, self.second)]

    @property
    def ratios(self) -> list[float]:
        """The second's duration as a part of the first's, for each pair."""
        return [second / first for first, second in zip(self.first, self.second)]

    @property
    def speeds(self) -> list[float]:
        """The second's throughput as a part of the first's, for each pair."""
        return [first / second for first, second in zip(self.first, self.second)]


def alone() -> ContextManager[object]:
    """Leave PyMongo as it is."""
    return contextlib.nullcontext()


def enabled() -> ContextManager[object]:
    """Patch it."""
    return pymongo_deprio.enable(strict=True)


def batch_of(call: Callable[[], object]) -> Batch:
    """Return what makes a number of calls."""

    def batch(times: int) -> None:
        for _ in range(times):
            call()

    return batch


def turn(
    patch: Patch,
    batch: Batch,
    times: int = BATCH,
    *,
    warm: int = WARM,
    clock: Callable[[], float] = perf_counter,
) -> Turn:
    """Return what takes the time of one call in µs, the mean of a batch.

    :param warm: how many calls go before.
    :param clock: `thread_time` for what waits for nothing: it leaves out other programs.
    """

    def measured() -> float:
        with patch():
            batch(warm)
            began = clock()
            batch(times)
            return (clock() - began) / times * 1e6

    return measured


def compare(first: Turn, second: Turn, seconds: float, fewest: int = 3) -> Pairs:
    """Take turns until the ratio's median is certain, or the time is up."""
    pairs = Pairs([], [])
    sides = [(first, pairs.first), (second, pairs.second)]
    deadline = perf_counter() + seconds
    while len(pairs.first) < fewest or (perf_counter() < deadline and not _is_certain(pairs)):
        for measured, durations in sides:
            durations.append(measured())
        sides.reverse()  # so that a machine which gets slower favours neither
    return pairs


def _is_certain(pairs: Pairs) -> bool:
    return len(pairs.first) >= 40 and uncertainty(pairs.speeds) <= CERTAIN


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which that part of all lies."""
    return sorted(values)[int(len(values) * part)]


def uncertainty(values: Sequence[float]) -> float:
    """Return how far the true median may lie from that of the values, with 95 % certainty.

    Source: McGill, Tukey and Larsen, "Variations of Box Plots", 1978: the notch of a box plot.
    """
    spread = quantile(values, 0.75) - quantile(values, 0.25)
    return 1.57 * spread / math.sqrt(len(values))


def cost(pairs: Pairs) -> Row:
    """Return the figures of alone and enabled: durations at best, what is added, throughput."""
    best = [quantile(durations, 0.05) for durations in pairs]
    return {
        "alone_us": best[0],
        "enabled_us": best[1],
        "added_at_best_us": best[1] - best[0],
        "added_us": statistics.median(pairs.added),
        "added_q1_us": quantile(pairs.added, 0.25),
        "added_q3_us": quantile(pairs.added, 0.75),
        **throughput(pairs),
    }


def throughput(pairs: Pairs) -> Row:
    """Return the enabled throughput as a part of that alone, and how certain that is."""
    return {
        "throughput": statistics.median(pairs.speeds),
        "uncertainty": uncertainty(pairs.speeds),
        "pairs": len(pairs.first),
    }


def main(rows: Callable[[bool], Iterator[Row]]) -> None:
    """Print a benchmark's rows, each as a line of JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true", help="a short trial: rough figures")
    logging.getLogger("pymongo_deprio").addHandler(logging.NullHandler())
    for row in rows(parser.parse_args().quick):
        print(json.dumps({key: _rounded(value) for key, value in row.items()}), flush=True)


def _rounded(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value
