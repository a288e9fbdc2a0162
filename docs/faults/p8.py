"""P8: a bulk write fails, though for each of its writes there is a healthy mongos.

A fails every insert, B every update. PyMongo 4.7 and newer keeps one list for the whole bulk: once
both are on it, it leaves out neither, and a write may be retried where it has just failed. PyMongo
3.11 to 4.6 leaves out nobody. It is by chance, so the bulk is long. PyMongo 3.9 and 3.10 mark each
server that failed Unknown: not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import HOST_UNREACHABLE, Asked, are_mongoses, connect, show
from pymongo import InsertOne, UpdateOne

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether a write fails on the same mongos twice."""
    asked = Asked(cluster, "insert", "update")
    requests: list[Any] = []
    for _ in range(15):
        requests += [InsertOne({}), UpdateOne({}, {"$inc": {"n": 1}})]
    a, b = cluster.mongos
    with connect(cluster, asked) as client, a.fail_command(
        "insert", **HOST_UNREACHABLE
    ), b.fail_command("update", **HOST_UNREACHABLE):
        are_mongoses(client, cluster)
        # PyMongo 3.9 and 3.10 should not forget both.
        asked.after_failure = lambda: are_mongoses(client, cluster)
        asked.run(client.test.things.bulk_write, requests)
    print(asked)
    return asked.error is not None


if __name__ == "__main__":
    show(shows)
