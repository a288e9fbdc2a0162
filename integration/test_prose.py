"""The prose tests of the specification for retries on another mongos.

Source: retryable reads, prose tests 2.1 and 2.2; retryable writes, prose tests 4 and 5. One run
proves nothing, as chance finds the other mongos half the time: each is repeated.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Callable

import pytest
from pymongo.errors import OperationFailure
from support import HOST_UNREACHABLE, Asked, knows_all

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster

REPEAT = 100

pytestmark = pytest.mark.usefixtures("enabled")


def read(collection: Any) -> None:
    """Do one retryable read."""
    collection.find_one()


def write(collection: Any) -> None:
    """Do one retryable write."""
    collection.insert_one({})


READ: tuple[str, Any, dict[str, Any]] = ("find", read, {})
WRITE: tuple[str, Any, dict[str, Any]] = (
    "insert",
    write,
    {"error_labels": ["RetryableWriteError"]},
)


@pytest.mark.parametrize(("command", "operation", "labels"), [READ, WRITE], ids=["2.1", "4"])
def test_retried_on_a_different_mongos(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    command: str,
    operation: Callable[[Any], None],
    labels: Any,
) -> None:
    """With both mongoses failing once, the two attempts of one operation fail on each of them."""
    client = connect()
    both = sorted(mongos.address for mongos in cluster.mongos)
    for _ in range(REPEAT):
        knows_all(client)
        asked.reset()
        with ExitStack() as failing:
            for mongos in cluster.mongos:
                failing.enter_context(
                    mongos.fail_command([command], times=1, error_code=HOST_UNREACHABLE, **labels)
                )
            with pytest.raises(OperationFailure):
                operation(client.test.prose)
        assert sorted(asked.where("failed")) == both
        assert asked.where("succeeded") == []


@pytest.mark.parametrize(("command", "operation", "labels"), [READ, WRITE], ids=["2.2", "5"])
def test_retried_on_the_same_mongos(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    command: str,
    operation: Callable[[Any], None],
    labels: Any,
) -> None:
    """With one mongos that fails once, the operation succeeds there at the second attempt."""
    mongos = cluster.mongos[0]
    client = connect(mongos)
    for _ in range(REPEAT):
        knows_all(client, 1)
        asked.reset()
        with mongos.fail_command([command], times=1, error_code=HOST_UNREACHABLE, **labels):
            operation(client.test.prose)
        assert asked.where("failed") == [mongos.address]
        assert asked.where("succeeded") == [mongos.address]
