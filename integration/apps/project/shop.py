"""The example's front as it is, with the process that answers in a header.

Nothing here knows of the patch. ``python -m shop HOST:PORT`` serves.
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Iterable, cast
from wsgiref.simple_server import make_server

from orders import web
from pymongo.errors import PyMongoError

if TYPE_CHECKING:
    from orders.store import Store

OPERATIONS = 60


def app(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Answer a request."""

    def start(status: str, headers: list[tuple[str, str]]) -> None:
        start_response(status, [*headers, ("X-Process", str(os.getpid()))])

    store()
    return cast("Iterable[bytes]", web.app(environ, start))


def store() -> Store:
    """Return the store of this process."""
    store = web.store()
    wait_for_both(store._client)
    return store


def wait_for_both(client: Any) -> None:
    """Wait until a client knows both mongoses: before that no retry can move."""
    deadline = time.monotonic() + 10
    while len(client.nodes) < 2:
        assert time.monotonic() < deadline, "not all mongoses were found"
        time.sleep(0.005)


def load() -> tuple[int, int]:
    """Use the store of this process; return which that is, and how many operations failed."""
    return os.getpid(), sum(fails() for _ in range(OPERATIONS))


def fails() -> bool:
    """Return whether an operation fails."""
    try:
        store().in_stock("tea")
    except PyMongoError:
        return True
    return False


if __name__ == "__main__":
    host, port = sys.argv[1].split(":")
    with make_server(host, int(port), app) as server:
        server.serve_forever()
