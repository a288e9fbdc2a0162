"""What the patch costs a successful operation: ``python benchmarks/cost.py``.

Alone and enabled take turns in one process, so that both see the same machine. The loop without a
network shows the cost of the wrappers; find_one shows what is left of it beside a round trip.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from importlib.metadata import version
from typing import Any, Awaitable, Callable

import pymongo
from pymongo.read_preferences import ReadPreference

import pymongo_deprio
from pymongo_deprio.cluster import LocalCluster

ROUNDS = 20


def microseconds(batch: Callable[[int], object], times: int) -> float:
    """Return how long one call takes, on average over so many, once the interpreter is warm."""
    batch(times // 4)
    began = time.perf_counter()
    batch(times)
    return (time.perf_counter() - began) / times * 1e6


def compare(name: str, batch: Callable[[int], object], times: int) -> None:
    """Print the medians of both, and that of their differences."""
    alone, enabled = [], []
    for _ in range(ROUNDS):
        alone.append(microseconds(batch, times))
        with pymongo_deprio.enable(strict=True):
            enabled.append(microseconds(batch, times))
    difference = statistics.median(b - a for a, b in zip(alone, enabled))
    print(
        f"{name}: {statistics.median(alone):.1f} µs alone, "
        f"{statistics.median(enabled):.1f} µs enabled, {difference:+.2f} µs"
    )


def batch_of(call: Callable[[], object]) -> Callable[[int], None]:
    """Return what makes a number of calls."""

    def batch(times: int) -> None:
        for _ in range(times):
            call()

    return batch


READ = (ReadPreference.PRIMARY, None, *(("find",) if pymongo.version_tuple >= (4, 7) else ()))


def main() -> None:
    """Measure on a cluster of two mongoses."""
    print(f"PyMongo {pymongo.version}, wrapt {version('wrapt')}")
    with LocalCluster() as cluster, cluster.client() as client:
        collection = client.test.cost
        collection.insert_one({})

        def without_a_network(*arguments: Any) -> None:
            """Stand where a command would be sent."""

        def loop() -> None:
            client._retryable_read(without_a_network, *READ)

        compare("the retry loop", batch_of(loop), 4000)
        compare("find_one", batch_of(collection.find_one), 400)
        compare("insert_one", batch_of(lambda: collection.insert_one({})), 400)
        if hasattr(pymongo, "AsyncMongoClient"):
            asynchronously(cluster)


def asynchronously(cluster: LocalCluster) -> None:
    """Measure the same of an AsyncMongoClient."""
    events = asyncio.new_event_loop()
    client: Any = pymongo.AsyncMongoClient(cluster.uri)
    collection = client.test.cost

    async def without_a_network(*arguments: Any) -> None:
        """Stand where a command would be sent."""

    def batch_of(call: Callable[[], Awaitable[object]]) -> Callable[[int], object]:
        async def batch(times: int) -> None:
            for _ in range(times):
                await call()

        return lambda times: events.run_until_complete(batch(times))

    def loop() -> Awaitable[object]:
        return client._retryable_read(without_a_network, *READ)  # type: ignore[no-any-return]

    try:
        compare("async, the retry loop", batch_of(loop), 4000)
        compare("async, find_one", batch_of(collection.find_one), 400)
        compare("async, insert_one", batch_of(lambda: collection.insert_one({})), 400)
    finally:
        events.run_until_complete(client.close())
        events.close()


def fallback() -> None:
    """Print how long an operation takes that fails once on the only mongos alive."""
    took = []
    with LocalCluster() as cluster, cluster.client(heartbeatFrequencyMS=500) as client:
        alive, dead = cluster.mongos
        client.test.cost.insert_one({})
        dead.kill()
        while len(client.nodes) > 1:
            time.sleep(0.01)
        with pymongo_deprio.enable(strict=True):
            for _ in range(ROUNDS):
                with alive.fail_command("find", times=1, error_code=6):
                    took.append(microseconds(batch_of(client.test.cost.find_one), 1) / 1000)
    median = statistics.median(took)
    print(f"one failure, no other mongos: {median:.1f} ms, at most {max(took):.1f} ms")


if __name__ == "__main__":
    main()
    fallback()
