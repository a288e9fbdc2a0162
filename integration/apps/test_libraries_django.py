"""Django's backend for MongoDB is as before with the patch, and its retries move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Iterator

import django
import pytest
from asgiref.sync import async_to_sync
from coexistence import SHOP, Coexistence, Shop, each
from django.conf import settings
from django.db import DatabaseError, IntegrityError, connection, models
from support import knows_all, prefer

if TYPE_CHECKING:
    from coexistence import Call

settings.configure(
    DEFAULT_AUTO_FIELD="django_mongodb_backend.fields.ObjectIdAutoField",
    DATABASES={
        "default": {
            "ENGINE": "django_mongodb_backend",
            "NAME": SHOP,
            # The cluster's address is known later, and nothing connects before that.
            "HOST": "",
            "OPTIONS": {},
        }
    },
)
django.setup()

from django_mongodb_backend.transaction import atomic  # noqa: E402 - it needs the settings


class Order(models.Model):  # type: ignore[misc]  # noqa: DJ008 - nobody shows it
    """An order."""

    id = models.IntegerField(primary_key=True, db_column="_id")
    item = models.CharField(max_length=100)
    pieces = models.IntegerField(default=0)

    class Meta:
        """Where orders are."""

        app_label = "shop"
        db_table = "orders"


def create() -> Any:
    """Insert a row."""
    return Order.objects.create(id=3, item="jam").pieces


def create_twice() -> Any:
    """Insert a key that is there."""
    with pytest.raises(IntegrityError) as caught:
        Order.objects.create(id=1, item="tea")
    return type(caught.value.__cause__)


def bulk_create() -> Any:
    """Insert several rows."""
    orders = [Order(id=3, item="jam"), Order(id=4, item="salt")]
    return [order.pk for order in Order.objects.bulk_create(orders)]


def get() -> Any:
    """Read one row."""
    return Order.objects.values().get(item="tea")


def get_nothing() -> Any:
    """Read one that is not there."""
    with pytest.raises(Order.DoesNotExist) as caught:
        Order.objects.get(item="milk")
    return str(caught.value)


def iterate() -> Any:
    """Go through a query set."""
    return [order.item for order in Order.objects.exclude(item="milk").order_by("item")]


def get_or_create() -> Any:
    """Look for a row, and insert it."""
    order, created = Order.objects.get_or_create(id=3, defaults={"item": "jam"})
    return order.item, created


def count() -> Any:
    """Count rows."""
    return Order.objects.filter(pieces__gt=1).count()


def total() -> Any:
    """Add up a column."""
    return Order.objects.aggregate(total=models.Sum("pieces"))


def asynchronously() -> Any:
    """Insert and read rows in a task, from which Django goes to a thread."""

    async def create_and_iterate() -> Any:
        order = await Order.objects.acreate(id=3, item="jam")
        return order.pk, [order.item async for order in Order.objects.order_by("item")]

    return async_to_sync(create_and_iterate)()


def update() -> Any:
    """Change a row, which Django does by a query."""
    Order(id=1, item="coffee").save(force_update=True)


def delete() -> Any:
    """Delete a row, which Django does by a query."""
    return Order(id=1).delete()


def transact() -> Any:
    """Insert in a transaction."""
    with atomic():
        Order.objects.create(id=3, item="jam")


FUNCTIONS = (
    create,
    create_twice,
    bulk_create,
    get,
    get_nothing,
    iterate,
    get_or_create,
    count,
    total,
    asynchronously,
)
UNRETRIED = (update, delete, transact)


# Django has an exception of its own for what PyMongo raises.
operation = each(FUNCTIONS, DatabaseError)
unretried = each(UNRETRIED, DatabaseError)


@pytest.fixture(scope="module")
def call(shop: Shop) -> Iterator[Call]:
    """Run functions while Django is connected."""
    connection.settings_dict["HOST"] = shop.uri
    connection.settings_dict["OPTIONS"]["server_selector"] = prefer(shop.sick.address)
    connection.ensure_connection()

    def run(function: Any) -> Any:
        knows_all(connection.connection)
        return function()

    yield run
    connection.close_pool()


class TestDjango(Coexistence):
    """It reads by aggregations, and raises its own exceptions from those of PyMongo."""
