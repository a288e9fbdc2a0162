"""What is put on the other seams of PyMongo, sync and async: selection above all."""

from __future__ import annotations

import asyncio
import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable

from pymongo_deprio._inside import Args, Kwargs, Parameters, address_of_cursor, addresses, without
from pymongo_deprio._operation import LENT, Lent, lending
from pymongo_deprio._selection import select

if TYPE_CHECKING:
    from pymongo_deprio._events import Address
    from pymongo_deprio._memory import Memory
    from pymongo_deprio._patching import Method

# Deprioritization has a meaning where there is a choice: a single server and a load balancer ignore
# it, and in an unknown topology nothing is suitable.
_TOPOLOGIES_WITH_A_CHOICE = ("Sharded", "ReplicaSetWithPrimary", "ReplicaSetNoPrimary")
_log = logging.getLogger("pymongo_deprio")


# -- Resume: around the resumption of a change stream ----------------------------------------------


class Resume:
    """Wraps ``ChangeStream._create_cursor``: on a resume it asks another mongos than before."""

    def __init__(self, memory: Memory) -> None:
        """Remember where the stream failed, for that long."""
        self._memory = memory

    def sync(self, create_cursor: Method) -> Method:
        """Return what creates the cursor of a change stream."""

        def create(stream: Any, *args: Any, **kwargs: Any) -> Any:
            failed = address_of_cursor(stream)
            if failed is None:  # the first one: while others resume, operations have to look here
                return create_cursor(stream, *args, **kwargs)
            with self._memory.resuming(get_ident(), failed):
                return create_cursor(stream, *args, **kwargs)

        return create

    def asynchronous(self, create_cursor: Method) -> Method:
        """Return what creates the cursor of a change stream of an AsyncMongoClient."""

        async def create(stream: Any, *args: Any, **kwargs: Any) -> Any:
            failed = address_of_cursor(stream)
            if failed is None:
                return await create_cursor(stream, *args, **kwargs)
            with self._memory.resuming(asyncio.current_task(), failed):
                return await create_cursor(stream, *args, **kwargs)

        return create


# -- Bulk write: around each attempt to do what is left of it --------------------------------------


def bulk_attempt(execute_command: Method) -> Method:
    """Wrap ``_Bulk._execute_command``, sync or async: a retry does all batches, not one.

    Before a batch is sent, PyMongo fetches the one after it, but not in a retry, where it has been.
    It has not if the first attempt found no connection.
    """

    def execute(bulk: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if bulk.retrying and not bulk.current_run:
            bulk.current_run = next(generator)
            bulk.next_run = next(generator, None)
        return execute_command(bulk, generator, *args, **kwargs)

    return execute


# -- Selection -------------------------------------------------------------------------------------


def selection(apply_selector: Method) -> Method:
    """Wrap ``TopologyDescription.apply_selector``, which from now on takes a list everywhere.

    The original stays the one that decides.
    """

    def apply(description: Any, *args: Any, **kwargs: Any) -> list[Any]:
        args, kwargs, lent = _lent_to(description, args, kwargs)
        address = args[1] if len(args) > 1 else kwargs.get("address")
        kind = description.topology_type_name
        if lent is None or address or kind not in _TOPOLOGIES_WITH_A_CHOICE:
            return apply_selector(description, *args, **kwargs)  # type: ignore[no-any-return]

        def suitable(left_out: frozenset[Address]) -> list[Any]:
            if not left_out:
                return apply_selector(description, *args, **kwargs)  # type: ignore[no-any-return]
            try:
                # A private copy: what others see of the topology stays as it is.
                reduced = without(description, left_out)
                return apply_selector(reduced, *args, **kwargs)  # type: ignore[no-any-return]
            except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
                _log.debug("Selection without %s failed", tuple(left_out), exc_info=True)
                return []

        there = description._server_descriptions.keys()
        servers = select(suitable, lent.failed, there, lent.cooling, sharded=kind == "Sharded")
        if lent.probe is None:
            return servers
        return [server for server in servers if server.address == lent.probe] or servers

    return apply


def _lent_to(description: Any, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs, Lent | None]:
    """Return a call's arguments without the list, and what to leave out: by it, or what is lent."""
    given = None
    if "deprioritized_servers" in kwargs:
        # A copy, as the dictionary may be the caller's own (Python 3.8).
        kwargs = dict(kwargs)
        given = kwargs.pop("deprioritized_servers")
    if len(args) > 3:  # noqa: PLR2004 - its place, on the versions that have it
        args, given = args[:3] + args[4:], args[3]
    if given:
        return args, kwargs, Lent(None, addresses(given))
    lent = LENT.get()
    if lent is not None and lent.topology is getattr(description, "_topology_settings", None):
        return args, kwargs, lent
    return args, kwargs, None


class Lending:
    """Wraps ``Topology.select_server`` and ``select_servers``, which take a list everywhere."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Wrap the original, for the names of its parameters."""
        self._parameters = Parameters(method)

    def sync(self, select: Method) -> Method:
        """Return what selects, and lends the given list for that long."""

        def lend(topology: Any, *args: Any, **kwargs: Any) -> Any:
            deprioritized, args, kwargs = self._take(args, kwargs)
            if not deprioritized:
                return select(topology, *args, **kwargs)
            with lending(Lent(topology._settings, deprioritized)):
                return select(topology, *args, **kwargs)

        return lend

    def asynchronous(self, select: Method) -> Method:
        """Return what does the same for a topology of an AsyncMongoClient."""

        async def lend(topology: Any, *args: Any, **kwargs: Any) -> Any:
            deprioritized, args, kwargs = self._take(args, kwargs)
            if not deprioritized:
                return await select(topology, *args, **kwargs)
            with lending(Lent(topology._settings, deprioritized)):
                return await select(topology, *args, **kwargs)

        return lend

    def _take(self, args: Args, kwargs: Kwargs) -> tuple[tuple[Address, ...], Args, Kwargs]:
        given = self._parameters.get("deprioritized_servers", args, kwargs)
        if "deprioritized_servers" in self._parameters:
            args, kwargs = self._parameters.put("deprioritized_servers", None, args, kwargs)
        else:
            kwargs = {key: kwargs[key] for key in kwargs if key != "deprioritized_servers"}
        return addresses(given or ()), args, kwargs
