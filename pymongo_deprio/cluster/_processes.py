"""The program's side of the keeper, which starts and ends the servers."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Sequence

import bson

from pymongo_deprio.cluster._errors import ClusterError, ClusterStateError

if TYPE_CHECKING:
    import signal

_ANSWER_SECONDS = 30.0
_END_SECONDS = 10.0

# Importing the packages in the usual way would import PyMongo, which takes longer than all the
# rest, and whatever patches it. The keeper needs none of that, only the modules beside it.
_BOOT = """
import sys, types
directory, bson_directory, name = sys.argv[1:4]
parent = name.partition(".")[0]
for package in (parent, name):
    sys.modules[package] = types.ModuleType(package)
    sys.modules[package].__path__ = [directory] if package == name else []
sys.path.append(bson_directory)
import importlib
importlib.import_module(name + "._keeper").main()
"""


class Processes:
    """The servers of one cluster, and their directory."""

    def __init__(self) -> None:
        """Prepare; nothing is started and nothing is written."""
        name = f"pymongo_deprio-{uuid.uuid4().hex[:12]}"
        self.directory = Path(tempfile.gettempdir()) / name
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._ids = itertools.count(1)
        self._received = b""
        self._socket: socket.socket | None = None
        self._keeper: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the keeper.

        Raises `ClusterError` where processes cannot be forked.
        """
        if os.name != "posix":
            raise ClusterError(f"a LocalCluster needs Linux or macOS, not {sys.platform}")
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(_ANSWER_SECONDS)
        here, there = Path(__file__).parent, Path(bson.__file__).parent.parent
        arguments = [here, there, __package__, self.directory, self._owner]
        with theirs:
            self._keeper = subprocess.Popen(  # noqa: S603 - this Python, and our own module
                [sys.executable, "-I", "-S", "-c", _BOOT, *map(str, arguments)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
            )

    def close(self) -> None:
        """End all servers and remove the directory; in a forked child, do nothing."""
        if os.getpid() != self._owner:
            return
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # More than close: forked children may hold copies of it.
                self._socket.shutdown(socket.SHUT_RDWR)
            self._socket.close()
            self._socket = None
        if self._keeper is not None:
            self._wait_for(self._keeper)

    def _wait_for(self, keeper: subprocess.Popen[bytes]) -> None:
        try:
            keeper.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            keeper.kill()
            keeper.wait()
        # Usually it is gone already; not if someone killed the keeper.
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def running(self) -> bool:
        """Whether the servers have been started and not ended."""
        return self._socket is not None

    def reserve_port(self) -> int:
        """Choose a free port on the loopback address, and keep others off it."""
        return int(self._ask("reserve_port")["port"])

    def spawn(self, argv: Sequence[str], log: Path) -> int:
        """Start a program whose output goes to `log`; give its process id."""
        return int(self._ask("spawn", argv=list(argv), log=str(log))["pid"])

    def serve(self, port: int, mongod: tuple[str, int], hello_delay_ms: float) -> int:
        """Start an emulated mongos on a reserved port; give its process id."""
        answer = self._ask("serve", port=port, mongod=mongod, hello_delay_ms=hello_delay_ms)
        return int(answer["pid"])

    def signal(self, pid: int, number: signal.Signals) -> None:
        """Send a signal to a server, if it is still running."""
        self._ask("signal", pid=pid, number=int(number))

    def exit_code(self, pid: int) -> int | None:
        """Give a server's exit code, minus the signal if one killed it; None while it runs."""
        code = self._ask("status", pid=pid)["exit_code"]
        return None if code is None else int(code)

    def _ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        if os.getpid() != self._owner:
            raise ClusterStateError(
                f"this cluster belongs to process {self._owner}; a forked child can use its"
                " servers, but not start, pause or end them"
            )
        with self._lock:
            answer = self._exchange({"do": action, "with": arguments, "id": next(self._ids)})
        if "error" in answer:
            raise ClusterError(f"cannot {action.replace('_', ' ')}: {answer['error']}")
        return answer

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        if self._socket is None:
            raise ClusterStateError("the cluster is not running")
        try:
            self._socket.sendall(json.dumps(request).encode() + b"\n")
            while True:
                answer: dict[str, Any] = json.loads(self._line(self._socket))
                # An interrupted request leaves its answer behind.
                if answer["id"] == request["id"]:
                    return answer
        except OSError as error:
            raise ClusterError(f"the process that keeps the cluster's servers: {error}") from error

    def _line(self, sock: socket.socket) -> bytes:
        while b"\n" not in self._received:
            data = sock.recv(1 << 16)
            if not data:
                raise ConnectionError("it has ended")
            self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line
