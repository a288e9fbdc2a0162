"""The faults of PyMongo's own deprioritization (P1 to P9, P11), on the wire, on every version.

Those that need no wire, P2, P3, P5 and P9 among them, are in ``tests/test_wrappers.py`` too.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Callable

import pymongo
import pytest
from fixtures import by_address
from pymongo import InsertOne, ReadPreference, UpdateOne
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    MARKS_UNKNOWN,
    RETRYABLE,
    Asked,
    connect_async,
    knows_all,
    prefer,
    run,
    wait_until,
    wait_until_async,
)

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import Cluster

pytestmark = pytest.mark.usefixtures("enabled")


def round_trip_times(client: Any) -> list[float]:
    """Return the round-trip times that the client measured, in seconds, in order."""
    descriptions = client._topology.description.server_descriptions().values()
    return sorted(description.round_trip_time or 0 for description in descriptions)


def check_that_reads_move(client: Any, asked: Asked, sick: Any, well: Any) -> None:
    """Read some times; each begins on the sick mongos, and is retried on the other."""
    for _ in range(10):
        knows_all(client)
        asked.reset()
        client.test.faults.find_one()
        assert asked.where("started", "find") == [sick, well]


def test_p1_far_mongos(cluster: Cluster, connect: Callable[..., Any], asked: Asked) -> None:
    """The near mongos is sick, the other is 80 ms away, outside the window: 20 of 20 go there."""
    near, far = cluster.mongos
    with far.delay_hello(80), near.fail_command(["find", "insert"], **RETRYABLE):
        client = connect(localThresholdMS=15, heartbeatFrequencyMS=500)
        # Where the first hello is not delayed, it takes some heartbeats to rise.
        wait_until(lambda: round_trip_times(client)[-1] > 0.05, "round-trip times")
        for number in range(20):
            knows_all(client)
            asked.reset()
            client.test.faults.find_one() if number % 2 else client.test.faults.insert_one({})
            assert asked.where("started") == [near.address, far.address]


@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_p1_far_mongos_asynchronously(cluster: Cluster, asked: Asked) -> None:
    """AsyncMongoClient goes to the far mongos as well."""
    near, far = cluster.mongos

    async def main() -> None:
        async with connect_async(
            cluster, asked, localThresholdMS=15, heartbeatFrequencyMS=500
        ) as client:
            await wait_until_async(lambda: round_trip_times(client)[-1] > 0.05, "round-trip times")
            for _ in range(20):
                asked.reset()
                await client.test.faults.find_one()
                assert asked.where("failed") == [near.address]
                assert asked.where("succeeded") == [far.address]

    with far.delay_hello(80), near.fail_command(["find"], error_code=HOST_UNREACHABLE):
        run(main())


def test_p2_removed_and_added_again(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """A mongos that leaves and comes back between the attempts, as by SRV polling, is avoided."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(sick))

    def leave_and_come_back(what: str, command: str, address: Any) -> None:
        if (what, command) == ("failed", "find"):
            before = client._topology.get_server_by_address(address)
            client._topology.on_srv_update([well])
            client._topology.on_srv_update([sick, well])
            knows_all(client)
            assert client._topology.get_server_by_address(address) is not before

    asked.hook = leave_and_come_back
    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        check_that_reads_move(client, asked, sick, well)


def test_p3_server_selector(cluster: Cluster, connect: Callable[..., Any], asked: Asked) -> None:
    """An application's min(address) does not bring the retry back to the mongos that failed."""
    sick, well = sorted(cluster.mongos, key=lambda mongos: mongos.address)
    client = connect(
        server_selector=lambda servers: [min(servers, key=lambda server: server.address)]
    )
    with sick.fail_command(["find"], error_code=HOST_UNREACHABLE):
        for _ in range(20):
            knows_all(client)
            asked.reset()
            client.test.faults.find_one()
            assert asked.where("started") == [sick.address, well.address]


def test_p4_selector_that_accepts_only_the_failed_one(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    waits_of: Callable[[Any], list[None]],
) -> None:
    """It is used again at once: selection does not wait, and may have a timeout of 0."""
    mongos = cluster.mongos[0]
    client = connect(
        server_selector=lambda servers: [s for s in servers if s.address == mongos.address],
        serverSelectionTimeoutMS=10_000 if MARKS_UNKNOWN else 0,
    )
    waits = waits_of(client)
    for _ in range(10):
        knows_all(client)
        asked.reset()
        with mongos.fail_command(["find"], times=1, error_code=HOST_UNREACHABLE):
            client.test.faults.find_one()
        assert asked.where("started") == [mongos.address] * 2
    assert not waits or MARKS_UNKNOWN
    assert all(event.fallback for event in retries)


