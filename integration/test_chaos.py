"""A short run of the chaos: ``nox -s chaos`` runs longer ones, with other seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import chaos
import pytest

from pymongo_deprio.cluster import LocalCluster

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster

SEED = 34


def test_chaos(cluster: Cluster) -> None:
    """Below a sick mongos no promise is broken, and operations were retried meanwhile."""
    if not isinstance(cluster, LocalCluster):
        pytest.skip("it runs on emulated mongoses")
    model = chaos.run(10, SEED)
    chaos.report(model)
    assert not model.violations
    assert model.retries
