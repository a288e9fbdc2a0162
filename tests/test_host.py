"""``pymongo-deprio cluster``: a cluster to try things on, until Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from typing import Any, Iterator

import pymongo
import pytest
from pymongo.errors import PyMongoError


@pytest.fixture
def started() -> Iterator[Any]:
    """Start the command, with three mongoses, in a process group of its own as a shell does."""
    with subprocess.Popen(
        [sys.executable, "-m", "pymongo_deprio", "cluster", "--mongos", "3"],
        cwd=sys.prefix,  # there is the installed package only
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_text(process: Any) -> str:
    """Return what the command prints, up to its last line."""
    text = ""
    while 'mode="off"' not in text:
        line = process.stdout.readline()
        assert line, process.stderr.read()
        text += line
    return text


def test_what_it_prints_works(started: Any) -> None:
    """The URI is that of three mongoses; the lines make the first one sick, and well again."""
    text = read_text(started)
    uri = text.splitlines()[0]
    assert "3 mongoses" in text
    lines = [line.strip() for line in text.splitlines() if line.startswith("    ")]
    names: dict[str, Any] = {}
    first = re.findall("mongodb://[^/]*/", text)[1]
    assert first[:-1] in uri
    client: Any = pymongo.MongoClient(first)
    with client:
        exec("\n".join(lines[:-1]), names)  # noqa: S102 - that is what somebody would do
        with names["first"].client:
            with pytest.raises(PyMongoError, match="failpoint"):
                client.test.things.insert_one({})
            exec(lines[-1], names)  # noqa: S102
        assert client.test.things.insert_one({}).acknowledged


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_how_it_ends(started: Any, how: signal.Signals) -> None:
    """Ctrl-C, which a terminal sends to all of its processes, and SIGTERM take everything down."""
    uri = read_text(started).splitlines()[0]
    os.killpg(started.pid, how)
    _, errors = started.communicate(timeout=30)
    assert errors == ""
    assert started.returncode == (0 if how is signal.SIGINT else -how)
    for host in uri[len("mongodb://") :].rstrip("/").split(","):
        client: Any = pymongo.MongoClient(host, serverSelectionTimeoutMS=200)
        with client, pytest.raises(PyMongoError):
            client.admin.command("ping")
