"""What ``pymongo-deprio run`` adds to the start of a Python: ``python benchmarks/startup.py``.

It is one that never imports PyMongo, as most of those are that an application starts. With and
without take turns, so that both see the same machine.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time

from pymongo_deprio import _launcher

ROUNDS = 100


def milliseconds(python_path: str) -> float:
    """Return how long a Python takes that does nothing."""
    env = {**os.environ, "PYTHONPATH": python_path}
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], env=env, check=True)
    return (time.perf_counter() - began) * 1e3


def main() -> None:
    """Print the medians of both, and that of their differences."""
    alone, launched = [], []
    for _ in range(ROUNDS):
        alone.append(milliseconds(""))
        launched.append(milliseconds(_launcher.BOOTSTRAP))
    difference = statistics.median(b - a for a, b in zip(alone, launched))
    print(
        f"Python {sys.version.split()[0]}: {statistics.median(alone):.1f} ms alone, "
        f"{statistics.median(launched):.1f} ms launched, {difference:+.2f} ms"
    )


if __name__ == "__main__":
    main()
