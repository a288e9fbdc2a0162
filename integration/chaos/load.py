"""The load: mixed operations, written once for threads with a MongoClient and for tasks.

It has what PyMongo retries, and the getMore, which it does not.
"""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Any, Awaitable, Callable, Coroutine, NamedTuple

from model import SENT_WITHOUT_RETRY, Model
from pymongo import InsertOne, UpdateOne
from pymongo.errors import PyMongoError
from support import finished

if TYPE_CHECKING:
    import threading
    from concurrent.futures import Future

DATABASE = "chaos"
BATCHES = 3
AWAIT_MS = 100
QUIET_READS = 15


class Side(NamedTuple):
    """A client, and how coroutines are run with it: in threads, or as tasks of a loop."""

    name: str
    client: Any
    submit: Callable[[Coroutine[Any, Any, Any]], Future[Any]]
    sleep: Callable[[float], Any]


class Worker:
    """One thread or task that does one operation after the other."""

    def __init__(self, side: Side, index: int, seed: int, model: Model) -> None:
        self._name = f"{side.name} {index}"
        self._side = side
        self._database = side.client[DATABASE]
        self._chance = random.Random(f"{seed} {self._name}")
        self._model = model

    async def work(self, until: threading.Event) -> None:
        """Do operations by chance."""
        while not until.is_set():
            kind = self._chance.choice(list(OPERATIONS))
            since = time.monotonic()
            without_retry: list[str] = []
            SENT_WITHOUT_RETRY.set(without_retry)
            try:
                await OPERATIONS[kind](self, kind)
            except PyMongoError as error:
                if without_retry:
                    # So do newer ones if the mongos was found sick after it was selected, while
                    # a connection was opened to it. They do the same without the patch.
                    self._model.expect("write that PyMongo does not retry")
                else:
                    self._model.violated(f"{kind} of {self._name} failed: {error!r}", since)
            self._model.ended(kind, since)
            await finished(self._side.sleep(self._chance.uniform(0, 0.03)))

    async def find_one(self, kind: str) -> None:
        """Read one of the documents that were there before."""
        wanted = {"_id": self._chance.randrange(7)}
        found = await finished(self._database.fixed.find_one(wanted))
        if found != wanted:
            self._model.violated(f"find_one({wanted}) found {found}")

    async def find(self, kind: str) -> None:
        """Read them all, by three getMores."""
        cursor = self._database.fixed.find(sort=[("_id", 1)], batch_size=2)
        found = [await finished(cursor.next())]
        try:
            while len(found) < 7:
                found.append(await finished(cursor.next()))
        except PyMongoError:
            # A getMore belongs to the mongos that has the cursor, and PyMongo does not retry it.
            self._model.expect("getMore failed")
        finally:
            await finished(cursor.close())
        if [document["_id"] for document in found] != list(range(len(found))):
            self._model.violated(f"a cursor gave {found}")

    async def insert_one(self, kind: str) -> None:
        """Write one document."""
        (number,) = self._numbers(kind, 1)
        await finished(self._database.written.insert_one({"number": number, "updates": 0}))
        self._model.acknowledged[number] = 0

    async def bulk(self, kind: str) -> None:
        """Write and update some, in several batches if it is ordered."""
        numbers = self._numbers(kind, BATCHES)
        requests: list[Any] = []
        for number in numbers:
            # By _id, as there is no index on the number.
            _id = f"{self._name} {number}"
            requests.append(InsertOne({"_id": _id, "number": number, "updates": 0}))
            if kind == "ordered bulk":
                requests.append(UpdateOne({"_id": _id}, {"$inc": {"updates": 1}}))
        ordered = kind == "ordered bulk"
        written = await finished(self._database.written.bulk_write(requests, ordered=ordered))
        self._model.acknowledged.update(dict.fromkeys(numbers, int(ordered)))
        if written.inserted_count != BATCHES or written.modified_count != ordered * BATCHES:
            self._model.violated(f"{kind} of {numbers} gave {written.bulk_api_result}")

    async def transaction(self, kind: str) -> None:
        """Write a document and count it, both or none."""
        (number,) = self._numbers(kind, 1)

        async def body(session: Any) -> None:
            written, counters = self._database.written, self._database.counters
            document = {"number": number, "updates": 0}
            await finished(written.insert_one(document, session=session))
            count = {"$inc": {"count": 1}}
            await finished(counters.update_one({"_id": self._name}, count, session=session))

        callback = body if self._side.name == "tasks" else lambda session: plain(body(session))
        session = self._side.client.start_session()
        try:
            await finished(session.with_transaction(callback))
        except PyMongoError:
            self._model.unknown_transactions[self._name] += 1
            raise
        finally:
            await finished(session.end_session())
        self._model.acknowledged[number] = 0
        self._model.transactions[self._name] += 1

    def _numbers(self, kind: str, count: int) -> list[int]:
        numbers = [next(self._model.numbers) for _ in range(count)]
        self._model.attempted.update(dict.fromkeys(numbers, kind))
        return numbers


OPERATIONS: dict[str, Callable[[Worker, str], Awaitable[None]]] = {
    "find_one": Worker.find_one,
    "find": Worker.find,
    "insert_one": Worker.insert_one,
    "ordered bulk": Worker.bulk,
    "unordered bulk": Worker.bulk,
    "transaction": Worker.transaction,
}


async def watch(side: Side, model: Model, opened: threading.Event, until: threading.Event) -> None:
    """Read what is inserted, and in the end until nothing comes any more."""
    seen = model.streams[side.name] = []
    collection = side.client[DATABASE].written
    only_inserts = [{"$match": {"operationType": "insert"}}]
    stream = await finished(collection.watch(only_inserts, max_await_time_ms=AWAIT_MS))
    opened.set()
    quiet = 0
    try:
        while not until.is_set() or quiet < QUIET_READS:
            change = await finished(stream.try_next())
            quiet = 0 if change else quiet + 1
            if change:
                seen.append((change["clusterTime"], change["fullDocument"]["number"]))
    except PyMongoError as error:
        model.violated(f"the change stream of {side.name} failed: {error!r}", time.monotonic())
    finally:
        await finished(stream.close())


def plain(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that awaits nothing, as it uses a MongoClient."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError(f"{coroutine!r} waits for an event loop")
