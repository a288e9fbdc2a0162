"""What every library that is built on PyMongo has to show; a file for each says how it is used."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, NamedTuple

import pytest
from bson import Binary, ObjectId
from pymongo.errors import AutoReconnect
from support import RETRYABLE, VERSION, enabled_with_retries

if TYPE_CHECKING:
    from pymongo import MongoClient

    from pymongo_deprio.cluster import LocalCluster, LocalMongos

SHOP = "shop"
"""The database that the libraries use."""
FAILING = ["aggregate", "delete", "distinct", "find", "findAndModify"]
FAILING += ["insert", "listIndexes", "update"]
CLOSED = {"close_connection": True}
ITSELF = {"configureFailPoint", "endSessions", "hello", "isMaster", "ismaster"}
"""What nobody asked for: drivers and fail points send it by themselves."""
GOES_BACK = VERSION < (4, 16)
"""Alone, PyMongo goes back to a mongos that failed, if a server_selector prefers that one."""

Call = Callable[[Any], Any]
"""Runs an operation's function, or coroutine, with a client that knows both mongoses."""
Documents = Dict[str, List[Dict[str, Any]]]
"""All documents of a database, by the names of the collections."""


class Operation(NamedTuple):
    """Something that a library does, and what it raises if that fails on every mongos."""

    function: Callable[..., Any]
    error: type[BaseException]


class Error(NamedTuple):
    """One of an exception and those that it was raised from."""

    type: type[BaseException]
    message: str
    code: Any
    labels: tuple[str, ...]


class Seen(NamedTuple):
    """What an application sees of an operation, and what is in the database afterwards."""

    result: Any
    errors: list[Error]
    documents: Documents


class Shop:
    """The cluster of an application, one mongos of which is preferred by all of its clients."""

    def __init__(self, cluster: LocalCluster, mongod: MongoClient[Any]) -> None:
        self.uri = cluster.uri
        self.sick: LocalMongos
        self.well: LocalMongos
        self.sick, self.well = cluster.mongos
        self._database = mongod[SHOP]

    def reset(self, documents: Documents) -> None:
        """Let these be all documents; indexes stay. No mongos takes part in it."""
        for name in self._database.list_collection_names():
            self._database[name].delete_many({})
        for name, several in documents.items():
            self._database[name].insert_many(several)
        self.asked(reset=True)

    def documents(self) -> Documents:
        """Return what is in each collection, but for times and keys that are made anew."""
        return {
            name: documents
            for name in sorted(self._database.list_collection_names())
            if (documents := _lasting(list(self._database[name].find().sort("_id"))))
        }

    def asked(self, *, reset: bool = False) -> tuple[Counter[str], Counter[str]]:
        """Return which commands the sick mongos was asked, and which the other."""
        return _asked(self.sick, reset=reset), _asked(self.well, reset=reset)

    @contextmanager
    def sickness(
        self, how: Mapping[str, Any] = RETRYABLE, *, of_all: bool = False
    ) -> Iterator[None]:
        """Let the sick mongos, or every one, fail all that can be retried."""
        with ExitStack() as stack:
            for mongos in [self.sick, self.well] if of_all else [self.sick]:
                stack.enter_context(mongos.fail_command(FAILING, **how))
            yield

    def see(self, call: Call, operation: Operation) -> Seen:
        """Run an operation."""
        result, errors = None, []
        try:
            result = call(operation.function)
        except Exception as error:  # noqa: BLE001 - any error is something that was seen
            errors = list(_chain(error))
        return Seen(_lasting(result), errors, self.documents())


def _asked(mongos: LocalMongos, *, reset: bool) -> Counter[str]:
    counts = mongos.commands(reset=reset)
    return Counter({name: count for name, count in counts.items() if name not in ITSELF})


def _lasting(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _lasting(value) for name, value in found.items()}
    if isinstance(found, list):
        return [_lasting(value) for value in found]
    return type(found) if isinstance(found, (Binary, datetime, ObjectId)) else found


def _chain(error: BaseException | None) -> Iterator[Error]:
    while error is not None:
        message, _, _ = str(error).partition(", full error")  # which has the server's clock
        labels = tuple(sorted(getattr(error, "_error_labels", ())))
        yield Error(type(error), message, getattr(error, "code", None), labels)
        error = error.__cause__ or error.__context__


