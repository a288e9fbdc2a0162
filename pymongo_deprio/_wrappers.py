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
import sys
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, Protocol, Tuple

from pymongo_deprio._events import Retry
from pymongo_deprio._operation import CURRENT, AsyncOperation, Lent, Operation
from pymongo_deprio._selection import select

if TYPE_CHECKING:
    from types import FrameType

    from pymongo_deprio._events import Address, Event
    from pymongo_deprio._memory import Memory

_Args = Tuple[Any, ...]
_Kwargs = Dict[str, Any]

# Deprioritization has a meaning where there is a choice: a single server and a load balancer ignore
# it, and in an unknown topology nothing is suitable.
_TOPOLOGIES_WITH_A_CHOICE = ("Sharded", "ReplicaSetWithPrimary", "ReplicaSetNoPrimary")
# Of the commands of a transaction only these may move to another mongos (transactions
# specification, "Sharded Transactions").
_ENDS_OF_TRANSACTION = ("commitTransaction", "abortTransaction")
_STARTING = 2
"""The state of a transaction that has sent nothing yet, the same on every version."""
_TRANSIENT = "TransientTransactionError"
_OVERLOADED = "SystemOverloadedError"
# Source: the specification of retryable reads, "Retryable Error".
_RETRYABLE_CODES = frozenset([6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436])

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


class Observer(Protocol):
    """Who is told of what happens, and keeps what is remembered."""

    memory: Memory

    def report(self, event: Event) -> None:
        """Take notice of an event."""

    def count(self, **more: int) -> None:
        """Count what is no event."""


