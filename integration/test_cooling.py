"""Cooldown: a mongos that fails what another one does is left out for a while."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
import time
import weakref
from collections import Counter
from contextlib import ExitStack, closing, contextmanager
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pytest
from pymongo import WriteConcern
from pymongo.errors import OperationFailure, PyMongoError
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    MARKS_UNKNOWN,
    RETRYABLE,
    VERSION,
    Asked,
    connect_async,
    exit_status,
    knows_all,
    prefer,
    run,
    wait_until,
    wait_until_async,
    wait_until_gone,
)

import pymongo_deprio
from pymongo_deprio import Cooldown, CooldownEnded, CooldownStarted, Retry, _activation
from pymongo_deprio._cooldown import Suspicion

if TYPE_CHECKING:
    from pymongo_deprio import Event
    from pymongo_deprio.cluster import Cluster

asynchronous = pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
sick_ones_stay_known = pytest.mark.skipif(
    MARKS_UNKNOWN,
    reason="PyMongo 3.9 and 3.10 mark a server that failed Unknown: nobody goes there",
)
LONG = Cooldown(base=1000, maximum=1000)
SHORT = Cooldown(base=0.2, maximum=0.2)


@pytest.fixture
def events() -> list[Event]:
    """Return where the events of a test are collected."""
    return []


@contextmanager
def enabled(
    events: list[Event], cooldown: Cooldown | bool = LONG
) -> Iterator[pymongo_deprio.Activation]:
    """Enable the patch with cooldown, and collect what it reports."""
    with pymongo_deprio.enable(on_event=events.append, strict=True, cooldown=cooldown) as handle:
        yield handle
    assert _activation._state.memory.is_empty


def of(kind: type, events: list[Event]) -> list[Any]:
    """Return the events of one kind."""
    return [event for event in list(events) if isinstance(event, kind)]


def convict(client: Any, sick: Any) -> None:
    """Let one operation fail on a mongos, and succeed on another; the client prefers the former."""
    knows_all(client)
    with sick.fail_command("find", times=1, error_code=HOST_UNREACHABLE):
        client.test.cooldown.find_one()
    knows_all(client)


def test_a_sick_mongos_is_left_out(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """After one wasted attempt no operation begins on the mongos that failed, reads and writes."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    before = pymongo_deprio.stats()
    with enabled(events), sick.fail_command("find", error_code=HOST_UNREACHABLE):
        for _ in range(50):
            knows_all(client)
            client.test.cooldown.find_one()
            client.test.cooldown.insert_one({})
    assert asked.where("started", "find") == [sick.address] + [well.address] * 50
    assert set(asked.where("started", "insert")) == {well.address}
    (started,) = of(CooldownStarted, events)
    assert (started.address, started.strikes) == (sick.address, 1)
    assert 850 <= started.seconds <= 1150
    after = pymongo_deprio.stats()
    assert after.convictions - before.convictions == 1
    assert after.avoided - before.avoided == 99
    assert after.retries - before.retries == len(of(Retry, events)) == 1
    client.test.cooldown.drop()


