"""A mongos that hangs, or dies and comes back: what it was doing succeeds on another one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import pytest
from support import Asked, knows_all, prefer, wait_until

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import Cluster

pytestmark = pytest.mark.usefixtures("own_mongoses", "enabled")


@pytest.mark.parametrize("write", [False, True], ids=["read", "write"])
def test_a_mongos_that_hangs(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    write: bool,
) -> None:
    """Once the socket timeout is over, the operation takes place on the other mongos, once."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address), socketTimeoutMS=1000)
    collection = client.test.outages
    collection.drop()
    collection.insert_one({"_id": "before"})
    knows_all(client)
    asked.reset()
    with sick.pause():
        if write:
            collection.insert_one({"_id": "while"})
        else:
            assert collection.find_one() == {"_id": "before"}
    assert asked.where("failed", "insert", "find") == [sick.address]
    assert asked.where("succeeded", "insert", "find") == [well.address]
    assert [(event.failed, event.chosen) for event in retries] == [((sick.address,), well.address)]
    assert collection.count_documents({}) == 1 + write
    collection.drop()


def test_a_mongos_that_dies_and_comes_back(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, retries: list[Retry]
) -> None:
    """It takes no write with it, and is used again when it is back, at the same address."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address), heartbeatFrequencyMS=500)
    collection = client.test.outages
    collection.drop()
    collection.insert_one({"_id": "before"})
    knows_all(client)

    def die(what: str, command: str, address: Any) -> None:
        if (what, command, address) == ("started", "insert", sick.address):
            sick.kill()

    asked.hook = die
    asked.reset()
    collection.insert_one({"_id": "while"})
    asked.hook = lambda *event: None
    assert asked.where("failed") == [sick.address]
    assert asked.where("succeeded") == [well.address]
    assert [event.chosen for event in retries] == [well.address]
    sick.start()
    wait_until(lambda: sick.address in client.nodes, "it to be found again")
    asked.reset()
    assert collection.count_documents({}) == 2
    assert asked.where("started", "aggregate") == [sick.address]
    collection.drop()
