"""MongoEngine is as before with the patch, and its retries move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

import pytest
from coexistence import SHOP, Coexistence, Operation, Shop, each
from mongoengine import Document, IntField, StringField, connect, disconnect
from mongoengine.errors import DoesNotExist, NotUniqueError, OperationError
from pymongo.errors import OperationFailure
from support import knows_all, prefer

if TYPE_CHECKING:
    from coexistence import Call


class Order(Document):  # type: ignore[misc]
    """An order."""

    id = IntField(primary_key=True)
    item = StringField(required=True)
    pieces = IntField()
    meta = {"collection": "orders"}  # noqa: RUF012 - MongoEngine has it so


def save() -> Any:
    """Save a new document: it is looked for by its key, and inserted."""
    return Order(id=3, item="jam").save().to_mongo().to_dict()


def save_again() -> Any:
    """Save a document that is there: what was changed is updated."""
    order = Order._from_son({"_id": 1, "item": "tea", "pieces": 1})
    order.pieces = 2
    return order.save().to_mongo().to_dict()


def save_twice() -> Any:
    """Insert a key that is there."""
    with pytest.raises(NotUniqueError) as caught:
        Order(id=1, item="tea").save(force_insert=True)
    return type(caught.value)


def insert() -> Any:
    """Insert several documents."""
    return sorted(Order.objects.insert([Order(id=3, item="jam"), Order(id=4)], load_bulk=False))


def update_one() -> Any:
    """Change one document that a query finds."""
    return Order.objects(item="tea").update_one(inc__pieces=1)


def upsert_one() -> Any:
    """Make one if there is none, and read it."""
    return Order.objects(id=3).upsert_one(item="jam").to_mongo().to_dict()


def modify() -> Any:
    """Change one, and return what it has become."""
    return Order.objects(item="tea").modify(inc__pieces=1, new=True).to_mongo().to_dict()


def get() -> Any:
    """Read one document."""
    return Order.objects.get(item="tea").to_mongo().to_dict()


def get_nothing() -> Any:
    """Read one that is not there."""
    with pytest.raises(DoesNotExist) as caught:
        Order.objects.get(item="milk")
    return str(caught.value)


def iterate() -> Any:
    """Go through a query, in more than one batch."""
    return [order.item for order in Order.objects.order_by("item").batch_size(1)]


def count() -> Any:
    """Count documents."""
    return Order.objects(pieces__gt=1).count()


def distinct() -> Any:
    """Return the values of a field."""
    return Order.objects.distinct("item")


def total() -> Any:
    """Add up a field."""
    return Order.objects.sum("pieces")


def update() -> Any:
    """Change all that a query finds."""
    return Order.objects(item="tea").update(inc__pieces=1)


def delete() -> Any:
    """Delete one document, which MongoEngine does by a query."""
    return Order(id=1).delete()


READS = [get, get_nothing, iterate, count, distinct, total]
WRITES = [save, save_again, save_twice, insert, update_one, upsert_one, modify]
OPERATIONS = {
    **{function.__name__: Operation(function, OperationFailure) for function in READS},
    **{function.__name__: Operation(function, OperationError) for function in WRITES},
}


@pytest.fixture(params=OPERATIONS)
def operation(request: pytest.FixtureRequest) -> Operation:
    """Return each operation."""
    return OPERATIONS[request.param]


unretried = each([update, delete], OperationError)


@pytest.fixture(scope="module")
def call(shop: Shop) -> Iterator[Call]:
    """Run functions while MongoEngine is connected."""
    client = connect(
        SHOP,
        host=shop.uri,
        server_selector=prefer(shop.sick.address),
        uuidRepresentation="standard",
    )

    def run(function: Any) -> Any:
        knows_all(client)
        return function()

    yield run
    disconnect()


class TestMongoEngine(Coexistence):
    """It wraps errors of writes into its own, and leaves those of reads."""
