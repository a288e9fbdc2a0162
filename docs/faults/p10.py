"""P10: a change stream whose mongos failed resumes on the same mongos.

PyMongo remembers nothing from one operation to the next, on every version. A is near, so it is
asked again, and so it is when a transaction is run again. ``enable()`` hands on where these two
failed. An operation that does not continue another one needs ``enable(cooldown=True)``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _scene import Asked, are_mongoses, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster

CURSOR_NOT_FOUND = 43


def shows(cluster: LocalCluster) -> bool:
    """Tell whether the stream asks A again."""
    asked = Asked(cluster, "aggregate")
    sick, _ = cluster.mongos
    with connect(cluster, asked) as client:
        are_mongoses(client, cluster, milliseconds_to_b=80)
        with client.test.things.watch(max_await_time_ms=50) as stream, sick.fail_command(
            "getMore", times=1, error_code=CURSOR_NOT_FOUND
        ):
            asked.run(stream.try_next)
    print(asked)
    return asked.servers == ["A", "A"]


if __name__ == "__main__":
    show(shows)
