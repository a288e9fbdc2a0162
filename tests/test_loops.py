"""Operations and attempts: what they cost, whom they belong to, and that they end."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import functools
import gc
import sys
import threading
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable

import pymongo
import pytest
from pymongo.errors import AutoReconnect
from pymongo.read_preferences import ReadPreference
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    RETRYABLE,
    VERSION,
    Asked,
    connect_async,
    knows_all,
    partly,
    run,
    wait_until_gone,
)

import pymongo_deprio
from pymongo_deprio import _activation, _seams
from pymongo_deprio._attempts import Attempts
from pymongo_deprio._loops import OPERATION, LoopObject
from pymongo_deprio._operation import LENT, Operation
from pymongo_deprio._patching import Switch

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import LocalCluster

PACKAGE = str(Path(pymongo_deprio.__file__).parent)
HAS_OBJECT = VERSION >= (4, 6)
needs_object = pytest.mark.skipif(not HAS_OBJECT, reason="from 4.6 on an object runs the loop")


def operations() -> list[Operation]:
    """Return all operations that anything still holds."""
    gc.collect()
    return [one for one in gc.get_objects() if type(one) is Operation]


def nothing_runs() -> bool:
    """Tell whether no operation has left anything."""
    return not operations() and OPERATION.get() is None and not LENT.get()


def running_loop() -> Any:
    """Return PyMongo's object that runs the loop, whose method has called this."""
    frame = sys._getframe()
    while frame.f_code.co_name != "running":
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_locals["loop"]


def has_failed() -> bool:
    """Tell whether an operation that runs is known to have failed somewhere."""
    return any(operation.failed for operation in operations())


