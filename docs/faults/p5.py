"""P5: after a read was retried elsewhere, ``client.primary`` raises IndexError.

PyMongo 4.16 and newer drops the failed server from the one description of the topology that all
threads of the client share, until the next selection. Here that is the primary, which was
overloaded. Older ones do not drop it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import OVERLOAD, RETARGET, Asked, addresses, are_replica_set, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the client has lost its primary."""
    asked = Asked(cluster, "find")
    options: Any = {"replicaSet": "rs", "readPreference": "primaryPreferred", **RETARGET}
    with connect(cluster, asked, **options) as client:
        are_replica_set(client, *addresses(cluster))
        with cluster.mongos[0].fail_command("find", **OVERLOAD):
            asked.run(client.test.things.find_one)
        print(asked)
        try:
            print(f"client.primary: {client.primary}")
        except IndexError as error:
            print(f"client.primary raised {error!r}")
            return True
    return False


if __name__ == "__main__":
    show(shows)
