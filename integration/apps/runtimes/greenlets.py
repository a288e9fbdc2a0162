"""Many greenlets of gevent or eventlet on one client: ``python greenlets.py gevent first``.

The library patches Python ``first``, ``after`` our package was imported, or ``last``, when it is
enabled and has patched PyMongo.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any, Callable

GREENLETS, TURNS = 40, 4

library, when = sys.argv[1:3]
if when != "first":
    importlib.import_module("pymongo_deprio")
enabled: Any = importlib.import_module("runtime_load").Load() if when == "last" else None

Pool: Callable[[int], Any]
sleep: Callable[[float], object]
if library == "gevent":
    import gevent.monkey
    import gevent.pool

    gevent.monkey.patch_all()
    Pool, sleep = gevent.pool.Pool, gevent.sleep
else:
    import eventlet

    eventlet.monkey_patch()
    Pool, sleep = eventlet.GreenPool, eventlet.sleep

# From here on everything that waits lets another greenlet run.
import pymongo  # noqa: E402
from runtime_load import URI, Load, ready  # noqa: E402

load = enabled or Load()
client: Any = pymongo.MongoClient(URI)
ready(client, sleep)
together = Pool(GREENLETS)
for _ in range(GREENLETS):
    together.spawn(load.work, client.test.greenlets, TURNS)
together.join() if library == "gevent" else together.waitall()
client.close()
load.report()
