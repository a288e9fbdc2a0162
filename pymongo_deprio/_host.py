"""Keeps a cluster up for somebody who tries things on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from pymongo_deprio.cluster import DockerCluster, LocalCluster
from pymongo_deprio.cluster._base import uri_of

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster

_TEXT = """\
{uri}

{kind}, until Ctrl-C. To make the first mongos fail each find and insert, in Python:

    from pymongo import MongoClient
    first = MongoClient("{first}").admin
    sick = {{"failCommands": ["find", "insert"], "errorCode": 6}}
    sick["errorLabels"] = ["RetryableWriteError"]
    first.command("configureFailPoint", "failCommand", mode="alwaysOn", data=sick)

and to make it well again:

    first.command("configureFailPoint", "failCommand", mode="off")
"""


def keep_up(mongos: int, *, docker: bool) -> None:
    """Start a cluster, print what can be done with it, and take it down on Ctrl-C.

    :param mongos: how many mongoses it has.
    :param docker: whether it is a real one in Docker.
    :raises ClusterError: if it cannot be had.
    """
    cluster: Cluster = DockerCluster(mongos=mongos) if docker else LocalCluster(mongos=mongos)
    with cluster:
        try:
            print(_text(cluster), flush=True)
            while True:
                time.sleep(1)
        except KeyboardInterrupt:
            pass  # the way to end it


def _text(cluster: Cluster) -> str:
    count = len(cluster.mongos)
    mongoses = f"{count} {'mongoses' if count > 1 else 'mongos'}"
    kind = "emulated" if isinstance(cluster, LocalCluster) else "in Docker"
    first = uri_of([cluster.mongos[0].address])
    return _TEXT.format(uri=cluster.uri, kind=f"{mongoses}, {kind}", first=first)
