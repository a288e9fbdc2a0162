"""P7: a write in mid-transaction is retried on another mongos, and the transaction is lost.

PyMongo 4.17 and newer retries what a mongos refused for overload, and lets a write go to another
one, also if its transaction has begun already. Older ones do not retry it: the application gets
the error, and nothing is shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from _scene import OVERLOAD, Asked, are_mongoses, connect, show

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def shows(cluster: LocalCluster) -> bool:
    """Tell whether a transaction goes to both mongoses."""
    asked = Asked(cluster, "insert")
    with connect(cluster, asked) as client:
        are_mongoses(client, cluster)

        def transaction() -> None:
            with client.start_session() as session, session.start_transaction():
                client.test.things.insert_one({}, session=session)
                home = cluster.mongos["AB".index(asked.servers[0])]
                with home.fail_command("insert", times=1, **OVERLOAD):
                    client.test.things.insert_one({}, session=session)

        asked.run(transaction)
    print(asked)
    return set(asked.servers) == {"A", "B"}


if __name__ == "__main__":
    show(shows)
