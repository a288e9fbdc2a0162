"""The front."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from orders import web

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster
    from pymongo_deprio.pytest_plugin import Deprio


@pytest.fixture(autouse=True)
def settings(
    monkeypatch: pytest.MonkeyPatch, deprio_cluster: Cluster, deprio_database: Any
) -> Iterator[None]:
    """Let the front use the cluster, and a database of the test's own."""
    monkeypatch.setenv("MONGODB_URI", deprio_cluster.uri)
    monkeypatch.setenv("MONGODB_DATABASE", deprio_database.name)
    deprio_database.create_collection("orders")
    web.store.cache_clear()
    yield
    web.store()._client.close()
    web.store.cache_clear()


def request(method: str, path: str) -> tuple[str, Any]:
    """Send a request, and return the status and the body of the reply."""
    statuses: list[str] = []

    def start_response(status: str, headers: list[Any]) -> None:
        statuses.append(status)

    body = web.app({"REQUEST_METHOD": method, "PATH_INFO": path}, start_response)
    return statuses[0], json.loads(b"".join(body))


def test_requests() -> None:
    """Each kind of request is answered."""
    assert request("PUT", "/stock/tea/5") == ("200 OK", 5)
    status, number = request("POST", "/orders/ada/tea/2")
    assert status == "201 Created"
    assert request("GET", "/stock/tea") == ("200 OK", 3)
    assert request("POST", f"/paid/{number}") == ("200 OK", True)
    status, orders = request("GET", "/orders/ada")
    assert (status, [order["_id"] for order in orders]) == ("200 OK", [number])
    assert request("POST", "/orders/ada/tea/4")[0] == "409 Conflict"
    assert request("GET", "/nothing")[0] == "404 Not Found"


def test_a_mongos_that_dies(deprio_cluster: Cluster, deprio: Deprio) -> None:
    """Every request is answered while one mongos is gone."""
    assert request("PUT", "/stock/tea/5")[0] == "200 OK"
    with deprio_cluster.mongos[1].kill():
        for _ in range(20):
            assert request("GET", "/stock/tea") == ("200 OK", 5)
