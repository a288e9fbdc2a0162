"""Threads, tasks, greenlets and forked children see no other's failures."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, Callable

import pytest
from support import (
    HAS_ASYNC,
    MARKS_UNKNOWN,
    RETRYABLE,
    connect_async,
    each_mongos_sick_in_its_own_way,
    exit_status,
    run,
)

import pymongo_deprio
from pymongo_deprio import _activation

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import Cluster

each_knows_both = pytest.mark.skipif(
    MARKS_UNKNOWN, reason="an error of one operation makes the mongos Unknown for all of them"
)


def each_avoided_its_own_failure(retries: list[Retry], cluster: Cluster) -> None:
    """Check that no operation left out what another one failed on."""
    finds_fail, inserts_fail = (mongos.address for mongos in cluster.mongos)
    assert {event.failed for event in retries} == {(finds_fail,), (inserts_fail,)}
    for event in retries:
        assert event.deprioritized == event.failed
        assert event.redirected


@each_knows_both
def test_threads(cluster: Cluster, connect: Callable[..., Any], retries: list[Retry]) -> None:
    """32 threads on one client: each operation leaves out its own failure, and no other's."""
    client = connect()
    barrier = threading.Barrier(32)

    def work(seed: int) -> None:
        barrier.wait()
        for number in range(20):
            client.test.threads.find_one()
            client.test.threads.insert_one({"seed": seed, "number": number})

    with each_mongos_sick_in_its_own_way(cluster), ThreadPoolExecutor(32) as threads:
        list(threads.map(work, range(32)))
    each_avoided_its_own_failure(retries, cluster)


@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_tasks(cluster: Cluster, retries: list[Retry]) -> None:
    """200 tasks on one client: each operation leaves out its own failure, and no other's."""

    async def work(client: Any, seed: int) -> None:
        for number in range(4):
            await client.test.tasks.find_one()
            await client.test.tasks.insert_one({"seed": seed, "number": number})

    async def main() -> None:
        async with connect_async(cluster) as client:
            await asyncio.gather(*(work(client, seed) for seed in range(200)))

    with each_mongos_sick_in_its_own_way(cluster):
        run(main())
    each_avoided_its_own_failure(retries, cluster)


GREENLETS = """
from gevent import monkey; monkey.patch_all()
import gevent, pymongo, pymongo_deprio, sys
uri, finds_fail, inserts_fail = sys.argv[1:]
events = []
pymongo_deprio.enable(on_event=events.append, strict=True)
client = pymongo.MongoClient(uri, localThresholdMS=1000)
while len(client.nodes) < 2:
    gevent.sleep(0.01)

def work(seed):
    for number in range(10):
        client.test.greenlets.find_one()
        client.test.greenlets.insert_one({"seed": seed, "number": number})

gevent.joinall([gevent.spawn(work, seed) for seed in range(50)], raise_error=True)
assert {"%s:%d" % event.failed[0] for event in events} == {finds_fail, inserts_fail}
assert all(len(event.failed) == 1 and event.redirected for event in events)

# A timeout is a BaseException, raised wherever the greenlet waits.
for _ in range(20):
    with gevent.Timeout(0.001, False):
        for _ in range(100):
            client.test.greenlets.find_one()
from pymongo_deprio._loops import OPERATION
from pymongo_deprio._operation import LENT
assert OPERATION.get() is None and not LENT.get()
client.test.greenlets.find_one()
client.close()
print("fine")
"""


@each_knows_both
@pytest.mark.skipif(sys.implementation.name == "pypy", reason="gevent has no wheel for PyPy")
def test_greenlets(cluster: Cluster) -> None:
    """Greenlets of a process that gevent patched are as apart as threads, timeouts included."""
    addresses = ["{}:{}".format(*mongos.address) for mongos in cluster.mongos]
    with each_mongos_sick_in_its_own_way(cluster):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", GREENLETS, cluster.uri, *addresses],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert done.stdout.strip() == "fine", done.stderr


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:MongoClient opened before fork:UserWarning")
def test_fork(cluster: Cluster, connect: Callable[..., Any], retries: list[Retry]) -> None:
    """After a fork parent and child go on, even if another thread was just using our lock."""
    connect().test.fork.insert_one({})
    sick = cluster.mongos[0]
    locked, release = threading.Event(), threading.Event()

    def hold_the_lock() -> None:
        with _activation._state._lock:
            locked.set()
            release.wait()

    holder = threading.Thread(target=hold_the_lock)
    holder.start()
    locked.wait()
    with sick.fail_command(["find"], **RETRYABLE):
        child = os.fork()
        if child == 0:
            os._exit(retries_in_a_child(cluster, retries))
        release.set()
        holder.join()
        assert exit_status(child) == 0
        retry_once(cluster, retries)


def retries_in_a_child(cluster: Cluster, retries: list[Retry]) -> int:
    """Do in a forked child what the parent does, and return its exit code."""
    try:
        retry_once(cluster, retries)
        pymongo_deprio.disable()
    except BaseException:  # noqa: BLE001
        return 1
    return 0


def retry_once(cluster: Cluster, retries: list[Retry]) -> None:
    """Read until one read was retried."""
    retries.clear()
    with closing(cluster.client(localThresholdMS=1000)) as client:
        while not retries:
            client.test.fork.find_one()
    assert retries[0].failed == (cluster.mongos[0].address,)
