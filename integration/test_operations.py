"""Every kind of retryable operation moves to the other mongos, sync and async."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

import pymongo
import pytest
from fixtures import by_address
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    RETRIES_WRITE_CONCERN_ERRORS,
    RETRYABLE,
    VERSION,
    Asked,
    connect_async,
    finished,
    knows_all,
    knows_all_async,
    prefer,
    run,
)

from pymongo_deprio.cluster import LocalMongos

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import Cluster

REPEAT = 100


class Kind(NamedTuple):
    """A kind of operation: the command it sends, and how it is called."""

    command: str
    call: Callable[[Any], Any]


def two_batches() -> list[Any]:
    """Return requests that are sent as an insert and an update."""
    return [pymongo.InsertOne({}), pymongo.UpdateOne({"_id": 0}, {"$inc": {"n": 1}}, upsert=True)]


KINDS: dict[str, Kind] = {
    "find_one": Kind("find", lambda c: c.find_one()),
    "insert_one": Kind("insert", lambda c: c.insert_one({})),
    "update_one": Kind("update", lambda c: c.update_one({"_id": 0}, {"$inc": {"n": 1}})),
    "find_one_and_update": Kind(
        "findAndModify", lambda c: c.find_one_and_update({"_id": 0}, {"$inc": {"n": 1}})
    ),
    "bulk_write": Kind("insert", lambda c: c.bulk_write(two_batches())),
    "insert_many": Kind("insert", lambda c: c.insert_many([{}, {}])),
    "aggregate": Kind("aggregate", lambda c: c.aggregate([{"$match": {"_id": 0}}])),
    "count_documents": Kind("aggregate", lambda c: c.count_documents({"_id": 0})),
    "distinct": Kind("distinct", lambda c: c.distinct("n")),
    "list_collections": Kind("listCollections", lambda c: c.database.list_collections()),
}
if VERSION >= (4, 9):
    KINDS["client.bulk_write"] = Kind(
        "bulkWrite",
        lambda c: c.database.client.bulk_write([pymongo.InsertOne({}, namespace=c.full_name)]),
    )
kinds = pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
asynchronous = pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")


@pytest.fixture(autouse=True)
def mongodb_8(request: pytest.FixtureRequest, cluster: Cluster) -> Iterator[None]:
    """Let the mongoses speak as those of MongoDB 8.0, which have a bulk write of the client."""
    with ExitStack() as speaking:
        for mongos in cluster.mongos:
            if isinstance(mongos, LocalMongos):
                speaking.enter_context(mongos.speak(25))
        kinds = getattr(getattr(request.node, "callspec", None), "params", {})
        if "kind" in kinds and kinds["kind"].command == "bulkWrite":
            speaks = cluster.mongos[0].command("hello")["maxWireVersion"]
            if speaks < 25:
                pytest.skip(f"bulkWrite needs MongoDB 8.0 (wire version 25, not {speaks})")
        yield


@kinds
def test_two_mongoses(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    kind: Kind,
) -> None:
    """Each operation is sent to the sick mongos first, then to the other one, where it succeeds."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(sick))
    with cluster.mongos[0].fail_command([kind.command], **RETRYABLE):
        for _ in range(REPEAT):
            knows_all(client)
            asked.reset()
            kind.call(client.test.operations)
            assert asked.where("failed") == [sick]
            assert asked.where("succeeded", kind.command) == [well]
    assert len(retries) == REPEAT
    assert all(event.redirected and event.failed == (sick,) for event in retries)
    if VERSION >= (4, 7):
        assert {event.operation for event in retries} <= {kind.command, "count"}


@kinds
def test_one_mongos(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, enabled: None, kind: Kind
) -> None:
    """With one mongos that fails once, the operation succeeds there at the second attempt."""
    mongos = cluster.mongos[0]
    client = connect(mongos)
    for _ in range(10):
        knows_all(client, 1)
        asked.reset()
        with mongos.fail_command([kind.command], times=1, **RETRYABLE):
            kind.call(client.test.operations)
        assert asked.where("failed", kind.command) == [mongos.address]
        assert mongos.address in asked.where("succeeded", kind.command)


