"""What is put on the seams of PyMongo, sync and async.

With ``_seams`` the only place that knows PyMongo's private names. One mechanism serves every
version: an operation remembers where its attempts failed, and lends that list to each selection.
What newer versions do by themselves is put aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, Tuple

from pymongo_deprio._events import Retry
from pymongo_deprio._operation import CURRENT, AsyncOperation, Operation
from pymongo_deprio._selection import select

if TYPE_CHECKING:
    from pymongo_deprio._events import Address

_Args = Tuple[Any, ...]
_Kwargs = Dict[str, Any]

# Deprioritization has a meaning where there is a choice: a single server and a load balancer ignore
# it, and in an unknown topology nothing is suitable.
_TOPOLOGIES_WITH_A_CHOICE = ("Sharded", "ReplicaSetWithPrimary", "ReplicaSetNoPrimary")
# Of the commands of a transaction only these may move to another mongos (transactions
# specification, "Sharded Transactions").
_ENDS_OF_TRANSACTION = ("commitTransaction", "abortTransaction")

_log = logging.getLogger("pymongo_deprio")


class Parameters:
    """The parameters of a method of PyMongo, read once: they moved between versions."""

    def __init__(self, function: Callable[..., Any]) -> None:
        try:
            names = list(inspect.signature(function).parameters)[1:]
        except (TypeError, ValueError):  # nothing that tells its parameters
            names = []
        self._index = {name: index for index, name in enumerate(names)}

    def __contains__(self, name: str) -> bool:
        return name in self._index

    def get(self, name: str, args: _Args, kwargs: _Kwargs) -> Any:
        """Return the argument of a call, or None where it was not given."""
        index = self._index.get(name, len(args))
        return args[index] if index < len(args) else kwargs.get(name)

    def put(self, name: str, value: object, args: _Args, kwargs: _Kwargs) -> tuple[_Args, _Kwargs]:
        """Return the arguments of a call with one of them changed."""
        index = self._index[name]
        if index < len(args):
            return (*args[:index], value, *args[index + 1 :]), kwargs
        return args, {**kwargs, name: value}


# -- Operation: around the retry loop --------------------------------------------------------------


def operation(wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
    """Keep the memory of one operation while PyMongo's retry loop runs."""
    memory = Operation(instance, get_ident())
    token = None
    try:
        token = CURRENT.set(memory)
        return wrapped(*args, **kwargs)
    except Exception as error:
        if memory.held:
            _run_again(error)
        raise
    finally:
        memory.close(token)


