"""The memory of an operation: what it costs, whom it belongs to, and that it ends."""

from __future__ import annotations

import asyncio
import collections
import contextvars
import sys
import threading
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Callable

import pytest
from support import (
    HAS_ASYNC,
    HOST_UNREACHABLE,
    VERSION,
    Asked,
    connect_async,
    knows_all,
    run,
    select_arguments,
    wait_until_gone,
)

import pymongo_deprio
from pymongo_deprio import _activation
from pymongo_deprio._operation import CURRENT, AsyncOperation, Lent, Operation
from pymongo_deprio._wrappers import Loop, is_selecting

if TYPE_CHECKING:
    from pymongo_deprio import Retry
    from pymongo_deprio.cluster import LocalCluster

A, B = ("a", 1), ("b", 2)
PACKAGE = str(Path(pymongo_deprio.__file__).parent)


class Server:
    """Has an address, as a server of PyMongo has it."""

    def __init__(self, address: Any) -> None:
        self.description = self
        self.address = address


def test_failures_are_kept_once_and_the_latest_is_last() -> None:
    """A server that fails again becomes the latest failure: it is the last to be taken back."""
    operation = Operation(client=object(), owner=Operation.here())
    for address in A, B, A:
        operation.server = Server(address)
        operation.fail(None, suspicious=False)
    assert operation.failed == (B, A)
    assert operation.attempts == 4


def test_the_list_is_lent_to_one_topology_in_one_place() -> None:
    """Another client's selection, or another thread's, does not see the list."""
    operation = Operation(client=object(), owner=Operation.here())
    operation.lent = Lent("this topology", (A,))
    assert operation.lent_to("this topology") == operation.lent
    assert operation.lent_to("another topology") is None
    elsewhere: list[Any] = []
    thread = threading.Thread(target=lambda: elsewhere.append(operation.lent_to("this topology")))
    thread.start()
    thread.join()
    assert elsewhere == [None]


def test_another_task_does_not_see_the_list() -> None:
    """A task that inherited the context is not the owner; nor is a thread without a loop."""

    async def main() -> None:
        operation = AsyncOperation(client=object(), owner=AsyncOperation.here())
        operation.lent = Lent("this topology", (A,))

        async def inherits() -> Any:
            return operation.lent_to("this topology")

        assert operation.lent_to("this topology") == operation.lent
        assert await asyncio.ensure_future(inherits()) is None
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(None, operation.lent_to, "this topology") is None

    run(main())


def test_a_closed_operation_keeps_nothing() -> None:
    """A context that was copied meanwhile keeps neither client nor servers alive."""
    operation = Operation(client=object(), owner=Operation.here())
    token = CURRENT.set(operation)
    copied = contextvars.copy_context()
    assert copied.run(is_selecting)
    operation.server = operation.topology = object()
    operation.is_beginning = False
    assert not copied.run(is_selecting)
    operation.close(token)
    assert CURRENT.get() is None
    assert not copied.run(is_selecting)
    assert vars(operation) == {}
    assert operation.client is None


def first_asked(operation: Any) -> tuple[Any, Any]:
    """Return the selector and the session of an operation's first attempt."""
    if VERSION >= (4, 6):
        return operation.loop._server_selector, operation.loop._session
    selector, session = operation.asked[:2]
    return selector, session


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


WHAT_SUCCESS_COSTS = {
    "_operation.__init__": 1,
    "_wrappers.run": 1,  # around the retry loop
    "_operation.close": 1,
    # Each wrapper is bound; those of the selection itself sleep.
    "_patching.__get__": 5,
    "_wrappers.is_selecting": 3,
    # From 4.6 on that of an attempt sleeps as well.
    **({"_wrappers.is_first_attempt": 1} if VERSION >= (4, 6) else {"_wrappers.select": 1}),
}


@pytest.mark.parametrize(
    "call",
    [lambda collection: collection.find_one(), lambda collection: collection.insert_one({})],
    ids=["find_one", "insert_one"],
)
def test_what_a_successful_operation_costs(
    connect: Callable[..., Any], enabled: None, call: Callable[[Any], object]
) -> None:
    """One or two wrapper calls and one small object: no list, no event, no copy, no lock."""
    collection = connect().test.cost
    call(collection)
    assert python_calls(lambda: call(collection)) == WHAT_SUCCESS_COSTS


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
    assert CURRENT.get() is None


def in_a_copied_context(call: Callable[[], object]) -> None:
    """Call something in another thread that has inherited this one's context."""
    context = contextvars.copy_context()
    thread = threading.Thread(target=context.run, args=[call])
    thread.start()
    thread.join()


@pytest.mark.parametrize("where", ["another client", "another thread"])
def test_a_selection_elsewhere_is_no_attempt(
    connect: Callable[..., Any], asked: Asked, retries: list[Retry], where: str
) -> None:
    """Even for the same selector and session: it has another client, or another thread."""
    client = connect()
    other = connect(event_listeners=[])
    client.test.nested.insert_one({})
    failed: list[Any] = []

    def select_once_more(what: str, command: str, address: Any) -> None:
        memory: Any = CURRENT.get()
        arguments = (*first_asked(memory), *select_arguments())
        if where == "another client":
            other._select_server(*arguments)
        else:
            in_a_copied_context(lambda: client._select_server(*arguments))
        failed.append(memory.failed)

    asked.hook = select_once_more
    client.test.nested.find_one()
    asked.hook = lambda *event: None
    assert failed == [(), ()]
    assert retries == []


@pytest.mark.skipif(VERSION < (4, 11), reason="PyMongo 4.9 and 4.10 block the event loop")
def test_a_selection_of_another_task_is_no_attempt(
    cluster: LocalCluster, asked: Asked, retries: list[Retry]
) -> None:
    """A task that inherited the context is not the operation's own."""

    async def main() -> None:
        tasks: list[Any] = []
        memories: list[Any] = []
        started = asyncio.Event()
        async with connect_async(cluster, asked) as client:

            def select_once_more(what: str, command: str, address: Any) -> None:
                memories.append(CURRENT.get())
                selection = client._select_server(*first_asked(memories[0]), *select_arguments())
                tasks.append(asyncio.ensure_future(selection))
                asked.hook = lambda *event: None
                started.set()

            with ExitStack() as blocking:
                for mongos in cluster.mongos:
                    blocking.enter_context(mongos.fail_command("find", block_time_ms=100))
                asked.hook = select_once_more
                operation = asyncio.ensure_future(client.test.nested.find_one())
                await started.wait()
                await tasks[0]
                assert memories[0].client is client, "the operation should still be running"
                assert memories[0].failed == ()
                await operation

    run(main())
    assert retries == []


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
                    assert CURRENT.get() is None
            await client.test.nested.find_one()

    run(main())


def test_an_operation_that_was_never_finished() -> None:
    """A coroutine that the garbage collector closes in another context raises nothing."""

    class Pending:
        def __await__(self) -> Any:
            yield self

    async def loop(owner: object) -> None:
        await Pending()

    async def main() -> None:
        owner = SimpleNamespace(_client=object())
        coroutine: Any = Loop(loop, _activation._state).asynchronous(loop)(owner)
        contextvars.copy_context().run(coroutine.send, None)
        coroutine.close()
        assert CURRENT.get() is None

    run(main())
