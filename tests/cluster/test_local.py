"""LocalCluster and its mongoses, used through PyMongo."""

from __future__ import annotations

import socket
import time
from typing import Any

import pytest
from bson.son import SON
from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure
from support import RoundTrips

from pymongo_deprio.cluster import ClusterStateError, LocalCluster, LocalMongos


def test_a_client_knows_all_mongoses_at_once(servers: LocalCluster) -> None:
    """It is returned only when both have been found."""
    for _ in range(5):
        with servers.client() as client:
            assert client.nodes == {mongos.address for mongos in servers.mongos}


def test_a_client_of_one_mongos_knows_that_one(near: LocalMongos) -> None:
    """Its operations go there, and nowhere else."""
    with near.client() as client:
        near.commands(reset=True)
        client.test.c.find_one()
        assert client.nodes == {near.address}
        assert near.commands()["find"] == 1


def test_options_reach_pymongo(servers: LocalCluster) -> None:
    """All of MongoClient's options can be given."""
    with servers.client(document_class=SON) as client:
        assert client.codec_options.document_class is SON


def test_a_client_does_not_wait_for_a_mongos_that_is_down(servers: LocalCluster) -> None:
    """Only for those that are running."""
    with servers.mongos[0].kill(), servers.client() as client:
        assert client.nodes == {servers.mongos[1].address}


def test_a_fail_point_ends_with_its_block(near: LocalMongos) -> None:
    """And says how many commands it met."""
    with near.client(retryReads=False) as client:
        with near.fail_command("find", error_code=11) as point:
            for _ in range(2):
                with pytest.raises(OperationFailure):
                    client.test.c.find_one()
            assert point.hits is None
        client.test.c.find_one()
    assert point.hits == 2


def test_a_fail_point_ends_when_its_block_raises(near: LocalMongos) -> None:
    """The error of the block is the one that is seen."""
    with near.client(retryReads=False) as client:
        with pytest.raises(ZeroDivisionError), near.fail_command("find", error_code=11):
            raise ZeroDivisionError
        client.test.c.find_one()


def test_a_fail_point_of_a_paused_mongos_ends_when_that_resumes(near: LocalMongos) -> None:
    """The block's end does not hang, and the fail point does not stay."""
    began = time.monotonic()
    with near.fail_command("ping", error_code=11) as point:
        near.pause()
    assert time.monotonic() - began < 1
    assert point.hits is None
    near.resume()
    assert near.command("ping")["ok"] == 1
    assert point.hits == 0


def test_a_fail_point_of_a_killed_mongos_ended_with_it(near: LocalMongos) -> None:
    """Neither its block's end nor the new process knows of it."""
    with near.fail_command("ping", error_code=11) as point:
        near.kill()
    near.start()
    assert near.command("ping")["ok"] == 1
    assert point.hits is None


def test_a_paused_mongos_hangs_and_goes_on(near: LocalMongos) -> None:
    """Its connections stay open: a command is answered after the pause."""
    with near.client(socketTimeoutMS=100, retryReads=False) as client:
        client.test.c.find_one()
        with near.pause():
            assert near.state == "paused"
            with socket.create_connection(near.address, timeout=1):
                pass  # the kernel takes new connections
            with pytest.raises(NetworkTimeout):
                client.test.c.find_one()
        assert near.state == "running"
        client.test.c.find_one()


def test_a_killed_mongos_refuses_and_comes_back_on_its_port(near: LocalMongos) -> None:
    """Its connections break, nobody else gets its port, and the same client finds it again."""
    with near.client(retryReads=False) as client:
        client.test.c.find_one()
        with near.kill():
            assert near.state == "killed"
            with pytest.raises(AutoReconnect):
                client.test.c.find_one()
            with pytest.raises(ConnectionRefusedError), socket.create_connection(near.address):
                pass
        assert near.state == "running"
        client.test.c.find_one()


def test_a_killed_mongos_forgets(near: LocalMongos) -> None:
    """Counts and cursors, as a new process does."""
    near.command({"ping": 1})
    near.kill()
    near.start()
    assert near.commands()["ping"] == 0


