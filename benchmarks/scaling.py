"""What is left of the throughput with many threads and tasks: ``python benchmarks/scaling.py``."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Awaitable, Callable, Iterator

import pymongo
from clients import async_client
from measure import Batch, Row, alone, compare, enabled, main, quantile, throughput, turn

from pymongo_deprio.cluster import LocalCluster

MEASURED = 320  # by 64 threads as by one


def rows(quick: bool) -> Iterator[Row]:
    """Find with 1, 4, 16 and 64 threads of one client, and with as many tasks."""
    numbers = [1, 64] if quick else [1, 4, 16, 64]
    # How threads take turns is chance: it takes many pairs to see anything beside.
    of_threads, of_tasks = (0.3, 0.3) if quick else (60.0, 20.0)
    with LocalCluster() as cluster:
        for number in numbers:
            with ThreadPoolExecutor(number) as pool, cluster.client(
                localThresholdMS=1000
            ) as client:
                yield row("threads", number, threaded(client, pool, number), of_threads)
        if hasattr(pymongo, "AsyncMongoClient"):
            for number in numbers:
                with async_client(cluster) as (client, run):
                    yield row("tasks", number, concurrent(client, run, number), of_tasks)


def row(kind: str, number: int, batch: Batch, seconds: float) -> Row:
    """Measure the throughput of all of them together."""
    pairs = compare(turn(alone, batch, MEASURED), turn(enabled, batch, MEASURED), seconds)
    per_second = [round(1e6 / quantile(durations, 0.5)) for durations in pairs]
    return {
        "kind": kind,
        "number": number,
        "alone_per_second": per_second[0],
        "enabled_per_second": per_second[1],
        **throughput(pairs),
    }


def threaded(client: Any, pool: ThreadPoolExecutor, number: int) -> Batch:
    """Return what divides a number of finds among threads that live on."""

    def work(times: int) -> None:
        for _ in range(times):
            client.test.scaling.find_one()

    return lambda times: list(pool.map(work, [times // number] * number))


def concurrent(client: Any, run: Callable[[Awaitable[object]], object], number: int) -> Batch:
    """Return what divides them among tasks."""

    async def work(times: int) -> None:
        for _ in range(times):
            await client.test.scaling.find_one()

    async def batch(times: int) -> None:
        await asyncio.gather(*(work(times // number) for _ in range(number)))

    return lambda times: run(batch(times))


if __name__ == "__main__":
    main(rows)
