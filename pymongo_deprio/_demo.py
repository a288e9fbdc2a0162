"""The demo: the same load on a cluster with one sick mongos, without and with the patch."""

from __future__ import annotations

import logging
import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
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
    from pymongo_deprio.cluster import FailPoint, LocalMongos

COMMANDS = ["find", "insert"]
HOST_UNREACHABLE = 6
CLIENTS = 4
SOCKET_TIMEOUT_MS = 500
# Longer than any client waits.
HANG_MS = 60_000


@dataclass
class Run:
    """What one run of the load came to."""

    label: str
    seconds: float = 0.0
    failed: int = 0
    attempts_on_sick: int = 0
    milliseconds: list[float] = field(default_factory=list)

    def add(self, part: Run) -> None:
        """Count in what one of the clients came to."""
        self.failed += part.failed
        self.attempts_on_sick += part.attempts_on_sick
        self.milliseconds += part.milliseconds

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
            "timed_out": sum(duration >= SOCKET_TIMEOUT_MS for duration in self.milliseconds),
            "median_ms": round(self.percentile(50), 3),
            "p99_ms": round(self.percentile(99), 3),
            "seconds": round(self.seconds, 1),
        }


def run(operations: int, mongoses: int, *, hang: bool) -> list[Run]:
    """Run the load without and with the patch, and show the progress on standard error.

    :param operations: how many operations each run has.
    :param mongoses: how many mongoses the cluster has; the first one is sick.
    :param hang: whether the sick one lets operations hang, instead of failing them at once.
    :raises ClusterError: if the cluster cannot be had.
    """
    # The beginnings and ends of cooldowns would be printed amid the progress.
    logging.getLogger("pymongo_deprio").addHandler(logging.NullHandler())
    console = Console(stderr=True)
    with console.status("Starting a sharded cluster"):
        cluster = LocalCluster(mongos=mongoses).__enter__()
    runs = []
    try:
        with _make_sick(cluster.mongos[0], hang=hang), Progress(
            console=console, disable=not console.is_terminal
        ) as progress:
            for label, patch in (
                ("without", nullcontext),
                ("with pymongo_deprio", lambda: pymongo_deprio.enable(strict=True)),
                ("with cooldown", lambda: pymongo_deprio.enable(strict=True, cooldown=True)),
            ):
                with patch():
                    runs.append(_load(cluster, label, operations, progress, hang=hang))
    finally:
        cluster.__exit__(None, None, None)
    return runs


def _make_sick(mongos: LocalMongos, *, hang: bool) -> FailPoint:
    """Let a mongos say that it is healthy, and serve nobody."""
    if hang:
        return mongos.fail_command(COMMANDS, block_time_ms=HANG_MS, close_connection=True)
    return mongos.fail_command(COMMANDS, error_code=HOST_UNREACHABLE)


class _Attempts(CommandListener):
    """Counts the attempts that a client sends to the sick mongos."""

    def __init__(self, sick: Address) -> None:
        self._sick = sick
        self.count = 0

    def started(self, event: CommandStartedEvent) -> None:
        if event.connection_id == self._sick and event.command_name in COMMANDS:
            self.count += 1

    def succeeded(self, event: object) -> None:
        pass

    failed = succeeded


def _load(
    cluster: LocalCluster, label: str, operations: int, progress: Progress, *, hang: bool
) -> Run:
    """Read and write in turn, from several clients, as the processes of an application do."""
    options = {"socketTimeoutMS": SOCKET_TIMEOUT_MS} if hang else {}
    whole = Run(label)
    bar = progress.add_task(label, total=operations)
    stop = threading.Event()

    def work(share: int) -> Run:
        part = Run(label)
        attempts = _Attempts(cluster.mongos[0].address)
        client = cluster.client(event_listeners=[attempts], **options)
        collection = client.pymongo_deprio_demo.load
        try:
            for turn in range(share):
                if stop.is_set():
                    break
                _time(collection.find_one if turn % 2 else lambda: collection.insert_one({}), part)
                progress.advance(bar)
        finally:
            client.close()
        part.attempts_on_sick = attempts.count
        return part

    began = time.perf_counter()
    with ThreadPoolExecutor(CLIENTS) as threads:
        shares = [len(range(first, operations, CLIENTS)) for first in range(CLIENTS)]
        workers = [threads.submit(work, share) for share in shares]
        try:
            for worker in workers:
                whole.add(worker.result())
        finally:
            stop.set()
    whole.seconds = time.perf_counter() - began
    return whole


def _time(operation: Callable[[], object], run: Run) -> None:
    began = time.perf_counter()
    try:
        operation()
    except PyMongoError:
        run.failed += 1
    run.milliseconds.append((time.perf_counter() - began) * 1000)


def figures(runs: list[Run], mongoses: int, *, hang: bool) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "pymongo": pymongo.version,
        "mongoses": mongoses,
        "hang": hang,
        "runs": [run.figures() for run in runs],
    }


def show(runs: list[Run], mongoses: int, *, hang: bool) -> None:
    """Print the figures as a table."""
    fault = "hanging" if hang else "sick"
    table = Table(title=f"PyMongo {pymongo.version}, {mongoses} mongoses, one of them {fault}")
    if not runs[0].failed:
        table.caption = (
            "PyMongo 4.7 and newer fail no operation here by themselves: with pymongo==4.5.0 the "
            "difference shows."
        )
    table.add_column("")
    for run in runs:
        table.add_column(run.label, justify="right")
    rows = {
        "operations": "operations",
        "failed operations": "failed",
        "attempts on the sick mongos": "attempts_on_sick_mongos",
        f"took {SOCKET_TIMEOUT_MS} ms or more": "timed_out",
        "median (ms)": "median_ms",
        "99th percentile (ms)": "p99_ms",
        "whole run (s)": "seconds",
    }
    for title, name in rows.items():
        if hang or name != "timed_out":
            table.add_row(title, *(_number(run.figures()[name]) for run in runs))
    Console().print(table)


def _number(value: float) -> str:
    return f"{value:,.1f}" if isinstance(value, float) else f"{value:,}"
