"""What the scripts of this folder have in common.

They run on a real mongod with two emulated mongoses, A and B. The client's monitors are silent:
each script tells the client what its servers are, so that nothing depends on time.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable

import pymongo
from pymongo.monitoring import CommandListener
from pymongo.server_description import ServerDescription

import pymongo_deprio
from pymongo_deprio.cluster import LocalCluster

if TYPE_CHECKING:
    from pymongo_deprio import Address

VERSION = tuple(pymongo.version_tuple[:2])
HOST_UNREACHABLE: dict[str, Any] = {"error_code": 6, "error_labels": ["RetryableWriteError"]}
"""A mongos that fails so is retried, and stays known (from PyMongo 3.11 on)."""
OVERLOAD: dict[str, Any] = {
    "error_code": 6,
    "error_labels": ["SystemOverloadedError", "RetryableError", "RetryableWriteError"],
}

RETARGET: dict[str, Any] = {"enableOverloadRetargeting": True} if VERSION >= (4, 17) else {}
"""What lets a client leave a member of a replica set for overload."""


class Asked(CommandListener):
    """Notes in ``servers`` where some commands were sent, one after the other: to A or to B."""

    def __init__(self, cluster: LocalCluster, *commands: str) -> None:
        """Begin with none."""
        self._names = {mongos.address: name for mongos, name in zip(cluster.mongos, "AB")}
        self._commands = commands
        self.servers: list[str] = []
        self.error: Exception | None = None
        """What the operation raised, if it did."""
        self.after_failure: Callable[[], object] = lambda: None
        """Called before PyMongo looks at the error of one of them."""

    def started(self, event: Any) -> None:
        """Note it."""
        if event.command_name in self._commands:
            self.servers.append(self._names[event.connection_id])

    def succeeded(self, event: Any) -> None:
        """Look at nothing."""

    def failed(self, event: Any) -> None:
        """Let the script do something between two attempts."""
        if event.command_name in self._commands:
            self.after_failure()

    def run(self, operation: Callable[..., Any], *arguments: Any) -> None:
        """Run an operation of the application's, and keep its error."""
        try:
            operation(*arguments)
        except Exception as error:  # noqa: BLE001 - whatever it is, the application gets it
            self.error = error

    def __str__(self) -> str:
        """Return what was noted, for people."""
        commands, servers = " and ".join(self._commands), ", ".join(self.servers)
        message = str(self.error).partition(", full error")[0]
        end = f"{type(self.error).__name__}: {message}" if self.error else "success"
        return f"PyMongo {pymongo.version} sent {commands} to {servers}. In the end: {end}"


class SilentMonitor:
    """Stands in a client where a monitor would, and does nothing."""

    def __init__(self, *_: Any, **__: Any) -> None:
        """Take what a monitor takes."""

    def __getattr__(self, name: str) -> Any:
        """Return a method for each that a monitor has."""
        return lambda *_, **__: None


def connect(cluster: LocalCluster, asked: Asked, **options: Any) -> Any:
    """Return a client of A and B that does not know yet what they are."""
    client: Any = pymongo.MongoClient(
        [f"{host}:{port}" for host, port in addresses(cluster)],
        event_listeners=[asked],
        _monitor_class=SilentMonitor,
        **options,
    )
    client._get_topology()
    return client


def addresses(cluster: LocalCluster) -> list[Address]:
    """Return where A and B are."""
    return [mongos.address for mongos in cluster.mongos]


def are_mongoses(client: Any, cluster: LocalCluster, milliseconds_to_b: int = 1) -> None:
    """Tell the client that A and B are mongoses, and how far B is; A is near."""
    for address, milliseconds in zip(addresses(cluster), (1, milliseconds_to_b)):
        _tell(client, address, milliseconds, msg="isdbgrid", ismaster=True)


def are_replica_set(client: Any, primary: Address, *secondaries: Address) -> None:
    """Tell the client that these are the members of a replica set; it should ask for ``rs``."""
    hosts = [f"{host}:{port}" for host, port in (primary, *secondaries)]
    _tell(client, primary, 1, setName="rs", hosts=hosts, ismaster=True)
    for address in secondaries:
        _tell(client, address, 1, setName="rs", hosts=hosts, secondary=True)


def _tell(client: Any, address: Address, milliseconds: int, **reply: Any) -> None:
    module, name = ("hello", "Hello") if VERSION >= (3, 12) else ("ismaster", "IsMaster")
    hello: Any = getattr(importlib.import_module(f"pymongo.{module}"), name)
    reply.update(ok=1, minWireVersion=0, maxWireVersion=17, logicalSessionTimeoutMinutes=30)
    client._topology.on_change(ServerDescription(address, hello(reply), milliseconds / 1000))


def show(shows: Callable[[LocalCluster], bool]) -> None:
    """Run a script: on PyMongo alone, or with the argument ``--enabled`` on the patched one."""
    if sys.argv[1:] not in ([], ["--enabled"]):
        sys.exit(f"{sys.argv[0]} takes --enabled or nothing, not {' '.join(sys.argv[1:])}")
    if sys.argv[1:]:
        pymongo_deprio.enable(strict=True)
    with LocalCluster(mongos=2) as cluster:
        shown = "shown" if shows(cluster) else "not shown"
    print(f"{Path(sys.argv[0]).stem.upper()}: {shown}")
