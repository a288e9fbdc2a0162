"""What every kind of cluster offers, and does alike."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Callable, Collection, Mapping, Sequence

from pymongo import MongoClient

from pymongo_deprio.cluster._admin import (
    Address,
    Restore,
    address_name,
    fail_command_document,
    run_command,
)
from pymongo_deprio.cluster._errors import ClusterError, ClusterStateError, CommandFailedError

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

CONNECT_SECONDS = 30.0

_SECONDS_BETWEEN_LOOKS = 0.005
_COMMAND_NOT_FOUND = 59

FAIL_POINT_OFF = {"configureFailPoint": "failCommand", "mode": "off"}


class FailPoint(Restore):
    """A fail point that is switched on, until the end of its block or a call: `fail_point()`.

    `hits` is how many commands it met, known once it is off; None if that could not be learned.
    """

    hits: int | None = None


class Mongos(ABC):
    """One mongos: where it is, and what can be done to it.

    What changes a mongos does so at once, and returns a context manager that changes it back at
    the end of its block. Doing what is done already changes nothing.
    """

    def __init__(self, hello_delay_ms: float = 0) -> None:
        """Begin without fail points; the cluster does this."""
        self._hello_delay_ms = hello_delay_ms
        self._fail_point: FailPoint | None = None
        self._kills = 0
        self._on_resume: list[Callable[[], None]] = []

    def __repr__(self) -> str:
        """Show address and state."""
        return f"<{type(self).__name__} {address_name(self.address)} {self.state}>"

    @property
    @abstractmethod
    def address(self) -> Address:
        """Host and port, as PyMongo's events and descriptions give them."""

    @property
    @abstractmethod
    def state(self) -> str:
        """Either `running`, `paused` or `killed`."""

    @property
    def uri(self) -> str:
        """A connection string for this mongos alone."""
        return uri_of([self.address])

    def client(self, **options: Any) -> MongoClient[Any]:
        """Make a client that knows this mongos only; `options` are those of `MongoClient`.

        It is returned once it has found the mongos, if that is running. Close it after use.
        """
        return connect(self.uri, [self], options)

    def command(self, command: str | Mapping[str, Any]) -> dict[str, Any]:
        """Run a command on the `admin` database, over a connection of its own; give the reply.

        Raises `CommandFailedError` for an error reply, `ServerUnreachableError` for none in five
        seconds, and `ClusterStateError` while the mongos is paused or killed.
        """
        if self.state != "running":
            raise ClusterStateError(f"{self!r} does not answer")
        return self._run_command({command: 1} if isinstance(command, str) else command)

    def _run_command(self, command: Mapping[str, Any], database: str = "admin") -> dict[str, Any]:
        return run_command(self.address, command, database=database)

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
    ) -> FailPoint:
        """Switch on the `failCommand` fail point here; its block's end switches it off.

        There is one `failCommand` on a mongos: setting it again replaces what was set before.

        Parameters are those of the fail point:

        - `commands`: names of the commands to fail, or one name
        - `mode` (`"alwaysOn"`, the default, or a document), `times` (only so many commands) or
          `skip` (all but the first so many); at most one of the three
        - `error_code`: what to answer; `error_labels`: on it instead of the automatic labels
        - `close_connection`: close the connection instead of answering
        - `block_time_ms`: hold the command for so many milliseconds first (this implies
          `block_connection`)
        - `write_concern_error`: execute the command and add this document to its reply
        - `app_name`: only for clients with this `appName`

        The mongos does not check the commands' names: a misspelt one is never hit. Raises
        `CommandFailedError` if the mongos refuses it, as one without `enableTestCommands` does,
        `ServerUnreachableError` if it does not answer, `ClusterStateError` if `delay_hello` needs
        the fail point, and `ValueError` for more than one mode, no command, or nothing to be done
        to it.
        """
        document = fail_command_document(
            commands,
            mode=mode,
            times=times,
            skip=skip,
            error_code=error_code,
            error_labels=error_labels,
            close_connection=close_connection,
            block_connection=block_connection,
            block_time_ms=block_time_ms,
            write_concern_error=write_concern_error,
            app_name=app_name,
        )
        return self._switch_on(document)

    def _switch_on(self, document: Mapping[str, Any]) -> FailPoint:
        before = self._configure(document)["count"]
        kills = self._kills

        def switch_off() -> None:
            fail_point.hits = self.command(FAIL_POINT_OFF)["count"] - before

        def end() -> None:
            if self._fail_point is fail_point:
                self._fail_point = None
            if self._kills == kills:  # otherwise it ended with the process
                self._when_running(switch_off)

        fail_point = FailPoint(end)
        self._fail_point = None if document["mode"] == "off" else fail_point
        return fail_point

    def _configure(self, document: Mapping[str, Any]) -> dict[str, Any]:
        try:
            return self.command(document)
        except CommandFailedError as error:
            if error.code != _COMMAND_NOT_FOUND:
                raise
            raise CommandFailedError(
                f"{address_name(self.address)} has no fail points, as it runs without test"
                " commands: start each mongos with --setParameter enableTestCommands=1",
                error.details,
            ) from error

    def _when_running(self, action: Callable[[], None]) -> None:
        if self.state == "paused":
            self._on_resume.append(action)
        elif self.state == "running":
            action()

    def delay_hello(self, milliseconds: float) -> Restore:
        """Answer hello and isMaster so much later; 0 at once.

        PyMongo measures a server's round-trip time by hello. It averages, so the new time shows
        in a new client, or after some heartbeats. Raises `ValueError` for a negative number.

        But for a `LocalMongos` this takes the mongos's one `failCommand`. It cannot be combined
        with `fail_command` there: what comes second raises `ClusterStateError`.
        """
        if milliseconds < 0:
            raise ValueError(f"milliseconds must not be negative, not {milliseconds!r}")
        before = self._hello_delay_ms
        self._send_hello_delay(milliseconds)
        self._hello_delay_ms = milliseconds
        return Restore(lambda: self._delay_hello_again(before))

    def _delay_hello_again(self, milliseconds: float) -> None:
        self._hello_delay_ms = milliseconds
        self._when_running(lambda: self._send_hello_delay(milliseconds))

    @abstractmethod
    def _send_hello_delay(self, milliseconds: float) -> None:
        """Tell it to answer hello so much later."""

    @abstractmethod
    def pause(self) -> Restore:
        """Make it hang: connections stay open and new ones are accepted, but nothing answers."""

    @abstractmethod
    def resume(self) -> None:
        """Let it go on after `pause`."""

    @abstractmethod
    def kill(self) -> Restore:
        """End it at once: its connections break and new ones are refused. Its port is kept."""

    @abstractmethod
    def start(self) -> None:
        """Start it again after `kill`, on the same port, and wait until it answers.

        It has forgotten fail points, cursors and transactions, but keeps its hello delay. Raises
        `ServerUnreachableError` if it does not answer.
        """


