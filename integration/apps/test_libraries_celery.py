"""Celery's results in MongoDB are as before with the patch, and their retries move."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Iterator

import pytest
from celery import Celery
from celery.contrib.testing.worker import start_worker
from celery.result import AsyncResult, GroupResult
from coexistence import SHOP, Coexistence, Documents, Shop, each
from pymongo.errors import OperationFailure
from support import enabled_with_retries, knows_all, prefer

if TYPE_CHECKING:
    from coexistence import Call

KNOWN: dict[str, Any] = {
    "_id": "known",
    "status": "SUCCESS",
    "result": "5",
    "date_done": None,
    "traceback": None,
    "children": [],
}
GROUP = {"_id": "group", "result": '["known"]', "date_done": None}


@pytest.fixture(scope="session")
def documents() -> Documents:
    """Return a result and a group of one, as Celery keeps them."""
    return {"celery_taskmeta": [KNOWN], "celery_groupmeta": [GROUP]}


def store(app: Celery) -> Any:
    """Store the result of a task."""
    return app.backend.store_result("new", {"sum": 5}, "SUCCESS")


def store_failure(app: Celery) -> Any:
    """Store the exception of a task."""
    return repr(app.backend.mark_as_failure("new", ValueError("no tea"), traceback="here"))


def store_twice(app: Celery) -> Any:
    """Store a failure of a task that has succeeded already: the success stays."""
    app.backend.store_result("known", ValueError("late"), "FAILURE")
    return app.backend.get_task_meta("known", cache=False)["status"]


def read(app: Celery) -> Any:
    """Read a result."""
    return app.backend.get_task_meta("known", cache=False)


def read_nothing(app: Celery) -> Any:
    """Read one that is not there."""
    return app.backend.get_task_meta("unknown", cache=False)


def forget(app: Celery) -> Any:
    """Delete a result."""
    return app.backend.forget("known")


def save_group(app: Celery) -> Any:
    """Store which tasks make a group."""
    return GroupResult("new", [AsyncResult("known", app=app)], app=app).save(app.backend).id


def restore_group(app: Celery) -> Any:
    """Read a group."""
    return [result.id for result in app.backend.restore_group("group", cache=False)]


def delete_group(app: Celery) -> Any:
    """Delete a group."""
    return app.backend.delete_group("group")


def cleanup(app: Celery) -> Any:
    """Delete old results."""
    return app.backend.cleanup()


FUNCTIONS = (
    store,
    store_failure,
    store_twice,
    read,
    read_nothing,
    forget,
    save_group,
    restore_group,
    delete_group,
)
UNRETRIED = (cleanup,)


# Celery raises what PyMongo raises.
operation = each(FUNCTIONS, OperationFailure)
unretried = each(UNRETRIED, OperationFailure)


@pytest.fixture(scope="module")
def app(shop: Shop) -> Iterator[Celery]:
    """Return an application whose tasks stay in memory, and their results in the cluster."""
    app = Celery("shop", broker="memory://", backend=shop.uri, set_as_current=False)
    options = {"server_selector": prefer(shop.sick.address)}
    app.conf.broker_transport_options = {"polling_interval": 0.02}
    app.conf.mongodb_backend_settings = {"database": SHOP, "options": options}
    knows_all(app.backend.database.client)
    # Celery makes their indexes when it looks at them first, which PyMongo does not retry.
    assert app.backend.collection is not app.backend.group_collection
    yield app
    app.backend.database.client.close()
    app.close()


@pytest.fixture(scope="module")
def add(app: Celery) -> Iterator[Any]:
    """Return a task that a worker of this process runs."""
    clients = []

    @app.task  # type: ignore[untyped-decorator]
    def prepare() -> None:
        client = app.backend.collection.database.client
        knows_all(client)
        clients.append(client)

    @app.task  # type: ignore[untyped-decorator]
    def add(first: int, second: int) -> int:
        return first + second

    with start_worker(app, perform_ping_check=False):
        prepare.delay().get(timeout=20)
        yield add
    for client in clients:
        client.close()


@pytest.fixture(scope="module")
def call(app: Celery) -> Call:
    """Run functions of the application."""

    def run(function: Any) -> Any:
        knows_all(app.backend.database.client)
        return function(app)

    return run


class TestCelery(Coexistence):
    """It keeps a success against later results, by the error of the insert that fails."""


def test_a_worker(shop: Shop, documents: Documents, add: Any) -> None:
    """A worker and who waits for it store and find the result on the other mongos."""
    shop.reset(documents)
    with shop.sickness(), enabled_with_retries() as retries:
        assert add.delay(2, 3).get(timeout=20, interval=0.01) == 5
    sick, well = shop.asked()
    assert sick == well
    assert well["update"] == 1
    assert {(retry.failed, retry.chosen) for retry in retries} == {
        ((shop.sick.address,), shop.well.address)
    }


# Celery warns of a result that it could not store; as an error that would end the worker.
@pytest.mark.filterwarnings("ignore:Exception raised outside body:RuntimeWarning")
@pytest.mark.parametrize("is_enabled", [True, False], ids=["enabled", "alone"])
def test_a_worker_without_a_mongos(
    shop: Shop, documents: Documents, add: Any, *, is_enabled: bool
) -> None:
    """Who waits gets PyMongo's exception, with the patch as without; the worker goes on."""
    shop.reset(documents)
    patch = enabled_with_retries() if is_enabled else nullcontext()
    with shop.sickness(of_all=True), patch, pytest.raises(OperationFailure):
        add.delay(2, 3).get(timeout=20, interval=0.01)
    assert add.delay(2, 3).get(timeout=20, interval=0.01) == 5
