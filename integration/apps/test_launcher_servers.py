"""Servers, workers and scripts that know nothing of the patch have it below the launcher.

Each runs the example's application as it is, and without the launcher as well, to see that it fails
there: alone, one operation in four does, where one of two mongoses is sick.
"""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from serving import LAUNCHER, PROJECT, Results, ask, environment, program, python, serving, started
from support import RETRYABLE, VERSION

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo_deprio.cluster import Cluster, FailPoint

pytestmark = pytest.mark.skipif(VERSION > (4, 6), reason="alone, a newer PyMongo moves as well")

GUNICORN = ["--workers=2", "shop:app", "--bind"]
UWSGI = ["--master", "--enable-threads", "--die-on-term", "--need-app", "-p2", "-wshop:app"]
SERVERS = {
    "gunicorn": program("gunicorn", *GUNICORN),
    "gunicorn --preload": program("gunicorn", "--preload", *GUNICORN),
    "uwsgi": program("uwsgi", *UWSGI, "--http-socket"),
    "uwsgi --lazy-apps": program("uwsgi", "--lazy-apps", *UWSGI, "--http-socket"),
}
MODULE = python("-m", "shop")
CELERY = program("celery", "-Atasks", "worker", "--pool=prefork", "--concurrency=2")
CELERY += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
SCRIPT = python(PROJECT / "script.py")
PYTEST = python("-m", "pytest", "-p", "no:cacheprovider", "--noconftest", PROJECT / "check_shop.py")


@pytest.fixture(params=[LAUNCHER, []], ids=["launched", "alone"])
def launcher(request: pytest.FixtureRequest) -> Any:
    """Return what stands before a command: the launcher, or nothing."""
    return request.param


@pytest.fixture
def env(cluster: Cluster, tmp_path: Path) -> dict[str, str]:
    """Return the environment in which the shop finds its cluster."""
    return {**environment(cluster.uri), "QUEUE_FOLDER": str(tmp_path)}


@pytest.fixture
def sick(cluster: Cluster) -> Iterator[FailPoint]:
    """Let one mongos fail what the shop does, and see that it was asked."""
    with cluster.mongos[0].fail_command(["find", "insert", "update"], **RETRYABLE) as fail_point:
        yield fail_point
    assert fail_point.hits


def check_server(port: int, launcher: list[str], processes: int) -> None:
    """Look for a failure, or below the launcher for enough successes of each process."""

    def enough(results: Results) -> bool:
        if not launcher:
            return results.failed > 0
        assert not results.failed
        return len(results.answered) == processes and min(results.answered.values()) >= 40

    ask(port, enough)


def check_loads(loads: list[list[int]], launcher: list[str], processes: int) -> None:
    """Do the same for what processes tell themselves: which they are, and what failed."""
    assert len({process for process, _ in loads}) == processes
    failed = sum(failed for _, failed in loads)
    assert failed == 0 if launcher else failed > 0


@pytest.mark.parametrize("server", SERVERS)
def test_servers(
    server: str, launcher: list[str], sick: FailPoint, env: dict[str, str], tmp_path: Path
) -> None:
    """Each process that a server forks has the patch, if it imports PyMongo before that or then."""
    with serving([*launcher, *SERVERS[server]], env, tmp_path) as (_, port):
        check_server(port, launcher, processes=2)


def test_a_module(
    launcher: list[str], sick: FailPoint, env: dict[str, str], tmp_path: Path
) -> None:
    """So has a program that is started as a module."""
    with serving([*launcher, *MODULE], env, tmp_path) as (_, port):
        check_server(port, launcher, processes=1)


def test_celery(launcher: list[str], sick: FailPoint, env: dict[str, str], tmp_path: Path) -> None:
    """So has each process of a Celery worker."""
    with started([*launcher, *CELERY], env, tmp_path):
        output = subprocess.check_output(python("-m", "tasks"), env=env, cwd=tmp_path)
    check_loads(json.loads(output), launcher, processes=2)


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_multiprocessing(
    method: str, launcher: list[str], sick: FailPoint, env: dict[str, str], tmp_path: Path
) -> None:
    """So has each process that a script starts, in each way that there is."""
    output = subprocess.check_output([*launcher, *SCRIPT, method], env=env, cwd=tmp_path)
    check_loads(json.loads(output), launcher, processes=2)


def test_a_script(
    launcher: list[str], sick: FailPoint, env: dict[str, str], tmp_path: Path
) -> None:
    """So has a script itself."""
    output = subprocess.check_output([*launcher, *SCRIPT], env=env, cwd=tmp_path)
    check_loads(json.loads(output), launcher, processes=1)


def test_pytest(launcher: list[str], sick: FailPoint, env: dict[str, str], tmp_path: Path) -> None:
    """So has pytest, whose exit code is that of the launcher."""
    done = subprocess.run([*launcher, *PYTEST], env=env, cwd=tmp_path, check=False)
    assert done.returncode == (0 if launcher else 1)


def test_it_can_be_switched_off(sick: FailPoint, env: dict[str, str], tmp_path: Path) -> None:
    """The environment says so, as a launcher may stand in an image that is not to be changed."""
    output = subprocess.check_output(
        [*LAUNCHER, *SCRIPT], env={**env, "PYMONGO_DEPRIO_ENABLED": "0"}, cwd=tmp_path
    )
    check_loads(json.loads(output), [], processes=1)


def test_another_sitecustomize(sick: FailPoint, env: dict[str, str], tmp_path: Path) -> None:
    """One that was there before is still run, and what it imports is patched as well."""
    (tmp_path / "sitecustomize.py").write_text("import shop; print(shop.load()[1], 'failed')")
    path = os.pathsep.join([str(tmp_path), env["PYTHONPATH"]])
    output = subprocess.check_output(
        [*LAUNCHER, *python("-c", "print('done')")], env={**env, "PYTHONPATH": path}
    )
    # The launcher is a Python as well, which runs it first.
    assert output.split()[-3:] == [b"0", b"failed", b"done"]


def test_signals_reach_the_server(env: dict[str, str], tmp_path: Path) -> None:
    """The server has the launcher's process: a supervisor's SIGTERM ends it as without."""
    command = [*LAUNCHER, *program("gunicorn", "--pid=pid", *GUNICORN)]
    with serving(command, env, tmp_path) as (process, _):
        assert (tmp_path / "pid").read_text().strip() == str(process.pid)
    assert process.returncode == 0
    assert "Shutting down: Master" in (tmp_path / "log").read_text()


def test_the_exit_code(env: dict[str, str]) -> None:
    """It is the command's, and so is the signal that ends it."""
    for code, returned in ("sys.exit(7)", 7), ("os.kill(os.getpid(), 9)", -9):
        command = [*LAUNCHER, *python("-c", f"import os, sys; {code}")]
        assert subprocess.run(command, env=env, check=False).returncode == returned
