"""Many tasks of uvloop's event loop on one client: ``python tasks_on_uvloop.py motor``."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pymongo
import uvloop
from runtime_load import URI, Load

TASKS, TURNS = 40, 4


def client_of(library: str) -> Any:
    """Return a client of Motor, or PyMongo's own."""
    if library == "pymongo":
        return pymongo.AsyncMongoClient(URI)
    from motor.motor_asyncio import AsyncIOMotorClient  # noqa: PLC0415 - not for the other one

    return AsyncIOMotorClient(URI)


async def main(library: str) -> None:
    """Let them all work at once."""
    assert type(asyncio.get_running_loop()).__module__.startswith("uvloop")
    load = Load()
    client = client_of(library)
    await client.admin.command("ping")
    while len(client.nodes) < 2:  # noqa: ASYNC110 - no event tells that both are known
        await asyncio.sleep(0.01)
    await asyncio.gather(*(load.work_async(client.test.tasks, TURNS) for _ in range(TASKS)))
    closing = client.close()
    if library == "pymongo":
        await closing
    load.report()


runner = uvloop.new_event_loop()
runner.run_until_complete(main(sys.argv[1]))
runner.close()
