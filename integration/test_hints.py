"""What an operation continues begins on another mongos than the one that failed (P10)."""

from __future__ import annotations

import weakref
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pytest
from fixtures import by_address
from pymongo.errors import PyMongoError
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    MARKS_UNKNOWN,
    RETRIES_ON_OVERLOAD,
    VERSION,
    Asked,
    connect_async,
    knows_all,
    knows_all_async,
    prefer,
    run,
    wait_until,
    wait_until_gone,
)

from pymongo_deprio import _activation

if TYPE_CHECKING:
    from pymongo_deprio import Address, Retry
    from pymongo_deprio.cluster import Cluster

pytestmark = pytest.mark.usefixtures("enabled")
asynchronous = pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")

REPEAT = 100
RESUMABLE: dict[str, dict[str, Any]] = {
    "error": {"error_code": HOST_UNREACHABLE, "error_labels": ["ResumableChangeStreamError"]},
    "no cursor": {"error_code": 43},
    "closed": {"close_connection": True},
}
TRANSIENT = {"error_labels": ["TransientTransactionError"]}
OF_THE_MONGOS: dict[str, dict[str, Any]] = {
    "error": {"error_code": HOST_UNREACHABLE, **TRANSIENT},
    "shutdown": {"error_code": 91, **TRANSIENT},
    "closed": {"close_connection": True},
}
WRITE_CONFLICT = {"error_code": 112, **TRANSIENT}


@pytest.fixture(autouse=True)
def nothing_is_remembered() -> Iterator[None]:
    """After each test nothing is kept for a later operation."""
    yield
    assert _activation._state.memory.is_empty


@pytest.fixture
def collection(cluster: Cluster) -> Iterator[str]:
    """Make a collection, which a transaction of old servers could not; give its name."""
    with closing(cluster.client()) as client:
        client.test.drop_collection("hints")
        client.test.create_collection("hints")
        yield "hints"
        client.test.drop_collection("hints")


@contextmanager
def failing(cluster: Cluster, home: Address, *commands: str, **failure: Any) -> Iterator[None]:
    """Let the mongos of an address fail some commands."""
    with by_address(cluster, home).fail_command(commands, **failure):
        yield


# -- Change streams --------------------------------------------------------------------------------


def next_document(stream: Any, method: str) -> Any:
    """Wait for a change, and return the new document."""
    change = None
    while change is None:
        change = getattr(stream, method)()
    return change["fullDocument"]


@pytest.mark.parametrize("failure", RESUMABLE.values(), ids=list(RESUMABLE))
@pytest.mark.parametrize("method", ["next", "try_next"])
def test_resume(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    collection: str,
    failure: dict[str, Any],
    method: str,
) -> None:
    """A change stream whose getMore failed resumes on the other mongos, and misses nothing."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))
    for number in range(REPEAT // 5):
        knows_all(client)
        with client.test[collection].watch(max_await_time_ms=50) as stream:
            asked.reset()
            document = {"_id": f"{method} {number} {failure}"}
            with failing(cluster, first, "getMore", times=1, **failure):
                client.test[collection].insert_one(document)
                # Old ones resume at a moment, and may see what just came before.
                while next_document(stream, method) != document:
                    pass
            assert asked.where("failed", "getMore") == [first]
            assert asked.where("started", "aggregate") == [second]


def test_resume_takes_who_is_there(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, collection: str
) -> None:
    """With no other mongos the stream resumes on the one that failed."""
    mongos = cluster.mongos[0]
    client = connect(mongos)
    with client.test[collection].watch(max_await_time_ms=50) as stream:
        asked.reset()
        with mongos.fail_command("getMore", times=1, **RESUMABLE["error"]):
            client.test[collection].insert_one({"_id": 1})
            assert stream.next()["fullDocument"] == {"_id": 1}
        assert asked.where("started", "aggregate") == [mongos.address]


@pytest.mark.skipif(MARKS_UNKNOWN, reason="PyMongo 3.9 and 3.10 mark both mongoses Unknown")
def test_resume_that_fails_too(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, collection: str
) -> None:
    """A resume that fails on the other mongos is retried on the first: it is all that is left."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))
    with client.test[collection].watch(max_await_time_ms=50) as stream:
        asked.reset()
        with failing(cluster, first, "getMore", times=1, **RESUMABLE["error"]), failing(
            cluster, second, "aggregate", error_code=HOST_UNREACHABLE
        ):
            client.test[collection].insert_one({"_id": 1})
            assert stream.next()["fullDocument"] == {"_id": 1}
        assert asked.where("started", "aggregate") == [second, first]


