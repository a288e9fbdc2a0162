"""The keeper: a process that starts the servers, and ends them when the program is gone.

The program cannot see to that itself if it is killed. The keeper is small, has no threads and no
terminal; the servers are its children, and the kernel kills them should the keeper be killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from pymongo_deprio.cluster._mongos import Mongos

try:
    import ctypes
except ImportError:  # a Python built without it
    ctypes = None  # type: ignore[assignment]

HOST = "127.0.0.1"

_PR_SET_PDEATHSIG = 1
_BACKLOG = 1024
_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_STOP = 0.5
_LOOKS_FOR_STOP = 500


class Keeper:
    """Does what the program asks over a socket, one JSON document a line."""

    def __init__(self, control: socket.socket, directory: Path, owner: int) -> None:
        """Keep the servers of process `owner`, and their files in `directory`."""
        self._control = control
        self._directory = directory
        self._owner = owner
        self._exit_codes: dict[int, int | None] = {}
        self._held_ports: list[socket.socket] = []

    def run(self) -> None:
        """Serve until the program closes the socket or is gone; then leave nothing behind."""
        self._directory.mkdir(mode=0o700)
        try:
            with contextlib.suppress(ConnectionError):
                self._serve()
        finally:
            for pid in self._exit_codes:
                self._kill(pid)
            shutil.rmtree(self._directory, ignore_errors=True)

    def _serve(self) -> None:
        received = b""
        # A forked child of the program may hold the other end open: so look at the parent as well.
        while os.getppid() == self._owner:
            if not select.select([self._control], [], [], _SECONDS_BETWEEN_LOOKS)[0]:
                continue
            data = self._control.recv(1 << 16)
            if not data:
                return
            *lines, received = (received + data).split(b"\n")
            for line in lines:
                self._control.sendall(json.dumps(self._reply(json.loads(line))).encode() + b"\n")

    def _reply(self, request: dict[str, Any]) -> dict[str, Any]:
        action = getattr(self, f"do_{request['do']}")
        try:
            return {"id": request["id"], **action(**request["with"])}
        except OSError as error:
            return {"id": request["id"], "error": str(error)}

    def do_reserve_port(self) -> dict[str, Any]:
        """Choose a free port and hold it."""
        held = _bound_socket(0)
        port = held.getsockname()[1]
        if sys.platform == "linux":
            # Bound and not listening, it lets a server use the port and keeps strangers off.
            self._held_ports.append(held)
        else:
            held.close()
        return {"port": port}

    def do_spawn(self, argv: list[str], log: str) -> dict[str, Any]:
        """Start a program."""
        with Path(log).open("ab") as output:
            process = subprocess.Popen(  # noqa: S603 - what the program asks for
                argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - there are no threads here
            )
        process.returncode = 0  # it is this class that waits for it
        self._exit_codes[process.pid] = None
        return {"pid": process.pid}

    def do_serve(self, port: int, mongod: tuple[str, int], hello_delay_ms: float) -> dict[str, Any]:
        """Start an emulated mongos, on a port that is held."""
        listener = _bound_socket(port)
        listener.listen(_BACKLOG)
        pid = os.fork()
        if not pid:
            self._become_mongos(listener, mongod, hello_delay_ms)
        listener.close()
        self._exit_codes[pid] = None
        return {"pid": pid}

    def do_signal(self, pid: int, number: int) -> dict[str, Any]:
        """Send a signal to a server; return when a stop or a kill has happened."""
        if self._exit_code(pid) is None:
            os.kill(pid, number)
            if number == signal.SIGKILL:
                self._note(pid, os.waitpid(pid, 0)[1])
            elif number == signal.SIGSTOP:
                self._wait_for_stop(pid)
        return {}

    def _wait_for_stop(self, pid: int) -> None:
        # Bounded, as a process that had been stopped already reports nothing.
        for _ in range(_LOOKS_FOR_STOP):
            changed, status = os.waitpid(pid, os.WUNTRACED | os.WNOHANG)
            if changed:
                self._note(pid, status)
                return
            time.sleep(_SECONDS_FOR_STOP / _LOOKS_FOR_STOP)

    def do_status(self, pid: int) -> dict[str, Any]:
        """Tell whether a server is running."""
        return {"exit_code": self._exit_code(pid)}

    def _become_mongos(
        self, listener: socket.socket, mongod: tuple[str, int], hello_delay_ms: float
    ) -> NoReturn:
        try:
            _die_with_parent()
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self._control.close()
            _allow_many_files()
            Mongos((mongod[0], mongod[1]), hello_delay_ms).serve(listener)
        except Exception:  # noqa: BLE001 - whatever it is, it is shown and ends the process
            sys.excepthook(*sys.exc_info())
        finally:
            # Whatever happens, a child must not go on as a second keeper.
            os._exit(1)

    def _exit_code(self, pid: int) -> int | None:
        if self._exit_codes[pid] is None:
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                self._note(pid, status)
        return self._exit_codes[pid]

    def _note(self, pid: int, status: int) -> None:
        if os.WIFEXITED(status):
            self._exit_codes[pid] = os.WEXITSTATUS(status)
        elif os.WIFSIGNALED(status):
            self._exit_codes[pid] = -os.WTERMSIG(status)

    def _kill(self, pid: int) -> None:
        if self._exit_codes[pid] is None:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)


def _bound_socket(port: int) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((HOST, port))
    except OSError:
        sock.close()
        raise
    return sock


def _die_with_parent() -> None:
    if sys.platform == "linux" and ctypes is not None:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _allow_many_files() -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end_in_order(_signal: int, _frame: object) -> NoReturn:
    raise SystemExit(1)


def main() -> None:
    """Run a keeper whose standard input is the socket to the program."""
    directory, owner = sys.argv[-2:]
    signal.signal(signal.SIGTERM, _end_in_order)
    # A program that ignores its children passes that on, and waitpid would fail.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    Keeper(socket.socket(fileno=0), Path(directory), int(owner)).run()
