"""Where there is little choice: nothing is worse than without the patch."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Callable

import pymongo
import pytest
from pymongo.errors import AutoReconnect, OperationFailure
from pymongo.monitoring import ConnectionPoolListener
from pymongo.server_description import ServerDescription
from support import (
    HOST_UNREACHABLE,
    MARKS_UNKNOWN,
    RETRYABLE,
    VERSION,
    Asked,
    knows_all,
    prefer,
    wait_until,
)

import pymongo_deprio

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster, Mongos


@pytest.mark.usefixtures("own_mongoses")
def test_the_other_mongos_is_dead(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    enabled: None,
    waits_of: Callable[[Any], list[None]],
) -> None:
    """The only mongos alive, failing once, is used again at once: selection does not wait."""
    alive, dead = cluster.mongos
    client = connect(heartbeatFrequencyMS=500)
    with dead.kill():
        wait_until(lambda: len(client.nodes) == 1, "the death to be known")
        waits = waits_of(client)
        for _ in range(10):
            knows_all(client, 1)
            asked.reset()
            with alive.fail_command(["find"], times=1, error_code=HOST_UNREACHABLE):
                client.test.limits.find_one()
            assert asked.where("failed") == [alive.address]
            assert asked.where("succeeded", "find") == [alive.address]
        assert not waits or MARKS_UNKNOWN


@pytest.mark.parametrize("command", ["find", "insert"])
@pytest.mark.parametrize("retry", [True, False])
def test_all_mongoses_fail(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, command: str, retry: bool
) -> None:
    """The caller gets the error that PyMongo alone raises, after as many attempts."""
    client = connect(retryReads=retry, retryWrites=retry)

    def outcome() -> tuple[str, int]:
        knows_all(client)
        asked.reset()
        with pytest.raises(OperationFailure) as caught:
            client.test.limits.find_one() if command == "find" else client.test.limits.insert_one(
                {}
            )
        assert caught.value.code == HOST_UNREACHABLE
        return repr(type(caught.value)), len(asked.where("failed"))

    with ExitStack() as failing:
        for mongos in cluster.mongos:
            failing.enter_context(mongos.fail_command([command], **RETRYABLE))
        alone = outcome()
        with pymongo_deprio.enable(strict=True):
            assert outcome() == alone
    assert alone[1] == (2 if retry else 1)


class FoundSick(ConnectionPoolListener):
    """Makes a mongos unknown while a connection to it is checked out, as a monitor may."""

    client: Any = None
    address: Any = None

    def connection_check_out_started(self, event: Any) -> None:
        if self.client and event.address == self.address:
            self.client._topology.on_change(ServerDescription(event.address))

    def ignore(self, event: Any) -> None: ...

    pool_created = pool_ready = pool_cleared = pool_closed = ignore
    connection_created = connection_ready = connection_closed = ignore
    connection_check_out_failed = connection_checked_out = connection_checked_in = ignore


def test_a_mongos_that_is_found_sick_before_the_write_is_sent(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """PyMongo from 4.7 on sends such a write without a retry: so it fails, as without us."""
    sick, well = cluster.mongos
    found = FoundSick()
    client = connect(server_selector=prefer(sick.address), event_listeners=[asked, found])

    def outcome() -> list[Any]:
        knows_all(client)
        asked.reset()
        found.address = sick.address
        try:
            client.test.limits.insert_one({})
        except AutoReconnect:
            return [*asked.where("started", "insert"), "fails"]
        finally:
            found.address = None
        return asked.where("started", "insert")

    found.client = client
    with sick.fail_command("insert", close_connection=True):
        alone = outcome()
        with pymongo_deprio.enable(strict=True):
            assert outcome() == alone
    assert alone == [sick.address, "fails" if VERSION >= (4, 7) else well.address]


@pytest.mark.skipif(VERSION < (3, 12), reason="PyMongo knows load balancers from 3.12 on")
def test_behind_a_load_balancer(balancer: Mongos, asked: Asked) -> None:
    """There is one address to retry on, and a transaction keeps its connection, as without us."""
    client: Any = pymongo.MongoClient(balancer.uri, event_listeners=[asked], loadBalanced=True)

    def outcome() -> list[Any]:
        asked.reset()
        with balancer.fail_command(["find"], times=1, error_code=HOST_UNREACHABLE):
            client.test.limits.find_one()
        with client.start_session() as session, session.start_transaction():
            client.test.limits.insert_one({}, session=session)
            client.test.limits.find_one(session=session)
        return asked.where("failed") + asked.where("succeeded")

    with closing(client):
        client.test.limits.insert_one({})
        alone = outcome()
        with pymongo_deprio.enable(strict=True):
            assert outcome() == alone
    assert alone == [balancer.address] * 5


@pytest.mark.skipif(VERSION < (4, 2), reason="PyMongo has timeoutMS from 4.2 on")
@pytest.mark.parametrize("sick", [(0, 1), (1, 2), (0, 2)])
def test_with_a_timeout_every_mongos_is_asked_once(
    three: Cluster, connect: Callable[..., Any], asked: Asked, enabled: None, sick: Any
) -> None:
    """With timeoutMS, three mongoses and two of them failing, the third attempt is on the third."""
    addresses = [mongos.address for mongos in three.mongos]
    first, second = (addresses[index] for index in sick)
    client = connect(three, timeoutMS=10_000, server_selector=prefer(first, second))
    with ExitStack() as failing:
        for index in sick:
            failing.enter_context(
                three.mongos[index].fail_command(["find"], error_code=HOST_UNREACHABLE)
            )
        for _ in range(20):
            knows_all(client, 3)
            asked.reset()
            client.test.limits.find_one()
            (well,) = set(addresses) - {first, second}
            assert asked.where("started", "find") == [first, second, well]


@pytest.mark.skipif(VERSION < (4, 2), reason="PyMongo has timeoutMS from 4.2 on")
def test_with_a_timeout_and_all_failing_none_is_asked_twice_in_a_row(
    three: Cluster, connect: Callable[..., Any], asked: Asked, enabled: None
) -> None:
    """Once every mongos has failed, the one that failed longest ago is next."""
    client = connect(three, timeoutMS=300)
    with ExitStack() as failing:
        for mongos in three.mongos:
            failing.enter_context(mongos.fail_command(["find"], error_code=HOST_UNREACHABLE))
        knows_all(client, 3)
        with pytest.raises(pymongo.errors.PyMongoError):
            client.test.limits.find_one()
    tried = asked.where("started", "find")
    assert len(tried) > 6
    for turn in range(len(tried) - 2):
        assert len(set(tried[turn : turn + 3])) == 3