@asynchronous
@kinds
def test_two_mongoses_asynchronously(
    cluster: Cluster, asked: Asked, retries: list[Retry], kind: Kind
) -> None:
    """AsyncMongoClient moves to the other mongos as MongoClient does."""
    sick, well = (mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with connect_async(cluster, asked, server_selector=prefer(sick)) as client:
            for _ in range(REPEAT):
                await knows_all_async(client)
                asked.reset()
                await finished(kind.call(client.test.operations))
                assert asked.where("failed") == [sick]
                assert asked.where("succeeded", kind.command) == [well]

    with cluster.mongos[0].fail_command([kind.command], **RETRYABLE):
        run(main())
    assert len(retries) == REPEAT
    assert all(event.redirected for event in retries)


@asynchronous
@pytest.mark.parametrize("name", ["find_one", "insert_one"])
def test_prose_tests_asynchronously(
    cluster: Cluster, asked: Asked, enabled: None, name: str
) -> None:
    """Retryable reads 2.1 and retryable writes 4, by AsyncMongoClient."""
    kind = KINDS[name]
    both = sorted(mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with connect_async(cluster, asked) as client:
            for _ in range(REPEAT):
                asked.reset()
                with ExitStack() as failing:
                    for mongos in cluster.mongos:
                        failing.enter_context(
                            mongos.fail_command([kind.command], times=1, **RETRYABLE)
                        )
                    with pytest.raises(pymongo.errors.OperationFailure):
                        await kind.call(client.test.operations)
                assert sorted(asked.where("failed")) == both

    run(main())


@asynchronous
@kinds
def test_one_mongos_asynchronously(
    cluster: Cluster, asked: Asked, enabled: None, kind: Kind
) -> None:
    """With one mongos AsyncMongoClient succeeds there at the second attempt."""
    mongos = cluster.mongos[0]

    async def main() -> None:
        async with connect_async(mongos, asked, count=1) as client:
            for _ in range(10):
                asked.reset()
                with mongos.fail_command([kind.command], times=1, **RETRYABLE):
                    await finished(kind.call(client.test.operations))
                assert asked.where("failed", kind.command) == [mongos.address]
                assert mongos.address in asked.where("succeeded", kind.command)

    run(main())


# -- The ends of a transaction ---------------------------------------------------------------------

transactions_move = pytest.mark.skipif(
    VERSION < (3, 11), reason="PyMongo 3.9 and 3.10 keep commit and abort pinned"
)
# The commit takes effect, and its reply says that it may not have.
EXECUTED: dict[str, Any] = {
    "write_concern_error": {"code": HOST_UNREACHABLE, "errmsg": "host unreachable"},
    "error_labels": RETRYABLE["error_labels"],
}


@pytest.fixture
def transactions(cluster: Cluster) -> str:
    """Return the name of a collection for transactions, which has one document."""
    with cluster.client() as client:
        client.test.transactions.drop()
        client.test.transactions.insert_one({"_id": "there"})
    return "transactions"


@transactions_move
@pytest.mark.skipif(not RETRIES_WRITE_CONCERN_ERRORS, reason="it is not retried")
def test_commit_moves(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    enabled: None,
    transactions: str,
) -> None:
    """A commit whose outcome is in doubt is retried on the other mongos, which confirms it."""
    client = connect()
    collection = client.test[transactions]
    for number in range(REPEAT):
        asked.reset()
        with client.start_session() as session:
            session.start_transaction()
            collection.insert_one({"_id": number}, session=session)
            (pinned,) = asked.where("succeeded", "insert")
            with by_address(cluster, pinned).fail_command(
                ["commitTransaction"], times=1, **EXECUTED
            ):
                session.commit_transaction()
        first, second = asked.where("started", "commitTransaction")
        assert first == pinned != second
        assert collection.count_documents({"_id": number}) == 1


@transactions_move
def test_commit_that_did_not_arrive_moves(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    enabled: None,
    transactions: str,
) -> None:
    """A commit that never reached the shard is retried on the other mongos as well.

    There the cluster commits it, or finds that it was not committed and ends it, with an error that
    tells the application, or with_transaction, to run it again. It takes place once.
    """
    client = connect()
    collection = client.test[transactions]
    for number in range(REPEAT):
        asked.reset()

        def insert(session: Any, number: int = number) -> None:
            collection.insert_one({"_id": number}, session=session)
            (pinned,) = set(asked.where("started", "insert")[-1:])
            if not asked.where("started", "commitTransaction"):
                by_address(cluster, pinned).fail_command(
                    ["commitTransaction"], times=1, **RETRYABLE
                )

        with client.start_session() as session:
            session.with_transaction(insert)
        inserts = asked.where("started", "insert")
        first, second, *again = asked.where("started", "commitTransaction")
        assert first == inserts[0] != second
        assert again == inserts[1:]
        assert collection.count_documents({"_id": number}) == 1


@transactions_move
def test_abort_moves(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    enabled: None,
    transactions: str,
) -> None:
    """An abort that fails is retried on the other mongos, and takes effect."""
    client = connect()
    collection = client.test[transactions]
    for number in range(REPEAT):
        asked.reset()
        with client.start_session() as session:
            session.start_transaction()
            collection.insert_one({"_id": number}, session=session)
            (pinned,) = asked.where("succeeded", "insert")
            with by_address(cluster, pinned).fail_command(
                ["abortTransaction"], times=1, **RETRYABLE
            ):
                session.abort_transaction()
        first, second = asked.where("started", "abortTransaction")
        assert first == pinned != second
        assert collection.count_documents({"_id": number}) == 0


@asynchronous
@pytest.mark.parametrize("end", ["commit", "abort"])
def test_the_end_of_a_transaction_moves_asynchronously(
    cluster: Cluster, asked: Asked, enabled: None, transactions: str, end: str
) -> None:
    """AsyncMongoClient retries commit and abort on the other mongos."""
    command = f"{end}Transaction"

    async def main() -> None:
        async with connect_async(cluster, asked) as client:
            collection = client.test[transactions]
            for number in range(REPEAT):
                asked.reset()
                async with client.start_session() as session:
                    await finished(session.start_transaction())
                    await collection.insert_one({"_id": number}, session=session)
                    (pinned,) = asked.where("succeeded", "insert")
                    with by_address(cluster, pinned).fail_command([command], times=1, **EXECUTED):
                        await getattr(session, f"{end}_transaction")()
                first, second = asked.where("started", command)
                assert first == pinned != second
                found = await collection.count_documents({"_id": number})
                assert found == (end == "commit")

    run(main())
