"""What is done to clients: the retry loop without a network, and mongoses that cool down."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Callable, Collection, Iterator

import pymongo
from pymongo.errors import OperationFailure
from pymongo.read_preferences import ReadPreference

import pymongo_deprio

if TYPE_CHECKING:
    from measure import Patch

    from pymongo_deprio import Address
    from pymongo_deprio.cluster import LocalCluster

HOST_UNREACHABLE = 6
LONG = pymongo_deprio.Cooldown(base=3600, maximum=3600)
READ = (ReadPreference.PRIMARY, None, *(("find",) if pymongo.version_tuple >= (4, 7) else ()))


@contextlib.contextmanager
def async_client(cluster: LocalCluster) -> Iterator[tuple[Any, Callable[[Any], Any]]]:
    """Give an AsyncMongoClient, and what runs its coroutines."""
    events = asyncio.new_event_loop()
    client: Any = pymongo.AsyncMongoClient(cluster.uri, localThresholdMS=1000)
    try:
        yield client, events.run_until_complete
    finally:
        events.run_until_complete(client.close())
        events.close()


def loop_of(client: Any) -> Callable[[], Any]:
    """Return an operation of a client that sends nothing; of an AsyncMongoClient, to be awaited."""

    def without_a_network(*arguments: Any) -> None:
        """Stand where a command would be sent."""

    async def without_a_network_async(*arguments: Any) -> None:
        """Stand there as well."""

    is_async = type(client).__name__ == "AsyncMongoClient"
    send = without_a_network_async if is_async else without_a_network
    return lambda: client._retryable_read(send, *READ)


def cooling(client: Any, sick: Collection[Address]) -> Patch:
    """Return what enables the cooldown, and lets these mongoses of a client cool for an hour."""

    def fail(session: Any, server: Any, *arguments: Any) -> None:
        if server.description.address in sick:
            raise OperationFailure("sick", HOST_UNREACHABLE)

    @contextlib.contextmanager
    def patch() -> Iterator[None]:
        with pymongo_deprio.enable(strict=True, cooldown=LONG):
            wanted = pymongo_deprio.stats().convictions + len(sick)
            while pymongo_deprio.stats().convictions < wanted:
                with contextlib.suppress(OperationFailure):  # it may meet two of them
                    client._retryable_read(fail, *READ)
            yield

    return patch
