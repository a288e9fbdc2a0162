"""P11: a bulk write does its first batch only, and reports success.

A is gone, and no connection to it is open. The first attempt fails before anything is sent. The
retry goes to B, does the first batch, and forgets the others. Up to 4.0 PyMongo fetches no batch
ahead of the one that it sends: not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import Asked, addresses, are_mongoses, connect, show
from pymongo import InsertOne, UpdateOne

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether a write is missing though the bulk raised nothing."""
    asked = Asked(cluster, "insert", "update")
    first, _ = addresses(cluster)

    def prefer_the_first(servers: list[Any]) -> list[Any]:
        return [server for server in servers if server.address == first] or servers

    name = "p11"
    requests = [InsertOne({"_id": 1}), UpdateOne({"_id": 1}, {"$set": {"paid": True}})]
    with connect(cluster, asked, server_selector=prefer_the_first) as client:
        are_mongoses(client, cluster)
        with cluster.mongos[0].kill():
            asked.run(client.test[name].bulk_write, requests)
            done = client.test[name].count_documents({"paid": True})
            client.test[name].drop()
    print(asked)
    return asked.error is None and not done


if __name__ == "__main__":
    show(shows)
