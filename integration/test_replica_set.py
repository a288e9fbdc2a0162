"""Replica sets and single servers behave as without the patch (but for P5, P6 and P9).

On two real mongods, a primary and a secondary.
"""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pymongo
import pytest
from pymongo.errors import OperationFailure
from support import HOST_UNREACHABLE, MARKS_UNKNOWN, RETRIES_ON_OVERLOAD, Asked, wait_until

from pymongo_deprio.cluster import ServerUnreachableError
from pymongo_deprio.cluster._admin import fail_command_document, run_command
from pymongo_deprio.cluster._mongod import find_mongod
from pymongo_deprio.cluster._processes import Processes

if TYPE_CHECKING:
    from pymongo_deprio import Retry

OVERLOAD = {"error_code": 462, "error_labels": ["SystemOverloadedError", "RetryableError"]}

only_where_it_stays_known = pytest.mark.skipif(
    MARKS_UNKNOWN, reason="PyMongo 3.9 and 3.10 mark the server that failed Unknown"
)
on_overload = pytest.mark.skipif(
    not RETRIES_ON_OVERLOAD, reason="PyMongo retries overload errors from 4.17 on"
)


@pytest.fixture(scope="module")
def members() -> Iterator[list[tuple[str, int]]]:
    """Start a replica set; return the addresses of its primary and its secondary."""
    processes = Processes()
    try:
        processes.start()
        addresses: list[tuple[str, int]] = []
        for number in range(2):
            port = processes.reserve_port()
            data = processes.directory / str(number)
            data.mkdir()
            line = f"--port {port} --dbpath {data} --replSet pair --nounixsocket --oplogSize 64"
            line += " --wiredTigerCacheSizeGB 0.25 --setParameter enableTestCommands=1"
            processes.spawn([str(find_mongod()), *line.split()], processes.directory / "log")
            addresses.append(("127.0.0.1", port))
        wait_until(lambda: all(map(answers, addresses)), "two mongods", 30)
        config = {
            "_id": "pair",
            "settings": {"electionTimeoutMillis": 1000, "heartbeatIntervalMillis": 100},
            "members": [
                {"_id": number, "host": f"{host}:{port}", "priority": 1 - number}
                for number, (host, port) in enumerate(addresses)
            ],
        }
        run_command(addresses[0], {"replSetInitiate": config}, timeout=30)
        wait_until(lambda: hello(addresses[0]).get("isWritablePrimary"), "a primary", 30)
        wait_until(lambda: hello(addresses[1]).get("secondary"), "a secondary", 30)
        yield addresses
    finally:
        processes.close()


def hello(address: tuple[str, int]) -> dict[str, Any]:
    """Return what a member says of itself."""
    return run_command(address, {"hello": 1})


def answers(address: tuple[str, int]) -> bool:
    """Tell whether a mongod can be reached already."""
    try:
        return bool(hello(address))
    except ServerUnreachableError:
        return False


@contextmanager
def failing(address: tuple[str, int], *commands: str, **failure: Any) -> Iterator[None]:
    """Let a member fail some commands."""
    failure = failure or {"error_code": HOST_UNREACHABLE}
    run_command(address, fail_command_document(list(commands), **failure))
    try:
        yield
    finally:
        run_command(address, {"configureFailPoint": "failCommand", "mode": "off"})


@pytest.fixture
def client_of(
    members: list[tuple[str, int]], asked: Asked, enabled: None
) -> Iterator[Callable[..., Any]]:
    """Return a maker of clients of the replica set that know both members."""
    with ExitStack() as clients:

        def make(**options: Any) -> Any:
            uri = "mongodb://{}:{}/?replicaSet=pair".format(*members[0])
            client: Any = pymongo.MongoClient(uri, event_listeners=[asked], **options)
            clients.enter_context(closing(client))
            wait_until(lambda: len(client.nodes) == 2, "both members")
            return client

        yield make


@only_where_it_stays_known
@pytest.mark.parametrize("mode", ["primary", "primaryPreferred"])
def test_reads_stay_on_the_primary(
    members: list[tuple[str, int]],
    client_of: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    mode: str,
) -> None:
    """P6: a read that failed on the primary is retried there, though there is a secondary."""
    primary, _ = members
    client = client_of(readPreference=mode)
    for _ in range(20):
        asked.reset()
        with failing(primary, "find", times=1, error_code=HOST_UNREACHABLE):
            client.test.pair.find_one()
        assert asked.where("started") == [primary, primary]
    assert len(retries) == 20
    assert all(event.deprioritized == () for event in retries)
    assert not any(event.redirected or event.fallback for event in retries)


