"""What a type checker makes of the fixtures of the plugin; checked by mypy --strict, never run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.database import Database

    import pymongo_deprio
    from pymongo_deprio.cluster import Cluster
    from pymongo_deprio.pytest_plugin import Deprio


@pytest.mark.deprio(mongos=3)
def test_fixtures(
    deprio: Deprio,
    deprio_cluster: Cluster,
    deprio_client: MongoClient[Any],
    deprio_database: Database[Any],
) -> None:
    """Use all of them."""
    with deprio_cluster.mongos[0].fail_command("insert", error_code=6):
        deprio_database.things.insert_one({})
    events: list[pymongo_deprio.Event] = deprio.events
    retries: list[pymongo_deprio.Retry] = deprio.retries + deprio.redirected
    assert deprio_client.nodes
    assert events or not retries