def test_p4_both_back_at_once(cluster: Cluster, connect: Callable[..., Any], asked: Asked) -> None:
    """While a retry waits for any mongos, both come back at the same moment: the other is taken."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(sick))
    topology = client._topology
    known = list(topology.description.server_descriptions().values())

    def come_back() -> None:
        time.sleep(0.05)
        with topology._lock:
            del topology._process_change
            for description in known:
                topology._process_change(description)

    def forget_all(what: str, command: str, address: Any) -> None:
        if (what, command) == ("failed", "find"):
            with topology._lock:
                # Or monitors would bring them back one after the other.
                topology._process_change = lambda *change, **more: None
                topology._description = topology._description.reset()
            threading.Thread(target=come_back).start()

    asked.hook = forget_all
    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        check_that_reads_move(client, asked, sick, well)


def test_p8_bulk_of_many_batches(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """A bulk in which every batch fails once is never retried on the mongos that just failed."""
    client = connect()
    collection = client.test.bulk
    collection.drop()
    # In an ordered bulk each change of the kind begins a new batch.
    requests: list[Any] = []
    for number in range(15):
        requests += [InsertOne({"_id": number}), UpdateOne({"_id": number}, {"$inc": {"n": 1}})]
    failed: set[int] = set()

    def fail_each_batch_once(what: str, command: str, address: Any) -> None:
        if what == "started" and command in ("insert", "update"):
            batch = len(asked.where("succeeded", "insert", "update"))
            if batch not in failed:
                failed.add(batch)
                sick = by_address(cluster, address)
                sick.fail_command([command], times=1, **RETRYABLE)
        elif what == "failed":
            knows_all(client)

    asked.hook = fail_each_batch_once
    for _ in range(3):
        collection.delete_many({})
        failed.clear()
        asked.reset()
        assert collection.bulk_write(requests).modified_count == 15
        tried = asked.where("started", "insert", "update")
        assert len(tried) == 2 * len(requests)
        for first, retry in zip(tried[::2], tried[1::2]):
            assert first != retry
    assert collection.count_documents({"n": 1}) == 15


def test_p5_other_threads(cluster: Cluster, connect: Callable[..., Any]) -> None:
    """Others see every mongos while a thread retries all the time."""
    sick = cluster.mongos[0]
    client = connect(server_selector=prefer(sick.address))
    both = {mongos.address for mongos in cluster.mongos}
    done = threading.Event()

    def read() -> None:
        while not done.is_set():
            client.test.faults.find_one()

    with sick.fail_command(["find"], error_code=HOST_UNREACHABLE):
        threads = [threading.Thread(target=read) for _ in range(4)]
        for thread in threads:
            thread.start()
        try:
            for _ in range(200):
                description = client._topology.description
                assert description.has_writable_server()
                if not MARKS_UNKNOWN:
                    offered = description.apply_selector(ReadPreference.NEAREST, None)
                    assert {server.address for server in offered} == both
        finally:
            done.set()
            for thread in threads:
                thread.join()


BATCHES = [
    InsertOne({"_id": 1}),
    UpdateOne({"_id": 1}, {"$set": {"paid": True}}),
    InsertOne({"_id": 2}),
]


NO_CONNECTION: Any = {"commands": ["hello", "isMaster", "ismaster"], "close_connection": True}
"""The handshake of a new connection fails; a monitor has one already, and waits in it."""


def check_that_nothing_is_lost(result: Any, asked: Asked, retries: list[Retry], sick: Any) -> None:
    """Check that the retry did every batch, and that nothing had been sent before."""
    assert [retry.failed for retry in retries] == [(sick.address,)]
    assert sick.address not in asked.where("started", "insert", "update")
    assert (result.inserted_count, result.modified_count) == (2, 1)


@pytest.mark.parametrize("ordered", [True, False])
def test_p11_bulk_that_finds_no_connection(
    ordered: bool,
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
) -> None:
    """Of a bulk that is retried before anything was sent, all batches are done."""
    sick, _ = cluster.mongos
    client = connect(server_selector=prefer(sick.address), heartbeatFrequencyMS=60_000)
    with sick.fail_command(**NO_CONNECTION):
        result = client.test.p11.bulk_write(BATCHES, ordered=ordered)
    client.test.p11.drop()
    check_that_nothing_is_lost(result, asked, retries, sick)


@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_p11_async(cluster: Cluster, asked: Asked, retries: list[Retry]) -> None:
    """An AsyncMongoClient does all of them too."""
    sick, _ = cluster.mongos

    async def main() -> None:
        options: Any = {"server_selector": prefer(sick.address), "heartbeatFrequencyMS": 60_000}
        client: Any = pymongo.AsyncMongoClient(cluster.uri, event_listeners=[asked], **options)
        async with client:
            # An operation that has to wait would send its monitors to look once more.
            await client._get_topology()
            await wait_until_async(lambda: len(client.nodes) == 2, "both mongoses")
            with sick.fail_command(**NO_CONNECTION):
                result = await client.test.p11.bulk_write(BATCHES)
            await client.test.p11.drop()
        check_that_nothing_is_lost(result, asked, retries, sick)

    run(main())
