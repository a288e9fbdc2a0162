"""P4: a read fails, though the only mongos that the application accepts would do the retry.

The ``server_selector`` accepts A only. PyMongo 4.16 and newer asks it about B only, as A has failed
once, and takes A back no sooner than after a wait: with a selection timeout of 0 there is none.
PyMongo 3.9 and 3.10 mark each server that failed Unknown and cannot retry here either: that is
another fault, and not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import HOST_UNREACHABLE, Asked, are_mongoses, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the retry on A is missing though A is known."""
    asked = Asked(cluster, "find")
    a, _ = cluster.mongos

    def only_a(servers: list[Any]) -> list[Any]:
        return [server for server in servers if server.address == a.address]

    options: Any = {"server_selector": only_a, "serverSelectionTimeoutMS": 0}
    with connect(cluster, asked, **options) as client:
        are_mongoses(client, cluster)
        with a.fail_command("find", times=1, **HOST_UNREACHABLE):
            asked.run(client.test.things.find_one)
        print(asked)
        return asked.servers == ["A"] and a.address in client.nodes


if __name__ == "__main__":
    show(shows)
