"""Beanie is as before with the patch, and its retries move: Beanie 1 on Motor, and Beanie 2."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, Iterator
from uuid import uuid4

import beanie
import pytest
from beanie import Document, init_beanie
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from coexistence import SHOP, Coexistence, Documents, Operation, Shop, each
from pymongo.errors import DuplicateKeyError, OperationFailure
from support import enabled_with_retries, finished, knows_all, knows_all_async, prefer

if TYPE_CHECKING:
    from coexistence import Call

IS_ON_MOTOR = beanie.__version__.startswith("1.")
# Beanie 1 asks pydantic as its older versions were asked.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_fields':DeprecationWarning")


class Order(Document):  # type: ignore[misc]
    """An order."""

    id: int
    item: str
    pieces: int = 0

    class Settings:
        """Where orders are."""

        name = "orders"


class Dish(Document):  # type: ignore[misc]
    """Something that others change as well, so that it has a revision."""

    id: int
    name: str

    class Settings:
        """Where dishes are."""

        name = "dishes"
        use_revision = True


async def insert() -> Any:
    """Insert a document."""
    return (await Order(id=3, item="jam").insert()).model_dump()


async def insert_twice() -> Any:
    """Insert a key that is there."""
    with pytest.raises(DuplicateKeyError) as caught:
        await Order(id=1, item="tea").insert()
    return caught.value.code


async def insert_many() -> Any:
    """Insert several documents."""
    orders = [Order(id=3, item="jam"), Order(id=4, item="salt")]
    return (await Order.insert_many(orders)).inserted_ids


async def get() -> Any:
    """Read one document by its key."""
    order = await Order.get(1)
    return order and order.model_dump()


async def find() -> Any:
    """Go through a query, in more than one batch."""
    return [order.item async for order in Order.find(batch_size=1).sort("-pieces")]


async def count() -> Any:
    """Count documents."""
    return await Order.find(Order.pieces > 1).count()


async def total() -> Any:
    """Add up a field."""
    return await Order.find_all().sum(Order.pieces)


async def distinct() -> Any:
    """Return the values of a field."""
    return await Order.distinct("item")


async def change() -> Any:
    """Read a document, and change it."""
    order = await Order.find_one(Order.item == "tea")
    assert order
    await order.inc({Order.pieces: 1})
    return order.model_dump()


async def upsert() -> Any:
    """Change a document, or insert it if there is none."""
    jam = Order(id=3, item="jam")
    return await Order.find_one(Order.id == 3).upsert({"$inc": {"pieces": 1}}, on_insert=jam)


async def replace_nothing() -> Any:
    """Replace one that is not there."""
    with pytest.raises(DocumentNotFound) as caught:
        await Order(id=9, item="milk").replace()
    return type(caught.value)


async def revise() -> Any:
    """Save a document: whoever has an older revision of it cannot."""
    dish = await Dish(id=1, name="cake").insert()
    older = dish.model_copy()
    older.revision_id = uuid4()
    dish.name = "pie"
    await dish.save()
    with pytest.raises(RevisionIdWasChanged) as caught:
        await older.replace()
    return type(caught.value)


async def delete() -> Any:
    """Delete one document."""
    return (await Order(id=1, item="tea").delete()).deleted_count


async def change_all() -> Any:
    """Change all that a query finds."""
    return (await Order.find(Order.item == "tea").inc({Order.pieces: 1})).modified_count


async def delete_all() -> Any:
    """Delete all documents."""
    return (await Order.delete_all()).deleted_count


FUNCTIONS = (
    insert,
    insert_twice,
    insert_many,
    get,
    find,
    count,
    total,
    distinct,
    change,
    upsert,
    replace_nothing,
    revise,
    delete,
)
UNRETRIED = (change_all, delete_all)


# Beanie raises what PyMongo raises.
operation = each(FUNCTIONS, OperationFailure)
unretried = each(UNRETRIED, OperationFailure)


@pytest.fixture(scope="module")
def call(shop: Shop) -> Iterator[Call]:
    """Run functions while Beanie is connected."""
    if IS_ON_MOTOR:
        client_class = import_module("motor.motor_asyncio").AsyncIOMotorClient
    else:
        client_class = import_module("pymongo").AsyncMongoClient
    loop = asyncio.new_event_loop()

    async def connect() -> Any:
        client = client_class(shop.uri, server_selector=prefer(shop.sick.address))
        await init_beanie(database=client[SHOP], document_models=[Order, Dish])
        return client

    client = loop.run_until_complete(connect())

    async def run(function: Any) -> Any:
        if IS_ON_MOTOR:
            knows_all(client.delegate)
        else:
            await knows_all_async(client)
        return await function()

    yield lambda function: loop.run_until_complete(run(function))
    loop.run_until_complete(finished(client.close()))
    loop.close()


class TestBeanie(Coexistence):
    """It checks what PyMongo returns, such as how many documents it has found."""

    def test_many_at_once(self, shop: Shop, documents: Documents, call: Call) -> None:
        """Each of many tasks has its retry."""

        async def many() -> Any:
            return await asyncio.gather(
                *(Order(id=number, item="jam").insert() for number in range(10, 30)),
                *(Order.get(2) for _ in range(20)),
            )

        shop.reset(documents)
        with shop.sickness(), enabled_with_retries() as retries:
            seen = shop.see(call, Operation(many, OperationFailure))
        assert [order.id for order in seen.result] == [*range(10, 30), *[2] * 20]
        assert len(seen.documents["orders"]) == 22
        assert shop.asked() == ({"insert": 20, "find": 20},) * 2
        assert {retry.chosen for retry in retries} == {shop.well.address}
