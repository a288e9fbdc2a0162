"""The bulkWrite of MongoDB 8.0, done by single writes on the real mongod."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Iterator

import pymongo
import pytest

from pymongo_deprio.cluster import CommandFailedError

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalMongos

from_4_9 = pytest.mark.skipif(
    pymongo.version_tuple < (4, 9), reason="PyMongo has MongoClient.bulk_write from 4.9 on"
)


@pytest.fixture
def modern(near: LocalMongos) -> Iterator[Any]:
    """Give a client of one mongos that speaks as one of MongoDB 8.0, with an empty database."""
    with near.speak(25), closing(near.client()) as client:
        client.drop_database("bulk")
        client.bulk["there"].insert_one({"_id": 0})
        yield client


@from_4_9
def test_all_kinds_of_writes(modern: Any) -> None:
    """Each write takes place, and the result counts it."""
    on: Any = {"namespace": "bulk.c"}
    result = modern.bulk_write(
        [
            pymongo.InsertOne({"_id": 1}, **on),
            pymongo.InsertOne({"_id": 2}, namespace="bulk.d"),
            pymongo.UpdateOne({"_id": 1}, {"$inc": {"n": 1}}, **on),
            pymongo.UpdateOne({"_id": 3}, {"$inc": {"n": 1}}, upsert=True, **on),
            pymongo.ReplaceOne({"_id": 3}, {"n": 5}, **on),
            pymongo.UpdateMany({}, {"$set": {"q": 1}}, **on),
            pymongo.DeleteOne({"_id": 2}, namespace="bulk.d"),
            pymongo.DeleteMany({"n": 5}, **on),
        ],
        verbose_results=True,
    )
    assert (result.inserted_count, result.deleted_count) == (2, 2)
    assert (result.matched_count, result.modified_count, result.upserted_count) == (4, 4, 1)
    assert result.update_results[3].upserted_id == 3
    assert list(modern.bulk.c.find()) == [{"_id": 1, "n": 1, "q": 1}]
    assert modern.bulk.d.count_documents({}) == 0


@from_4_9
@pytest.mark.parametrize("ordered", [True, False])
def test_an_error_in_one_write(modern: Any, ordered: bool) -> None:
    """An ordered one ends at the first error, an unordered one does the others."""
    requests = [pymongo.InsertOne({"_id": number}, namespace="bulk.c") for number in (1, 1, 2)]
    with pytest.raises(pymongo.errors.ClientBulkWriteException) as caught:
        modern.bulk_write(requests, ordered=ordered)
    errors: Any = caught.value.write_errors
    assert [(error["idx"], error["code"]) for error in errors] == [(1, 11000)]
    assert modern.bulk.c.count_documents({}) == (1 if ordered else 2)


@from_4_9
def test_in_a_transaction(modern: Any) -> None:
    """The writes belong to the transaction that the first of them begins."""
    requests = [pymongo.InsertOne({"_id": number}, namespace="bulk.there") for number in (1, 2)]
    with modern.start_session() as session:
        session.start_transaction()
        modern.bulk_write(requests, session=session)
        assert modern.bulk.there.count_documents({}) == 1
        session.commit_transaction()
    assert modern.bulk.there.count_documents({}) == 3


@from_4_9
def test_a_retry_does_nothing_twice(modern: Any, near: LocalMongos) -> None:
    """Executed and then reported as failed, it is sent again; each write took place once."""
    error = {"code": 6, "errmsg": "host unreachable"}
    increment = pymongo.UpdateOne({"_id": 0}, {"$inc": {"n": 1}}, namespace="bulk.there")
    near.commands(reset=True)
    with near.fail_command("bulkWrite", times=1, write_concern_error=error):
        modern.bulk_write([increment] * 3)
    assert near.commands()["bulkWrite"] == 2
    assert modern.bulk.there.find_one() == {"_id": 0, "n": 3}


def test_only_where_it_is_spoken_of(near: LocalMongos) -> None:
    """A mongos that does not speak of MongoDB 8.0 does not have the command."""
    with pytest.raises(CommandFailedError) as caught:
        near.command({"bulkWrite": 1, "ops": [], "nsInfo": []})
    assert caught.value.code == 59
    with near.speak(25):
        reply = near.command({"bulkWrite": 1, "ops": [], "nsInfo": []})
    assert (reply["ok"], reply["nInserted"]) == (1, 0)


@pytest.mark.parametrize(
    "operation",
    [
        {"find": 0},
        {"insert": 1, "document": {}},
        {"insert": -1, "document": {}},
        {"insert": "bulk.c", "document": {}},
        {"insert": None, "document": {}},
        {},
    ],
)
def test_what_is_no_write(near: LocalMongos, operation: Any) -> None:
    """An unknown kind or namespace is refused."""
    command = {"bulkWrite": 1, "ops": [operation], "nsInfo": [{"ns": "bulk.c"}]}
    with near.speak(25), pytest.raises(CommandFailedError) as caught:
        near.command(command)
    assert caught.value.code == 9


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"ops": 5}, 14),
        ({"ops": None}, 14),
        ({"ops": [5]}, 14),
        ({"nsInfo": "bulk.c"}, 14),
        ({"nsInfo": [None]}, 14),
        ({"nsInfo": [{}]}, 9),
        ({"nsInfo": [{"ns": 5}]}, 9),
        ({"ops": [{"insert": 0}]}, 16),
        ({"ops": [{"update": 0}]}, 40414),
    ],
)
def test_what_is_no_bulk_write(near: LocalMongos, given: Any, code: int) -> None:
    """It gets an error, from the mongos or from the mongod, and its connection is not closed."""
    whole = {"ops": [{"insert": 0, "document": {}}], "nsInfo": [{"ns": "bulk.c"}]}
    with near.speak(25), pytest.raises(CommandFailedError) as caught:
        near.command({"bulkWrite": 1, **whole, **given})
    assert caught.value.code == code
