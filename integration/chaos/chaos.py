"""Mixed load while mongoses fall sick, and what must be so in the end.

``PYTHONPATH=tests python integration/chaos/chaos.py --seconds 60 --seed 1 --runs 20``
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import random
import shutil
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Iterator

import pymongo
from load import DATABASE, Side, Worker, plain, watch
from model import SELECTION, SETTLE, TIMEOUT, Model
from sickness import Sickness
from support import HAS_ASYNC, knows_all_async, wait_until

import pymongo_deprio
from pymongo_deprio import Cooldown, _activation
from pymongo_deprio.cluster import LocalCluster

WORKERS = 3
COOLDOWN = Cooldown(base=0.3, maximum=2.0)
MEMORY = Path("/dev/shm")  # noqa: S108 - it is a place for files, where there is one
"""Where the mongod writes: a disk that stalls would look like three mongoses that hang."""
ENOUGH = 4 * 2**30
"""What it should find there, in bytes: a container may have next to nothing."""


def run(seconds: float, seed: int) -> Model:
    """Run the load for so long; return what was seen."""
    model = Model()
    alone = threading.active_count()
    with LocalCluster(mongos=3) as cluster:
        with _direct(cluster) as client:
            _prepare(client)
        wait_until(lambda: threading.active_count() <= alone, "the client's threads to end")
        before = _resources()
        retries = pymongo_deprio.stats().retries
        # Neither way should break the promises.
        cooldown = random.Random(seed).choice([None, COOLDOWN])
        with pymongo_deprio.enable(cooldown=cooldown, on_event=model.on_event, strict=True):
            _load(cluster, seconds, seed, model)
            _check_memory(model)
        if not _activation._state.memory.is_empty:
            model.violated("there is memory left after disable()")
        _check_resources(before, model)
        if pymongo_deprio.stats().retries - retries != len(model.retries):
            model.violated("stats() and the events count differently many retries")
        with _direct(cluster) as client:
            _compare(client, model)
        model.check_faults()
        model.check_servers({mongos.address: mongos.commands() for mongos in cluster.mongos})
    return model


def _direct(cluster: LocalCluster) -> Any:
    return pymongo.MongoClient(cluster.replica_set_uri)


def _prepare(client: Any) -> None:
    database = client[DATABASE]
    database.fixed.insert_many([{"_id": number} for number in range(7)])
    database.create_collection("written")
    names = [f"{side} {index}" for side in ("threads", "tasks") for index in range(WORKERS)]
    database.counters.insert_many([{"_id": name, "count": 0} for name in names])


def _compare(client: Any, model: Model) -> None:
    database = client[DATABASE]
    counters = {one["_id"]: one["count"] for one in database.counters.find()}
    model.check_documents(list(database.written.find()), counters)


def _load(cluster: LocalCluster, seconds: float, seed: int, model: Model) -> None:
    done, quiet = threading.Event(), threading.Event()
    with ExitStack() as opened:
        sides = [opened.enter_context(_threads(cluster, model))]
        if HAS_ASYNC:
            sides.append(opened.enter_context(_tasks(cluster, model)))
        streams: list[Any] = []
        load: list[Any] = []
        try:
            for side in sides:
                began = threading.Event()
                streams.append(side.submit(watch(side, model, began, quiet)))
                wait_until(began.is_set, "a change stream")
            for side in sides:
                workers = [Worker(side, index, seed, model) for index in range(WORKERS)]
                load += [side.submit(worker.work(done)) for worker in workers]
            Sickness(cluster, sides, seed, model).spread(seconds)
        finally:
            done.set()
            for future in load:
                future.result()
            time.sleep(SETTLE)  # what hung may be executed by now
            quiet.set()
            for future in streams:
                future.result()


def _options(model: Model) -> dict[str, Any]:
    return {
        "event_listeners": [model.heard],
        "socketTimeoutMS": int(TIMEOUT * 1000),
        "connectTimeoutMS": int(TIMEOUT * 1000),
        "serverSelectionTimeoutMS": int(SELECTION * 1000),
        "heartbeatFrequencyMS": 500,
    }


@contextmanager
def _threads(cluster: LocalCluster, model: Model) -> Iterator[Side]:
    with ThreadPoolExecutor(WORKERS + 2) as pool, cluster.client(**_options(model)) as client:
        yield Side("threads", client, lambda coroutine: pool.submit(plain, coroutine), time.sleep)


@contextmanager
def _tasks(cluster: LocalCluster, model: Model) -> Iterator[Side]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def submit(coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, loop)

    async def connect() -> Any:
        client: Any = pymongo.AsyncMongoClient(cluster.uri, **_options(model))
        await client.admin.command("ping")
        await knows_all_async(client, 3)
        return client

    async def close() -> None:
        await client.close()
        left = {task for task in asyncio.all_tasks() if task is not asyncio.current_task()}
        if left:
            _, left = await asyncio.wait(left, timeout=5)
        if left:
            model.violated(f"there are tasks left: {left}")
        await loop.shutdown_default_executor()

    try:
        client = submit(connect()).result()
        try:
            yield Side("tasks", client, submit, asyncio.sleep)
        finally:
            submit(close()).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


# -- What is left over -----------------------------------------------------------------------------


def _resources() -> tuple[Counter[str], int]:
    return Counter(thread.name for thread in threading.enumerate()), _descriptors()


def _descriptors() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def _check_resources(before: tuple[Counter[str], int], model: Model) -> None:
    def nothing_is_left() -> bool:
        threads, descriptors = _resources()
        return not threads - before[0] and descriptors <= before[1]

    try:
        wait_until(nothing_is_left, "threads and file descriptors to end")
    except AssertionError:
        model.violated(f"there were {before} threads and descriptors, there are {_resources()}")


def _check_memory(model: Model) -> None:
    gc.collect()
    memory = _activation._state.memory
    left = [*memory._cooldowns.items(), *memory._sessions.items(), *memory._resuming.items()]
    if left:
        model.violated(f"clients are gone, and are remembered: {left}")


# -- The program -----------------------------------------------------------------------------------


def report(model: Model) -> None:
    """Print what was done, and what was violated."""
    print(f"operations: {sum(model.operations.values())}, {dict(model.operations)}")
    print(f"acknowledged writes: {len(model.acknowledged)} of {len(model.attempted)}")
    print(f"expected failures: {dict(Counter(what for _, what in model.expected))}")
    print(f"faults: {dict(Counter(fault.kind for fault in model.faults))}")
    print(f"failed commands: {len(model.heard.failures)}; retries: {len(model.retries)}")
    print("violations:", len(model.violations))
    for violation in model.violations:
        print(f"  {violation}")


def main() -> int:
    """Run it; return 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for how long each")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="for the chance")
    parser.add_argument("--runs", type=int, default=1, help="how many, with one seed after another")
    options = parser.parse_args()
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ENOUGH:
        tempfile.tempdir = str(MEMORY)
    logging.getLogger("pymongo_deprio").setLevel(logging.ERROR)  # cooldowns are no news here
    broken = []
    for seed in range(options.seed, options.seed + options.runs):
        print(f"PyMongo {pymongo.version}, seed {seed}, {options.seconds} seconds", flush=True)
        model = run(options.seconds, seed)
        report(model)
        if model.violations:
            broken.append(seed)
    print(f"{options.runs} runs, {len(broken)} with violations {broken or ''}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
