"""Processes of a pool, as multiprocessing starts them: ``python processes.py fork``.

The parent has used a client of its own before they are started, and goes on with it after that.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from typing import Any

import pymongo
from runtime_load import ALONE, URI, Load, ready

import pymongo_deprio

PROCESSES, TURNS = 2, 50


def is_enabled(_: int) -> bool:
    """Tell whether a process has the patch before it does something."""
    return pymongo_deprio.is_enabled()


def work(_: int) -> dict[str, Any]:
    """Tell what a process of its own has seen."""
    load = Load()
    client: Any
    with closing(pymongo.MongoClient(URI)) as client:
        ready(client, time.sleep)
        load.work(client.test.processes, TURNS)
    return load.result()


def main(method: str) -> None:
    """Work here, and then there."""
    load = Load()
    client: Any
    with closing(pymongo.MongoClient(URI)) as client:
        ready(client, time.sleep)
        load.work(client.test.processes, TURNS)
        context = multiprocessing.get_context(method)
        with ProcessPoolExecutor(PROCESSES, context) as pool:
            enabled = set(pool.map(is_enabled, range(PROCESSES)))
            results = list(pool.map(work, range(PROCESSES)))
        load.work(client.test.processes, TURNS)
    assert enabled == {method == "fork" and not ALONE}
    for result in [*results, load.result()]:
        print(json.dumps(result))


if __name__ == "__main__":
    main(sys.argv[1])