class Loop:
    """Wraps the retry loop: keeps the memory of one operation while it runs."""

    def __init__(self, loop: Callable[..., Any], observer: Observer) -> None:
        """Wrap one of PyMongo's loops.

        :param loop: the original, for the names of its parameters.
        """
        self._parameters = Parameters(loop)
        self._observer = observer
        self._memory = observer.memory

    def sync(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Run one operation."""
        operation = Operation(instance, get_ident())
        token = None
        try:
            token = CURRENT.set(operation)
            if not self._memory.is_empty:
                self._prepare(operation, args, kwargs)
            result = wrapped(*args, **kwargs)
            if operation.topology is not None:
                self._succeeded(operation)
            return result  # noqa: TRY300 - what succeeded is looked at once
        except Exception as error:
            self._failed(operation, error, args, kwargs)
            raise
        finally:
            if operation.is_probing:
                self._memory.release(operation.topology, operation)
            operation.close(token)

    async def asynchronous(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Run one operation of an AsyncMongoClient."""
        operation = AsyncOperation(instance, asyncio.current_task())
        token = None
        try:
            token = CURRENT.set(operation)
            if not self._memory.is_empty:
                self._prepare(operation, args, kwargs)
            result = await wrapped(*args, **kwargs)
            if operation.topology is not None:
                self._succeeded(operation)
            return result  # noqa: TRY300 - what succeeded is looked at once
        except Exception as error:
            self._failed(operation, error, args, kwargs)
            raise
        finally:
            if operation.is_probing:
                self._memory.release(operation.topology, operation)
            operation.close(token)

    def _prepare(self, operation: Operation, args: _Args, kwargs: _Kwargs) -> None:
        # What is not retried must not fail for the sake of a probe.
        operation.may_probe = bool(self._parameters.get("retryable", args, kwargs))

    def _succeeded(self, operation: Operation) -> None:
        try:
            well = operation.server.description.address
            for event in self._memory.judge(
                operation.topology, well, operation.since, operation.suspicions
            ):
                self._observer.report(event)
        except Exception:  # noqa: BLE001 - whatever it is, the operation succeeded
            log_once("What an operation's success says could not be noted")

    def _failed(self, operation: Operation, error: Any, args: _Args, kwargs: _Kwargs) -> None:
        try:
            if not isinstance(error, _errors().PyMongoError):
                return
            if operation.held and error.has_error_label(_OVERLOADED):
                # PyMongo alone sends the last attempts to another mongos, whose answer tells the
                # application to run the transaction again.
                error._add_error_label(_TRANSIENT)
            session = self._parameters.get("session", args, kwargs)
            if session is not None and error.has_error_label(_TRANSIENT):
                failed = _where_it_failed(operation, error)
                if failed:
                    self._memory.ended_transaction(session, failed)
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets PyMongo's error
            log_once("What an operation's error says could not be noted")


def _where_it_failed(operation: Operation, error: Any) -> tuple[Address, ...]:
    """Return the mongoses that an operation's error speaks of."""
    if operation.server is None or _type_of_topology(operation.client) != "Sharded":
        return ()
    of_the_last = (
        isinstance(error, _errors().AutoReconnect)
        or getattr(error, "code", None) in _RETRYABLE_CODES
        or error.has_error_label(_OVERLOADED)
    )
    address = operation.server.description.address
    return (*operation.failed, address) if of_the_last else operation.failed


def _type_of_topology(client: Any) -> str | None:
    topology = client._topology
    return topology and topology._description.topology_type_name  # type: ignore[no-any-return]


def _errors() -> Any:
    # Where there are operations it is imported; this package must not import it by itself.
    return sys.modules["pymongo.errors"]


# -- Attempt: around the selection of each attempt's server ----------------------------------------


class Attempt:
    """Wraps ``_select_server``: a second call in one operation means that the first one failed."""

    def __init__(
        self,
        select_server: Callable[..., Any],
        observer: Observer,
        *,
        retries_on_overload: bool,
    ) -> None:
        """Wrap the attempts of one kind of client.

        :param select_server: the original, for the names of its parameters.
        :param retries_on_overload: whether this PyMongo retries overload errors. It does so in
            mid-transaction too, and outside sharded clusters it retargets if the client opted in.
        """
        self._parameters = Parameters(select_server)
        self._observer = observer
        self._memory = observer.memory
        self._retries_on_overload = retries_on_overload

    def sync(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Select the server of one attempt."""
        operation = CURRENT.get()
        if operation is None or operation.client is not instance or operation.owner != get_ident():
            return wrapped(*args, **kwargs)
        if operation.server is None:
            operation.asked = args[:2]
            if self._memory.is_empty:
                operation.server = server = wrapped(*args, **kwargs)
                return server
        elif not _is_retry(operation, args):
            with _outside_operations():
                return wrapped(*args, **kwargs)
        args, kwargs = self._before(operation, args, kwargs)
        lent = operation.lent
        try:
            operation.server = server = wrapped(*args, **kwargs)
        finally:
            operation.lent = None
        self._after(operation, lent, args, kwargs)
        return server

    async def asynchronous(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Select the server of one attempt of an AsyncMongoClient."""
        operation = CURRENT.get()
        if (
            operation is None
            or operation.client is not instance
            or operation.owner is not operation.here()
        ):
            return await wrapped(*args, **kwargs)
        if operation.server is None:
            operation.asked = args[:2]
            if self._memory.is_empty:
                operation.server = server = await wrapped(*args, **kwargs)
                return server
        elif not _is_retry(operation, args):
            with _outside_operations():
                return await wrapped(*args, **kwargs)
        args, kwargs = self._before(operation, args, kwargs)
        lent = operation.lent
        try:
            operation.server = server = await wrapped(*args, **kwargs)
        finally:
            operation.lent = None
        self._after(operation, lent, args, kwargs)
        return server

    def _before(self, operation: Operation, args: _Args, kwargs: _Kwargs) -> tuple[_Args, _Kwargs]:
        """Lend to selection what it should leave out."""
        try:
            if operation.server is None:
                self._before_first(operation, args, kwargs)
                return args, kwargs
            return self._before_retry(operation, args, kwargs)
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("A selection is left to PyMongo, since what it should leave out is not known")
            return args, kwargs

    def _before_first(self, operation: Operation, args: _Args, kwargs: _Kwargs) -> None:
        """Let the operation begin elsewhere than what is remembered to be sick."""
        if _type_of_topology(operation.client) != "Sharded" or self._is_bound(args, kwargs):
            return
        failed = self._memory.resumes(operation.owner)
        session = self._parameters.get("session", args, kwargs)
        if session is not None and _is_starting_transaction(session):
            failed += self._memory.begins_transaction(session)
        self._lend(operation, failed, prober=operation if operation.may_probe else None)

    def _before_retry(
        self, operation: Operation, args: _Args, kwargs: _Kwargs
    ) -> tuple[_Args, _Kwargs]:
        """Note the failure, and put PyMongo's own list aside."""
        error = _last_error()
        operation.fail(error, suspicious=_speaks_of_the_server(error))
        if _type_of_topology(operation.client) == "Sharded":
            session = self._parameters.get("session", args, kwargs)
            if self._retries_on_overload and session is not None and session.in_transaction:
                args, kwargs = self._in_transaction(operation, session, args, kwargs)
            if not self._is_bound(args, kwargs):
                self._lend(operation, operation.failed)
        elif self._retries_on_overload:
            listed = self._parameters.get("deprioritized_servers", args, kwargs) or ()
            settings = operation.client._topology._settings
            operation.lent = Lent(settings, addresses(listed))
        if "deprioritized_servers" in self._parameters:
            args, kwargs = self._parameters.put("deprioritized_servers", None, args, kwargs)
        return args, kwargs

    def _lend(
        self, operation: Operation, failed: tuple[Address, ...], prober: object = None
    ) -> None:
        topology = operation.client._topology
        operation.topology = topology._settings
        cooling: frozenset[Address] = frozenset()
        probe = None
        if not self._memory.is_empty:
            known = topology._description.server_descriptions()
            plan, events = self._memory.plan(operation.topology, known, prober)
            cooling, probe, operation.since = plan
            operation.is_probing |= probe is not None
            for event in events:
                self._observer.report(event)
        if failed or cooling or probe:
            operation.lent = Lent(operation.topology, failed, cooling, probe)

    def _in_transaction(
        self, operation: Operation, session: Any, args: _Args, kwargs: _Kwargs
    ) -> tuple[_Args, _Kwargs]:
        """Mend what PyMongo does to the pin of a transaction that is refused for overload.

        It keeps the pin of a transaction whose first statement is a read, though nothing has begun
        there, and lets go of it for a write in the middle.
        """
        if _is_starting_transaction(session):
            if operation.client.options.enable_overload_retargeting:
                session._unpin()
        elif self._lost_its_pin(operation, args, kwargs):
            operation.held = True
            args, kwargs = self._parameters.put("address", operation.failed[-1], args, kwargs)
        return args, kwargs

    def _lost_its_pin(self, operation: Operation, args: _Args, kwargs: _Kwargs) -> bool:
        """Tell whether PyMongo let go of the mongos of a transaction in its middle.

        If that mongos is gone, it rightly did: it would be waited for in vain.
        """
        description = operation.client._topology._description
        home = description.server_descriptions().get(operation.failed[-1])
        return (
            not self._is_bound(args, kwargs)
            and self._parameters.get("operation", args, kwargs) not in _ENDS_OF_TRANSACTION
            and home is not None
            and home.is_server_type_known
        )

    def _is_bound(self, args: _Args, kwargs: _Kwargs) -> bool:
        """Tell whether the server is given, by an address or by the session's transaction."""
        session = self._parameters.get("session", args, kwargs)
        address = self._parameters.get("address", args, kwargs)
        return bool(address or (session and session._pinned_address))

    def _after(self, operation: Operation, lent: Lent | None, args: _Args, kwargs: _Kwargs) -> None:
        """Report what was chosen."""
        try:
            chosen = operation.server.description.address
            if lent is not None:
                self._count(operation, lent, chosen)
            if operation.attempts > 1:
                name = self._parameters.get("operation", args, kwargs)
                self._observer.report(
                    Retry(
                        operation=getattr(name, "value", name),
                        attempt=operation.attempts,
                        failed=operation.failed,
                        deprioritized=lent.all if lent is not None else (),
                        chosen=chosen,
                        error=operation.error,
                    )
                )
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("A selection could not be reported")

    def _count(self, operation: Operation, lent: Lent, chosen: Address) -> None:
        if lent.probe is not None and chosen != lent.probe:
            operation.is_probing = False
            self._memory.release(operation.topology, operation)
        probes = int(lent.probe == chosen)
        avoided = int(bool(lent.cooling) and chosen not in lent.cooling)
        if probes or avoided:
            self._observer.count(probes=probes, avoided=avoided)


def _is_retry(operation: Operation, args: _Args) -> bool:
    """Tell a retry, for the same selector and session, from a command that a listener runs."""
    return all(one is other for one, other in zip(operation.asked, args))


def _is_starting_transaction(session: Any) -> bool:
    return session._transaction.state == _STARTING  # type: ignore[no-any-return]


def _last_error() -> BaseException | None:
    """Return what the attempt before failed with, which PyMongo's retry loop keeps to itself.

    Up to 4.5 it is a variable of the loop, from 4.6 on an attribute of what runs the loop.
    """
    here = _last_error.__code__.co_filename
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_code.co_filename == here:
        frame = frame.f_back
    while frame is not None and frame.f_code.co_filename != here:
        variables = (*frame.f_code.co_varnames, *frame.f_code.co_cellvars)
        if "last_error" in variables:
            return frame.f_locals.get("last_error")
        if variables[:1] == ("self",):
            error = getattr(frame.f_locals["self"], "_last_error", None)
            if isinstance(error, BaseException):
                return error
        frame = frame.f_back
    return None


def _speaks_of_the_server(error: BaseException | None) -> bool:
    """Tell what a server or its connection did from a pool of the client's that is exhausted."""
    return isinstance(error, (_errors().AutoReconnect, _errors().OperationFailure))


@contextlib.contextmanager
def _outside_operations() -> Iterator[None]:
    token = CURRENT.set(None)
    try:
        yield
    finally:
        with contextlib.suppress(ValueError):  # as in Operation.close
            CURRENT.reset(token)


# -- Resume: around the resumption of a change stream ----------------------------------------------


class Resume:
    """Wraps ``ChangeStream._resume``: its operation begins on another mongos."""

    def __init__(self, memory: Memory) -> None:
        """Remember where the stream failed, for that long."""
        self._memory = memory

    def sync(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Resume a change stream."""
        with self._memory.resuming(Operation.here(), _address_of_cursor(instance)):
            return wrapped(*args, **kwargs)

    async def asynchronous(self, wrapped: Any, instance: Any, args: _Args, kwargs: _Kwargs) -> Any:
        """Resume a change stream of an AsyncMongoClient."""
        with self._memory.resuming(AsyncOperation.here(), _address_of_cursor(instance)):
            return await wrapped(*args, **kwargs)


def _address_of_cursor(stream: Any) -> Any:
    return getattr(getattr(stream, "_cursor", None), "address", None)


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
            lent: Lent | None = Lent(None, addresses(given))
        else:
            operation = CURRENT.get()
            if operation is None or operation.lent is None:
                return wrapped(*args, **kwargs)
            lent = operation.lent_to(getattr(instance, "_topology_settings", None))
        address = args[1] if len(args) > 1 else kwargs.get("address")
        if lent is None or address or instance.topology_type_name not in _TOPOLOGIES_WITH_A_CHOICE:
            return wrapped(*args, **kwargs)

        def suitable(left_out: frozenset[Address]) -> list[Any]:
            if not left_out:
                return wrapped(*args, **kwargs)  # type: ignore[no-any-return]
            return self._without(left_out, instance, args, kwargs)

        known = {server.address for server in instance.known_servers}
        sharded = instance.topology_type_name == "Sharded"
        servers = select(suitable, lent.failed, known, lent.cooling, sharded=sharded)
        return [server for server in servers if server.address == lent.probe] or servers

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
    operation = kind(topology, kind.here())
    operation.lent = Lent(topology._settings, deprioritized)
    token = CURRENT.set(operation)
    try:
        yield
    finally:
        operation.close(token)


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
