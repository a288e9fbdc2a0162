"""The stack of docker-compose.yml under a project name of its own, as long as a program runs."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Mapping, NamedTuple, Sequence

from pymongo_deprio.cluster import _guard
from pymongo_deprio.cluster._errors import ClusterError

HOST = "127.0.0.1"
DEFAULT_HOST = "unix:///var/run/docker.sock"

_FILE = "docker-compose.yml"
# Below those that the systems hand out by themselves: after a kill nobody gets one by chance.
_PORTS = range(20_000, 32_768)
_GUARD_GONE = "the process that runs Docker Compose is gone"
_DOWN = ("down", "--volumes", "--remove-orphans", "--timeout", "0")


class Done(NamedTuple):
    """How a command ended: its exit code, None if its time was up, and what it wrote."""

    code: int | None
    output: str


class Stack:
    """One project of Docker Compose. The guard takes it down, also if the program is killed."""

    def __init__(self, compose: Sequence[str], image: str) -> None:
        """Start the guard, and nothing else. `compose` is the command of Docker Compose."""
        self.project = f"pymongo_deprio-{uuid.uuid4().hex[:12]}"
        self._command = [*compose, "--project-name", self.project, "--file", str(compose_file())]
        self._environment = _environment(image)
        self._guard = subprocess.Popen(  # noqa: S603 - this Python, and our own module
            [sys.executable, "-I", "-S", _guard.__file__, str(os.getpid()), *self._command, *_DOWN],
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
        )
        assert self._guard.stdin is not None  # noqa: S101 - for mypy
        assert self._guard.stdout is not None  # noqa: S101
        self._input, self._output = self._guard.stdin, self._guard.stdout

    def run(
        self, *arguments: str, seconds: float, environment: Mapping[str, str] | None = None
    ) -> Done:
        """Run a command of Docker Compose, for at most so many seconds."""
        request = {
            "argv": [*self._command, *arguments],
            "environment": environment or {},
            "seconds": seconds,
        }
        self._send(request)
        return self._receive(self._output.readline())

    def down(self) -> None:
        """Take everything down, and end the guard. Raises `ClusterError` if something is left."""
        with self._guard:
            try:
                self._send(None)
                # An interrupted command leaves its answer behind: the last one is the right one.
                done = self._receive(b"".join(self._output.readlines()[-1:]))
            except ClusterError:
                done = self._down_without_guard()
        if done.code:
            raise ClusterError(
                f"the containers of project {self.project!r} could not be removed. Do it by:"
                f" {' '.join([*self._command, *_DOWN])}\n{done.output}"
            )

    def _down_without_guard(self) -> Done:
        done = subprocess.run(  # noqa: S603 - Docker Compose
            [*self._command, *_DOWN],
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        return Done(done.returncode, done.stdout)

    def _send(self, request: object) -> None:
        try:
            self._input.write(json.dumps(request).encode() + b"\n")
        except OSError as error:
            raise ClusterError(_GUARD_GONE) from error

    def _receive(self, line: bytes) -> Done:
        if not line:
            raise ClusterError(_GUARD_GONE)
        return Done(**json.loads(line))


def compose_file() -> Path:
    """Give the path of docker-compose.yml: in the package, or at the top of the checkout."""
    here = Path(__file__).parent
    return next(path for path in (here / _FILE, here.parent.parent / _FILE) if path.is_file())


def _environment(image: str) -> dict[str, str]:
    # Settings for other projects, and for another Python than that of Docker Compose 1.
    dropped = ("COMPOSE_", "PYTHON")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    if os.name == "posix":
        # Docker's Python package knows no contexts, and both must speak to the same engine.
        kept.setdefault("DOCKER_HOST", DEFAULT_HOST)
    return {**kept, "MONGO_IMAGE": image, "COMPOSE_PROFILES": "mongos2"}


def free_ports(number: int) -> list[int]:
    """Choose ports of the loopback address that nobody uses now."""
    candidates = random.sample(_PORTS, len(_PORTS))
    free = filter(_is_free, candidates)
    return [next(free) for _ in range(number)]


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        if os.name == "posix":  # elsewhere it would allow to share the port
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True
