"""What is put on the seams of PyMongo, sync and async.

One mechanism serves every version: an operation remembers where its attempts failed, and lends that
list to each selection. What newer versions do by themselves is put aside.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Iterator, Protocol

from pymongo_deprio._events import Retry
from pymongo_deprio._inside import (
    OVERLOADED,
    TRANSIENT,
    Args,
    Kwargs,
    Parameters,
    address_of_cursor,
    addresses,
    errors,
    is_starting_transaction,
    last_error,
    log_once,
    may_probe,
    speaks_of_the_server,
    type_of_topology,
    where_it_failed,
    without,
)
from pymongo_deprio._operation import CURRENT, AsyncOperation, Lent, Operation
from pymongo_deprio._selection import select

if TYPE_CHECKING:
    from pymongo_deprio._events import Address, Event
    from pymongo_deprio._memory import Memory
    from pymongo_deprio._patching import Method

# Deprioritization has a meaning where there is a choice: a single server and a load balancer ignore
# it, and in an unknown topology nothing is suitable.
_TOPOLOGIES_WITH_A_CHOICE = ("Sharded", "ReplicaSetWithPrimary", "ReplicaSetNoPrimary")
# Of the commands of a transaction only these may move to another mongos (transactions
# specification, "Sharded Transactions").
_ENDS_OF_TRANSACTION = ("commitTransaction", "abortTransaction")
_NONE: Kwargs = {}

_log = logging.getLogger("pymongo_deprio")


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

        :param loop: the original. It is a method of the client, with parameters, or from 4.6 on of
            an object that holds them.
        """
        self._parameters = Parameters(loop)
        self._is_of_client = "session" in self._parameters
        self._observer = observer
        self._memory = observer.memory

    def sync(self, loop: Method) -> Method:
        """Return what runs one operation."""
        memory = self._memory
        is_of_client = self._is_of_client

        def run(owner: Any, *args: Any, **kwargs: Any) -> Any:
            if is_of_client:
                operation = Operation(owner, get_ident())
            else:
                operation = Operation(owner._client, get_ident(), owner)
            token = None
            try:
                token = CURRENT.set(operation)
                if not memory.is_empty:
                    self._prepare(operation, args, kwargs)
                result = loop(owner, *args, **kwargs)
                if operation.topology is not None:
                    self._succeeded(operation)
                return result  # noqa: TRY300 - what succeeded is looked at once
            except Exception as error:
                self._failed(operation, error, args, kwargs)
                raise
            finally:
                if operation.is_probing:
                    memory.release(operation.topology, operation, failed=True)
                operation.close(token)

        return run

    def asynchronous(self, loop: Method) -> Method:
        """Return what runs one operation of an AsyncMongoClient."""
        memory = self._memory

        async def run(owner: Any) -> Any:
            operation = AsyncOperation(owner._client, asyncio.current_task(), owner)
            token = None
            try:
                token = CURRENT.set(operation)
                if not memory.is_empty:
                    self._prepare(operation)
                result = await loop(owner)
                if operation.topology is not None:
                    self._succeeded(operation)
                return result  # noqa: TRY300 - what succeeded is looked at once
            except Exception as error:
                self._failed(operation, error)
                raise
            finally:
                if operation.is_probing:
                    memory.release(operation.topology, operation, failed=True)
                operation.close(token)

        return run

    def _argument(self, name: str, operation: Operation, args: Args, kwargs: Kwargs) -> Any:
        if self._is_of_client:
            return self._parameters.get(name, args, kwargs)
        return getattr(operation.loop, f"_{name}")

    def _prepare(self, operation: Operation, args: Args = (), kwargs: Kwargs = _NONE) -> None:
        operation.is_beginning = False
        try:
            operation.may_probe = may_probe(
                operation.client,
                self._argument("session", operation, args, kwargs),
                retryable=self._argument("retryable", operation, args, kwargs),
            )
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("An operation does not probe, since it is not known whether it is retried")

    def _succeeded(self, operation: Operation) -> None:
        try:
            well = operation.server.description.address
            # What is not retried may not even be acknowledged: its success proves nothing.
            since = operation.since if operation.may_probe else 0.0
            for event in self._memory.judge(operation.topology, well, since, operation.suspicions):
                self._observer.report(event)
        except Exception:  # noqa: BLE001 - whatever it is, the operation succeeded
            log_once("What an operation's success says could not be noted")

    def _failed(
        self, operation: Operation, error: Any, args: Args = (), kwargs: Kwargs = _NONE
    ) -> None:
        try:
            if not isinstance(error, errors().PyMongoError):
                return
            _learn_server(operation)
            if operation.held and error.has_error_label(OVERLOADED):
                # PyMongo alone sends the last attempts to another mongos, whose answer tells the
                # application to run the transaction again.
                error._add_error_label(TRANSIENT)
            session = self._argument("session", operation, args, kwargs)
            if session is not None and error.has_error_label(TRANSIENT):
                failed = where_it_failed(operation, error)
                if failed:
                    self._memory.ended_transaction(session, failed)
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets PyMongo's error
            log_once("What an operation's error says could not be noted")


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

    def sync(self, select_server: Method) -> Method:
        """Return what selects the server of one attempt."""
        memory = self._memory

        def select(client: Any, *args: Any, **kwargs: Any) -> Any:
            operation = CURRENT.get()
            if (
                operation is None
                or operation.client is not client
                or operation.owner != get_ident()
            ):
                return select_server(client, *args, **kwargs)
            if operation.server is None and operation.loop._last_error is not None:
                _learn_first(operation)
            if operation.server is None:
                operation.asked = args
                if memory.is_empty:
                    operation.server = server = select_server(client, *args, **kwargs)
                    operation.is_beginning = False
                    return server
            elif not _is_retry(operation, args):
                with _outside_operations():
                    return select_server(client, *args, **kwargs)
            operation.is_beginning = False
            args, kwargs = self._before(operation, args, kwargs)
            lent = operation.lent
            try:
                operation.server = server = select_server(client, *args, **kwargs)
            finally:
                operation.lent = None
            self._after(operation, lent, args, kwargs)
            return server

        return select

    def asynchronous(self, select_server: Method) -> Method:
        """Return what selects the server of one attempt of an AsyncMongoClient."""

        async def select(client: Any, *args: Any, **kwargs: Any) -> Any:
            operation = CURRENT.get()
            if (
                operation is None
                or operation.client is not client
                or operation.owner is not operation.here()
            ):
                return await select_server(client, *args, **kwargs)
            if operation.server is None and operation.loop._last_error is not None:
                _learn_first(operation)
            if operation.server is None:
                operation.asked = args
            elif not _is_retry(operation, args):
                with _outside_operations():
                    return await select_server(client, *args, **kwargs)
            operation.is_beginning = False
            args, kwargs = self._before(operation, args, kwargs)
            lent = operation.lent
            try:
                operation.server = server = await select_server(client, *args, **kwargs)
            finally:
                operation.lent = None
            self._after(operation, lent, args, kwargs)
            return server

        return select

    def _before(self, operation: Operation, args: Args, kwargs: Kwargs) -> tuple[Args, Kwargs]:
        """Lend to selection what it should leave out."""
        try:
            if operation.server is None:
                self._before_first(operation, args, kwargs)
                return args, kwargs
            return self._before_retry(operation, args, kwargs)
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("A selection is left to PyMongo, since what it should leave out is not known")
            return args, kwargs

    def _before_first(self, operation: Operation, args: Args, kwargs: Kwargs) -> None:
        """Let the operation begin elsewhere than what is remembered to be sick."""
        if type_of_topology(operation.client) != "Sharded" or self._is_bound(args, kwargs):
            return
        failed = self._memory.resumes(operation.owner)
        session = self._parameters.get("session", args, kwargs)
        if session is not None and is_starting_transaction(session):
            failed += self._memory.begins_transaction(session)
        self._lend(operation, failed, prober=operation if operation.may_probe else None)

    def _before_retry(
        self, operation: Operation, args: Args, kwargs: Kwargs
    ) -> tuple[Args, Kwargs]:
        """Note the failure, and put PyMongo's own list aside."""
        error = last_error()
        operation.fail(error, suspicious=speaks_of_the_server(error))
        if type_of_topology(operation.client) == "Sharded":
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
            plan, events = self._memory.plan(
                operation.topology, known, prober, is_retry=operation.server is not None
            )
            cooling, probe, operation.since = plan
            operation.is_probing |= probe is not None
            for event in events:
                self._observer.report(event)
        if failed or cooling or probe:
            operation.lent = Lent(operation.topology, failed, cooling, probe)

    def _in_transaction(
        self, operation: Operation, session: Any, args: Args, kwargs: Kwargs
    ) -> tuple[Args, Kwargs]:
        """Mend what PyMongo does to the pin of a transaction that is refused for overload.

        It keeps the pin of a transaction whose first statement is a read, though nothing has begun
        there, and lets go of it for a write in the middle.
        """
        if is_starting_transaction(session):
            if operation.client.options.enable_overload_retargeting:
                # As its _unpin does, which is a coroutine for AsyncMongoClient.
                session._transaction.pinned_address = None
        elif self._lost_its_pin(operation, args, kwargs):
            operation.held = True
            args, kwargs = self._parameters.put("address", operation.failed[-1], args, kwargs)
        return args, kwargs

    def _lost_its_pin(self, operation: Operation, args: Args, kwargs: Kwargs) -> bool:
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

    def _is_bound(self, args: Args, kwargs: Kwargs) -> bool:
        """Tell whether the server is given, by an address or by the session's transaction."""
        session = self._parameters.get("session", args, kwargs)
        address = self._parameters.get("address", args, kwargs)
        return bool(address or (session and session._pinned_address))

    def _after(self, operation: Operation, lent: Lent | None, args: Args, kwargs: Kwargs) -> None:
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


