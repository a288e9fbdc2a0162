"""ExternalCluster, on a LocalCluster that somebody else might have started."""

from __future__ import annotations

import os
import socket
import time
import warnings
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from pymongo import common
from pymongo.errors import OperationFailure
from support import RoundTrips

from pymongo_deprio.cluster import (
    Cluster,
    ClusterError,
    ClusterNotReadyError,
    ClusterStateError,
    CommandFailedError,
    ExternalCluster,
    ExternalMongos,
    LocalCluster,
    LocalMongos,
    Mongos,
    ServerUnreachableError,
)
from pymongo_deprio.cluster._external import uri_with_hosts

if TYPE_CHECKING:
    from pymongo import MongoClient

PASSWORD = "p@ss:w/rd"  # noqa: S105 - a user of this test
ESCAPED = "p%40ss%3Aw%2Frd"


@pytest.fixture(scope="module")
def external(servers: LocalCluster) -> Iterator[ExternalCluster]:
    """Two mongoses that the tests here share; each test leaves them as they were."""
    with ExternalCluster(servers.uri) as cluster:
        yield cluster


@pytest.fixture
def one(external: ExternalCluster) -> ExternalMongos:
    """Give the first of the two mongoses."""
    return external.mongos[0]


@pytest.fixture(scope="module")
def protected(servers: LocalCluster) -> Iterator[str]:
    """Give the addresses of the mongoses, preceded by a user and what separates it."""
    with servers.client() as client:
        client.admin.command("createUser", "ann", pwd=PASSWORD, roles=["root"])
        yield f"ann:{ESCAPED}@{servers.uri.partition('://')[2].rstrip('/')}"
        client.admin.command("dropUser", "ann")


def test_it_is_a_cluster(external: ExternalCluster, servers: LocalCluster) -> None:
    """Its mongoses are those of the connection string, in that order."""
    assert isinstance(external, Cluster)
    assert all(isinstance(mongos, Mongos) for mongos in external.mongos)
    assert [mongos.address for mongos in external.mongos] == [
        mongos.address for mongos in servers.mongos
    ]
    assert external.mongos[0].state == "running"
    with external.client() as client, external.mongos[1].client() as second:
        assert client.nodes == {mongos.address for mongos in servers.mongos}
        assert second.nodes == {servers.mongos[1].address}


def test_the_first_of_many(servers: LocalCluster) -> None:
    """`mongos` says how many; more than there are is an error."""
    with ExternalCluster(servers.uri, mongos=1) as cluster, cluster.client() as client:
        assert client.nodes == {servers.mongos[0].address}
    with pytest.raises(ClusterError, match="mongos=3, but the connection string has 2 mongoses"):
        ExternalCluster(servers.uri, mongos=3).__enter__()
    with pytest.raises(ValueError, match="whole number from 1 on, not 0"):
        ExternalCluster(servers.uri, mongos=0)


def test_it_removes_what_it_wrote(servers: LocalCluster, client: MongoClient[Any]) -> None:
    """A database of its own, or a collection in the one that the connection string names."""
    client.test.c.insert_one({})
    for database in ("", "test", "admin"):
        with ExternalCluster(servers.uri + database):
            pass
    assert not any("pymongo_deprio" in name for name in client.list_database_names())
    assert client.test.list_collection_names() == ["c"]
    assert not any("pymongo_deprio" in name for name in client.admin.list_collection_names())


def test_credentials_and_options_are_kept(protected: str) -> None:
    """By all clients and for fail points; a password is shown nowhere."""
    uri = f"mongodb://{protected}/test?authSource=admin&appName=shop&retryReads=false"
    with ExternalCluster(uri) as cluster:
        assert cluster.uri == uri
        mongos = cluster.mongos[0]
        for client in (cluster.client(), mongos.client()):
            with client:
                status = client.admin.command("connectionStatus")
                assert status["authInfo"]["authenticatedUsers"] == [{"user": "ann", "db": "admin"}]
        status = mongos.command("connectionStatus")
        assert status["authInfo"]["authenticatedUsers"] == [{"user": "ann", "db": "admin"}]
        failing = mongos.fail_command("find", error_code=11, app_name="shop")
        with failing, mongos.client() as client, pytest.raises(OperationFailure):
            client.test.c.find_one()
        shown = repr(cluster) + repr(mongos)
    assert ESCAPED not in shown
    assert PASSWORD not in shown


