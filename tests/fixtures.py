"""The fixtures of tests/ and integration/: every test has to leave PyMongo as it is alone."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pytest
from pymongo import common
from support import Asked, enabled_with_retries

import pymongo_deprio
from pymongo_deprio import Retry, _activation, _seams
from pymongo_deprio.cluster import LocalCluster

if TYPE_CHECKING:
    from pymongo_deprio import Address
    from pymongo_deprio.cluster import Cluster, Mongos


def attributes() -> dict[tuple[type, str], Any]:
    """Return what stands on PyMongo's seams."""
    return {
        (seam.owner, seam.name): vars(seam.owner)[seam.name]
        for seam in _seams.find(_activation._state)
    }


ORIGINALS = attributes()
"""The seams of PyMongo as they were imported."""


@pytest.fixture(autouse=True)
def pymongo_is_as_before() -> Iterator[None]:
    """After each test PyMongo's attributes are the originals."""
    yield
    left_enabled = pymongo_deprio.is_enabled()
    pymongo_deprio.disable()
    assert not left_enabled, "the test left the patch on"
    for (owner, name), original in ORIGINALS.items():
        assert vars(owner).get(name) is original, f"{owner.__name__}.{name} is not the original"


@pytest.fixture
def retries() -> Iterator[list[Retry]]:
    """Enable the patch for one test, and collect what it reports."""
    with enabled_with_retries() as retries:
        yield retries


@pytest.fixture
def enabled(retries: list[Retry]) -> None:
    """Enable the patch for one test."""


@pytest.fixture(scope="session", autouse=True)
def short_heartbeats() -> Iterator[None]:
    """Let PyMongo look for servers again soon: 3.9 and 3.10 forget each one that failed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "MIN_HEARTBEAT_INTERVAL", 0.01)
        yield


@pytest.fixture(scope="session")
def cluster() -> Iterator[LocalCluster]:
    """Return a sharded cluster with two mongoses."""
    with LocalCluster(mongos=2) as two:
        yield two


@pytest.fixture(scope="session")
def three() -> Iterator[LocalCluster]:
    """Return a sharded cluster with three mongoses."""
    with LocalCluster(mongos=3) as cluster:
        yield cluster


@pytest.fixture
def asked() -> Asked:
    """Record which server the clients of this test send their commands to."""
    return Asked()


@pytest.fixture
def connect(cluster: LocalCluster, asked: Asked) -> Iterator[Callable[..., Any]]:
    """Return a maker of clients that know every mongos and are closed after the test.

    The first argument is the cluster, or the one mongos, to connect to; the others are options.
    """
    with ExitStack() as clients:

        def make(to: Any = cluster, **options: Any) -> Any:
            options.setdefault("event_listeners", [asked])
            # Under load, round-trip times may differ by more than the default of 15 ms.
            options.setdefault("localThresholdMS", 1000)
            return clients.enter_context(closing(to.client(**options)))

        yield make


@pytest.fixture
def waits_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], list[None]]:
    """Return what notes each turn that a client's server selection waits from now on."""

    def note(client: Any) -> list[None]:
        waits: list[None] = []
        look_again = client._topology._request_check_all

        def wait(*arguments: Any) -> None:
            waits.append(None)
            look_again(*arguments)

        monkeypatch.setattr(client._topology, "_request_check_all", wait)
        return waits

    return note


def by_address(cluster: Cluster, address: Address) -> Mongos:
    """Return the mongos that has an address."""
    return next(mongos for mongos in cluster.mongos if mongos.address == address)
