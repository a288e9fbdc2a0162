"""Switching on and off: what was there before is there again, exactly."""

from __future__ import annotations

import contextlib
import gc
import logging
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Callable

import pymongo
import pytest
import wrapt
from fixtures import ORIGINALS, attributes
from support import HOST_UNREACHABLE, Asked, knows_all, make_topology, prefer

import pymongo_deprio
from pymongo_deprio import _activation, _inside, _operation
from pymongo_deprio._patching import Patch

if TYPE_CHECKING:
    from pymongo_deprio import Event
    from pymongo_deprio.cluster import LocalCluster


def ignore(event: Event) -> None:
    """Ignore an event."""


def ignore_too(event: Event) -> None:
    """Ignore an event as well."""


def listener() -> Any:
    """Return the listener in force."""
    return _activation._state._entries[-1][1].on_event


def test_ten_rounds() -> None:
    """After each enable and disable every attribute is the identical object that it was."""
    for _ in range(10):
        pymongo_deprio.enable(strict=True)
        assert pymongo_deprio.is_enabled()
        assert not any(attributes()[place] is ORIGINALS[place] for place in ORIGINALS)
        pymongo_deprio.disable()
        assert not pymongo_deprio.is_enabled()
        assert attributes() == ORIGINALS


def test_disable_without_enable() -> None:
    """It does nothing, also twice."""
    pymongo_deprio.disable()
    pymongo_deprio.disable()
    assert attributes() == ORIGINALS


def test_enable_again_changes_nothing() -> None:
    """The attributes that the first call put on stay, however often it is called."""
    pymongo_deprio.enable()
    first = attributes()
    for _ in range(10):
        pymongo_deprio.enable()
        gc.collect()  # for PyPy, which keeps the handles longer
    assert attributes() == first
    assert len(_activation._state._entries) <= 2
    pymongo_deprio.disable()


def test_the_latest_call_counts() -> None:
    """With other options the latest call wins, for as long as its handle is open."""
    pymongo_deprio.enable(on_event=ignore)
    with pymongo_deprio.enable(on_event=ignore_too):
        assert listener() is ignore_too
    assert listener() is ignore
    pymongo_deprio.disable()


def test_handles_close_in_any_order() -> None:
    """Closing a handle takes back its own call and no other, in whatever order."""
    outer = pymongo_deprio.enable(on_event=ignore)
    inner = pymongo_deprio.enable(on_event=ignore_too)
    outer.close()
    assert pymongo_deprio.is_enabled()
    assert listener() is ignore_too
    outer.close()
    assert pymongo_deprio.is_enabled()
    inner.close()
    assert not pymongo_deprio.is_enabled()
    inner.close()
    assert attributes() == ORIGINALS


def test_a_handle_restores_what_an_earlier_call_enabled() -> None:
    """Leaving a with block inside an enabled application leaves the application enabled."""
    pymongo_deprio.enable()
    with pymongo_deprio.enable() as handle:
        assert isinstance(handle, pymongo_deprio.Activation)
    assert pymongo_deprio.is_enabled()
    pymongo_deprio.disable()


def test_disable_inside_a_handle() -> None:
    """It takes everything off, and leaving the block afterwards does not bring it back."""
    pymongo_deprio.enable()
    with pymongo_deprio.enable():
        pymongo_deprio.disable()
        assert attributes() == ORIGINALS
    assert not pymongo_deprio.is_enabled()


def test_a_handle_from_before_does_not_close_what_came_after() -> None:
    """A handle that disable() closed has no hold over later calls."""
    old = pymongo_deprio.enable()
    pymongo_deprio.disable()
    pymongo_deprio.enable()
    old.close()
    assert pymongo_deprio.is_enabled()
    pymongo_deprio.disable()


def test_a_handle_closes_when_an_error_leaves_its_block() -> None:
    """The error passes through."""
    with pytest.raises(LookupError), pymongo_deprio.enable():
        raise LookupError
    assert attributes() == ORIGINALS


