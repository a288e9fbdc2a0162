"""P1: the mongos nearby failed, and the retry goes back to it, not to the one farther away.

PyMongo 4.7 to 4.15 leaves the failed mongos out only after the latency window
(``localThresholdMS``, 15 ms) has left out the far one. Then nobody is left, and the failed one is
taken back. PyMongo 3.11 to 4.6 leaves out nobody. PyMongo 3.9 and 3.10 mark each server that failed
Unknown: not shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _scene import HOST_UNREACHABLE, Asked, are_mongoses, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the retry goes back to A."""
    asked = Asked(cluster, "find")
    sick, _ = cluster.mongos
    with connect(cluster, asked) as client, sick.fail_command("find", **HOST_UNREACHABLE):
        are_mongoses(client, cluster, milliseconds_to_b=80)
        asked.run(client.test.things.find_one)
    print(asked)
    return asked.servers == ["A", "A"]


if __name__ == "__main__":
    show(shows)
