"""Motor is as before with the patch, and its retries move."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from bson import ObjectId
from coexistence import SHOP, Coexistence, Documents, Operation, Shop, each
from motor.motor_asyncio import AsyncIOMotorClient, AsyncIOMotorGridFSBucket
from pymongo import UpdateOne
from pymongo.errors import OperationFailure
from support import HOST_UNREACHABLE, enabled_with_retries, knows_all, prefer

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
    async with shop.orders.watch(max_await_time_ms=50) as changes:
        await changes.try_next()
        await shop.orders.update_one({"_id": 1}, MORE)
        return (await changes.next())["documentKey"]


async def delete_many(shop: Any) -> Any:
    """Delete several documents."""
    return (await shop.orders.delete_many({})).deleted_count


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
UNRETRIED = [delete_many]
TRANSIENT: dict[str, Any] = {
    "error_code": HOST_UNREACHABLE,
    "error_labels": ["TransientTransactionError"],
}


async def transact(shop: Any) -> Any:
    """Let Motor run a transaction, again if need be."""

    async def change(session: Any) -> Any:
        await shop.orders.insert_one({"_id": 3}, session=session)
        return await shop.orders.find_one_and_update({"_id": 1}, MORE, session=session)

    async with await shop.client.start_session() as session:
        return await session.with_transaction(change)


# Motor raises what PyMongo raises.
operation = each(FUNCTIONS, OperationFailure)
unretried = each(UNRETRIED, OperationFailure)


@pytest.fixture(scope="module")
def call(shop: Shop) -> Iterator[Call]:
    """Run functions of a database of Motor's."""
    loop = asyncio.new_event_loop()
    client = AsyncIOMotorClient(shop.uri, io_loop=loop, server_selector=prefer(shop.sick.address))
    # The first time GridFS makes indexes, which PyMongo does not retry.
    loop.run_until_complete(upload(client[SHOP]))

    def run(function: Any) -> Any:
        knows_all(client.delegate)
        return loop.run_until_complete(function(client[SHOP]))

    yield run
    client.close()
    loop.close()


class TestMotor(Coexistence):
    """It runs each operation in a thread, with a copy of the task's context."""

    def test_many_at_once(self, shop: Shop, documents: Documents, call: Call) -> None:
        """Each of many tasks has its retry, in whichever thread Motor runs it."""

        async def many(shop: Any) -> Any:
            return await asyncio.gather(
                *(shop.orders.find_one_and_update({"_id": 1}, MORE) for _ in range(20)),
                *(shop.orders.find_one({"_id": 2}) for _ in range(20)),
            )

        shop.reset(documents)
        with shop.sickness(), enabled_with_retries() as retries:
            seen = shop.see(call, Operation(many, OperationFailure))
        assert sorted(order["pieces"] for order in seen.result[:20]) == [*range(1, 21)]
        assert [order["pieces"] for order in seen.result[20:]] == [5] * 20
        assert seen.documents["orders"][0]["pieces"] == 21
        assert shop.asked() == ({"findAndModify": 20, "find": 20},) * 2
        assert {retry.chosen for retry in retries} == {shop.well.address}

    @pytest.mark.parametrize("is_enabled", [True, False], ids=["enabled", "alone"])
    def test_a_transaction_that_is_run_again(
        self, shop: Shop, documents: Documents, call: Call, *, is_enabled: bool
    ) -> None:
        """Motor's with_transaction begins it on the other mongos; alone, on the one that failed."""
        shop.reset(documents)
        usual = shop.see(call, Operation(transact, OperationFailure))
        commands, _ = shop.asked()
        shop.reset(documents)
        patch = enabled_with_retries() if is_enabled else nullcontext()
        with shop.sick.fail_command("insert", times=2, **TRANSIENT), patch:
            assert shop.see(call, Operation(transact, OperationFailure)) == usual
        sick, well = shop.asked()
        assert commands == {"insert": 1, "findAndModify": 1, "commitTransaction": 1}
        assert not usual.errors
        if is_enabled:
            assert sick == {"insert": 1, "abortTransaction": 1}
            assert well == commands
        else:
            assert sick == {**commands, "insert": 3, "abortTransaction": 2}
            assert not well
