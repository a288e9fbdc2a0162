"""Runs commands below ``pymongo-deprio run`` and without it, and asks those that are servers."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import sysconfig
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

from support import wait_until

HERE = Path(__file__).parents[1]
PROJECT = HERE / "integration" / "apps" / "project"
SCRIPTS = Path(sysconfig.get_path("scripts"))
LAUNCHER = [str(SCRIPTS / "pymongo-deprio"), "run", "--"]

REQUESTS = [("GET", "/stock/tea"), ("PUT", "/stock/tea/1"), ("POST", "/paid/none")]


class Results:
    """How many requests each process has answered, and how many failed."""

    def __init__(self) -> None:
        self.answered: Counter[int] = Counter()
        self.failed = 0


class Server(NamedTuple):
    """A server that runs, and its port."""

    process: subprocess.Popen[bytes]
    port: int


def environment(uri: str) -> dict[str, str]:
    """Return the environment in which the project finds the example and its cluster."""
    return {
        **{name: value for name, value in os.environ.items() if "PYTEST" not in name},
        # Under load, round-trip times may differ by more than the default of 15 ms.
        "MONGODB_URI": f"{uri}?localThresholdMS=10000",
        "PYTHONPATH": os.pathsep.join([str(HERE / "examples" / "orders"), str(PROJECT)]),
    }


def python(*arguments: object) -> list[str]:
    """Return the command of this Python."""
    return [sys.executable, *map(str, arguments)]


def program(name: str, *arguments: str) -> list[str]:
    """Return the command of a program of this virtual environment."""
    return [str(SCRIPTS / name), *arguments]


@contextmanager
def serving(command: list[str], env: dict[str, str], folder: Path) -> Iterator[Server]:
    """Run a server until the end of the block, with all that it starts.

    :param command: lacks the address, which is added to it.
    """
    port = _free_port()
    with started([*command, f"127.0.0.1:{port}"], env, folder) as process:
        wait_until(lambda: _listens(process, port), f"port {port}", seconds=30)
        yield Server(process, port)


@contextmanager
def started(
    command: list[str], env: dict[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command until the end of the block, with all that it starts."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, env=env, cwd=folder, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
        process.terminate()
        process.wait(20)
    finally:
        print(log.read_text())  # noqa: T201 - pytest shows it where the test fails
        _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def _listens(process: subprocess.Popen[bytes], port: int) -> bool:
    assert process.poll() is None, f"{process.args!r} has ended"
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def ask(port: int, enough: Callable[[Results], bool]) -> None:
    """Send requests, several at a time, until there are enough of them."""
    results = Results()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(50):
            for process, failed in pool.map(lambda request: _send(port, *request), REQUESTS * 4):
                results.answered[process] += 1
                results.failed += failed
            if enough(results):
                return
    raise AssertionError(f"{results.failed} of {results.answered} failed")


def _send(port: int, method: str, path: str) -> tuple[int, bool]:
    """Return which process answered, and whether the request failed."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    with closing(connection):
        connection.request(method, path)
        reply = connection.getresponse()
        assert reply.status in {200, 503}, reply.read()
        return int(reply.headers["X-Process"]), reply.status == 503
