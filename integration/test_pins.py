"""Pins are sacred: what belongs to one mongos stays there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import pytest
from fixtures import by_address
from pymongo.errors import OperationFailure, PyMongoError
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    RETRIES_ON_OVERLOAD,
    Asked,
    connect_async,
    finished,
    prefer,
    run,
    wait_until,
)

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import Cluster

OVERLOAD: dict[str, Any] = {
    "error_code": 462,
    "error_labels": ["SystemOverloadedError", "RetryableError"],
}

pytestmark = pytest.mark.usefixtures("enabled")
on_overload = pytest.mark.skipif(
    not RETRIES_ON_OVERLOAD, reason="PyMongo retries overload errors from 4.17 on"
)


@pytest.fixture
def documents(cluster: Cluster) -> Any:
    """Put some documents into a collection."""
    with cluster.client() as client:
        client.test.pins.drop()
        client.test.pins.insert_many([{"_id": number} for number in range(20)])
    return range(20)


def test_get_more_stays(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, documents: Any
) -> None:
    """Each batch of a cursor comes from its mongos, also when its find had to move."""
    client = connect()
    sick, well = (mongos.address for mongos in cluster.mongos)
    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        for _ in range(20):
            asked.reset()
            assert len(list(client.test.pins.find(batch_size=5))) == len(documents)
            assert set(asked.where("succeeded", "find", "getMore")) == {well}
            assert set(asked.where("started", "getMore")) == {well}
    assert sick not in asked.where("succeeded")


def test_get_more_that_fails_is_not_sent_elsewhere(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, documents: Any
) -> None:
    """A getMore that fails reaches the caller as an error, and no other mongos."""
    client = connect()
    for _ in range(10):
        cursor = client.test.pins.find(batch_size=5)
        next(cursor)
        (home,) = set(asked.where("succeeded", "find"))
        asked.reset()
        with by_address(cluster, home).fail_command(
            ["getMore"], times=1, error_code=HOST_UNREACHABLE
        ), pytest.raises(PyMongoError):
            list(cursor)
        assert set(asked.where("started", "getMore")) == {home}
        asked.reset()


@pytest.mark.parametrize("error_code", [HOST_UNREACHABLE, 112])
def test_statements_of_a_transaction_stay(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    documents: Any,
    error_code: int,
) -> None:
    """A transaction's statements all go to its mongos; one that fails ends it, as without us."""
    client = connect()
    collection = client.test.pins
    for _ in range(10):
        asked.reset()
        with client.start_session() as session:
            session.start_transaction()
            collection.find_one(session=session)
            (home,) = asked.where("started", "find")
            for number in documents:
                collection.update_one({"_id": number}, {"$inc": {"n": 1}}, session=session)
            with by_address(cluster, home).fail_command(
                ["update"], times=1, error_code=error_code
            ), pytest.raises(PyMongoError):
                collection.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)
            assert set(asked.where("started", "find", "update")) == {home}
    assert collection.count_documents({"n": {"$exists": True}}) == 0


@on_overload
@pytest.mark.parametrize("labels", [[], ["RetryableWriteError"], ["TransientTransactionError"]])
@pytest.mark.parametrize("command", ["insert", "find"])
def test_overload_in_mid_transaction(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    command: str,
    labels: Any,
) -> None:
    """P7: a statement that fails with overload is retried on the transaction's mongos; it commits.

    The error may carry labels for which PyMongo lets go of the mongos as well.
    """
    client = connect()
    collection = client.test.overload
    collection.drop()
    collection.insert_one({"_id": "there"})
    for number in range(12):
        asked.reset()
        with client.start_session() as session, session.start_transaction():
            collection.insert_one({"_id": number, "n": 1}, session=session)
            (home,) = asked.where("succeeded", "insert")
            error = dict(OVERLOAD, error_labels=[*OVERLOAD["error_labels"], *labels])
            with by_address(cluster, home).fail_command([command], times=1, **error):
                if command == "insert":
                    collection.insert_one({"_id": -number - 1, "n": 2}, session=session)
                else:
                    assert collection.find_one({"_id": number}, session=session)
            collection.update_one({"_id": number}, {"$inc": {"n": 1}}, session=session)
        assert asked.where("failed") == [home]
        assert set(asked.where("started")) == {home}
        assert collection.find_one({"_id": number}) == {"_id": number, "n": 2}
    assert collection.count_documents({"n": 2}) == (24 if command == "insert" else 12)


