"""Greenlets, tasks of another event loop and processes of a pool each see their own failures.

One mongos fails all finds and the other one all inserts, and many do both at once: who took over
what another one has to leave out would find no mongos that is well.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from serving import environment, python
from support import HAS_ASYNC, VERSION, each_mongos_sick_in_its_own_way

if TYPE_CHECKING:
    from pymongo_deprio.cluster import Cluster

PROGRAMS = Path(__file__).parent / "runtimes"
RUNTIMES = {
    "gevent": ["greenlets.py", "gevent", "first"],
    "gevent, last": ["greenlets.py", "gevent", "last"],
    "eventlet": ["greenlets.py", "eventlet", "first"],
    "eventlet, after the import": ["greenlets.py", "eventlet", "after"],
    "Motor on uvloop": ["tasks_on_uvloop.py", "motor"],
    "fork": ["processes.py", "fork"],
    "spawn": ["processes.py", "spawn"],
    "forkserver": ["processes.py", "forkserver"],
}
if HAS_ASYNC:
    RUNTIMES["uvloop"] = ["tasks_on_uvloop.py", "pymongo"]
# The order of patching and the way to start a process make no difference to PyMongo alone.
DIFFERENT = ["gevent", "eventlet", "Motor on uvloop", "fork"]


def reports_of(cluster: Cluster, runtime: str, *arguments: str) -> list[dict[str, Any]]:
    """Run the program of a runtime, and return what its processes tell."""
    name, *others = RUNTIMES[runtime]
    with each_mongos_sick_in_its_own_way(cluster):
        output = subprocess.check_output(
            python(PROGRAMS / name, *others, *arguments), env=environment(cluster.uri), timeout=60
        )
    return [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("runtime", RUNTIMES)
def test_each_leaves_out_its_own_failures(cluster: Cluster, runtime: str) -> None:
    """Every operation succeeds: each retry leaves out where that operation failed, and no more."""
    finds_fail, inserts_fail = (list(mongos.address) for mongos in cluster.mongos)
    for report in reports_of(cluster, runtime):
        assert report["failed"] == 0
        assert report["succeeded"] >= 100
        assert [finds_fail] in [failed for failed, _, _ in report["retries"]]
        assert [inserts_fail] in [failed for failed, _, _ in report["retries"]]
        for failed, deprioritized, redirected in report["retries"]:
            assert len(failed) == 1
            assert deprioritized == failed
            assert redirected


@pytest.mark.parametrize("runtime", DIFFERENT)
@pytest.mark.skipif(VERSION > (4, 6), reason="alone, a newer PyMongo moves as well")
def test_alone(cluster: Cluster, runtime: str) -> None:
    """Without the patch operations fail in each of the processes."""
    for report in reports_of(cluster, runtime, "alone"):
        assert report["failed"] > 0
        assert report["retries"] == []
