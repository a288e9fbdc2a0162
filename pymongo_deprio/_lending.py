"""What is put on a topology's selections, so that they take a list of servers to leave out.

Each operation passes here, and nearly none brings a list. To name the parameters costs a tenth of
what it costs to pass on whatever comes; so there is a wrapper for each set of them.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Callable

from pymongo_deprio._inside import Parameters, addresses
from pymongo_deprio._operation import Lent, lending

if TYPE_CHECKING:
    from pymongo_deprio._patching import Method, Switch


class Lending:
    """Wraps ``Topology.select_server`` and ``select_servers``, which take a list everywhere."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Wrap the original, which may take a list by itself."""
        parameters = Parameters(method)
        known = parameters.names if parameters.are_all else ()
        self._lend = _BY_PARAMETERS.get(known, _whatever)

    def sync(self, select: Method, switch: Switch) -> Method:
        """Return what selects, and lends the given list for that long."""

        def select_without(given: Any, topology: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.is_on:
                return select(topology, *args, deprioritized_servers=given, **kwargs)
            with lending(Lent(topology._settings, addresses(given))):
                return select(topology, *args, **kwargs)

        return self._lend(select, select_without)

    def asynchronous(self, select: Method, switch: Switch) -> Method:
        """Return what does the same for a topology of an AsyncMongoClient."""

        async def select_without(given: Any, topology: Any, *args: Any, **kwargs: Any) -> Any:
            if not switch.is_on:
                return await select(topology, *args, deprioritized_servers=given, **kwargs)
            with lending(Lent(topology._settings, addresses(given))):
                return await select(topology, *args, **kwargs)

        return self._lend(select, select_without)


def _up_to_4_6(select: Method, select_without: Method) -> Method:
    def lend(
        topology: Any,
        selector: Any,
        server_selection_timeout: Any = None,
        address: Any = None,
        deprioritized_servers: Any = None,
    ) -> Any:
        call = partial(select_without, deprioritized_servers) if deprioritized_servers else select
        return call(topology, selector, server_selection_timeout, address)

    return lend


def _one_server(select: Method, select_without: Method) -> Method:
    def lend(  # noqa: PLR0917 - as PyMongo has them
        topology: Any,
        selector: Any,
        operation: Any,
        server_selection_timeout: Any = None,
        address: Any = None,
        deprioritized_servers: Any = None,
        operation_id: Any = None,
    ) -> Any:
        call = partial(select_without, deprioritized_servers) if deprioritized_servers else select
        return call(
            topology,
            selector,
            operation,
            server_selection_timeout,
            address,
            operation_id=operation_id,
        )

    return lend


def _all_servers(select: Method, select_without: Method) -> Method:
    def lend(  # noqa: PLR0917 - as PyMongo has them
        topology: Any,
        selector: Any,
        operation: Any,
        server_selection_timeout: Any = None,
        address: Any = None,
        operation_id: Any = None,
        deprioritized_servers: Any = None,
    ) -> Any:
        call = partial(select_without, deprioritized_servers) if deprioritized_servers else select
        return call(topology, selector, operation, server_selection_timeout, address, operation_id)

    return lend


def _whatever(select: Method, select_without: Method) -> Method:
    """Take what the wrapper of somebody takes that tells nothing of its parameters."""

    def lend(topology: Any, *args: Any, **kwargs: Any) -> Any:
        given = kwargs.pop("deprioritized_servers", None)
        call = partial(select_without, given) if given else select
        return call(topology, *args, **kwargs)

    return lend


_TIMEOUT_AND_ADDRESS = ("server_selection_timeout", "address")
_OPERATION = ("selector", "operation", *_TIMEOUT_AND_ADDRESS)
_BY_PARAMETERS: dict[tuple[str, ...], Callable[[Method, Method], Method]] = {
    ("selector", *_TIMEOUT_AND_ADDRESS): _up_to_4_6,
    (*_OPERATION, "deprioritized_servers", "operation_id"): _one_server,
    (*_OPERATION, "operation_id"): _all_servers,
    (*_OPERATION, "operation_id", "deprioritized_servers"): _all_servers,
}