async def async_operation(wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
    """Do the same for AsyncMongoClient."""
    memory = AsyncOperation(instance, asyncio.current_task())
    token = None
    try:
        token = CURRENT.set(memory)
        return await wrapped(*args, **kwargs)
    except Exception as error:
        if memory.held:
            _run_again(error)
        raise
    finally:
        memory.close(token)


def _run_again(error: Any) -> None:
    """Tell the application to run a transaction again whose mongos stayed overloaded.

    PyMongo alone sends the last attempts to another mongos, whose answer tells it so.
    """
    try:
        if error.has_error_label("SystemOverloadedError"):
            error._add_error_label("TransientTransactionError")
    except Exception:  # noqa: BLE001 - whatever it is, the caller gets PyMongo's error
        log_once("An overload error could not be labelled")


# -- Attempt: around the selection of each attempt's server ----------------------------------------


class Attempt:
    """Wraps ``_select_server``: a second call in one operation means that the first one failed."""

    def __init__(
        self,
        select_server: Callable[..., Any],
        report: Callable[[Retry], None],
        *,
        retries_on_overload: bool,
    ) -> None:
        """Wrap the attempts of one kind of client.

        :param select_server: the original, for the names of its parameters.
        :param report: is told of each retry.
        :param retries_on_overload: whether this PyMongo retries overload errors. It does so in
            mid-transaction too, and outside sharded clusters it retargets if the client opted in.
        """
        self._parameters = Parameters(select_server)
        self._report = report
        self._retries_on_overload = retries_on_overload

    def sync(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Select the server of one attempt."""
        memory = CURRENT.get()
        if memory is None or memory.client is not instance or memory.owner != get_ident():
            return wrapped(*args, **kwargs)
        if memory.server is None:
            memory.asked = args[:2]
            memory.server = server = wrapped(*args, **kwargs)
            return server
        if not _is_retry(memory, args):
            with _outside_operations():
                return wrapped(*args, **kwargs)
        args, kwargs = self._before_retry(memory, args, kwargs)
        lent = memory.deprioritized
        try:
            memory.server = server = wrapped(*args, **kwargs)
        finally:
            memory.deprioritized = ()
        self._after_retry(memory, lent, args, kwargs)
        return server

    async def asynchronous(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Select the server of one attempt of an AsyncMongoClient."""
        memory = CURRENT.get()
        if memory is None or memory.client is not instance or memory.owner is not memory.here():
            return await wrapped(*args, **kwargs)
        if memory.server is None:
            memory.asked = args[:2]
            memory.server = server = await wrapped(*args, **kwargs)
            return server
        if not _is_retry(memory, args):
            with _outside_operations():
                return await wrapped(*args, **kwargs)
        args, kwargs = self._before_retry(memory, args, kwargs)
        lent = memory.deprioritized
        try:
            memory.server = server = await wrapped(*args, **kwargs)
        finally:
            memory.deprioritized = ()
        self._after_retry(memory, lent, args, kwargs)
        return server

    def _before_retry(
        self, memory: Operation, args: _Args, kwargs: _Kwargs
    ) -> tuple[_Args, _Kwargs]:
        """Note the failure, lend the list to selection, and put PyMongo's own list aside."""
        try:
            memory.fail()
            topology = memory.client._topology
            if topology._description.topology_type_name == "Sharded":
                if self._lost_its_pin(memory, topology._description, args, kwargs):
                    memory.held = True
                    args, kwargs = self._parameters.put("address", memory.failed[-1], args, kwargs)
                listed = () if self._is_bound(args, kwargs) else memory.failed
            elif self._retries_on_overload:
                listed = self._parameters.get("deprioritized_servers", args, kwargs) or ()
            else:
                listed = ()
            memory.topology = topology._settings
            memory.deprioritized = addresses(listed)
            if "deprioritized_servers" in self._parameters:
                args, kwargs = self._parameters.put("deprioritized_servers", None, args, kwargs)
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("A retry is left to PyMongo, since its failure could not be noted")
        return args, kwargs

    def _lost_its_pin(
        self, memory: Operation, description: Any, args: _Args, kwargs: _Kwargs
    ) -> bool:
        """Tell whether PyMongo let go of the mongos of a transaction in its middle.

        If that mongos is gone, it rightly did: it would be waited for in vain.
        """
        session = self._parameters.get("session", args, kwargs)
        home = description.server_descriptions().get(memory.failed[-1])
        return (
            self._retries_on_overload
            and session is not None
            and session.in_transaction
            and not session._starting_transaction
            and not self._is_bound(args, kwargs)
            and self._parameters.get("operation", args, kwargs) not in _ENDS_OF_TRANSACTION
            and home is not None
            and home.is_server_type_known
        )

    def _is_bound(self, args: _Args, kwargs: _Kwargs) -> bool:
        """Tell whether the server is given, by an address or by the session's transaction."""
        session = self._parameters.get("session", args, kwargs)
        address = self._parameters.get("address", args, kwargs)
        return bool(address or (session and session._pinned_address))

    def _after_retry(
        self, memory: Operation, lent: tuple[Address, ...], args: _Args, kwargs: _Kwargs
    ) -> None:
        try:
            name = self._parameters.get("operation", args, kwargs)
            self._report(
                Retry(
                    operation=getattr(name, "value", name),
                    attempt=memory.attempts,
                    failed=memory.failed,
                    deprioritized=lent,
                    chosen=memory.server.description.address,
                )
            )
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("A retry could not be reported")


def _is_retry(memory: Operation, args: _Args) -> bool:
    """Tell a retry, for the same selector and session, from a command that a listener runs."""
    return all(one is other for one, other in zip(memory.asked, args))


@contextlib.contextmanager
def _outside_operations() -> Iterator[None]:
    token = CURRENT.set(None)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # as in Operation.close
            CURRENT.reset(token)


# -- Selection -------------------------------------------------------------------------------------


class Selection:
    """Wraps ``TopologyDescription.apply_selector``, which from now on takes a list everywhere."""

    def __init__(self, apply_selector: Any) -> None:
        """Wrap the original, which stays the one that decides."""
        self._original = apply_selector

    def __call__(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Select from a topology description, without the deprioritized servers if possible."""
        given = None
        if "deprioritized_servers" in kwargs:
            # A copy, as the dictionary may be the caller's own (Python 3.8).
            kwargs = dict(kwargs)
            given = kwargs.pop("deprioritized_servers")
        if len(args) > 3:  # noqa: PLR2004 - its place, on the versions that have it
            args, given = args[:3] + args[4:], args[3]
        if given:
            deprioritized = addresses(given)
        else:
            memory = CURRENT.get()
            if memory is None or not memory.deprioritized:
                return wrapped(*args, **kwargs)
            deprioritized = memory.lent_to(getattr(instance, "_topology_settings", None))
        address = args[1] if len(args) > 1 else kwargs.get("address")
        if address or instance.topology_type_name not in _TOPOLOGIES_WITH_A_CHOICE:
            return wrapped(*args, **kwargs)

        def suitable(left_out: frozenset[Address]) -> list[Any]:
            if not left_out:
                return wrapped(*args, **kwargs)  # type: ignore[no-any-return]
            return self._without(left_out, instance, args, kwargs)

        known = {server.address for server in instance.known_servers}
        sharded = instance.topology_type_name == "Sharded"
        return select(suitable, deprioritized, known, sharded=sharded)

    def _without(
        self, left_out: frozenset[Address], description: Any, args: _Args, kwargs: _Kwargs
    ) -> list[Any]:
        """Ask PyMongo about a private copy of the topology that lacks some servers."""
        try:
            reduced = without(description, left_out)
            ask = self._original.__get__(reduced, type(reduced))
            return ask(*args, **kwargs)  # type: ignore[no-any-return]
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            _log.debug("Selection without %s failed", tuple(left_out), exc_info=True)
            return []


def without(description: Any, left_out: frozenset[Address]) -> Any:
    """Return a copy of a topology description that lacks some servers."""
    reduced = copy.copy(description)
    servers = description._server_descriptions
    reduced._server_descriptions = {key: servers[key] for key in servers if key not in left_out}
    return reduced


class Lending:
    """Wraps ``Topology.select_server`` and ``select_servers``, which take a list everywhere."""

    def __init__(self, method: Callable[..., Any]) -> None:
        """Wrap the original, for the names of its parameters."""
        self._parameters = Parameters(method)

    def sync(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Select, and lend the given list for that long."""
        deprioritized, args, kwargs = self._take(args, kwargs)
        if not deprioritized:
            return wrapped(*args, **kwargs)
        with _lent(Operation, instance, deprioritized):
            return wrapped(*args, **kwargs)

    async def asynchronous(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Do the same for a topology of an AsyncMongoClient."""
        deprioritized, args, kwargs = self._take(args, kwargs)
        if not deprioritized:
            return await wrapped(*args, **kwargs)
        with _lent(AsyncOperation, instance, deprioritized):
            return await wrapped(*args, **kwargs)

    def _take(self, args: _Args, kwargs: _Kwargs) -> tuple[tuple[Address, ...], _Args, _Kwargs]:
        given = self._parameters.get("deprioritized_servers", args, kwargs)
        if "deprioritized_servers" in self._parameters:
            args, kwargs = self._parameters.put("deprioritized_servers", None, args, kwargs)
        else:
            kwargs = {key: kwargs[key] for key in kwargs if key != "deprioritized_servers"}
        return addresses(given or ()), args, kwargs


@contextlib.contextmanager
def _lent(
    kind: type[Operation], topology: Any, deprioritized: tuple[Address, ...]
) -> Iterator[None]:
    memory = kind(topology, kind.here())
    memory.topology = topology._settings
    memory.deprioritized = deprioritized
    token = CURRENT.set(memory)
    try:
        yield
    finally:
        memory.close(token)


def addresses(servers: Iterable[Any]) -> tuple[Address, ...]:
    """Return the addresses of servers, server descriptions or addresses.

    :raises TypeError: if it is no list of these.
    """
    if isinstance(servers, str) or not isinstance(servers, Iterable):
        raise _no_list(repr(servers))
    return tuple(map(_address, servers))


def _address(server: Any) -> Address:
    description = getattr(server, "description", server)
    address = getattr(description, "address", description)
    if not isinstance(address, tuple) or len(address) != 2:  # noqa: PLR2004
        raise _no_list(f"one that holds {server!r}")
    return address


def _no_list(given: str) -> TypeError:
    return TypeError(
        "deprioritized_servers takes a list of servers, server descriptions or (host, port) "
        f"addresses, not {given}"
    )


@functools.lru_cache(maxsize=None)
def log_once(message: str) -> None:
    """Log the exception being handled, the first time that this message is."""
    with contextlib.suppress(Exception):  # the application's handlers and filters
        _log.exception(message)
