"""What clusters of every kind offer."""

from __future__ import annotations

from pymongo_deprio.cluster import Cluster, LocalCluster, Mongos


def test_a_local_cluster_is_a_cluster(servers: LocalCluster) -> None:
    """At run time here, and in the eyes of mypy by the annotations."""
    cluster: Cluster = servers
    mongos: Mongos = servers.mongos[0]
    assert isinstance(cluster, Cluster)
    assert isinstance(mongos, Mongos)
