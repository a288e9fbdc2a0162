"""What every kind of cluster offers, whoever starts it."""

from __future__ import annotations

from typing import (
    TYPE_CHECKING,
    Any,
    ContextManager,
    Mapping,
    Protocol,
    Sequence,
    runtime_checkable,
)

if TYPE_CHECKING:
    from types import TracebackType

    from pymongo import MongoClient
    from typing_extensions import Self

    from pymongo_deprio.cluster._admin import Address


@runtime_checkable
class Mongos(Protocol):
    """One mongos: where it is, and what can be done to it.

    What changes a mongos does so at once, and returns a context manager that changes it back at
    the end of its block.
    """

    @property
    def address(self) -> Address:
        """Host and port, as PyMongo's events and descriptions give them."""

    @property
    def uri(self) -> str:
        """A connection string for this mongos alone."""

    def client(self, **options: Any) -> MongoClient[Any]:
        """Make a client that knows this mongos only; `options` are those of `MongoClient`."""

    def fail_command(
        self,
        commands: str | Sequence[str],
        *,
        mode: str | Mapping[str, Any] | None = None,
        times: int | None = None,
        skip: int | None = None,
        error_code: int | None = None,
        error_labels: Sequence[str] | None = None,
        close_connection: bool | None = None,
        block_connection: bool | None = None,
        block_time_ms: int | None = None,
        write_concern_error: Mapping[str, Any] | None = None,
        app_name: str | None = None,
    ) -> ContextManager[Any]:
        """Switch on the `failCommand` fail point here; its block's end switches it off."""

    def pause(self) -> ContextManager[Any]:
        """Make it hang: connections stay open and new ones are accepted, but nothing answers."""

    def resume(self) -> None:
        """Let it go on after `pause`."""

    def kill(self) -> ContextManager[Any]:
        """End it at once: its connections break and new ones are refused."""

    def start(self) -> None:
        """Start it again after `kill`, on the same port, and wait until it answers."""


@runtime_checkable
class Cluster(Protocol):
    """A sharded cluster with one mongos or more."""

    @property
    def uri(self) -> str:
        """A connection string that names all mongoses."""

    @property
    def mongos(self) -> Sequence[Mongos]:
        """The mongoses, in the order of `uri`."""

    def __enter__(self) -> Self:
        """Make the cluster ready for use."""

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Clean up."""

    def client(self, **options: Any) -> MongoClient[Any]:
        """Make a client that knows all mongoses; `options` are those of `MongoClient`."""