def test_from_several_threads() -> None:
    """Threads that enable and disable at the same time leave the originals behind."""
    barrier = threading.Barrier(8)

    def work(_: int) -> None:
        barrier.wait()
        for _ in range(20):
            with pymongo_deprio.enable():
                assert pymongo_deprio.is_enabled()

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(8)))
    assert not pymongo_deprio.is_enabled()
    assert attributes() == ORIGINALS


class Interrupting:
    """Raises KeyboardInterrupt at one call of a method, before or after it has done its work."""

    def __init__(self, method: Any, call: int, *, before: bool) -> None:
        self.method, self.left, self.before = method, call, before

    def __get__(self, instance: Any, owner: Any = None) -> Any:  # noqa: D105
        self.left -= 1
        if self.left:
            return self.method.__get__(instance, owner)
        return lambda: self.interrupt(instance)

    def interrupt(self, instance: Any) -> None:
        if not self.before:
            self.method(instance)
        raise KeyboardInterrupt


def enable_and_disable() -> None:
    """Switch on and off."""
    pymongo_deprio.enable()
    pymongo_deprio.disable()


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("call", range(1, len(ORIGINALS) + 1))
@pytest.mark.parametrize("method", ["apply", "remove"])
def test_interrupted(method: str, call: int, before: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the middle of enable() or disable() leaves nothing half done."""
    interrupting = Interrupting(vars(Patch)[method], call, before=before)
    monkeypatch.setattr(Patch, method, interrupting)
    with pytest.raises(KeyboardInterrupt):
        enable_and_disable()
    assert not pymongo_deprio.is_enabled()
    assert attributes() == ORIGINALS


@pytest.mark.parametrize("call", range(1, len(ORIGINALS) + 1))
@pytest.mark.parametrize("method", ["apply", "remove"])
def test_a_signal_handler_in_between(
    method: str, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A handler that enables for itself in the middle of enable() or disable() breaks neither."""
    original = vars(Patch)[method]
    left = call

    def handled(self: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            with pymongo_deprio.enable():
                assert pymongo_deprio.is_enabled()
        original(self)

    monkeypatch.setattr(Patch, method, handled)
    pymongo_deprio.enable()
    assert not any(attributes()[place] is ORIGINALS[place] for place in ORIGINALS)
    pymongo_deprio.disable()
    assert attributes() == ORIGINALS


@pytest.mark.parametrize("switch", [pymongo_deprio.enable, pymongo_deprio.disable])
def test_a_log_handler_may_wait_for_a_retry(switch: Callable[[], object]) -> None:
    """A handler that writes to MongoDB, and so may retry in some thread, does not lock up."""
    event = pymongo_deprio.Retry("insert", 2, (("a", 1),), (("a", 1),), ("b", 2))
    finished: list[bool] = []

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            with ThreadPoolExecutor(1) as threads:
                threads.submit(_activation._state.report, event).result(5)
                finished.append(threads.submit(can_lock).result(10))

    def can_lock() -> bool:
        acquired = _activation._state._lock.acquire(timeout=5)
        if acquired:
            _activation._state._lock.release()
        return acquired

    handler = Handler(logging.INFO)
    logger = logging.getLogger("pymongo_deprio")
    if switch is pymongo_deprio.disable:
        pymongo_deprio.enable()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        switch()
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
        pymongo_deprio.disable()
    assert finished == [True]


def test_somebody_on_top() -> None:
    """Another wrapper on ours keeps working after disable(), and ours does nothing below it."""
    topology = make_topology({("a", 1): "mongos", ("b", 2): "mongos"})
    description_class = type(topology.description)
    calls = []

    def note(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
        calls.append(instance)
        return wrapped(*args, **kwargs)

    def selected(**options: Any) -> int:
        return len(
            topology.description.apply_selector(lambda selection: selection, None, **options)
        )

    pymongo_deprio.enable()
    ours = vars(description_class)["apply_selector"]
    description_class.apply_selector = wrapt.FunctionWrapper(ours, note)
    try:
        assert selected(deprioritized_servers=[("a", 1)]) == 1
        pymongo_deprio.disable()
        calls.clear()
        assert selected() == 2
        assert len(calls) == 1
        for _ in range(3):
            with pymongo_deprio.enable():
                assert selected(deprioritized_servers=[("a", 1)]) == 1
        assert selected() == 2
    finally:
        description_class.apply_selector = ours
    pymongo_deprio.enable()
    pymongo_deprio.disable()
    assert attributes() == ORIGINALS


@pytest.mark.parametrize("connect_at_once", [True, False])
def test_clients_made_before(cluster: LocalCluster, asked: Asked, connect_at_once: bool) -> None:
    """A client that was made before enable(), connected or not, is covered; after, no longer."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client: Any = pymongo.MongoClient(
        cluster.uri,
        connect=connect_at_once,
        event_listeners=[asked],
        server_selector=prefer(sick),
    )
    retries: list[Event] = []
    with client, cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        pymongo_deprio.enable(on_event=retries.append)
        client.admin.command("ping")
        knows_all(client)
        asked.reset()
        client.test.before.find_one()
        assert asked.where("succeeded") == [well]
        assert len(retries) == 1
        pymongo_deprio.disable()
    assert len(retries) == 1


# -- What is told ----------------------------------------------------------------------------------


@pytest.fixture
def one_retry(cluster: LocalCluster, connect: Callable[..., Any]) -> Callable[[], None]:
    """Return a function that causes one retry, from the first mongos to the second."""
    client = connect(server_selector=prefer(cluster.mongos[0].address))

    def cause() -> None:
        knows_all(client)
        with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
            client.test.told.find_one()

    return cause


def test_a_listener_that_raises(
    one_retry: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Its error is logged with the listener and the event; the operation succeeds."""

    def broken(event: Event) -> None:
        raise LookupError("no such metric")

    with pymongo_deprio.enable(on_event=broken):
        one_retry()
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.name == "pymongo_deprio"
    assert "broken" in record.getMessage()
    assert "Retry(" in record.getMessage()
    assert "no such metric" in caplog.text


def test_counts(one_retry: Callable[[], None]) -> None:
    """stats() counts on, is a snapshot, and does not count what happens while disabled."""
    before = pymongo_deprio.stats()
    with pymongo_deprio.enable():
        one_retry()
    after = pymongo_deprio.stats()
    assert (after.retries, after.redirected) == (before.retries + 1, before.redirected + 1)
    assert after.fallbacks == before.fallbacks
    # Where PyMongo alone goes back to the sick mongos, the operation fails.
    with contextlib.suppress(pymongo.errors.OperationFailure):
        one_retry()
    assert pymongo_deprio.stats() == after


def test_log(
    cluster: LocalCluster, one_retry: Callable[[], None], caplog: pytest.LogCaptureFixture
) -> None:
    """INFO for on and off, DEBUG for a retry with what was avoided and what was chosen."""
    caplog.set_level(logging.DEBUG, "pymongo_deprio")
    with pymongo_deprio.enable():
        one_retry()
    ours = [record for record in caplog.records if record.name == "pymongo_deprio"]
    assert [record.levelname for record in ours] == ["INFO", "DEBUG", "INFO"]
    message = ours[1].getMessage()
    for mongos in cluster.mongos:
        assert "{}:{}".format(*mongos.address) in message


def test_a_fault_of_ours_is_logged_and_breaks_nothing(
    one_retry: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """If noting a failure goes wrong, the operation goes on; the log tells of it once."""

    def broken(self: Any, error: Any, *, suspicious: bool) -> None:
        raise LookupError("our own fault")

    monkeypatch.setattr(_operation.Operation, "fail", broken)
    _inside.log_once.cache_clear()
    with pymongo_deprio.enable():
        for _ in range(3):
            # Where PyMongo alone goes back to the sick mongos, the operation fails.
            with contextlib.suppress(pymongo.errors.OperationFailure):
                one_retry()
    assert caplog.text.count("LookupError: our own fault") == 1


def test_no_warning_of_ours() -> None:
    """Enabling a supported PyMongo warns of nothing."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pymongo_deprio.enable():
            pass
