"""What several tests use: who was asked, and clients that know everybody."""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import gc
import importlib
import inspect
import os
import signal
import subprocess
import sys
import time
from typing import (
    TYPE_CHECKING,
    Any,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    TypeVar,
)

import pymongo
from pymongo.monitoring import CommandListener, ServerHeartbeatListener
from pymongo.server_description import ServerDescription
from pymongo.server_selectors import any_server_selector

import pymongo_deprio
from pymongo_deprio import Retry

if TYPE_CHECKING:
    from pymongo.monitoring import (
        CommandFailedEvent,
        CommandStartedEvent,
        CommandSucceededEvent,
        ServerHeartbeatFailedEvent,
        ServerHeartbeatStartedEvent,
        ServerHeartbeatSucceededEvent,
    )

    from pymongo_deprio import Address, Event
    from pymongo_deprio.cluster import Cluster

T = TypeVar("T")

VERSION = tuple(pymongo.version_tuple[:2])
HAS_ASYNC = hasattr(pymongo, "AsyncMongoClient")
MARKS_UNKNOWN = VERSION < (3, 11)
"""PyMongo 3.9 and 3.10 mark a server Unknown on every retryable code."""
RETRIES_WRITE_CONCERN_ERRORS = not (3, 11, 0) <= tuple(pymongo.version_tuple[:3]) <= (3, 11, 2)
"""PyMongo 3.11.0 to 3.11.2 lose the labels of write concern errors."""
RETRIES_ON_OVERLOAD = VERSION >= (4, 17)

HOST_UNREACHABLE = 6
RETRYABLE: dict[str, Any] = {
    "error_code": HOST_UNREACHABLE,
    "error_labels": ["RetryableWriteError"],
}
"""What makes reads and writes retry. A mongod adds the label by itself, a mongos does not."""


class Asked(CommandListener):
    """Records which server each command was sent to, and how it ended."""

    def __init__(self) -> None:
        self._events: list[tuple[str, str, Address]] = []
        self.hook: Callable[[str, str, Address], object] = lambda *event: None
        """Called with each event: what happened (started, succeeded, failed), to which command, on
        which server. The operation waits for it."""

    def _note(self, what: str, event: Any) -> None:
        noted = (what, event.command_name, event.connection_id)
        self._events.append(noted)
        self.hook(*noted)

    def started(self, event: CommandStartedEvent) -> None:
        self._note("started", event)

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self._note("succeeded", event)

    def failed(self, event: CommandFailedEvent) -> None:
        self._note("failed", event)

    def where(self, what: str, *commands: str) -> list[Address]:
        """Return the servers of the events of one kind, in order; of all commands or of some."""
        return [
            address
            for kind, command, address in list(self._events)
            if kind == what and (not commands or command in commands)
        ]

    def reset(self) -> None:
        self._events.clear()


class RoundTrips(ServerHeartbeatListener):
    """Collects how long heartbeats took, in seconds."""

    def __init__(self) -> None:
        """Begin without any."""
        self.by_address: dict[Any, float] = {}

    def started(self, event: ServerHeartbeatStartedEvent) -> None:
        """Look at nothing."""

    def failed(self, event: ServerHeartbeatFailedEvent) -> None:
        """Look at nothing."""

    def succeeded(self, event: ServerHeartbeatSucceededEvent) -> None:
        """Note the time."""
        self.by_address[event.connection_id] = event.duration


