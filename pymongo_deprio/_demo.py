"""The demo: the same load on a cluster with one sick mongos, without and with the patch."""

from __future__ import annotations

import itertools
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Callable

import pymongo
from pymongo.errors import PyMongoError
from pymongo.monitoring import CommandListener
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import pymongo_deprio
from pymongo_deprio.cluster import LocalCluster

if TYPE_CHECKING:
    from pymongo.monitoring import CommandStartedEvent

    from pymongo_deprio import Address

COMMANDS = ["find", "insert"]
HOST_UNREACHABLE = 6
THREADS = 4


@dataclass
class Run:
    """What one run of the load came to."""

    label: str
    failed: int = 0
    attempts_on_sick: int = 0
    milliseconds: list[float] = field(default_factory=list)

    def percentile(self, percent: float) -> float:
        """Return the duration in milliseconds within which so many percent of operations ended."""
        rank = math.ceil(len(self.milliseconds) * percent / 100)
        return sorted(self.milliseconds)[max(rank, 1) - 1]

    def figures(self) -> dict[str, Any]:
        """Return the figures under the names that ``--json`` prints."""
        return {
            "run": self.label,
            "operations": len(self.milliseconds),
            "failed": self.failed,
            "attempts_on_sick_mongos": self.attempts_on_sick,
            "median_ms": round(self.percentile(50), 3),
            "p99_ms": round(self.percentile(99), 3),
        }


def run(operations: int, mongoses: int) -> list[Run]:
    """Run the load without and with the patch, and show the progress on standard error.

    :param operations: how many operations each run has.
    :param mongoses: how many mongoses the cluster has; the first one is sick.
    :raises ClusterError: if the cluster cannot be had.
    """
    console = Console(stderr=True)
    with console.status("Starting a sharded cluster"):
        cluster = LocalCluster(mongos=mongoses).__enter__()
    try:
        with cluster.mongos[0].fail_command(COMMANDS, error_code=HOST_UNREACHABLE), Progress(
            console=console, disable=not console.is_terminal
        ) as progress:
            without, with_patch = Run("without"), Run("with pymongo_deprio")
            _load(cluster, without, operations, progress)
            with pymongo_deprio.enable(strict=True):
                _load(cluster, with_patch, operations, progress)
    finally:
        cluster.__exit__(None, None, None)
    return [without, with_patch]


class _Attempts(CommandListener):
    """Counts the attempts of the load that are sent to the sick mongos."""

    def __init__(self, sick: Address, run: Run) -> None:
        self._sick = sick
        self._run = run

    def started(self, event: CommandStartedEvent) -> None:
        if event.connection_id == self._sick and event.command_name in COMMANDS:
            self._run.attempts_on_sick += 1

    def succeeded(self, event: object) -> None:
        pass

    failed = succeeded


def _load(cluster: LocalCluster, run: Run, operations: int, progress: Progress) -> None:
    """Read and write in turn, from several threads."""
    listener = _Attempts(cluster.mongos[0].address, run)
    client = cluster.client(event_listeners=[listener])
    collection = client.pymongo_deprio_demo.load
    turns = itertools.count()
    bar = progress.add_task(run.label, total=operations)
    stop = threading.Event()

    def work() -> None:
        for turn in turns:
            if turn >= operations or stop.is_set():
                return
            operation = collection.find_one if turn % 2 else lambda: collection.insert_one({})
            _time(operation, run)
            progress.advance(bar)

    try:
        with ThreadPoolExecutor(THREADS) as threads:
            workers = [threads.submit(work) for _ in range(THREADS)]
            try:
                for worker in workers:
                    worker.result()
            finally:
                stop.set()
    finally:
        client.close()


def _time(operation: Callable[[], object], run: Run) -> None:
    began = time.perf_counter()
    try:
        operation()
    except PyMongoError:
        run.failed += 1
    run.milliseconds.append((time.perf_counter() - began) * 1000)


def figures(runs: list[Run], mongoses: int) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "pymongo": pymongo.version,
        "mongoses": mongoses,
        "runs": [run.figures() for run in runs],
    }


def show(runs: list[Run], mongoses: int) -> None:
    """Print the figures as a table."""
    table = Table(title=f"PyMongo {pymongo.version}, {mongoses} mongoses, one of them sick")
    if not runs[0].failed:
        table.caption = (
            "PyMongo 4.7 and newer get through this fault by themselves: with pymongo==4.5.0 the "
            "difference shows."
        )
    table.add_column("")
    for run in runs:
        table.add_column(run.label, justify="right")
    rows = {
        "operations": "operations",
        "failed operations": "failed",
        "attempts on the sick mongos": "attempts_on_sick_mongos",
        "median (ms)": "median_ms",
        "99th percentile (ms)": "p99_ms",
    }
    for title, name in rows.items():
        table.add_row(title, *(f"{run.figures()[name]:,}" for run in runs))
    Console().print(table)
