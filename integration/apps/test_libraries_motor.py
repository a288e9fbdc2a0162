"""Motor is as before with the patch, and its retries move."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Iterator

import pytest
from bson import ObjectId
from coexistence import FAILING, SHOP, Coexistence, Documents, Operation, Shop, enabled
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorGridFSBucket
from pymongo import UpdateOne
from pymongo.errors import OperationFailure
from support import HOST_UNREACHABLE, knows_all, prefer

if TYPE_CHECKING:
    from coexistence import Call

FILE = ObjectId("0123456789abcdef01234567")
MORE = {"$inc": {"pieces": 1}}


async def insert(shop: Any) -> Any:
    """Insert a document, and return its key."""
    return (await shop.orders.insert_one({"_id": 3, "item": "jam"})).inserted_id


async def find_one(shop: Any) -> Any:
    """Return a document."""
    return await shop.orders.find_one({"_id": 1})


async def iterate(shop: Any) -> Any:
    """Go through a cursor, in more than one batch."""
    return [order async for order in shop.orders.find().sort("_id").batch_size(1)]


async def to_list(shop: Any) -> Any:
    """Let Motor go through it."""
    return await shop.orders.aggregate([{"$sort": {"_id": 1}}], batchSize=1).to_list(None)


async def modify(shop: Any) -> Any:
    """Change a document, and return what it was."""
    return await shop.orders.find_one_and_update({"_id": 1}, MORE)


async def bulk_write(shop: Any) -> Any:
    """Change several documents at once."""
    requests = [UpdateOne({"_id": 1}, MORE), UpdateOne({"_id": 3}, MORE, upsert=True)]
    return (await shop.orders.bulk_write(requests)).bulk_api_result


async def in_a_session(shop: Any) -> Any:
    """Write and read in a session of Motor's."""
    async with await shop.client.start_session() as session:
        await shop.orders.update_one({"_id": 1}, MORE, session=session)
        return await shop.orders.find_one({"_id": 1}, session=session)


async def upload(shop: Any) -> Any:
    """Store a file, and read it."""
    files = AsyncIOMotorGridFSBucket(shop)
    await files.upload_from_stream_with_id(FILE, "leaflet", b"tea is well")
    return await (await files.open_download_stream(FILE)).read()


async def watch(shop: Any) -> Any:
    """Open a change stream, and see a change."""
    async with shop.orders.watch() as changes:
        await changes.try_next()
        await shop.orders.update_one({"_id": 1}, MORE)
        return (await changes.next())["documentKey"]


FUNCTIONS = (
    insert,
    find_one,
    iterate,
    to_list,
    modify,
    bulk_write,
    in_a_session,
    upload,
    watch,
)


@pytest.fixture(params=FUNCTIONS, ids=lambda function: function.__name__)
def operation(request: pytest.FixtureRequest) -> Operation:
    """Return each operation; Motor raises what PyMongo raises."""
    return Operation(request.param, OperationFailure)


@pytest.fixture(scope="module")
def call(shop: Shop) -> Iterator[Call]:
    """Run functions of a database of Motor's."""
    loop = asyncio.new_event_loop()
    client = AsyncIOMotorClient(
        shop.uri, io_loop=loop, server_selector=prefer(shop.sick.address)
    )
    loop.run_until_complete(client.admin.command("ping"))
    knows_all(client)
    yield lambda function: loop.run_until_complete(function(client[SHOP]))
    client.close()
    loop.close()


class TestMotor(Coexistence):
    """It runs each operation in a thread, with a copy of the task's context."""