def test_a_wrong_password(protected: str) -> None:
    """The error says that the login failed, and does not show the password."""
    uri = f"mongodb://{protected.replace(ESCAPED, 'guessed')}/"
    with pytest.raises(
        CommandFailedError, match=r"isMaster on .* failed: Authentication"
    ) as caught:
        ExternalCluster(uri).__enter__()
    assert caught.value.code == 18
    assert "guessed" not in str(caught.value)


@pytest.mark.parametrize(
    "uri",
    [
        "mongodb://",
        "http://ann:secret@one/",
        "mongodb://ann:secret@one:secret/",
        "mongodb://ann:sec/secret@one/",
        "mongodb://ann:s@secret@one/",
        "mongodb://ann:secret",
        "mongodb://ann:secret@one/?loadBalanced=true",
    ],
)
def test_a_connection_string_that_is_none(uri: str) -> None:
    """The error shows how one looks; no part of a password, not even by what caused it."""
    with pytest.raises(ClusterError, match="mongodb://user:password@host1") as caught:
        ExternalCluster(uri).__enter__()
    assert "sec" not in str(caught.value)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None


def test_a_server_that_is_no_mongos(servers: LocalCluster) -> None:
    """The error says what it is, and what to give."""
    with pytest.raises(ClusterNotReadyError, match=r"member of the replica set .* of mongoses"):
        ExternalCluster(servers.replica_set_uri).__enter__()


def test_a_server_that_is_not_there(servers: LocalCluster) -> None:
    """The error names it, also if another one answers."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        name = f"127.0.0.1:{unused.getsockname()[1]}"
        uri = f"{servers.uri.rstrip('/')},{name}"
        with pytest.raises(ServerUnreachableError, match=f"^{name} does not answer: .*refused"):
            ExternalCluster(uri).__enter__()


def test_a_cluster_that_takes_no_writes(servers: LocalCluster, near: LocalMongos) -> None:
    """It is not ready, and says why."""
    refused = pytest.raises(CommandFailedError, match=r"insert on .* failed: .*failpoint")
    with near.fail_command("insert", error_code=91), refused:
        ExternalCluster(servers.uri).__enter__()


def test_a_fail_point_ends_with_its_block(one: ExternalMongos) -> None:
    """And says how many commands it met."""
    with one.client(retryReads=False) as client:
        with one.fail_command("find", error_code=11) as point:
            for _ in range(2):
                with pytest.raises(OperationFailure):
                    client.test.c.find_one()
        client.test.c.find_one()
    assert point.hits == 2


def test_fail_points_end_with_the_cluster(servers: LocalCluster, near: LocalMongos) -> None:
    """Those that are still on; after that, none can be set."""
    near_one, far_one = servers.mongos
    with ExternalCluster(servers.uri) as cluster:
        near_of_it, far_of_it = cluster.mongos
        near_of_it.fail_command("ping", error_code=11)
        far_of_it.delay_hello(5000)
        with pytest.raises(CommandFailedError):
            near_one.command("ping")
    assert near_one.command("ping")["ok"] == 1
    assert far_one.command("hello")["ok"] == 1
    with pytest.raises(ClusterStateError, match="in its with block only"):
        near_of_it.fail_command("ping", error_code=11)


def test_a_fail_point_that_is_not_reached_at_the_end(servers: LocalCluster) -> None:
    """The error is raised, unless the block has one; the other fail points are off."""
    near_one, far_one = servers.mongos
    with pytest.raises(ServerUnreachableError):  # noqa: PT012, SIM117 - the end of the block raises
        with ExternalCluster(servers.uri) as cluster:
            for mongos in cluster.mongos:
                mongos.fail_command("ping", error_code=11)
            killed = near_one.kill()
    assert far_one.command("ping")["ok"] == 1
    killed()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_fail_points_to_its_parent(
    servers: LocalCluster, near: LocalMongos
) -> None:
    """It can leave the block."""
    with ExternalCluster(servers.uri) as cluster:
        cluster.mongos[0].fail_command("ping", error_code=11)
        child = os.fork()
        if not child:
            try:
                warnings.simplefilter("ignore")  # PyMongo warns of clients that are forked
                cluster.__exit__(None, None, None)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        with pytest.raises(CommandFailedError):
            near.command("ping")


def test_a_fail_point_that_concerns_hello_can_be_switched_off(
    servers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though PyMongo would take the mongos for dead, if it said hello meanwhile."""
    monkeypatch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.5)  # as it is outside of these tests
    commands = ["hello", "isMaster", "ismaster"]
    # Whoever waits for the first hello asks for a second one.
    with servers.mongos[0].delay_hello(50), ExternalCluster(servers.uri) as cluster:
        mongos = cluster.mongos[0]
        closed = pytest.raises(ServerUnreachableError)
        with mongos.fail_command(commands, close_connection=True), closed:
            time.sleep(0.7)
            servers.mongos[0].command("hello")
        assert mongos.command("hello")["ok"] == 1


