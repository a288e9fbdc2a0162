"""Retried writes happen exactly once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Callable

from support import RETRIES_WRITE_CONCERN_ERRORS, RETRYABLE, VERSION

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import Cluster

# In full where the mechanisms of PyMongo differ most.
INSERTS = 2000 if VERSION in [(3, 12), (4, 6)] or VERSION >= (4, 20) else 300
FAILURES: list[dict[str, Any]] = [
    RETRYABLE,
    {**RETRYABLE, "error_code": 91},
    {"close_connection": True},
    {"close_connection": True, "block_time_ms": 2},
]
if RETRIES_WRITE_CONCERN_ERRORS:
    # Executed, and then reported as failed.
    FAILURES.append(
        {
            "write_concern_error": {"code": 91, "errmsg": "shutdown in progress"},
            "error_labels": RETRYABLE["error_labels"],
        }
    )
SEED = 20_261_130


def test_every_document_is_there_once(
    cluster: Cluster, connect: Callable[..., Any], retries: list[Retry]
) -> None:
    """Inserts under a random mixture of fail points all succeed, and each took place once."""
    chance = random.Random(SEED)
    collection = connect().test.exactly_once
    collection.drop()
    collection.insert_one({"number": -1})
    for number in range(INSERTS):
        sick = chance.choice(cluster.mongos)
        with sick.fail_command(["insert"], times=1, **chance.choice(FAILURES)):
            collection.insert_one({"number": number})
    numbers = [document["number"] for document in collection.find(projection=["number"])]
    assert sorted(numbers) == list(range(-1, INSERTS))
    assert len(retries) > INSERTS / 10
    collection.drop()
