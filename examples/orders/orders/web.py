"""The front: an application of plain WSGI.

PUT /stock/ITEM/QUANTITY, GET /stock/ITEM, POST /orders/CUSTOMER/ITEM/QUANTITY, POST /paid/ORDER and
GET /orders/CUSTOMER; the replies are JSON.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from typing import Any, Callable, Iterable

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from orders.store import OutOfStockError, Store


@lru_cache(maxsize=1)
def store() -> Store:
    """Return the store of this process: the client is made by the first request, after any fork."""
    client: Any = MongoClient(os.environ.get("MONGODB_URI", "mongodb://127.0.0.1:27017"))
    return Store(client[os.environ.get("MONGODB_DATABASE", "orders")])


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request."""
    try:
        status, body = answer(environ["REQUEST_METHOD"], *environ["PATH_INFO"].split("/")[1:])
    except OutOfStockError as error:
        status, body = "409 Conflict", str(error)
    except PyMongoError as error:
        status, body = "503 Service Unavailable", str(error)
    start_response(status, [("Content-Type", "application/json")])
    return [json.dumps(body).encode() + b"\n"]


def answer(method: str, what: str = "", *words: str) -> tuple[str, Any]:
    """Do what a request asks for; return the status and the body of its reply."""
    if (method, what) == ("PUT", "stock") and len(words) == 2 and words[1].isdecimal():
        store().stock_up(words[0], int(words[1]))
        return "200 OK", store().in_stock(words[0])
    if (method, what) == ("GET", "stock") and len(words) == 1:
        return "200 OK", store().in_stock(words[0])
    if (method, what) == ("POST", "orders") and len(words) == 3 and words[2].isdecimal():
        return "201 Created", store().place(words[0], words[1], int(words[2]))
    if (method, what) == ("POST", "paid") and len(words) == 1:
        return "200 OK", store().pay(words[0])
    if (method, what) == ("GET", "orders") and len(words) == 1:
        return "200 OK", store().of_customer(words[0])
    return "404 Not Found", "there is no such thing"
