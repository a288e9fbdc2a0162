"""What the programs of this folder share: a load of finds and inserts, and what became of it.

``MONGODB_URI`` says where. With ``alone`` among the arguments the patch stays off.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from typing import Any, Callable, Iterator

from pymongo.errors import PyMongoError

import pymongo_deprio

URI = os.environ["MONGODB_URI"]
ALONE = "alone" in sys.argv
OPERATIONS = ["find_one", "insert_one"]


class Load:
    """Counts operations, and collects what is told of their retries."""

    def __init__(self) -> None:
        """Begin, with the patch on."""
        self.succeeded = self.failed = 0
        self.events: list[Any] = []
        if not ALONE:
            pymongo_deprio.enable(on_event=self.events.append, strict=True)

    def work(self, collection: Any, turns: int) -> None:
        """Find and insert in turns."""
        for _ in range(turns):
            for operation in OPERATIONS:
                with self._noted():
                    getattr(collection, operation)({})

    async def work_async(self, collection: Any, turns: int) -> None:
        """Find and insert in turns, with a client whose methods are coroutines."""
        for _ in range(turns):
            for operation in OPERATIONS:
                with self._noted():
                    await getattr(collection, operation)({})

    @contextlib.contextmanager
    def _noted(self) -> Iterator[None]:
        try:
            yield
            self.succeeded += 1
        except PyMongoError:
            self.failed += 1

    def result(self) -> dict[str, Any]:
        """Return all of it."""
        return {
            "succeeded": self.succeeded,
            "failed": self.failed,
            "retries": [
                (event.failed, event.deprioritized, event.redirected) for event in self.events
            ],
        }

    def report(self) -> None:
        """Print it for the test."""
        print(json.dumps(self.result()))


def ready(client: Any, sleep: Callable[[float], object]) -> None:
    """Wait until a client knows both mongoses: before that a retry has nowhere to go."""
    client.admin.command("ping")
    while len(client.nodes) < 2:
        sleep(0.01)