def test_a_probe_ends_it(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """Once the mongos is well the first probe ends its cooldown; it is used like any other then."""
    sick = cluster.mongos[0]
    client = connect(server_selector=prefer(sick.address))
    before = pymongo_deprio.stats()
    with enabled(events, SHORT):
        with sick.fail_command("find", error_code=HOST_UNREACHABLE):
            while len(of(CooldownStarted, events)) < 3:
                knows_all(client)
                client.test.cooldown.find_one()
        assert not of(CooldownEnded, events)
        knows_all(client)
        wait_until(
            lambda: client.test.cooldown.find_one() or of(CooldownEnded, events),
            "one that succeeds",
        )
        asked.reset()
        for _ in range(10):
            client.test.cooldown.find_one()
        assert asked.where("started") == [sick.address] * 10
    assert of(CooldownEnded, events) == [CooldownEnded(sick.address, "success")]
    strikes = [event.strikes for event in of(CooldownStarted, events)]
    assert strikes == list(range(1, len(strikes) + 1))
    # One for each strike but the first, and the one that succeeded.
    assert pymongo_deprio.stats().probes - before.probes == len(strikes)


@asynchronous
def test_asynchronously(cluster: Cluster, asked: Asked, events: list[Event]) -> None:
    """AsyncMongoClient leaves it out, probes it, and uses it again."""
    sick = cluster.mongos[0]
    selector = prefer(sick.address)

    async def main() -> None:
        async with connect_async(cluster, asked, server_selector=selector) as client:
            with sick.fail_command("find", error_code=HOST_UNREACHABLE):
                while len(of(CooldownStarted, events)) < 2:
                    await client.test.cooldown.find_one()
            assert asked.where("started", "find").count(sick.address) == 2
            while not of(CooldownEnded, events):
                await client.test.cooldown.find_one()
            asked.reset()
            await client.test.cooldown.find_one()
            assert asked.where("started") == [sick.address]

    with enabled(events, SHORT):
        run(main())


# -- Under load ------------------------------------------------------------------------------------


@sick_ones_stay_known
@pytest.mark.parametrize("mongoses", ["cluster", "three"])
def test_threads(
    request: pytest.FixtureRequest,
    mongoses: str,
    connect: Callable[..., Any],
    asked: Asked,
    events: list[Event],
) -> None:
    """20 threads waste at most 0.02 attempts per operation on the sick mongos, and lose none."""
    cluster = request.getfixturevalue(mongoses)
    sick = cluster.mongos[0]
    client = connect(cluster)
    knows_all(client, len(cluster.mongos))
    stop = time.monotonic() + 1.5
    operations: Counter[int] = Counter()

    def read(thread: int) -> None:
        while time.monotonic() < stop:
            client.test.cooldown.find_one()
            operations[thread] += 1

    with enabled(events, True), sick.fail_command("find", error_code=HOST_UNREACHABLE):
        in_threads(20, read)
        wasted = asked.where("started", "find").count(sick.address)
    # The first moment's, which all threads may begin in, are one each.
    assert wasted <= 20 + 0.02 * sum(operations.values())
    assert len(of(CooldownStarted, events)) <= 3


@asynchronous
def test_tasks(cluster: Cluster, asked: Asked, events: list[Event]) -> None:
    """200 tasks waste no more."""
    sick = cluster.mongos[0]

    async def main() -> None:
        async with connect_async(cluster, asked) as client:

            async def read() -> None:
                for _ in range(10):
                    await client.test.cooldown.find_one()

            await asyncio.gather(*(read() for _ in range(200)))

    with enabled(events), sick.fail_command("find", error_code=HOST_UNREACHABLE):
        run(main())
    assert len(of(CooldownStarted, events)) == 1
    # The first moment's, which the pool's 100 connections bound.
    assert asked.where("started", "find").count(sick.address) <= 200


def test_a_mongos_that_hangs(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """It holds one operation for each probe, and never two; the others do not come near it."""
    sick = cluster.mongos[0]
    client = connect(server_selector=prefer(sick.address), socketTimeoutMS=1000)
    client.test.cooldown.find_one()
    held: list[tuple[float, float]] = []
    began = threading.local()

    def listener(event: Event) -> None:
        events.append(event)
        if isinstance(event, Retry):
            assert event.failed == (sick.address,)
            held.append((began.at, time.monotonic()))

    def read(thread: int) -> None:
        while len(of(CooldownStarted, events)) < 3:
            began.at = time.monotonic()
            client.test.cooldown.find_one()

    # A mongos that hangs altogether is found out by its monitor sooner or later.
    cooldown = Cooldown(base=0.1, maximum=10)
    with pymongo_deprio.enable(on_event=listener, cooldown=cooldown), sick.fail_command(
        "find", block_time_ms=3000
    ):
        began.at = time.monotonic()
        client.test.cooldown.find_one()
        in_threads(10, read)
    assert len(held) >= 3
    for (_, ended), (begins, _) in zip(sorted(held), sorted(held)[1:]):
        assert begins >= ended


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run something in several threads, and raise what it raised."""
    errors: list[BaseException] = []

    def caught(thread: int) -> None:
        try:
            work(thread)
        except BaseException as error:  # noqa: BLE001 - raised below
            errors.append(error)

    threads = [threading.Thread(target=caught, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


# -- Nobody is convicted without contrast ----------------------------------------------------------


@contextmanager
def everywhere(cluster: Cluster, *commands: str, **failure: Any) -> Iterator[None]:
    """Let all mongoses fail some commands."""
    with ExitStack() as failing:
        for mongos in cluster.mongos:
            failing.enter_context(mongos.fail_command(commands, **failure))
        yield


BEHIND: dict[str, dict[str, Any]] = {
    "remote shard": {"error_code": HOST_UNREACHABLE},
    "write conflict": {"error_code": 112},
    "maxTimeMS expired": {"error_code": 50},
}


@pytest.mark.parametrize("failure", BEHIND.values(), ids=list(BEHIND))
def test_a_fault_behind_the_mongoses(
    cluster: Cluster,
    connect: Callable[..., Any],
    events: list[Event],
    failure: dict[str, Any],
) -> None:
    """What fails on every mongos convicts nobody; the error is that of PyMongo."""
    client = connect()
    with enabled(events), everywhere(cluster, "find", **failure):
        for _ in range(20):
            knows_all(client)
            with pytest.raises(OperationFailure) as caught:
                client.test.cooldown.find_one()
            assert caught.value.code == failure["error_code"]
    assert not of(CooldownStarted, events)


def test_an_exhausted_pool(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """An operation that found no connection free moves on, and convicts nobody."""
    busy, other = cluster.mongos
    client = connect(server_selector=prefer(busy.address), maxPoolSize=1, waitQueueTimeoutMS=50)
    client.test.cooldown.find_one()
    with enabled(events), busy.fail_command("find", times=1, block_time_ms=1000):
        holder = threading.Thread(target=client.test.cooldown.find_one)
        asked.reset()
        holder.start()
        wait_until(lambda: asked.where("started", "find"), "the holder of the connection")
        for _ in range(3):
            # Some take it for a network error.
            knows_all(client)
            client.test.cooldown.find_one()
        holder.join()
    assert asked.where("succeeded", "find") == [other.address] * 3 + [busy.address]
    assert [event.failed for event in of(Retry, events)] == [(busy.address,)] * 3
    assert not of(CooldownStarted, events)


def test_one_mongos(cluster: Cluster, connect: Callable[..., Any], events: list[Event]) -> None:
    """Where there is no other nothing ever cools down."""
    mongos = cluster.mongos[0]
    client = connect(mongos)
    with enabled(events):
        for _ in range(10):
            with mongos.fail_command("find", times=1, error_code=HOST_UNREACHABLE):
                knows_all(client, 1)
                client.test.cooldown.find_one()
    assert len(of(Retry, events)) == 10
    assert not of(CooldownStarted, events)


# -- Weaker than everything else -------------------------------------------------------------------


def test_all_are_cooling(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    events: list[Event],
    waits_of: Callable[[Any], list[None]],
) -> None:
    """Selection is then as without cooldown, and at once: both are used."""
    client = connect()
    both = [mongos.address for mongos in cluster.mongos]
    with enabled(events):
        knows_all(client)
        waits = waits_of(client)
        asked.reset()
        for _ in range(60):
            # One success ends it for the mongos where it was.
            _activation._state.memory.judge(
                client._topology._settings, ("none", 0), 0.0, [Suspicion(one, 0.0) for one in both]
            )
            client.test.cooldown.find_one()
        assert set(asked.where("started")) == set(both)
        assert not waits


def test_the_operations_own_failure_is_stronger(
    three: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """When nothing else is left, a retry takes a cooling mongos rather than the one that failed."""
    cooling, failing, closed = (mongos.address for mongos in three.mongos)
    client = connect(
        three,
        server_selector=lambda servers: prefer(cooling, failing)(
            [server for server in servers if server.address != closed]
        ),
    )
    with enabled(events):
        convict(client, three.mongos[0])
        knows_all(client, 3)
        asked.reset()
        with three.mongos[1].fail_command("find", times=1, error_code=HOST_UNREACHABLE):
            client.test.cooldown.find_one()
        assert asked.where("started") == [failing, cooling]
        (retry,) = of(Retry, events)[1:]
        assert retry.deprioritized == (cooling, failing)
        assert retry.failed == (failing,)
        assert retry.fallback


def test_the_applications_selector_is_stronger(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    events: list[Event],
    waits_of: Callable[[Any], list[None]],
) -> None:
    """A selector that accepts only the cooling mongos gets it at once."""
    sick = cluster.mongos[0]
    only: list[Any] = []
    client = connect(
        server_selector=lambda servers: (
            [server for server in servers if server.address in only]
            if only
            else prefer(sick.address)(servers)
        )
    )
    with enabled(events):
        convict(client, sick)
        only.append(sick.address)
        waits = waits_of(client)
        asked.reset()
        client.test.cooldown.find_one()
        assert asked.where("started") == [sick.address]
        assert not waits


def test_pins_stay(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """Open cursors and transactions on a mongos that begins to cool go on there."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    client.test.cooldown.insert_many([{"n": number} for number in range(10)])
    with enabled(events), client.start_session() as session:
        cursor = client.test.cooldown.find(batch_size=2)
        next(cursor)
        session.start_transaction()
        client.test.cooldown.update_one({"n": 1}, {"$set": {"seen": 1}}, session=session)
        convict(client, sick)
        asked.reset()
        client.test.cooldown.find_one()
        assert len(list(cursor)) == 9
        client.test.cooldown.update_one({"n": 2}, {"$set": {"seen": 1}}, session=session)
        session.commit_transaction()
        assert asked.where("started", "find") == [well.address]
        pinned = asked.where("started", "getMore", "update", "commitTransaction")
        assert set(pinned) == {sick.address}
        # What was bound to it proves nothing.
        assert not of(CooldownEnded, events)
        asked.reset()
        client.test.cooldown.find_one()
        assert asked.where("started", "find") == [well.address]
    assert client.test.cooldown.count_documents({"seen": 1}) == 2
    client.test.cooldown.drop()


def update_many(client: Any) -> None:
    """Do what PyMongo does not retry."""
    client.test.cooldown.update_many({}, {"$set": {"n": 1}})


def read(client: Any) -> None:
    """Do what PyMongo retries, if the client does not forbid it."""
    client.test.cooldown.find_one()


def count(client: Any) -> None:
    """Do the same by another way of PyMongo's."""
    client.test.cooldown.count_documents({})


def read_in_a_transaction(client: Any) -> None:
    """Do what is not retried, as it is in a transaction."""
    with client.start_session() as session, session.start_transaction():
        client.test.cooldown.find_one(session=session)


def commit(client: Any) -> None:
    """Do what is retried, and decides whether a transaction took place."""
    with client.start_session() as session:
        session.start_transaction()
        client.test.cooldown.insert_one({}, session=session)
        session._transaction.pinned_address = None  # as after a failed commit
        session.commit_transaction()


@pytest.mark.parametrize(
    ("operation", "options", "probes"),
    [
        (update_many, {}, 0),
        (read_in_a_transaction, {}, 0),
        (commit, {}, 0),
        (read, {"retryReads": False, "retryWrites": False}, 0),
        (read, {}, 10),
        (count, {}, 10),
    ],
)
def test_what_is_not_retried_does_not_probe(
    cluster: Cluster,
    connect: Callable[..., Any],
    events: list[Event],
    operation: Callable[[Any], None],
    options: dict[str, Any],
    probes: int,
) -> None:
    """An operation that PyMongo would not retry does not fail for the sake of a probe."""
    client = connect(**options)
    before = pymongo_deprio.stats().probes
    with enabled(events), everywhere(
        cluster, "find", "update", "aggregate", error_code=HOST_UNREACHABLE
    ):
        for number in range(10):
            knows_all(client)
            convicted_long_ago(client, cluster.mongos[0].address)
            assert pymongo_deprio.stats().probes - before == min(number, probes)
            with contextlib.suppress(PyMongoError):
                operation(client)
    assert pymongo_deprio.stats().probes - before == probes


def convicted_long_ago(client: Any, address: Any) -> None:
    """Let the time of a mongos's cooldown be over."""
    memory = _activation._state.memory
    settings = client._topology._settings
    memory.judge(settings, ("none", 0), 0.0, [Suspicion(address, 0.0)])
    memory._cooldowns[settings]._cooling[address].seconds = 0.0


def nobody_is_cooling(client: Any) -> bool:
    """Look into the memory, without a probe."""
    known = client._topology._description.server_descriptions()
    plan, _ = _activation._state.memory.plan(client._topology._settings, known)
    return not plan.cooling


# -- What ends it ----------------------------------------------------------------------------------


def test_disable_in_mid_cooldown(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """From another thread, in mid-operation: everything is forgotten, the operation goes on."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    with enabled(events):
        convict(client, sick)

        def disable(what: str, command: str, address: Any) -> None:
            if what == "started":
                thread = threading.Thread(target=pymongo_deprio.disable)
                thread.start()
                thread.join()

        asked.reset()
        asked.hook = disable
        client.test.cooldown.find_one()
        asked.hook = lambda *event: None
        assert _activation._state.memory.is_empty
        client.test.cooldown.find_one()
        assert asked.where("started") == [well.address, sick.address]
        with pymongo_deprio.enable(cooldown=LONG):
            client.test.cooldown.find_one()
        assert asked.where("started")[2:] == [sick.address]


def test_other_options(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """The latest call counts: with other options, what was cooling is forgotten."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    with enabled(events):
        convict(client, sick)
        asked.reset()
        with pymongo_deprio.enable(cooldown=LONG):
            client.test.cooldown.find_one()
        with pymongo_deprio.enable():
            client.test.cooldown.find_one()
        client.test.cooldown.find_one()
        assert asked.where("started") == [well.address, sick.address, sick.address]


def test_a_mongos_that_leaves(
    cluster: Cluster, connect: Callable[..., Any], events: list[Event]
) -> None:
    """An address that is gone from the topology, as by SRV polling, is forgotten."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    with enabled(events):
        convict(client, sick)
        client._topology.on_srv_update([well.address])
        client.test.cooldown.find_one()
        assert of(CooldownEnded, events) == [CooldownEnded(sick.address, "left")]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:MongoClient opened before fork:UserWarning")
def test_fork_in_mid_cooldown(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """The child has forgotten what was cooling; the parent has not."""
    sick, well = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    with enabled(events):
        convict(client, sick)
        child = os.fork()
        if child == 0:
            os._exit(0 if first_find_of_a_child(cluster) == sick.address else 1)
        assert exit_status(child) == 0
        asked.reset()
        client.test.cooldown.find_one()
        assert asked.where("started") == [well.address]


def first_find_of_a_child(cluster: Cluster) -> Any:
    """Return where a find of a forked child goes, if the memory is empty there."""
    if not _activation._state.memory.is_empty:
        return None
    asked = Asked()
    options: Any = {"event_listeners": [asked], "localThresholdMS": 1000}
    with closing(
        cluster.client(server_selector=prefer(cluster.mongos[0].address), **options)
    ) as client:
        client.test.cooldown.find_one()
    return asked.where("started", "find")[0]


def test_clients_that_are_dropped(cluster: Cluster, events: list[Event]) -> None:
    """Nothing of a client is kept when it is gone, and no client knows of another's mongoses."""
    sick = cluster.mongos[0]
    gone: list[Any] = []
    with enabled(events):
        for number in range(10):
            with closing(
                cluster.client(server_selector=prefer(sick.address), localThresholdMS=1000)
            ) as client:
                convict(client, sick)
                assert len(of(CooldownStarted, events)) == number + 1
                gone.append(weakref.ref(client._topology._settings))
            del client
        # An event keeps its error, and that the frames of the operation.
        events.clear()
        wait_until_gone(*gone)


def test_a_probe_that_is_given_up(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """A probe whose operation fails everywhere leaves the way to another one, after a while."""
    sick, _ = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    with enabled(events, Cooldown(base=0.2, maximum=0.2)):
        convict(client, sick)
        with everywhere(cluster, "find", error_code=HOST_UNREACHABLE):
            for _ in range(3):
                wait_until(lambda: nobody_is_cooling(client), "the time to be over")
                knows_all(client)
                asked.reset()
                with pytest.raises(PyMongoError):
                    client.test.cooldown.find_one()
                assert asked.where("started", "find")[0] == sick.address
                assert not nobody_is_cooling(client)
        assert len(of(CooldownStarted, events)) == 1
        wait_until(lambda: nobody_is_cooling(client), "the time to be over")
        knows_all(client)
        client.test.cooldown.find_one()
        assert of(CooldownEnded, events) == [CooldownEnded(sick.address, "success")]


def test_a_probe_whose_time_is_up(
    cluster: Cluster, connect: Callable[..., Any], events: list[Event]
) -> None:
    """A probe that fails without a retry, as its time is up, is not followed by another at once."""
    sick, _ = cluster.mongos
    client = connect()
    before = pymongo_deprio.stats().probes
    with enabled(events), sick.fail_command("find", error_code=50):
        knows_all(client)
        convicted_long_ago(client, sick.address)
        memory = _activation._state.memory
        memory._cooldowns[client._topology._settings]._cooling[sick.address].seconds = 1000.0
        memory._cooldowns[client._topology._settings]._cooling[sick.address].began -= 2000.0
        with pytest.raises(OperationFailure):
            client.test.cooldown.find_one()
        for _ in range(20):
            client.test.cooldown.find_one()
    assert pymongo_deprio.stats().probes == before + 1


def test_an_unacknowledged_write_proves_nothing(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """It succeeds on every mongos that takes its bytes; the cooldown goes on."""
    sick, _ = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    unacknowledged = client.test.get_collection("cooldown", write_concern=WriteConcern(w=0))
    with enabled(events):
        knows_all(client)
        convicted_long_ago(client, sick.address)
        unacknowledged.insert_one({})
        assert asked.where("started", "insert") == [sick.address]
        assert not of(CooldownEnded, events)


def test_a_retry_does_not_try_its_luck(
    three: Cluster, connect: Callable[..., Any], asked: Asked, events: list[Event]
) -> None:
    """While there is a third mongos, it leaves out one that nobody has probed yet."""
    convicted, failing, well = (mongos.address for mongos in three.mongos)
    client = connect(three, server_selector=prefer(failing, convicted))
    with enabled(events), three.mongos[1].fail_command("find", error_code=HOST_UNREACHABLE):
        knows_all(client, 3)
        convicted_long_ago(client, convicted)
        asked.reset()
        client.test.cooldown.find_one()
    assert asked.where("started") == [failing, well]


@pytest.mark.skipif(VERSION < (4, 11), reason="PyMongo 4.9 and 4.10 take it for a network error")
def test_a_probe_that_is_cancelled(cluster: Cluster, asked: Asked, events: list[Event]) -> None:
    """A task that is cancelled while it probes leaves the way to another one, after a while."""
    sick = cluster.mongos[0]
    selector = prefer(sick.address)

    async def main() -> None:
        async with connect_async(cluster, asked, server_selector=selector) as client:
            with sick.fail_command("find", times=1, error_code=HOST_UNREACHABLE):
                await client.test.cooldown.find_one()
            await wait_until_async(lambda: nobody_is_cooling(client), "the time to be over")
            asked.reset()
            with sick.fail_command("find", times=1, block_time_ms=1000):
                probe = asyncio.ensure_future(client.test.cooldown.find_one())
                await wait_until_async(lambda: asked.where("started", "find"), "the probe")
                assert not nobody_is_cooling(client)
                probe.cancel()
                await asyncio.gather(probe, return_exceptions=True)
                assert not nobody_is_cooling(client), "the next one should not follow at once"
            await wait_until_async(lambda: nobody_is_cooling(client), "the time to be over again")
            await client.test.cooldown.find_one()
            assert asked.where("started", "find") == [sick.address] * 2

    with enabled(events, Cooldown(base=0.2, maximum=0.2)):
        run(main())
    assert of(CooldownEnded, events) == [CooldownEnded(sick.address, "success")]


def test_an_event_says_what_failed(
    cluster: Cluster, connect: Callable[..., Any], events: list[Event]
) -> None:
    """A retry carries the error of the attempt before it; so does each of several."""
    sick, _ = cluster.mongos
    client = connect(server_selector=prefer(sick.address))
    with enabled(events, False):
        knows_all(client)
        with sick.fail_command(["find", "insert"], **RETRYABLE):
            client.test.cooldown.find_one()
            knows_all(client)
            client.test.cooldown.insert_one({})
    errors = [event.error for event in of(Retry, events)]
    assert [error.code for error in errors] == [HOST_UNREACHABLE] * 2
    client.test.cooldown.drop()
