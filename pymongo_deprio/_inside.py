"""What is read inside PyMongo: arguments, errors, transactions and addresses.

Its private names are known here, and where it is wrapped.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import inspect
import logging
import sys
from inspect import Parameter
from typing import TYPE_CHECKING, Any, Iterable

if TYPE_CHECKING:
    from types import CodeType, FrameType

    from pymongo_deprio._events import Address
    from pymongo_deprio._operation import Operation

TRANSIENT = "TransientTransactionError"
OVERLOADED = "SystemOverloadedError"
# _TxnState.NONE and STARTING, the same on every version.
_NO_TRANSACTION = 1
_STARTING = 2
# Source: the specification of retryable reads, "Retryable Error".
_RETRYABLE_CODES = frozenset([6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436])

_log = logging.getLogger("pymongo_deprio")


class Parameters:
    """The parameters of a method of PyMongo, read once: they moved between versions."""

    def __init__(self, function: Any) -> None:
        try:
            parameters = list(inspect.signature(function).parameters.values())[1:]
        except (TypeError, ValueError):  # nothing that tells its parameters
            parameters = []
        kinds = {parameter.kind for parameter in parameters}
        self.are_all = not kinds & {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        """Whether nothing else can be given: a wrapper may hide what it passes on."""
        self.names = tuple(
            parameter.name
            for parameter in parameters
            if parameter.kind not in {Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD}
        )


def where_it_failed(operation: Operation, error: Any) -> tuple[Address, ...]:
    """Return the mongoses that an operation's error speaks of."""
    if operation.server is None or type_of_topology(operation.client) != "Sharded":
        return ()
    cause = _cause(error)
    of_the_last = (
        isinstance(cause, errors().AutoReconnect)
        or getattr(cause, "code", None) in _RETRYABLE_CODES
        or error.has_error_label(OVERLOADED)
    )
    address = operation.server.description.address
    return (*operation.failed, address) if of_the_last else operation.failed


def may_probe(client: Any, session: Any, *, retryable: object) -> bool:
    """Tell whether PyMongo would retry an operation that has nothing to do with a transaction.

    :param retryable: what the retry loop is told. Up to 4.5 it looks further by itself.
    """
    options = getattr(client, "_MongoClient__options", None)
    return (
        bool(retryable)
        and (session is None or session._transaction.state == _NO_TRANSACTION)
        and (options is None or (options.retry_reads and options.retry_writes))
    )


def type_of_topology(client: Any) -> str | None:
    """Return what a client knows its servers to be; None before it knows any."""
    topology = client._topology
    return topology and topology._description.topology_type_name  # type: ignore[no-any-return]


def errors() -> Any:
    """Return PyMongo's errors: where there are operations, they are imported."""
    return sys.modules["pymongo.errors"]


def is_starting_transaction(session: Any) -> bool:
    """Tell whether a session is in a transaction that has sent nothing yet."""
    return session._transaction.state == _STARTING  # type: ignore[no-any-return]


def last_error() -> BaseException | None:
    """Return what the attempt before failed with, up to 4.5: a variable of PyMongo's retry loop.

    None if it is not a loop that selects a server here, but another method of the client.
    """
    frame: FrameType | None = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != "pymongo.mongo_client":
        frame = frame.f_back
    return None if frame is None else frame.f_locals.get("last_error")


def locals_of_caller(code: CodeType | None, **known: object) -> dict[str, Any]:
    """Return the variables of a caller that runs this code and has these among them.

    Of several it is the outermost: others are those of wrappers that are off, below somebody's.
    """
    outermost: dict[str, Any] = {}
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_code is code:
            found = frame.f_locals
            if all(found.get(name) is value for name, value in known.items()):
                outermost = found
        frame = frame.f_back
    return outermost


def current_task() -> int:
    """Return a number that is the task's own while it lives, as an identifier is a thread's.

    :raises RuntimeError: outside an event loop.
    """
    return id(asyncio.current_task())


def speaks_of_the_server(error: BaseException | None) -> bool:
    """Tell what a server or its connection did from a pool of the client's that is exhausted."""
    return isinstance(_cause(error), (errors().AutoReconnect, errors().OperationFailure))


def _cause(error: Any) -> Any:
    """Return the error that a bulk write of a client wraps, or the error itself."""
    cause = getattr(error, "error", None)
    return cause if isinstance(cause, errors().PyMongoError) else error


def address_of_cursor(stream: Any) -> Any:
    """Return the server of a change stream's last cursor; None before the first."""
    return getattr(getattr(stream, "_cursor", None), "address", None)


def without(description: Any, left_out: frozenset[Address]) -> Any:
    """Return a copy of a topology description that lacks some servers."""
    reduced = copy.copy(description)
    # There may be a hundred servers, and what is left out are few.
    reduced._server_descriptions = servers = dict(description._server_descriptions)
    for address in left_out:
        servers.pop(address, None)
    return reduced


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
