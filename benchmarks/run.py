"""Runs every benchmark, each in a process of its own: ``python benchmarks/run.py``.

Without more it takes the PyMongo of this Python. ``nox -s benchmarks`` gives it the Pythons of four
virtual environments, each with another PyMongo.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import math
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import report

HERE = Path(__file__).parent
BENCHMARKS = ("cost", "scaling", "growth", "selection", "startup", "benefit")


def main() -> None:
    """Run them, and report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pythons", nargs="*", default=[sys.executable], metavar="PYTHON")
    parser.add_argument("--quick", action="store_true", help="a short trial: rough figures")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="not all of them")
    parser.add_argument("--output", type=Path, default=HERE / "results", help="a folder")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {
        "date": dt.datetime.now(dt.timezone.utc).date().isoformat(),
        "quick": options.quick,
        "machine": machine(),
        "runs": [],
    }
    for python in options.pythons:
        (versions,) = rows_of(python, "versions", quick=True)
        run = {"versions": versions, "benchmarks": {}}
        results["runs"].append(run)
        for name in options.only or BENCHMARKS:
            began = time.monotonic()
            run["benchmarks"][name] = rows_of(python, name, quick=options.quick)
            seconds = time.monotonic() - began
            print(f"PyMongo {versions['pymongo']}, {name}: {seconds:.0f} s", file=sys.stderr)
        # After each of them: what is measured already should outlive what may come.
        report.write(results, options.output)
    report.show(results)


def rows_of(python: str, name: str, *, quick: bool) -> list[dict[str, Any]]:
    """Run one benchmark, and return its rows.

    :raises ValueError: if they are not what a table can be made of.
    """
    command = [python, str(HERE / f"{name}.py"), *(["--quick"] if quick else [])]
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent / "tests")}
    done = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True, timeout=1200
    )
    rows: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]
    if not rows or any(row.keys() != rows[0].keys() for row in rows):
        raise ValueError(f"the rows of {name} should be some, and have the same columns: {rows!r}")
    numbers = [value for row in rows for value in row.values() if isinstance(value, float)]
    if not all(map(math.isfinite, numbers)):
        raise ValueError(f"the figures of {name} should be finite numbers: {rows!r}")
    return rows


def machine() -> dict[str, Any]:
    """Describe the machine in general terms."""
    return {"processor": processor(), "cores": os.cpu_count(), "system": system()}


def system() -> str:
    """Return the system, without the suffix that distributors give their kernels."""
    return f"{platform.system()} {platform.release().partition('-')[0]} {platform.machine()}"


def processor() -> str:
    """Return the model of the processor."""
    described = Path("/proc/cpuinfo")
    for line in described.read_text("utf-8").splitlines() if described.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
