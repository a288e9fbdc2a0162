"""P9: a read raises AttributeError, as PyMongo selects a server that is gone.

The primary A of a replica set fails and leaves it. B is the new primary, and fails once. PyMongo
4.16 and newer looks for a primary among the servers that it leaves out, and finds A as it was.
PyMongo 4.17 and newer retries twice for overload, 4.16 with ``timeoutMS``. Older ones leave out no
primary.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import OVERLOAD, RETARGET, VERSION, Asked, are_replica_set, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the second retry finds no server at all."""
    asked = Asked(cluster, "find")
    a, b = cluster.mongos
    once: Any = {"times": 1, **OVERLOAD}
    options: Any = {"timeoutMS": 10_000} if VERSION >= (4, 2) else {}
    with connect(cluster, asked, replicaSet="rs", **RETARGET, **options) as client:
        are_replica_set(client, a.address, b.address)
        asked.after_failure = lambda: are_replica_set(client, b.address, ("127.0.0.1", 1))
        with a.fail_command("find", **once), b.fail_command("find", **once):
            asked.run(client.test.things.find_one)
    print(asked)
    return isinstance(asked.error, AttributeError)


if __name__ == "__main__":
    show(shows)
