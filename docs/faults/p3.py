"""P3: a ``server_selector`` of the application's brings the retry back to the failed mongos.

This one prefers A, as one does that prefers its own data centre. PyMongo 4.7 to 4.15 asks it about
all mongoses, and then leaves out the failed one: nobody is left, and it is taken back. PyMongo 3.11
to 4.6 leaves out nobody. PyMongo 3.9 and 3.10 mark each server that failed Unknown: not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from _scene import HOST_UNREACHABLE, Asked, are_mongoses, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the retry goes back to A."""
    asked = Asked(cluster, "find")
    sick, _ = cluster.mongos

    def prefer_a(servers: list[Any]) -> list[Any]:
        return [server for server in servers if server.address == sick.address] or servers

    with connect(cluster, asked, server_selector=prefer_a) as client:
        are_mongoses(client, cluster)
        with sick.fail_command("find", **HOST_UNREACHABLE):
            asked.run(client.test.things.find_one)
    print(asked)
    return asked.servers == ["A", "A"]


if __name__ == "__main__":
    show(shows)