def python_calls(call: Callable[[], object]) -> dict[str, int]:
    """Count the calls of our own functions while something is called."""
    calls: dict[str, int] = collections.Counter()

    def profile(frame: Any, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            calls[f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}"] += 1

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return dict(calls)


READ, WRITE = (
    ({"_loops.running": 1, "_loops.get": 1},) * 2
    if HAS_OBJECT
    else ({f"_loops.{loop}": 1, "_loops.select": 1} for loop in ("reading", "writing"))
)


@pytest.mark.parametrize(
    ("call", "wrappers"),
    [
        (lambda collection: collection.find_one(), READ),
        (lambda collection: collection.insert_one({}), WRITE),
    ],
    ids=["find_one", "insert_one"],
)
def test_what_a_successful_operation_costs(
    connect: Callable[..., Any],
    enabled: None,
    call: Callable[[Any], object],
    wrappers: dict[str, int],
) -> None:
    """Each wrapper is called once, and calls nothing of ours but what it wraps."""
    collection = connect().test.cost
    call(collection)
    # From 4.16 on one of the two selections of a topology takes a list by itself.
    lending = 1 if VERSION >= (4, 16) else 2
    assert python_calls(lambda: call(collection)) == {
        **wrappers,
        "_lending.lend": lending,
        "_wrappers.apply": 1,
    }


@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_a_client_is_collected(cluster: LocalCluster, enabled: None) -> None:
    """Monitors that were started inside an operation do not keep its client or task alive."""

    async def main() -> Any:
        async with connect_async(cluster) as client:
            await client.test.cost.find_one()
            return weakref.ref(client)

    wait_until_gone(run(main()))


def test_a_client_within_a_client(
    cluster: LocalCluster, connect: Callable[..., Any], asked: Asked, retries: list[Retry]
) -> None:
    """An operation inside another one, as a listener may start it, has failures of its own."""
    other = connect(event_listeners=[])
    client = connect()

    def read_from_the_other(what: str, command: str, address: Any) -> None:
        if what == "failed":
            other.test.nested.insert_one({})
            client.test.nested.insert_one({})

    asked.hook = read_from_the_other
    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        while len(retries) < 10:
            knows_all(client)
            client.test.nested.find_one()
    assert {event.failed for event in retries} == {(cluster.mongos[0].address,)}
    retries.clear()  # their errors have tracebacks, which hold operations
    assert nothing_runs()


def in_a_copied_context(call: Callable[[], object]) -> None:
    """Call something in another thread that has inherited this one's context."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=[call])
    thread.start()
    thread.join()


@pytest.mark.skipif(HAS_OBJECT, reason="the operation is no variable of a context")
@pytest.mark.parametrize("where", ["another client", "another thread"])
def test_a_selection_elsewhere_is_no_attempt(
    connect: Callable[..., Any], asked: Asked, retries: list[Retry], where: str
) -> None:
    """Even for the same selector and session: it has another client, or another thread."""
    client = connect()
    other = connect(event_listeners=[])
    client.test.nested.insert_one({})
    failed: list[bool] = []

    def select_once_more(what: str, command: str, address: Any) -> None:
        arguments = ReadPreference.PRIMARY, None
        if where == "another client":
            other._select_server(*arguments)
        else:
            in_a_copied_context(lambda: client._select_server(*arguments))
        failed.append(has_failed())

    asked.hook = select_once_more
    client.test.nested.find_one()
    asked.hook = lambda *event: None
    assert failed == [False, False]
    assert retries == []


@needs_object
def test_an_attempt_of_another_thread(
    cluster: LocalCluster, connect: Callable[..., Any], asked: Asked, retries: list[Retry]
) -> None:
    """What asks for a server elsewhere, in mid-operation, is none of the operation's attempts."""
    client = connect()

    def select_once_more(what: str, command: str, address: Any) -> None:
        if what == "started":
            in_a_copied_context(running_loop()._get_server)

    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        asked.hook = select_once_more
        while not retries:
            knows_all(client)
            client.test.nested.find_one()
        asked.hook = lambda *event: None
    assert [event.attempt for event in retries] == [2]


@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_a_cancelled_operation_leaves_nothing(
    cluster: LocalCluster, asked: Asked, enabled: None
) -> None:
    """After a cancellation in mid-operation the task has no operation, and the next one works."""

    async def main() -> None:
        async with connect_async(cluster, asked) as client:
            with ExitStack() as blocking:
                for mongos in cluster.mongos:
                    blocking.enter_context(mongos.fail_command(["find"], block_time_ms=200))
                for _ in range(3):
                    with suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(client.test.nested.find_one(), 0.05)
                        # These take a cancellation for a network error.
                        assert VERSION < (4, 11)
                    assert nothing_runs()
            await client.test.nested.find_one()

    run(main())


def test_an_operation_that_was_never_finished() -> None:
    """A coroutine that the garbage collector closes in another context raises nothing."""

    class Pending:
        def __await__(self) -> Any:
            yield self

    async def pending(loop: object) -> None:
        await Pending()

    switch = Switch()
    switch.is_on = True
    memory = _activation._state.memory
    loops = LoopObject(Attempts(_activation._state), memory, lambda: 0)
    coroutine: Any = loops.async_run(loops.async_get_server(pending, switch), switch)(Loop())
    elsewhere = contextvars.copy_context()
    elsewhere.run(coroutine.send, None)
    assert elsewhere.run(LENT.get) == []
    assert elsewhere.run(LENT.get) is not LENT.get()
    coroutine.close()
    assert nothing_runs()


class Loop:
    """Holds what PyMongo's object holds."""

    _client = SimpleNamespace(_topology=None)
    _session = _server = _address = _retryable = None
    _last_error = AutoReconnect()


def test_above_one_of_ours_that_is_off(
    cluster: LocalCluster, connect: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody's wrapper lies on one that is off: the one on top does all, and once."""
    failed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        Attempts, "failed", lambda self, operation, error: failed.append(operation.failed)
    )
    events: list[Any] = []
    client = connect()
    seams = _seams.find(_activation._state)
    for seam in seams:
        monkeypatch.setattr(seam.owner, seam.name, vars(seam.owner)[seam.name])
    with pymongo_deprio.enable(strict=True):
        for seam in seams:
            ours = vars(seam.owner)[seam.name]
            monkeypatch.setattr(seam.owner, seam.name, functools.wraps(ours)(partly(ours)))
    before = pymongo_deprio.stats()
    with ExitStack() as failing:
        for mongos in cluster.mongos:
            failing.enter_context(mongos.fail_command(["find"], error_code=HOST_UNREACHABLE))
        knows_all(client)
        with suppress(pymongo.errors.PyMongoError):
            client.test.above.find_one()
        assert (failed, pymongo_deprio.stats()) == ([], before)
        with pymongo_deprio.enable(strict=True, on_event=events.append):
            knows_all(client)
            with suppress(pymongo.errors.PyMongoError):
                client.test.above.find_one()
    assert [event.attempt for event in events] == [2]
    assert failed == [events[0].failed]


@pytest.mark.parametrize("change", ["enable", "disable", "disable and enable"])
def test_a_change_in_mid_operation(
    cluster: LocalCluster, connect: Callable[..., Any], asked: Asked, change: str
) -> None:
    """The operation goes on, and leaves nothing; what is on at its end still works."""
    client = connect(retryReads=True)
    events: list[Any] = []

    def on_failure(what: str, command: str, address: Any) -> None:
        if what == "failed" and not events:
            events.append("failed")
            if "disable" in change:
                pymongo_deprio.disable()
            if "enable" in change:
                pymongo_deprio.enable(on_event=events.append)

    asked.hook = on_failure
    if "disable" in change:
        pymongo_deprio.enable(on_event=events.append)
    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        while not events:
            knows_all(client)
            # Where PyMongo alone goes back to the sick mongos, the operation fails.
            with suppress(pymongo.errors.OperationFailure):
                client.test.changes.find_one()
    redirected = [event.failed for event in events[1:]]
    events.clear()  # their errors have tracebacks, which hold operations
    assert nothing_runs()
    assert redirected == ([(cluster.mongos[0].address,)] if "and" in change else [])
    pymongo_deprio.disable()


@needs_object
def test_pymongo_keeps_its_own_list(
    cluster: LocalCluster, connect: Callable[..., Any], asked: Asked, retries: list[Retry]
) -> None:
    """Put aside for one selection, it is there afterwards, as it would be without us."""
    client = connect()
    lists: list[Any] = []

    def note(what: str, command: str, address: Any) -> None:
        if what == "started":
            loop = running_loop()
            listed = getattr(loop, "_deprioritized_servers", None) or ()
            lists.append((loop._address, [one.description.address for one in listed]))

    with cluster.mongos[0].fail_command(["insert"], **RETRYABLE):
        while not retries:
            knows_all(client)
            lists.clear()
            asked.hook = note
            client.test.lists.insert_one({})
            asked.hook = lambda *event: None
    sick = [cluster.mongos[0].address] if VERSION >= (4, 7) else []
    assert lists == [(None, []), (None, sick)]


@pytest.mark.skipif(VERSION < (4, 11), reason="PyMongo 4.9 and 4.10 warn late of such a task")
@pytest.mark.skipif(
    sys.implementation.name == "pypy", reason="PyPy finalizes at any time later, and warns then"
)
@pytest.mark.filterwarnings("ignore:Unclosed AsyncMongoClient:ResourceWarning")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("attempt", [1, 2])
def test_an_event_loop_that_is_dropped(
    cluster: LocalCluster, asked: Asked, enabled: None, attempt: int
) -> None:
    """Whoever waits for a server then is collected, with client and task."""
    gone: list[weakref.ref[Any]] = []

    async def main() -> None:
        nobody = asyncio.Event()
        client: Any = pymongo.AsyncMongoClient(
            cluster.uri,
            event_listeners=[asked],
            server_selector=lambda servers: [] if nobody.is_set() else servers,
        )
        await client.admin.command("ping")
        asked.hook = lambda what, *rest: nobody.set() if what == "failed" else None
        if attempt == 1:
            nobody.set()
        task = asyncio.ensure_future(client.test.dropped.find_one())
        gone.extend([weakref.ref(client), weakref.ref(task)])
        await asyncio.wait_for(nobody.wait(), 10)
        await asyncio.sleep(0.05)
        assert not task.done()

    with ExitStack() as failing:
        for mongos in cluster.mongos:
            failing.enter_context(mongos.fail_command(["find"], error_code=HOST_UNREACHABLE))
        events = asyncio.new_event_loop()
        events.run_until_complete(main())
        events.close()
    asked.hook = lambda *event: None
    del events
    wait_until_gone(*gone)
