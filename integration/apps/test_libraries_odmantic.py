"""ODMantic is as before with the patch, and its retries move: on Motor, and without."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from coexistence import SHOP, Coexistence, Shop, each
from motor.motor_asyncio import AsyncIOMotorClient
from odmantic import AIOEngine, Field, Model, Reference, SyncEngine
from pymongo import MongoClient
from pymongo.errors import OperationFailure
from support import finished, knows_all, prefer

if TYPE_CHECKING:
    from coexistence import Call


class Order(Model):  # type: ignore[misc]
    """An order."""

    id: int = Field(primary_field=True)
    item: str
    pieces: int = 0
    model_config = {"collection": "orders"}  # noqa: RUF012 - ODMantic has it so


class Bill(Model):  # type: ignore[misc]
    """What is to be paid for an order."""

    id: int = Field(primary_field=True)
    order: Order = Reference()
    model_config = {"collection": "bills"}  # noqa: RUF012


async def save(engine: Any) -> Any:
    """Save a document, in a session of ODMantic's."""
    return (await finished(engine.save(Order(id=3, item="jam")))).model_dump()


async def save_all(engine: Any) -> Any:
    """Save a document, and another that it refers to."""
    saved = await finished(engine.save_all([Bill(id=1, order=Order(id=3, item="jam"))]))
    return [bill.model_dump() for bill in saved]


async def find(engine: Any) -> Any:
    """Go through a query."""
    return [order.item for order in await finished(engine.find(Order, sort=Order.item))]


async def find_one(engine: Any) -> Any:
    """Read one document."""
    return (await finished(engine.find_one(Order, Order.item == "tea"))).model_dump()


async def count(engine: Any) -> Any:
    """Count documents."""
    return await finished(engine.count(Order, Order.pieces > 1))


async def change(engine: Any) -> Any:
    """Read a document, and change it."""
    order = await finished(engine.find_one(Order, Order.id == 1))
    order.pieces += 1
    return (await finished(engine.save(order))).model_dump()


async def remove(engine: Any) -> Any:
    """Remove one document that a query finds."""
    return await finished(engine.remove(Order, Order.item == "tea", just_one=True))


async def delete(engine: Any) -> Any:
    """Delete one document, which ODMantic does by a query."""
    return await finished(engine.delete(Order(id=1, item="tea")))


async def transact(engine: Any) -> Any:
    """Save in a transaction."""
    transaction = engine.transaction()
    await finished(transaction.start())
    try:
        await finished(transaction.save(Order(id=3, item="jam")))
    except OperationFailure:
        await finished(transaction.abort())
        raise
    await finished(transaction.commit())


FUNCTIONS = (save, save_all, find, find_one, count, change, remove)
UNRETRIED = (delete, transact)


# ODMantic raises what PyMongo raises.
operation = each(FUNCTIONS, OperationFailure)
unretried = each(UNRETRIED, OperationFailure)


@pytest.fixture(scope="module", params=[AIOEngine, SyncEngine], ids=["on Motor", "synchronous"])
def call(request: pytest.FixtureRequest, shop: Shop) -> Iterator[Call]:
    """Run functions of an engine."""
    loop = asyncio.new_event_loop()
    options: dict[str, Any] = {"server_selector": prefer(shop.sick.address)}
    if request.param is AIOEngine:
        client = AsyncIOMotorClient(shop.uri, io_loop=loop, **options)
        loop.run_until_complete(client.admin.command("ping"))
        known = client.delegate
    else:
        known = client = MongoClient(shop.uri, **options)
    engine = request.param(client=client, database=SHOP)

    def run(function: Any) -> Any:
        knows_all(known)
        return loop.run_until_complete(function(engine))

    yield run
    client.close()
    loop.close()


class TestODMantic(Coexistence):
    """It saves in a session, by an update that may insert."""
