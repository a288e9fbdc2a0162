"""What is put on the other seams of PyMongo, sync and async: selection above all."""

from __future__ import annotations

import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any

from pymongo_deprio._inside import address_of_cursor, addresses, current_task, without
from pymongo_deprio._operation import LENT, Lent
from pymongo_deprio._selection import select

if TYPE_CHECKING:
    from pymongo_deprio._events import Address
    from pymongo_deprio._memory import Memory
    from pymongo_deprio._patching import Method, Switch

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

    def sync(self, create_cursor: Method, switch: Switch) -> Method:
        """Return what creates the cursor of a change stream."""

        def create(stream: Any, *args: Any, **kwargs: Any) -> Any:
            failed = address_of_cursor(stream)
            # The first one has none: while others resume, operations have to look here.
            if failed is None or not switch.is_on:
                return create_cursor(stream, *args, **kwargs)
            with self._memory.resuming(get_ident(), failed):
                return create_cursor(stream, *args, **kwargs)

        return create

    def asynchronous(self, create_cursor: Method, switch: Switch) -> Method:
        """Return what creates the cursor of a change stream of an AsyncMongoClient."""

        async def create(stream: Any, *args: Any, **kwargs: Any) -> Any:
            failed = address_of_cursor(stream)
            if failed is None or not switch.is_on:
                return await create_cursor(stream, *args, **kwargs)
            with self._memory.resuming(current_task(), failed):
                return await create_cursor(stream, *args, **kwargs)

        return create


# -- Bulk write: around each attempt to do what is left of it --------------------------------------


def bulk_attempt(execute_command: Method, switch: Switch) -> Method:
    """Wrap ``_Bulk._execute_command``, sync or async: a retry does all batches, not one.

    Before a batch is sent, PyMongo fetches the one after it, but not in a retry, where it has been.
    It has not if the first attempt found no connection.
    """

    def execute(bulk: Any, generator: Any, *args: Any, **kwargs: Any) -> Any:
        if switch.is_on and bulk.retrying and not bulk.current_run:
            bulk.current_run = next(generator)
            bulk.next_run = next(generator, None)
        return execute_command(bulk, generator, *args, **kwargs)

    return execute


# -- Selection -------------------------------------------------------------------------------------


def selection(apply_selector: Method, switch: Switch) -> Method:
    """Wrap ``TopologyDescription.apply_selector``, which from now on takes a list everywhere.

    The original stays the one that decides.
    """
    lent_now = LENT.get

    def apply(
        description: Any,
        selector: Any,
        address: Any = None,
        custom_selector: Any = None,
        deprioritized_servers: Any = None,
    ) -> Any:
        if not deprioritized_servers and not lent_now():
            return apply_selector(description, selector, address, custom_selector=custom_selector)
        more = {"custom_selector": custom_selector}
        if switch.is_on:
            lent = _lent_to(description, deprioritized_servers)
            if lent is not None and not address and _has_a_choice(description):
                return _select(lent, description, apply_selector, selector, address, **more)
        elif deprioritized_servers:
            more["deprioritized_servers"] = deprioritized_servers
        return apply_selector(description, selector, address, **more)

    return apply


def _lent_to(description: Any, given: Any) -> Lent | None:
    """Return what a selection leaves out: what is given to it, or else what is lent to it."""
    if given:
        return Lent(None, addresses(given))
    for lent in LENT.get():
        if lent.topology is getattr(description, "_topology_settings", None):
            return lent
    return None


def _has_a_choice(description: Any) -> bool:
    return description.topology_type_name in _TOPOLOGIES_WITH_A_CHOICE


def _select(
    lent: Lent, description: Any, apply_selector: Method, *args: Any, **kwargs: Any
) -> list[Any]:
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
    is_sharded = description.topology_type_name == "Sharded"
    servers = select(suitable, lent.failed, there, lent.cooling, sharded=is_sharded)
    if lent.probe is None:
        return servers
    return [server for server in servers if server.address == lent.probe] or servers