class OwnMongos(Mongos):
    """A mongos whose process belongs to its cluster."""

    def pause(self) -> Restore:
        self._must_not_be_killed()
        if self.state == "running":
            self._stop_process()
        return Restore(self._resume_if_paused)

    def resume(self) -> None:
        self._must_not_be_killed()
        if self.state == "paused":
            self._continue_process()
        while self._on_resume:
            self._on_resume.pop(0)()

    def _resume_if_paused(self) -> None:
        if self.state == "paused":
            self.resume()

    def kill(self) -> Restore:
        if self.state != "killed":
            self._kill_process()
            self._kills += 1
            self._fail_point = None
            self._on_resume.clear()
        return Restore(self._start_if_possible)

    def start(self) -> None:
        if self.state == "killed":
            self._start_process()

    def _must_not_be_killed(self) -> None:
        if self.state == "killed":
            raise ClusterStateError(f"{self!r} is not running: start() it first")

    @abstractmethod
    def _stop_process(self) -> None: ...

    @abstractmethod
    def _continue_process(self) -> None: ...

    @abstractmethod
    def _kill_process(self) -> None: ...

    @abstractmethod
    def _start_process(self) -> None:
        """Start it and wait until it answers."""

    @abstractmethod
    def _start_if_possible(self) -> None:
        """Start it, unless its cluster is gone."""


class Cluster(ABC):
    """A sharded cluster with one mongos or more, to be used in its `with` block, once."""

    def __init__(self) -> None:
        """Prepare; nothing is started or contacted."""
        self._running = False
        self._entered = False
        self._owner = 0

    def __enter__(self) -> Self:
        """Make the cluster ready for use.

        Raises a `ClusterError` that says why if that fails, and `ClusterStateError` if this cluster
        was entered before.
        """
        if self._entered:
            raise ClusterStateError(f"a {type(self).__name__} is entered once: make another one")
        self._entered = True
        self._owner = os.getpid()
        try:
            self._open()
        except BaseException as error:
            self._close_after(error)
            raise
        self._running = True
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Leave nothing behind. A forked child leaves that to its parent."""
        self._running = False
        self._close_after(exc)

    def _close_after(self, error: BaseException | None) -> None:
        if os.getpid() != self._owner:
            return
        try:
            self._close()
        except ClusterError:
            if error is None:
                raise

    @abstractmethod
    def _open(self) -> None:
        """Make the cluster ready; `_close` is called also if this fails."""

    @abstractmethod
    def _close(self) -> None: ...

    def _must_be_running(self) -> None:
        if not self._running:
            when = "no longer running" if self._entered else "not running yet"
            name = type(self).__name__
            raise ClusterStateError(f"this {name} is {when}: use it in its with block")

    @property
    @abstractmethod
    def mongos(self) -> Sequence[Mongos]:
        """The mongoses, in the order of `uri`."""

    @property
    def uri(self) -> str:
        """A connection string that names all mongoses."""
        return uri_of([mongos.address for mongos in self.mongos])

    def client(self, **options: Any) -> MongoClient[Any]:
        """Make a client that knows all mongoses; `options` are those of `MongoClient`.

        It is returned once it has found all mongoses that are running; with `connect=False` at
        once. Raises `ClusterError` if it does not find them in 30 seconds. Close it after use.
        """
        return connect(self.uri, self.mongos, options)


def check_number(mongos: object) -> None:
    """Raise `ValueError` unless this can be a number of mongoses."""
    if isinstance(mongos, bool) or not isinstance(mongos, int) or mongos < 1:
        raise ValueError(f"mongos must be a whole number from 1 on, not {mongos!r}")


def uri_of(addresses: Sequence[Address]) -> str:
    """Give the connection string of servers that ask for no credentials."""
    return f"mongodb://{','.join(map(address_name, addresses))}/"


def connect(uri: str, servers: Collection[Mongos], options: Mapping[str, Any]) -> MongoClient[Any]:
    """Make a client, and wait until it has found these servers, those that are running."""
    client: MongoClient[Any] = MongoClient(uri, **options)
    if options.get("connect") is False:
        return client
    try:
        _wait_for_servers(client, servers)
    except BaseException:
        client.close()
        raise
    return client


def _wait_for_servers(client: MongoClient[Any], servers: Collection[Mongos]) -> None:
    deadline = time.monotonic() + CONNECT_SECONDS
    expected = {server.address for server in servers if server.state == "running"}
    while not expected <= client.nodes:
        if time.monotonic() > deadline:
            missing = sorted(expected - client.nodes)
            raise ClusterError(f"the client did not find these mongoses: {missing}")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