def each(functions: Iterable[Callable[..., Any]], error: type[BaseException]) -> Any:
    """Return a fixture that gives each of these as an operation, which raises this error."""

    @pytest.fixture(params=functions, ids=lambda function: function.__name__)
    def operation(request: pytest.FixtureRequest) -> Operation:
        return Operation(request.param, error)

    return operation


class Coexistence:
    """What is promised of each operation of a library.

    Its file has the fixtures ``operation``, ``unretried`` (one that PyMongo does not retry),
    ``call`` and, if it needs others, ``documents``.
    """

    def test_a_retry_moves(
        self, shop: Shop, documents: Documents, call: Call, operation: Operation
    ) -> None:
        """With the patch, results and documents are those of a cluster that is well.

        Each command went to the sick mongos once, and then to the other one.
        """
        shop.reset(documents)
        usual = shop.see(call, operation)
        commands, _ = shop.asked()
        assert not usual.errors
        shop.reset(documents)
        with shop.sickness(), enabled_with_retries() as retries:
            assert shop.see(call, operation) == usual
        sick, well = shop.asked()
        assert sick == {name: count for name, count in commands.items() if name in FAILING}
        assert well == commands
        assert [(retry.failed, retry.chosen) for retry in retries] == [
            ((shop.sick.address,), shop.well.address)
        ] * sum(sick.values())

    def test_alone(
        self, shop: Shop, documents: Documents, call: Call, operation: Operation
    ) -> None:
        """Without the patch, the operation fails where PyMongo goes back to the sick mongos."""
        shop.reset(documents)
        with shop.sickness():
            seen = shop.see(call, operation)
        sick, well = shop.asked()
        if GOES_BACK:
            assert seen.errors[0].type is operation.error
            assert list(sick.values()) == [2]
            assert not well
        else:
            assert not seen.errors
            assert well

    def test_every_mongos_is_sick(
        self, shop: Shop, documents: Documents, call: Call, operation: Operation
    ) -> None:
        """The application gets the same exception as without the patch, from one more mongos."""
        shop.reset(documents)
        with shop.sickness(of_all=True):
            alone = shop.see(call, operation)
            shop.reset(documents)
            with enabled_with_retries() as retries:
                seen = shop.see(call, operation)
        sick, well = shop.asked()
        assert alone.errors[0].type is operation.error
        assert seen == alone
        assert seen.documents == _lasting(documents)
        assert sick == well
        assert list(sick.values()) == [1]
        assert [retry.chosen for retry in retries] == [shop.well.address]

    def test_a_connection_that_breaks(
        self, shop: Shop, documents: Documents, call: Call, operation: Operation
    ) -> None:
        """A mongos that closes connections is left as well, with the same results."""
        shop.reset(documents)
        usual = shop.see(call, operation)
        shop.reset(documents)
        with shop.sickness(CLOSED), enabled_with_retries() as retries:
            assert shop.see(call, operation) == usual
        assert not usual.errors
        assert {(retry.failed, retry.chosen) for retry in retries} == {
            ((shop.sick.address,), shop.well.address)
        }

    def test_every_connection_breaks(
        self, shop: Shop, documents: Documents, call: Call, operation: Operation
    ) -> None:
        """The application gets an exception of the same type as without the patch."""
        shop.reset(documents)
        with shop.sickness(CLOSED, of_all=True):
            alone = shop.see(call, operation)
            with enabled_with_retries():
                seen = shop.see(call, operation)
        assert AutoReconnect in (error.type for error in alone.errors)
        assert [error.type for error in seen.errors] == [error.type for error in alone.errors]
        assert seen.documents == _lasting(documents)

    def test_what_is_not_retried(
        self, shop: Shop, documents: Documents, call: Call, unretried: Operation
    ) -> None:
        """It fails on the sick mongos as without the patch, and the other one is not asked."""
        shop.reset(documents)
        assert not shop.see(call, unretried).errors
        shop.reset(documents)
        with shop.sickness():
            alone, asked = shop.see(call, unretried), shop.asked()
            shop.reset(documents)
            with enabled_with_retries() as retries:
                assert shop.see(call, unretried) == alone
        assert alone.errors[0].type is unretried.error
        assert alone.documents == documents
        assert shop.asked() == asked
        assert not asked[1]
        assert not retries