def test_what_is_done_already_changes_nothing(near: LocalMongos) -> None:
    """Kill, start, pause and resume can be repeated."""
    near.start()
    near.resume()
    near.pause()
    near.pause()
    near.kill()
    near.kill()
    near.start()
    assert near.command("ping")["ok"] == 1


def test_a_killed_mongos_cannot_be_paused_or_asked(near: LocalMongos) -> None:
    """The error says what to do."""
    with near.kill():
        for action in (near.pause, near.resume):
            with pytest.raises(ClusterStateError, match="start"):
                action()
        with pytest.raises(ClusterStateError, match="killed"):
            near.command("ping")


def test_a_hello_delay_shows_in_the_round_trip_time(servers: LocalCluster) -> None:
    """So latency windows can be tried: one mongos is near, the other far."""
    near, far = servers.mongos
    trips = RoundTrips()
    with far.delay_hello(80), servers.client(event_listeners=[trips]):
        pass
    assert trips.by_address[near.address] < 0.06
    assert trips.by_address[far.address] >= 0.08
    began = time.monotonic()
    assert far.command("hello")["ok"] == 1
    assert time.monotonic() - began < 0.08


def test_a_hello_delay_can_be_set_from_the_start() -> None:
    """For each mongos its own; it outlives a restart, and a block restores it."""
    with LocalCluster(2, hello_delay_ms=[0, 60]) as cluster:
        far = cluster.mongos[1]
        with far.delay_hello(0):
            assert hello_seconds(far) < 0.06
        assert hello_seconds(far) >= 0.06
        with far.kill():
            pass
        assert hello_seconds(far) >= 0.06


def hello_seconds(mongos: LocalMongos) -> float:
    """Measure one hello."""
    began = time.monotonic()
    mongos.command("hello")
    return time.monotonic() - began


def test_commands_tell_who_was_asked(servers: LocalCluster) -> None:
    """By name, since the start or the last reset, and the failed ones too."""
    near, far = servers.mongos
    for mongos in servers.mongos:
        mongos.commands(reset=True)
    with near.client(retryReads=False) as client:
        client.test.c.find_one()
        with near.fail_command("find", error_code=11), pytest.raises(OperationFailure):
            client.test.c.find_one()
    assert near.commands()["find"] == 2
    assert far.commands()["find"] == 0
    assert near.commands(reset=True)["find"] == 2
    assert near.commands()["find"] == 0


@pytest.mark.parametrize("number", [0, -1, 1.5, "2", True])
def test_a_number_of_mongoses_that_is_none(number: Any) -> None:
    """Said before anything is started."""
    with pytest.raises(ValueError, match="a whole number from 1 on"):
        LocalCluster(number)


@pytest.mark.parametrize("delay", [-1, [0], [0, 0, 0], [0, -1]])
def test_a_hello_delay_that_is_none(delay: Any) -> None:
    """Negative, or too few or too many."""
    with pytest.raises(ValueError, match="hello_delay_ms"):
        LocalCluster(2, hello_delay_ms=delay)


def test_a_cluster_is_used_in_its_block() -> None:
    """Before and after, the error says so; and it is entered once."""
    cluster = LocalCluster(1)
    with pytest.raises(ClusterStateError, match="not running yet"):
        cluster.uri  # noqa: B018 - the access raises
    with cluster:
        mongos = cluster.mongos[0]
        killed = mongos.kill()
        with pytest.raises(ClusterStateError, match="once"):
            cluster.__enter__()
        mongos.start()
        assert mongos.command("ping")["ok"] == 1
    for use in (cluster.client, cluster.__enter__, mongos.start, lambda: cluster.mongos):
        with pytest.raises(ClusterStateError):
            use()
    assert mongos.state == "killed"
    killed()  # does nothing any more


def test_two_clusters_at_once_are_apart() -> None:
    """What is written to one is not in the other."""
    with LocalCluster(1) as one, LocalCluster(1) as two:
        with one.client() as client:
            client.test.c.insert_one({})
        with two.client() as client:
            assert client.test.c.count_documents({}) == 0


def test_it_starts_fast() -> None:
    """A test matrix starts dozens of them: a mongod and two mongoses in three seconds."""
    began = time.monotonic()
    with LocalCluster(2) as cluster, cluster.client():
        pass
    assert time.monotonic() - began < 3
