"""The store, on a cluster whose mongoses can be made to fail."""

from __future__ import annotations

from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from orders.store import OutOfStockError, Store

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster, Mongos
    from pymongo_deprio.pytest_plugin import Deprio

# What a mongos answers that cannot reach a shard; the labels are those that a driver retries on.
UNREACHABLE: dict[str, Any] = {
    "error_code": 6,
    "error_labels": ["RetryableWriteError", "TransientTransactionError"],
}


@pytest.fixture
def store(deprio_database: Any) -> Store:
    """Return a store with ten of one item."""
    store = Store(deprio_database)
    deprio_database.create_collection("orders")
    store.stock_up("tea", 10)
    return store


@contextmanager
def store_near(cluster: Cluster, mongos: Mongos, database: Any) -> Iterator[Store]:
    """Give the same store, by a client that goes to one mongos if it can."""

    def near(servers: list[Any]) -> list[Any]:
        return [server for server in servers if server.address == mongos.address] or servers

    with closing(cluster.client(server_selector=near)) as client:
        yield Store(client[database.name])


def test_an_order_takes_from_the_stock(store: Store) -> None:
    """It is the customer's then, and can be paid once."""
    number = store.place("ada", "tea", 3)
    assert store.in_stock("tea") == 7
    assert store.pay(number)
    assert not store.pay(number)
    assert [order["paid"] for order in store.of_customer("ada")] == [True]


def test_more_than_there_is(store: Store) -> None:
    """Such an order takes nothing."""
    with pytest.raises(OutOfStockError):
        store.place("ada", "tea", 11)
    assert store.in_stock("tea") == 10
    assert store.of_customer("ada") == []


def test_a_sick_mongos_costs_no_order(
    store: Store, deprio_cluster: Cluster, deprio_database: Any, deprio: Deprio
) -> None:
    """Orders, payments and reads all succeed on the other one, and take place once."""
    sick = deprio_cluster.mongos[0]
    with store_near(deprio_cluster, sick, deprio_database) as near, sick.fail_command(
        ["find", "insert", "update"], **UNREACHABLE
    ):
        for _ in range(3):
            assert near.pay(near.place("ada", "tea", 2))
        assert near.in_stock("tea") == 4
        assert len(near.of_customer("ada")) == 3
    assert {event.failed for event in deprio.redirected} == {(sick.address,)}


@pytest.mark.deprio(mongos=3, cooldown=True)
def test_a_mongos_that_stays_sick(
    store: Store, deprio_cluster: Cluster, deprio_database: Any, deprio: Deprio
) -> None:
    """With cooldown only the first request notices, however many mongoses there are."""
    sick, *others = deprio_cluster.mongos
    assert len(others) == 2
    with store_near(deprio_cluster, sick, deprio_database) as near, ExitStack() as failing:
        failing.enter_context(sick.fail_command("find", **UNREACHABLE))
        for _ in range(10):
            assert near.in_stock("tea") == 10
    assert len(deprio.retries) == 1