def run_installed(*command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a process of its own, and return what it prints.

    It is not in the checkout: there Python finds the sources, and not what is installed.
    """
    return subprocess.run(
        command,
        **{"cwd": sys.prefix, "timeout": 60, **options},
        capture_output=True,
        text=True,
        check=False,
    )


def wait_until(true: Callable[[], object], what: str, seconds: float = 10) -> None:
    """Wait for something to become true."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, f"waited {seconds} seconds for {what}"
        time.sleep(0.002)


def exit_status(child: int, seconds: float = 30) -> int:
    """Wait for a forked child, and end it if it hangs."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return status
        time.sleep(0.002)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


def wait_until_gone(*references: Callable[[], object]) -> None:
    """Wait until nothing holds what these weak references speak of."""

    def are_gone() -> bool:
        gc.collect()  # PyPy does not count references: once may be too little
        return all(reference() is None for reference in references)

    wait_until(are_gone, "what is not needed to go")


def knows_all(client: Any, count: int = 2) -> None:
    """Wait until the client knows all servers."""
    if len(client.nodes) < count:
        # After a network error clients do not look again before the next heartbeat.
        client._topology.request_check_all(0)
    wait_until(lambda: len(client.nodes) >= count, f"{count} known servers")


async def knows_all_async(client: Any, count: int = 2) -> None:
    """Wait until the AsyncMongoClient knows all servers."""
    if len(client.nodes) < count:
        await client._topology.request_check_all(0)
    await wait_until_async(lambda: len(client.nodes) >= count, f"{count} known servers")


async def wait_until_async(true: Callable[[], object], what: str) -> None:
    """Wait for something to become true, while other tasks run."""
    for _ in range(5000):
        if true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError(f"waited for {what}")


async def finished(result: Awaitable[T] | T) -> T:
    """Await what an AsyncMongoClient returned, if it has to be awaited."""
    if inspect.isawaitable(result):
        return await result
    return result


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in an event loop of its own."""
    return asyncio.run(main)


def prefer(*addresses: Address) -> Callable[[list[Any]], list[Any]]:
    """Return a server_selector that takes the first of these that it is offered, or the others."""

    def server_selector(servers: list[Any]) -> list[Any]:
        offered = {server.address: server for server in servers}
        return [offered[address] for address in addresses if address in offered][:1] or servers

    return server_selector


@contextlib.contextmanager
def each_mongos_sick_in_its_own_way(cluster: Cluster) -> Iterator[None]:
    """Let one mongos fail all finds, and the other one all inserts."""
    with contextlib.ExitStack() as failing:
        for mongos, command in zip(cluster.mongos, ["find", "insert"]):
            failing.enter_context(mongos.fail_command([command], **RETRYABLE))
        yield


@contextlib.contextmanager
def enabled_with_retries() -> Iterator[list[Retry]]:
    """Enable the patch, and collect the retries that it reports."""
    retries: list[Retry] = []

    def listener(event: Event) -> None:
        if isinstance(event, Retry):
            retries.append(event)

    with pymongo_deprio.enable(on_event=listener, strict=True):
        yield retries


# -- Topologies without a network ------------------------------------------------------------------


class SilentMonitor:
    """Stands in a topology where a monitor would: the test tells what servers say."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    def open(self) -> None:
        pass

    close = join = request_check = cancel_check = reset = gc_safe_close = open  # noqa: A003


def reply(kind: str, me: Address, hosts: Iterable[Address] = ()) -> dict[str, Any]:
    """Return what a server of a kind answers to hello."""
    document: dict[str, Any] = {
        "ok": 1,
        "minWireVersion": 0,
        "maxWireVersion": 17,
        "logicalSessionTimeoutMinutes": 30,
        "maxBsonObjectSize": 16777216,
        "maxMessageSizeBytes": 48000000,
        "maxWriteBatchSize": 100000,
    }
    if kind == "mongos":
        return dict(document, msg="isdbgrid", ismaster=True)
    if kind == "standalone":
        return dict(document, ismaster=True)
    return dict(
        document,
        setName="rs",
        hosts=[f"{host}:{port}" for host, port in hosts],
        me=f"{me[0]}:{me[1]}",
        ismaster=kind == "primary",
        secondary=kind == "secondary",
        lastWrite={"lastWriteDate": dt.datetime(2026, 1, 1)},  # noqa: DTZ001
    )


Hello: Any = (
    importlib.import_module("pymongo.hello").Hello
    if VERSION >= (3, 12)
    else importlib.import_module("pymongo.ismaster").IsMaster
)


def make_topology(
    kinds: Mapping[Any, str],
    rtt: Mapping[Any, float] | None = None,
    *,
    of: str = "MongoClient",
    known: bool = True,
    **settings: Any,
) -> Any:
    """Return a topology of servers of these kinds, as a client of this PyMongo has it.

    :param kinds: mongos, primary, secondary, standalone or load balancer, for each address.
    :param rtt: round-trip times in seconds; 1 ms where none is given.
    """
    module = importlib.import_module(getattr(pymongo, of).__module__)
    topology_class = vars(module)["Topology"]
    settings_class = vars(module)["TopologySettings"]
    if any(kind in ("primary", "secondary") for kind in kinds.values()):
        settings["replica_set_name"] = "rs"
    if "load balancer" in kinds.values():
        settings["load_balanced"] = True
    topology = topology_class(
        settings_class(seeds=list(kinds), monitor_class=SilentMonitor, **settings)
    )
    if "load balancer" in kinds.values():
        topology.open()
    elif known:
        for address, kind in kinds.items():
            describe(topology, address, kind, (rtt or {}).get(address, 0.001), kinds)
    return topology


def describe(
    topology: Any,
    address: Address,
    kind: str,
    rtt: float = 0.001,
    hosts: Iterable[Address] = (),
) -> Any:
    """Tell a topology what one of its servers answered; to be awaited if it is asynchronous."""
    topology._opened = True
    return topology.on_change(description_of(address, kind, rtt, hosts))


def description_of(
    address: Address, kind: str, rtt: float = 0.001, hosts: Iterable[Address] = ()
) -> Any:
    """Return what a client notes of a server."""
    return ServerDescription(address, Hello(reply(kind, address, hosts)), rtt)


def select_arguments() -> tuple[str, ...]:
    """Return the positional arguments of select_server(s) that stand behind the selector."""
    return ("find",) if VERSION >= (4, 7) else ()


def select(topology: Any, selector: Any = any_server_selector, **options: Any) -> set[Address]:
    """Return the addresses that select_servers returns, at once."""
    options.setdefault("server_selection_timeout", 0)
    servers = topology.select_servers(selector, *select_arguments(), **options)
    return {server.description.address for server in servers}


@contextlib.asynccontextmanager
async def connect_async(
    to: Any, *listeners: Any, count: int = 2, **options: Any
) -> AsyncIterator[Any]:
    """Give an AsyncMongoClient of a cluster, or of one mongos, that knows all of its mongoses."""
    # Under load, round-trip times may differ by more than the default of 15 ms.
    options.setdefault("localThresholdMS", 1000)
    client = pymongo.AsyncMongoClient(to.uri, event_listeners=list(listeners), **options)
    try:
        await client.admin.command("ping")
        await knows_all_async(client, count)
        for listener in listeners:
            listener.reset()
        yield client
    finally:
        await client.close()


def closure(wrapped: Any) -> Any:
    """Return a wrapper that tells nothing of what it wraps."""

    def hiding(*args: Any, **kwargs: Any) -> Any:
        return wrapped(*args, **kwargs)

    return hiding


def partly(wrapped: Any) -> Any:
    """Return a wrapper that tells of the instance only."""

    def hiding(instance: Any, *args: Any, **kwargs: Any) -> Any:
        return wrapped.__get__(instance, type(instance))(*args, **kwargs)

    return hiding
