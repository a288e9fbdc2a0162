"""Stock and orders in MongoDB."""

from __future__ import annotations

from typing import Any
from uuid import uuid4


class OutOfStockError(Exception):
    """There is less of an item than was ordered."""


class Store:
    """The stock and the orders of one database."""

    def __init__(self, database: Any) -> None:
        """Use a database; its collections come into being with `stock_up`."""
        self._client = database.client
        self._stock = database.stock
        self._orders = database.orders

    def stock_up(self, item: str, quantity: int) -> None:
        """Add to the stock of an item."""
        self._stock.update_one({"_id": item}, {"$inc": {"quantity": quantity}}, upsert=True)

    def in_stock(self, item: str) -> int:
        """Return how much of an item there is."""
        found = self._stock.find_one({"_id": item})
        return int(found["quantity"]) if found else 0

    def place(self, customer: str, item: str, quantity: int) -> str:
        """Order so much of an item, and return the number of the order.

        Raises OutOfStockError if there is not enough of it: then nothing is taken.
        """
        number = uuid4().hex

        def transaction(session: Any) -> None:
            taken = self._stock.update_one(
                {"_id": item, "quantity": {"$gte": quantity}},
                {"$inc": {"quantity": -quantity}},
                session=session,
            )
            if not taken.matched_count:
                raise OutOfStockError(f"there are not {quantity} of {item!r}")
            order = {"_id": number, "customer": customer, "item": item, "quantity": quantity}
            self._orders.insert_one({**order, "paid": False}, session=session)

        with self._client.start_session() as session:
            session.with_transaction(transaction)
        return number

    def pay(self, number: str) -> bool:
        """Mark an order as paid; return whether it is there and was not paid before."""
        paid = self._orders.update_one({"_id": number, "paid": False}, {"$set": {"paid": True}})
        return bool(paid.modified_count)

    def of_customer(self, customer: str) -> list[dict[str, Any]]:
        """Return the orders of a customer."""
        return list(self._orders.find({"customer": customer}).sort("_id"))