@on_overload
@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_overload_in_mid_transaction_asynchronously(cluster: Cluster, asked: Asked) -> None:
    """P7: AsyncMongoClient retries a write in mid-transaction on the transaction's mongos."""

    async def main() -> None:
        async with connect_async(cluster, asked) as client:
            collection = client.test.overload
            await collection.drop()
            await collection.insert_one({"_id": "there"})
            for number in range(12):
                asked.reset()
                async with client.start_session() as session:
                    await finished(session.start_transaction())
                    await collection.insert_one({"_id": number}, session=session)
                    (home,) = asked.where("succeeded", "insert")
                    with by_address(cluster, home).fail_command(["insert"], times=1, **OVERLOAD):
                        await collection.insert_one({"_id": -number - 1}, session=session)
                    await session.commit_transaction()
                assert asked.where("failed") == [home]
                assert set(asked.where("started")) == {home}
            assert await collection.count_documents({}) == 25

    run(main())


@on_overload
def test_overload_outside_a_transaction_moves(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """An overload error outside a transaction is retried on the other mongos, as any other."""
    client = connect()
    sick = cluster.mongos[0].address
    with cluster.mongos[0].fail_command(["insert"], **OVERLOAD):
        for _ in range(20):
            asked.reset()
            client.test.overload.insert_one({})
            assert asked.where("failed") in ([], [sick])


def always_overloaded(cluster: Cluster) -> Any:
    """Let the first mongos refuse every update for overload."""
    return cluster.mongos[0].fail_command(["update"], **OVERLOAD)


@on_overload
def test_overload_that_does_not_end(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """A transaction whose mongos stays overloaded is run again until it finds the other one."""
    client = connect()
    client.test.overload.drop()
    client.test.overload.insert_one({"_id": 0, "n": 0})

    def twice(session: Any) -> None:
        client.test.overload.find_one(session=session)
        client.test.overload.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)

    with always_overloaded(cluster), client.start_session() as session:
        for _ in range(8):
            session.with_transaction(twice)
    assert client.test.overload.find_one() == {"_id": 0, "n": 8}


@on_overload
def test_the_error_of_overload_that_does_not_end(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, retries: list[Retry]
) -> None:
    """The application's own loop is told to run the transaction again; its retries were held."""
    client = connect(server_selector=prefer(cluster.mongos[0].address))
    client.test.overload.insert_one({})
    with always_overloaded(cluster), client.start_session() as session:
        session.start_transaction()
        client.test.overload.find_one(session=session)
        with pytest.raises(OperationFailure) as caught:
            client.test.overload.update_one({}, {"$inc": {"n": 1}}, session=session)
        session.abort_transaction()
    assert caught.value.code == 462
    assert caught.value.has_error_label("TransientTransactionError")
    assert set(asked.where("started", "update")) == {cluster.mongos[0].address}
    assert retries
    assert all(event.deprioritized == () for event in retries)


@on_overload
@pytest.mark.usefixtures("own_mongoses")
def test_overload_of_a_mongos_that_dies(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    waits_of: Callable[[Any], list[None]],
) -> None:
    """Nobody waits for the mongos of a transaction that is gone: the transaction is run again."""
    home = cluster.mongos[0]
    client = connect(server_selector=prefer(home.address), heartbeatFrequencyMS=500)
    client.test.overload.drop()
    client.test.overload.insert_one({"_id": 0, "n": 0})

    def die(what: str, command: str, address: Any) -> None:
        if (what, command) == ("failed", "update"):
            home.kill()
            wait_until(lambda: home.address not in client.nodes, "its death to be known")

    def twice(session: Any) -> None:
        client.test.overload.find_one(session=session)
        client.test.overload.update_one({"_id": 0}, {"$inc": {"n": 1}}, session=session)

    asked.hook = die
    waits = waits_of(client)
    try:
        with always_overloaded(cluster), client.start_session() as session:
            session.with_transaction(twice)
    finally:
        home.start()
    assert client.test.overload.find_one() == {"_id": 0, "n": 1}
    assert not waits


@on_overload
def test_overload_of_the_first_statement_of_a_transaction(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """A transaction that has not begun yet begins on the other mongos, and commits there."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(sick))
    client.test.overload.insert_one({})
    with cluster.mongos[0].fail_command(["insert"], **OVERLOAD):
        for _ in range(10):
            asked.reset()
            with client.start_session() as session, session.start_transaction():
                client.test.overload.insert_one({}, session=session)
                client.test.overload.insert_one({}, session=session)
            assert asked.where("failed") == [sick]
            assert asked.where("succeeded") == [well] * 3


def test_a_second_transaction_is_not_held(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """What one transaction was pinned to does not bind the next one of the same session."""
    client = connect()
    client.test.pins.insert_one({})
    homes = set()
    with client.start_session() as session:
        for _ in range(40):
            asked.reset()
            with session.start_transaction():
                client.test.pins.insert_one({}, session=session)
            homes |= set(asked.where("started", "insert"))
    assert homes == {mongos.address for mongos in cluster.mongos}
