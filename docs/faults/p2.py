"""P2: the mongos that failed leaves the list of servers and comes back, and is asked again.

So it is when the records of a ``mongodb+srv`` address change, and change back (SRV polling).
PyMongo 4.7 to 4.15 leaves out the server *object* that failed; the mongos has a new one now.
PyMongo 3.11 to 4.6 leaves out nobody. One retry in two goes to the other mongos by chance, so this
tries 30 times. Each mongos fails once, so an error in the end means that the retry went to the
other one. PyMongo 3.9 and 3.10 mark each server that failed Unknown: not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _scene import HOST_UNREACHABLE, Asked, addresses, are_mongoses, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether a retry goes back to the mongos that failed."""
    for _ in range(30):
        asked = read(cluster)
        if asked.servers in (["A", "A"], ["B", "B"]):
            break
    print(asked)
    return asked.servers in (["A", "A"], ["B", "B"])


def read(cluster: LocalCluster) -> Asked:
    """Let whichever mongos is asked first fail, leave, and come back."""
    asked = Asked(cluster, "find")
    a, b = cluster.mongos

    def leave_and_come_back() -> None:
        well = addresses(cluster)["AB".index(asked.servers[0]) - 1]
        client._topology.on_srv_update([well])
        client._topology.on_srv_update(addresses(cluster))
        are_mongoses(client, cluster)

    asked.after_failure = leave_and_come_back
    with connect(cluster, asked) as client, a.fail_command(
        "find", times=1, **HOST_UNREACHABLE
    ), b.fail_command("find", times=1, **HOST_UNREACHABLE):
        are_mongoses(client, cluster)
        asked.run(client.test.things.find_one)
    return asked


if __name__ == "__main__":
    show(shows)
