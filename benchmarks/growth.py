"""Whether cost or memory grows with the operations done: ``python benchmarks/growth.py``.

It stays enabled all the time: what disabling would clear away is to be seen.
"""

from __future__ import annotations

import resource
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Iterator

from clients import loop_of
from measure import BATCH, Row, batch_of, enabled, main

from pymongo_deprio.cluster import LocalCluster


def rows(quick: bool) -> Iterator[Row]:
    """Run the retry loop without a network, by one thread and by many."""
    operations = 100_000 if quick else 1_000_000
    with LocalCluster() as cluster, cluster.client() as client, enabled():
        for threads, part in ((1, 1.0), (64, 0.1)):
            yield row(client, threads, int(operations * part))


def row(client: Any, threads: int, operations: int) -> Row:
    """Compare the first tenth of the operations with the last one."""
    batch = batch_of(loop_of(client))
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(batch, [BATCH * 4] * threads))
        blocks, peak = sys.getallocatedblocks(), peak_kib()
        turns = operations // BATCH // threads
        durations: list[list[float]] = list(
            pool.map(lambda _: [one(batch) for _ in range(turns)], range(threads))
        )
        blocks, peak = sys.getallocatedblocks() - blocks, peak_kib() - peak
    tenth = max(turns // 10, 1)
    before, after = (
        statistics.median(took for thread in durations for took in thread[part])
        for part in (slice(tenth), slice(-tenth, None))
    )
    return {
        "threads": threads,
        "operations": turns * BATCH * threads,
        "before_us": before,
        "after_us": after,
        "more_blocks": blocks - sum(map(len, durations)),  # the figures themselves
        "more_kib_at_peak": peak,
    }


def one(batch: Any) -> float:
    """Return how long one operation takes, in µs of this thread's own time."""
    began = time.thread_time()
    batch(BATCH)
    return (time.thread_time() - began) / BATCH * 1e6


def peak_kib() -> int:
    """Return the largest memory that this process has had in use."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


if __name__ == "__main__":
    main(rows)
