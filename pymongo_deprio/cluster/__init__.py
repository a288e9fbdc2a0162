"""Sharded clusters to try things on.

`LocalCluster` starts one on this machine: a real mongod, and emulated mongoses in front of it.
`DockerCluster` starts one of the official image in Docker. `ExternalCluster` is one that exists.
"""

from __future__ import annotations

from pymongo_deprio.cluster._base import Cluster, FailPoint, Mongos
from pymongo_deprio.cluster._docker import DockerCluster, DockerMongos
from pymongo_deprio.cluster._errors import (
    ClusterError,
    ClusterNotReadyError,
    ClusterStateError,
    CommandFailedError,
    DockerNotFoundError,
    MongodNotFoundError,
    MongodStartError,
    ServerUnreachableError,
)
from pymongo_deprio.cluster._external import ExternalCluster, ExternalMongos
from pymongo_deprio.cluster._local import LocalCluster, LocalMongos

__all__ = [
    "Cluster",
    "ClusterError",
    "ClusterNotReadyError",
    "ClusterStateError",
    "CommandFailedError",
    "DockerCluster",
    "DockerMongos",
    "DockerNotFoundError",
    "ExternalCluster",
    "ExternalMongos",
    "FailPoint",
    "LocalCluster",
    "LocalMongos",
    "MongodNotFoundError",
    "MongodStartError",
    "Mongos",
    "ServerUnreachableError",
]
