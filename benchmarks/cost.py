"""What the patch costs an operation that succeeds: ``python benchmarks/cost.py``.

Alone and enabled take turns in one process, so that both see the same machine. The loop without a
network shows the cost of the wrappers; the other operations, what is left of it beside a round
trip. The own time of an operation is that of its thread on the processor, which is precise; the
whole one depends on all else that runs.
"""

from __future__ import annotations

from time import thread_time
from typing import Any, Awaitable, Callable, Iterator

import pymongo
from clients import async_client, cooling, loop_of
from measure import MANY, Batch, Patch, Row, alone, batch_of, compare, cost, enabled, main, turn
from pymongo import WriteConcern

from pymongo_deprio.cluster import LocalCluster

# Does not wait for the journal: of the shorter round trip the patch is a larger part.
WRITE_CONCERN = WriteConcern(w=1)
SETTLED: dict[str, Any] = {"times": MANY, "warm": MANY, "clock": thread_time}
"""For the retry loop, which waits for nothing."""


def rows(quick: bool) -> Iterator[Row]:
    """Measure on a cluster of three mongoses."""
    local, remote = (0.3, 1.0) if quick else (8.0, 40.0)
    with LocalCluster(mongos=3) as cluster, cluster.client(localThresholdMS=1000) as client:
        things = client.test.get_collection("cost", write_concern=WRITE_CONCERN)
        things.insert_one({})
        loop, find = batch_of(loop_of(client)), batch_of(things.find_one)
        insert = batch_of(lambda: things.insert_one({}))
        yield row("retry loop", loop, local, **SETTLED)
        yield row("find_one, own time", find, local, clock=thread_time)
        yield row("find_one", find, remote)
        yield row("insert_one", insert, remote)
        for count, words in enumerate(("nothing cooling", "one of three cooling")):
            patch = cooling(client, [one.address for one in cluster.mongos[:count]])
            yield row(f"retry loop, {words}", loop, local, patch, **SETTLED)
            yield row(f"find_one, {words}", find, remote / 5, patch)
        if hasattr(pymongo, "AsyncMongoClient"):
            yield from asynchronously(cluster, local, remote)


def row(case: str, batch: Batch, seconds: float, patch: Patch = enabled, **options: Any) -> Row:
    """Measure one kind of operation; the options are those of a turn."""
    first, second = (turn(side, batch, **options) for side in (alone, patch))
    return {"case": case, **cost(compare(first, second, seconds))}


def asynchronously(cluster: LocalCluster, local: float, remote: float) -> Iterator[Row]:
    """Measure the same of an AsyncMongoClient."""
    with async_client(cluster) as (client, run):
        things = client.test.get_collection("cost", write_concern=WRITE_CONCERN)

        def batch_of(call: Callable[[], Awaitable[object]]) -> Batch:
            async def batch(times: int) -> None:
                for _ in range(times):
                    await call()

            return lambda times: run(batch(times))

        find = batch_of(things.find_one)
        yield row("async, retry loop", batch_of(loop_of(client)), local, **SETTLED)
        yield row("async, find_one, own time", find, local, clock=thread_time)
        yield row("async, find_one", find, remote)
        yield row("async, insert_one", batch_of(lambda: things.insert_one({})), remote)


if __name__ == "__main__":
    main(rows)
