"""The fixtures of the integration tests: those of the tests, on any kind of cluster.

Which kind, the pytest plugin is told: ``pytest integration --deprio-cluster=docker``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Iterator

import pytest
from fixtures import (  # noqa: F401
    asked,
    connect,
    enabled,
    pymongo_is_as_before,
    retries,
    short_heartbeats,
    waits_of,
)

from pymongo_deprio import _plugin_clusters
from pymongo_deprio.cluster import LocalCluster, Mongos
from pymongo_deprio.cluster._base import OwnMongos

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster


@pytest.fixture(scope="session")
def cluster(_deprio_clusters: _plugin_clusters.Clusters) -> Cluster:
    """Return a sharded cluster with two mongoses."""
    return _deprio_clusters.get(2)


@pytest.fixture(scope="session")
def three(_deprio_clusters: _plugin_clusters.Clusters) -> Cluster:
    """Return a sharded cluster with three mongoses."""
    return _deprio_clusters.get(3)


@pytest.fixture(autouse=True)
def mongoses_are_well(request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test its mongoses run without a fail point, even if it failed in the middle."""
    yield
    for name in {"cluster", "three"}.intersection(request.fixturenames):
        _plugin_clusters.heal(request.getfixturevalue(name))


@pytest.fixture
def own_mongoses(cluster: Cluster) -> None:
    """Let the test have mongoses that can be paused and killed."""
    if not isinstance(cluster.mongos[0], OwnMongos):
        pytest.skip("the mongoses are somebody else's: they are not paused or killed")


@pytest.fixture
def balancer(cluster: Cluster) -> Mongos:
    """Return what answers as a load balancer's mongos does, if it is asked so."""
    if not isinstance(cluster, LocalCluster):
        pytest.skip("only the emulated mongoses answer without a load balancer in front of them")
    return cluster.mongos[0]
