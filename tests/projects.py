"""Projects that use the pytest plugin, each run by a pytest of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Callable

import pytest

from pymongo_deprio.cluster._mongod import find_mongod

if TYPE_CHECKING:
    from pathlib import Path

Run = Callable[..., pytest.RunResult]

# Hides what could make a cluster: the wheel with a mongod, and Docker.
NOTHING_INSTALLED = """
    import sys
    sys.modules["fiftyone"] = sys.modules["docker"] = None
"""
ONE_TEST = "def test_one(deprio_cluster): pass"
# Hypothesis has a plugin that takes a second to load.
STRICT = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider", "-ra", "-W", "error"]
STRICT += ["--strict-config", "--strict-markers"]
# PyMongo 3.9 and 3.10, when they are compiled.
STRICT += [
    "-W",
    "ignore:invalid escape sequence:DeprecationWarning",
    "-W",
    "ignore:PY_SSIZE_T_CLEAN",
]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Give what runs pytest in a project of this one module, in a process of its own."""
    return lambda module, *arguments: pytester.runpytest_subprocess(
        pytester.makepyfile(module), *STRICT, *arguments, timeout=100
    )


@pytest.fixture
def run_here(pytester: pytest.Pytester) -> Run:
    """Give the same for this process: faster, for projects that change nothing."""
    return lambda module, *arguments: pytester.runpytest_inprocess(
        pytester.makepyfile(module), *STRICT, *arguments
    )


@pytest.fixture
def nothing_installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every mongod and Docker from the project."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("PYMONGO_DEPRIO_MONGOD", raising=False)
    pytester.makeconftest(NOTHING_INSTALLED)


@pytest.fixture
def logging_mongod(tmp_path: Path) -> Path:
    """Give a mongod that writes a line to starts.log, beside it, each time it is started."""
    path = tmp_path / "logging-mongod"
    path.write_text(f'#!/bin/sh\necho started >> "$0.log"\nexec "{find_mongod()}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def broken_mongod(tmp_path: Path) -> Path:
    """Give one that cannot start, and says so; it logs as the other one does."""
    path = tmp_path / "broken-mongod"
    path.write_text('#!/bin/sh\necho started >> "$0.log"\necho "no room left"\nexit 1\n')
    path.chmod(0o755)
    return path


def starts(mongod: Path) -> int:
    """Return how often one of these was started."""
    return len(mongod.with_name(f"{mongod.name}.log").read_text().splitlines())
