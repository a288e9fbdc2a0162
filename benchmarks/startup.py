"""What it costs to switch on, off and to launch: ``python benchmarks/startup.py``."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from typing import Iterator

from measure import Row, main, quantile

from pymongo_deprio import _launcher

# In a process of its own, as importing counts once.
SWITCHING = """
import json, sys, time
durations = {}
def step(name, code):
    began = time.perf_counter()
    exec(code, {})
    durations[name] = (time.perf_counter() - began) * 1e3
step("import pymongo", "import pymongo")
step("import pymongo_deprio", "import pymongo_deprio")
step("enable(), the first", "import pymongo_deprio; pymongo_deprio.enable(strict=True)")
step("disable(), the first", "import pymongo_deprio; pymongo_deprio.disable()")
step("enable(), again", "import pymongo_deprio; pymongo_deprio.enable(strict=True)")
step("disable(), again", "import pymongo_deprio; pymongo_deprio.disable()")
print(json.dumps(durations))
"""


def rows(quick: bool) -> Iterator[Row]:
    """Measure many processes, of each kind in turn."""
    durations: dict[str, list[float]] = {}
    for _ in range(5 if quick else 30):
        steps = json.loads(_python(SWITCHING))
        # One that never imports PyMongo, as most are that an application starts.
        steps["a Python that does nothing"] = _milliseconds("")
        steps["a Python that does nothing, launched"] = _milliseconds(_launcher.BOOTSTRAP)
        for name, took in steps.items():
            durations.setdefault(name, []).append(took)
    for name, values in durations.items():
        yield {
            "step": name,
            "median_ms": statistics.median(values),
            "q1_ms": quantile(values, 0.25),
            "q3_ms": quantile(values, 0.75),
        }


def _milliseconds(python_path: str) -> float:
    began = time.perf_counter()
    _python("pass", PYTHONPATH=python_path)
    return (time.perf_counter() - began) * 1e3


def _python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return done.stdout


if __name__ == "__main__":
    main(rows)
