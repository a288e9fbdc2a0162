"""Administrative commands over a connection of their own, and the fail points set with them.

They do not go through PyMongo: whatever is tried out on PyMongo must not get in their way.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Callable, Mapping, Sequence, Tuple

import bson

from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._errors import (
    ClusterError,
    CommandFailedError,
    ServerUnreachableError,
)

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

Address = Tuple[str, int]

COMMAND_SECONDS = 5.0

_EFFECTS = ("error_code", "close_connection", "block_connection", "write_concern_error")
_FIELDS = {
    "error_code": "errorCode",
    "error_labels": "errorLabels",
    "close_connection": "closeConnection",
    "block_connection": "blockConnection",
    "block_time_ms": "blockTimeMS",
    "write_concern_error": "writeConcernError",
    "app_name": "appName",
}


def run_command(
    address: Address,
    command: Mapping[str, Any],
    *,
    database: str = "admin",
    timeout: float = COMMAND_SECONDS,
) -> dict[str, Any]:
    """Run a command on one server, over a new connection.

    Waits at most `timeout` seconds for each answer of the network. Raises `CommandFailedError` if
    the server answers with an error and `ServerUnreachableError` if it does not answer.
    """
    return checked(
        address, command, _exchange(address, bson.encode({**command, "$db": database}), timeout)
    )


def checked(address: Address, command: Mapping[str, Any], reply: dict[str, Any]) -> dict[str, Any]:
    """Give a reply back, or raise `CommandFailedError` if it is an error."""
    if reply.get("ok") != 1:
        name = next(iter(command))
        raise CommandFailedError(
            f"{name} on {address_name(address)} failed: {reply.get('errmsg')}"
            f" (code {reply.get('code')}, {reply.get('codeName')})",
            reply,
        )
    return reply


def _exchange(address: Address, document: bytes, timeout: float) -> dict[str, Any]:
    try:
        with socket.create_connection(address, timeout) as sock:
            stream = wire.Stream(sock)
            stream.send(wire.encode_msg(document))
            message = stream.receive()
        if message is None:
            raise ConnectionError("the connection was closed without a reply")
        return wire.decode(wire.OpMsg.parse(message).body)
    except (OSError, wire.ProtocolError) as error:
        raise ServerUnreachableError(f"{address_name(address)} does not answer: {error}") from error


def address_name(address: Address) -> str:
    """Give an address as connection strings show it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


class Restore:
    """Undoes something at the end of a `with` block, or when called; only once.

    An error of the block is never replaced by an error of undoing.
    """

    def __init__(self, undo: Callable[[], None]) -> None:
        """Keep what undoes it."""
        self._undo: Callable[[], None] | None = undo

    def __call__(self) -> None:
        """Undo it now, if that has not happened yet."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo()

    def __enter__(self) -> Self:
        """Begin a block at whose end it is undone."""
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Undo it."""
        try:
            self()
        except ClusterError:
            if exc is None:
                raise


def fail_command_document(
    commands: str | Sequence[str],
    *,
    mode: str | Mapping[str, Any] | None = None,
    times: int | None = None,
    skip: int | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Make the `configureFailPoint` command that switches on `failCommand`.

    See `Mongos.fail_command` for the arguments.
    """
    names = [commands] if isinstance(commands, str) else list(commands)
    if not names:
        raise ValueError(f"commands must name a command to fail, not {commands!r}")
    if options.get("block_time_ms") is not None and options.get("block_connection") is None:
        options["block_connection"] = True
    if mode != "off" and not any(options.get(effect) for effect in _EFFECTS):
        raise ValueError(
            f"nothing would be done to {commands!r}: give an error_code, close_connection, "
            "block_time_ms or write_concern_error"
        )
    data = {_FIELDS[name]: value for name, value in options.items() if value is not None}
    return {
        "configureFailPoint": "failCommand",
        "mode": _mode(mode, times, skip),
        "data": {"failCommands": names, **data},
    }


def _mode(
    mode: str | Mapping[str, Any] | None, times: int | None, skip: int | None
) -> str | Mapping[str, Any]:
    given = [
        value
        for value in (
            mode,
            None if times is None else {"times": times},
            None if skip is None else {"skip": skip},
        )
        if value is not None
    ]
    if len(given) > 1:
        raise ValueError(f"give one of mode, times and skip: {mode=}, {times=}, {skip=}")
    return given[0] if given else "alwaysOn"
