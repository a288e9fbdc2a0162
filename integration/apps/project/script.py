"""Uses the shop from this process, or from two that it starts: ``python script.py spawn``."""

from __future__ import annotations

import json
import multiprocessing
import sys
from typing import Any

import shop


def work(results: Any) -> None:
    """Tell what a process of its own has seen."""
    results.put(shop.load())


def in_two_processes(method: str) -> list[Any]:
    """Return what two processes have seen, started by a method of multiprocessing."""
    context: Any = multiprocessing.get_context(method)
    results = context.Queue()
    processes = [context.Process(target=work, args=[results]) for _ in range(2)]
    for process in processes:
        process.start()
    seen = [results.get(timeout=30) for _ in processes]
    for process in processes:
        process.join()
    return seen


if __name__ == "__main__":
    print(json.dumps(in_two_processes(sys.argv[1]) if sys.argv[1:] else [shop.load()]))
