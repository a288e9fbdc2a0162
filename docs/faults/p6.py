"""P6: a read that prefers the primary leaves it for a secondary, though the primary is there.

For an error that is no overload, the specification wants a server left out in sharded clusters
only. PyMongo 4.16 leaves it out in replica sets too: the read may see older data. PyMongo 3.9 and
3.10 do not know the primary any more after an error, and rightly leave it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import HOST_UNREACHABLE, Asked, addresses, are_replica_set, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the retry leaves A, the primary, which is still known."""
    asked = Asked(cluster, "find")
    primary, secondary = addresses(cluster)
    options: Any = {"replicaSet": "rs", "readPreference": "primaryPreferred"}
    with connect(cluster, asked, **options) as client:
        are_replica_set(client, primary, secondary)
        with cluster.mongos[0].fail_command("find", times=1, **HOST_UNREACHABLE):
            asked.run(client.test.things.find_one)
        print(asked)
        return asked.servers == ["A", "B"] and primary in client.nodes


if __name__ == "__main__":
    show(shows)