def test_a_hello_delay_shows_in_the_round_trip_time(external: ExternalCluster) -> None:
    """It takes the fail point; whichever of the two comes second is refused."""
    near, far = external.mongos
    trips = RoundTrips()
    with far.delay_hello(80):
        with external.client(event_listeners=[trips]):
            pass
        with pytest.raises(ClusterStateError, match="end delay_hello first"):
            far.fail_command("find", error_code=11)
    assert trips.by_address[near.address] < 0.06
    assert trips.by_address[far.address] >= 0.08
    refused = pytest.raises(ClusterStateError, match="end that fail point")
    with far.fail_command("find", error_code=11), refused:
        far.delay_hello(80)
    far.fail_command("find", mode="off")
    with far.delay_hello(80):
        pass


@pytest.mark.parametrize("action", ["pause", "resume", "kill", "start"])
def test_what_cannot_be_done(one: ExternalMongos, action: str) -> None:
    """The error says why, and which clusters can."""
    with pytest.raises(ClusterStateError, match=r"not started here.*LocalCluster.*DockerCluster"):
        getattr(one, action)()


def test_a_cluster_is_used_in_its_block(servers: LocalCluster) -> None:
    """Before and after, the error says so; and it is entered once."""
    cluster = ExternalCluster(servers.uri)
    with pytest.raises(ClusterStateError, match="not running yet"):
        cluster.uri  # noqa: B018 - the access raises
    with cluster, pytest.raises(ClusterStateError, match="once"):
        cluster.__enter__()
    for use in (cluster.client, lambda: cluster.mongos, lambda: cluster.uri):
        with pytest.raises(ClusterStateError, match="no longer running"):
            use()


HOSTS = [("one", 1), ("::1", 2)]


@pytest.mark.parametrize(
    ("uri", "found", "expected"),
    [
        ("mongodb://a,b", {}, "mongodb://one:1,[::1]:2/"),
        ("mongodb://u:p%40@a/?tls=true", {}, "mongodb://u:p%40@one:1,[::1]:2/?tls=true"),
        ("mongodb://a/db?x=1&y=u@b/c", {}, "mongodb://one:1,[::1]:2/db?x=1&y=u@b/c"),
        ("mongodb://a?x=1;x=2", {}, "mongodb://one:1,[::1]:2/?x=1&x=2"),
        (
            "mongodb+srv://u@a/?srvMaxHosts=2&x=1",
            {"authSource": "admin", "tls": True, "x": "1", "srvMaxHosts": 2},
            "mongodb://u@one:1,[::1]:2/?x=1&authSource=admin&tls=true",
        ),
        ("mongodb+srv://a/?tls=false", {"ssl": "false"}, "mongodb://one:1,[::1]:2/?tls=false"),
    ],
)
def test_connection_strings(uri: str, found: dict[str, Any], expected: str) -> None:
    """Only the hosts change; what the DNS said of a mongodb+srv:// one is added."""
    assert uri_with_hosts(uri, HOSTS, found) == expected