def test_resume_is_no_hint_for_others(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, collection: str
) -> None:
    """The operations before, after and in another thread go where they went before."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))
    with client.test[collection].watch(max_await_time_ms=50) as stream:
        with failing(cluster, first, "getMore", times=1, **RESUMABLE["error"]):
            client.test[collection].insert_one({"_id": 1})
            stream.next()
        assert asked.where("started", "aggregate") == [first, second]
        knows_all(client)
        client.test[collection].find_one()
        assert asked.where("started", "find") == [first]


def test_a_new_stream_is_no_resume(
    connect: Callable[..., Any], collection: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its first cursor is left alone: other operations have nothing to look up meanwhile."""
    client = connect()
    resumed: list[Any] = []

    def note(*where: Any) -> Any:
        resumed.append(where)
        return nullcontext()

    monkeypatch.setattr(_activation._state.memory, "resuming", note)
    with client.test[collection].watch(max_await_time_ms=50):
        pass
    assert resumed == []


@pytest.mark.skipif(VERSION < (3, 12), reason="it sends no killCursors before it resumes")
def test_a_listener_does_not_take_the_hint(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, collection: str
) -> None:
    """What an application's listener runs while the old cursor is closed is no resume."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))

    def run_a_find(what: str, command: str, address: Address) -> None:
        if (what, command) == ("started", "killCursors"):
            client.test[collection].find_one()

    with client.test[collection].watch(max_await_time_ms=50) as stream:
        asked.reset()
        asked.hook = run_a_find
        with failing(cluster, first, "getMore", times=1, **RESUMABLE["error"]):
            client.test[collection].insert_one({"_id": 1})
            stream.next()
        asked.hook = lambda *event: None
        assert asked.where("started", "find"), "the listener should have run one"
        assert asked.where("started", "aggregate") == [second]


@asynchronous
@pytest.mark.parametrize("failure", RESUMABLE.values(), ids=list(RESUMABLE))
def test_resume_asynchronously(
    cluster: Cluster, asked: Asked, collection: str, failure: dict[str, Any]
) -> None:
    """AsyncMongoClient resumes on the other mongos as well."""
    first, second = (mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with connect_async(cluster, asked, server_selector=prefer(first)) as client:
            for number in range(REPEAT // 5):
                await knows_all_async(client)
                stream = await client.test[collection].watch(max_await_time_ms=50)
                async with stream:
                    asked.reset()
                    with failing(cluster, first, "getMore", times=1, **failure):
                        await client.test[collection].insert_one({"_id": number})
                        change = await stream.next()
                    assert change["fullDocument"] == {"_id": number}
                    assert asked.where("started", "aggregate") == [second]
                await client.test[collection].delete_one({"_id": number})

    run(main())


# -- Transactions ----------------------------------------------------------------------------------


def insert_twice(collection: Any, number: int, session: Any) -> None:
    """Do what is done in a transaction."""
    collection.insert_one({"_id": f"{number} a"}, session=session)
    collection.insert_one({"_id": f"{number} b"}, session=session)


@pytest.mark.parametrize("failure", OF_THE_MONGOS.values(), ids=list(OF_THE_MONGOS))
@pytest.mark.parametrize("skip", [0, 1], ids=["first statement", "second statement"])
def test_with_transaction(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    collection: str,
    failure: dict[str, Any],
    skip: int,
) -> None:
    """A transaction that a mongos failed is run again on the other one, and takes place once."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))
    inserts = client.test[collection]
    for number in range(REPEAT // 5):
        knows_all(client)
        asked.reset()
        with client.start_session() as session, failing(
            cluster, first, "insert", skip=skip, **failure
        ):
            session.with_transaction(lambda session, n=number: insert_twice(inserts, n, session))
        assert asked.where("failed", "insert") == [first]
        assert asked.where("succeeded", "insert")[skip:] == [second, second]
    assert inserts.count_documents({}) == REPEAT // 5 * 2


@pytest.mark.parametrize("failure", OF_THE_MONGOS.values(), ids=list(OF_THE_MONGOS))
def test_a_loop_of_the_applications_own(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    collection: str,
    failure: dict[str, Any],
) -> None:
    """The next transaction of the session begins on the other mongos, and only the next one."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))
    inserts = client.test[collection]
    for number in range(REPEAT // 5):
        knows_all(client)
        asked.reset()
        with client.start_session() as session:
            with failing(cluster, first, "insert", **failure), pytest.raises(
                PyMongoError
            ) as caught, session.start_transaction():
                insert_twice(inserts, number, session)
            assert caught.value.has_error_label("TransientTransactionError")
            # An operation in between is none of the transaction's.
            knows_all(client)
            inserts.find_one({}, session=session)
            assert asked.where("started", "find") == [first]
            with session.start_transaction():
                insert_twice(inserts, number, session)
            with session.start_transaction():
                inserts.delete_one({"_id": f"{number} a"}, session=session)
        assert asked.where("succeeded", "insert") == [second, second]
        assert asked.where("started", "delete") == [first]


def test_a_write_conflict_moves_nothing(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, collection: str
) -> None:
    """A transaction that another one got in the way of is run again where it was."""
    first, _ = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first))
    inserts = client.test[collection]
    for number in range(10):
        knows_all(client)
        asked.reset()
        with client.start_session() as session, failing(
            cluster, first, "insert", times=1, **WRITE_CONFLICT
        ):
            session.with_transaction(lambda session, n=number: insert_twice(inserts, n, session))
        assert asked.where("started", "insert") == [first] * 3


def test_a_transaction_takes_who_is_there(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, collection: str
) -> None:
    """With no other mongos the transaction is run again on the one that failed."""
    mongos = cluster.mongos[0]
    client = connect(mongos)
    inserts = client.test[collection]
    asked.reset()
    with client.start_session() as session, mongos.fail_command(
        "insert", times=1, **OF_THE_MONGOS["error"]
    ):
        session.with_transaction(lambda session: insert_twice(inserts, 0, session))
    assert asked.where("succeeded", "insert") == [mongos.address] * 2


def test_a_session_that_never_comes_back(
    cluster: Cluster, connect: Callable[..., Any], collection: str
) -> None:
    """What is remembered for a session goes with it."""
    client = connect()
    home = cluster.mongos[0]
    with client.start_session() as session:
        with home.fail_command("insert", **OF_THE_MONGOS["error"]), cluster.mongos[1].fail_command(
            "insert", **OF_THE_MONGOS["error"]
        ), pytest.raises(PyMongoError), session.start_transaction():
            insert_twice(client.test[collection], 0, session)
        assert not _activation._state.memory.is_empty
    gone = weakref.ref(session)
    del session
    wait_until_gone(gone)
    # The next operation finds nothing to look up, and later ones do not look.
    wait_until(
        lambda: client.test[collection].find_one() is None and _activation._state.memory.is_empty,
        "the session to be forgotten",
    )


@asynchronous
@pytest.mark.parametrize("failure", OF_THE_MONGOS.values(), ids=list(OF_THE_MONGOS))
def test_with_transaction_asynchronously(
    cluster: Cluster, asked: Asked, collection: str, failure: dict[str, Any]
) -> None:
    """AsyncMongoClient runs a transaction again on the other mongos as well."""
    first, second = (mongos.address for mongos in cluster.mongos)

    async def main() -> None:
        async with connect_async(cluster, asked, server_selector=prefer(first)) as client:
            inserts = client.test[collection]
            for number in range(REPEAT // 5):

                async def insert(session: Any, number: int = number) -> None:
                    await inserts.insert_one({"_id": number}, session=session)

                await knows_all_async(client)
                asked.reset()
                async with client.start_session() as session:
                    with failing(cluster, first, "insert", **failure):
                        await session.with_transaction(insert)
                assert asked.where("failed", "insert") == [first]
                assert asked.where("succeeded", "insert") == [second]

    run(main())


# -- The first statement of a transaction, refused for overload ------------------------------------


@pytest.mark.skipif(not RETRIES_ON_OVERLOAD, reason="PyMongo retries overload errors from 4.17 on")
@pytest.mark.parametrize("retarget", [True, False])
def test_overload_of_a_read_that_begins_a_transaction(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    collection: str,
    retarget: bool,
) -> None:
    """Where the client opted in, the transaction begins on the other mongos, and commits there."""
    first, second = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(first), enableOverloadRetargeting=retarget)
    inserts = client.test[collection]
    overload = {"error_code": 462, "error_labels": ["SystemOverloadedError", "RetryableError"]}
    for number in range(10):
        asked.reset()
        with client.start_session() as session, failing(
            cluster, first, "find", times=1, **overload
        ), session.start_transaction():
            inserts.find_one({}, session=session)
            inserts.insert_one({"_id": number}, session=session)
        home = second if retarget else first
        assert asked.where("started", "find") == [first, home]
        assert asked.where("succeeded", "find", "insert", "commitTransaction") == [home] * 3
    assert inserts.count_documents({}) == 10
    assert {event.redirected for event in retries} == {retarget}


@pytest.mark.skipif(not RETRIES_ON_OVERLOAD, reason="PyMongo retries overload errors from 4.17 on")
def test_overload_of_a_read_that_begins_a_transaction_asynchronously(
    cluster: Cluster, asked: Asked, collection: str
) -> None:
    """AsyncMongoClient begins the transaction on the other mongos as well."""
    first, second = (mongos.address for mongos in cluster.mongos)
    overload = {"error_code": 462, "error_labels": ["SystemOverloadedError", "RetryableError"]}
    options: Any = {"server_selector": prefer(first), "enableOverloadRetargeting": True}

    async def main() -> None:
        async with connect_async(cluster, asked, **options) as client:
            for _ in range(5):
                asked.reset()
                with failing(cluster, first, "find", times=1, **overload):
                    async with client.start_session() as session, await session.start_transaction():
                        await client.test[collection].find_one({}, session=session)
                assert asked.where("started", "find") == [first, second]

    run(main())