def is_first_attempt() -> bool:
    """Tell whether there is nothing to do: from 4.6 on, where it went can be learned later."""
    operation = CURRENT.get()
    return operation is None or (operation.is_beginning and operation.loop._last_error is None)


def _learn_first(operation: Operation) -> None:
    """Look up where the first attempt went, during which the wrapper slept."""
    _learn_server(operation)
    names = ("_server_selector", "_session", "_operation")  # the last from 4.7 on
    loop = operation.loop
    operation.asked = tuple(getattr(loop, name) for name in names if hasattr(loop, name))


def _learn_server(operation: Operation) -> None:
    if operation.server is None:
        operation.server = operation.loop._server


def _is_retry(operation: Operation, args: Args) -> bool:
    """Tell a retry, for the same selector and session, from a command that a listener runs.

    From 4.7 on the operation's name stands third: a listener may use the same session.
    """
    return all(one is other for one, other in zip(operation.asked[:3], args))


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
            with self._memory.resuming(Operation.here(), failed):
                return create_cursor(stream, *args, **kwargs)

        return create

    def asynchronous(self, create_cursor: Method) -> Method:
        """Return what creates the cursor of a change stream of an AsyncMongoClient."""

        async def create(stream: Any, *args: Any, **kwargs: Any) -> Any:
            failed = address_of_cursor(stream)
            if failed is None:
                return await create_cursor(stream, *args, **kwargs)
            with self._memory.resuming(AsyncOperation.here(), failed):
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


def is_selecting() -> bool:
    """Tell whether a first selection is under way, which has nothing to leave out."""
    operation = CURRENT.get()
    return operation is not None and operation.is_beginning and operation.loop._server is None


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
    operation = CURRENT.get()
    if operation is None or operation.lent is None:
        return args, kwargs, None
    return args, kwargs, operation.lent_to(getattr(description, "_topology_settings", None))


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
            with _lent(Operation, topology, deprioritized):
                return select(topology, *args, **kwargs)

        return lend

    def asynchronous(self, select: Method) -> Method:
        """Return what does the same for a topology of an AsyncMongoClient."""

        async def lend(topology: Any, *args: Any, **kwargs: Any) -> Any:
            deprioritized, args, kwargs = self._take(args, kwargs)
            if not deprioritized:
                return await select(topology, *args, **kwargs)
            with _lent(AsyncOperation, topology, deprioritized):
                return await select(topology, *args, **kwargs)

        return lend

    def _take(self, args: Args, kwargs: Kwargs) -> tuple[tuple[Address, ...], Args, Kwargs]:
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
    operation.is_beginning = False
    operation.lent = Lent(topology._settings, deprioritized)
    token = CURRENT.set(operation)
    try:
        yield
    finally:
        operation.close(token)