@only_where_it_stays_known
def test_any_member_can_be_selected_again(
    members: list[tuple[str, int]], client_of: Callable[..., Any], asked: Asked
) -> None:
    """A nearest read may go back to the member that failed: nothing is left out."""
    client = client_of(readPreference="nearest", localThresholdMS=1000)
    again = 0
    with failing(members[1], "find"):
        for _ in range(100):
            asked.reset()
            try:
                client.test.pair.find_one()
            except OperationFailure:
                again += 1
                assert asked.where("started") == [members[1]] * 2
    assert again > 0


def test_writes_are_retried_on_the_primary(
    members: list[tuple[str, int]], client_of: Callable[..., Any], asked: Asked
) -> None:
    """The primary is the only server for a write."""
    primary, _ = members
    client = client_of()
    for _ in range(10):
        wait_until(lambda: client.primary == primary, "the primary")
        asked.reset()
        with failing(primary, "insert", times=1, error_code=HOST_UNREACHABLE):
            client.test.pair.insert_one({})
        assert asked.where("started") == [primary, primary]


def test_a_single_server(
    members: list[tuple[str, int]], connect_to: Callable[..., Any], asked: Asked
) -> None:
    """With a direct connection the retry goes to the only server."""
    primary, _ = members
    client = connect_to(primary)
    for _ in range(10):
        asked.reset()
        with failing(primary, "find", times=1, error_code=HOST_UNREACHABLE):
            client.test.pair.find_one()
        assert asked.where("started") == [primary, primary]


@pytest.fixture
def connect_to(asked: Asked, enabled: None) -> Iterator[Callable[..., Any]]:
    """Return a maker of clients that are connected to one server directly."""
    with ExitStack() as clients:

        def make(address: tuple[str, int]) -> Any:
            options: Any = {} if pymongo.version_tuple < (3, 12) else {"directConnection": True}
            uri = "mongodb://{}:{}/".format(*address)
            client: Any = pymongo.MongoClient(uri, event_listeners=[asked], **options)
            return clients.enter_context(closing(client))

        yield make


@on_overload
@pytest.mark.parametrize("retarget", [True, False])
def test_overload_retargeting(
    members: list[tuple[str, int]],
    client_of: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    retarget: bool,
) -> None:
    """After an overload error a read moves where the client opted in, and stays otherwise."""
    primary, secondary = members
    client = client_of(readPreference="primaryPreferred", enableOverloadRetargeting=retarget)
    for _ in range(10):
        asked.reset()
        with failing(primary, "find", times=1, **OVERLOAD):
            client.test.pair.find_one()
        assert asked.where("started") == [primary, secondary if retarget else primary]
    assert all(event.redirected is retarget for event in retries)


@on_overload
def test_overload_retargeting_of_a_write(
    members: list[tuple[str, int]], client_of: Callable[..., Any], asked: Asked
) -> None:
    """A write goes back to the only primary at once, also where the client opted in."""
    primary, _ = members
    client = client_of(enableOverloadRetargeting=True, serverSelectionTimeoutMS=0)
    for _ in range(10):
        asked.reset()
        with failing(primary, "insert", times=1, **OVERLOAD):
            client.test.pair.insert_one({})
        assert asked.where("started") == [primary, primary]


@on_overload
def test_overload_in_mid_transaction(
    members: list[tuple[str, int]],
    client_of: Callable[..., Any],
    asked: Asked,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A transaction's statement is retried on whoever is primary: it has no pin to hold."""
    primary, _ = members
    client = client_of()
    client.test.pair.insert_one({})
    topology = client._topology

    def never(*arguments: Any, **options: Any) -> None:
        raise AssertionError(f"bound to an address: {arguments}")

    monkeypatch.setattr(topology, "select_server_by_address", never)
    asked.reset()
    with client.start_session() as session, session.start_transaction():
        client.test.pair.insert_one({"_id": "first"}, session=session)
        with failing(primary, "insert", times=1, **OVERLOAD):
            client.test.pair.insert_one({"_id": "second"}, session=session)
    assert asked.where("failed") == [primary]
    assert client.test.pair.count_documents({"_id": {"$in": ["first", "second"]}}) == 2
    client.test.pair.drop()
