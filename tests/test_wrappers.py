"""Selection with a list, on topologies of this PyMongo that no network is needed for.

What the wrappers do around real operations is in ``integration``.
"""

from __future__ import annotations

import asyncio
import copy
import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, Callable

import pytest
from pymongo.errors import ServerSelectionTimeoutError
from pymongo.read_preferences import ReadPreference
from pymongo.server_selectors import Selection, any_server_selector
from support import (
    HAS_ASYNC,
    VERSION,
    describe,
    description_of,
    make_topology,
    prefer,
    run,
    select,
    select_arguments,
    wait_until,
    wait_until_gone,
)

from pymongo_deprio._memory import Memory
from pymongo_deprio._patching import Switch
from pymongo_deprio._wrappers import Resume

A, B, C = ("a", 1), ("b", 2), ("c", 3)
TWO_MONGOSES = {A: "mongos", B: "mongos"}
REPLICA_SET = {A: "primary", B: "secondary", C: "secondary"}
# Where chance is in PyMongo, this often: wrong with a probability of 1/2 each, 1e-9 in all.
OFTEN = 30

pytestmark = pytest.mark.usefixtures("enabled")


def server_of(topology: Any, address: Any) -> Any:
    """Return the server that a topology has at an address."""
    return topology.get_server_by_address(address)


FORMS: dict[str, Callable[[Any], Any]] = {
    "servers": lambda topology: [server_of(topology, A)],
    "descriptions": lambda topology: [server_of(topology, A).description],
    "addresses": lambda topology: [A],
    "a tuple": lambda topology: (A,),
    "an iterator": lambda topology: iter([A]),
}


@pytest.mark.parametrize("form", FORMS)
def test_left_out_while_another_is_there(form: str) -> None:
    """Every method of selection leaves out a server on the list, whatever form the list has."""
    topology = make_topology(TWO_MONGOSES)
    for _ in range(OFTEN):
        server = topology.select_server(
            any_server_selector, *select_arguments(), deprioritized_servers=FORMS[form](topology)
        )
        assert server.description.address == B
    assert select(topology, deprioritized_servers=FORMS[form](topology)) == {B}
    descriptions = topology.description.apply_selector(
        any_server_selector, None, deprioritized_servers=FORMS[form](topology)
    )
    assert [description.address for description in descriptions] == [B]
    descriptions = topology.description.apply_selector(
        any_server_selector, None, None, FORMS[form](topology)
    )
    assert [description.address for description in descriptions] == [B]


@pytest.mark.parametrize(
    "arguments", [{}, {"deprioritized_servers": None}, {"deprioritized_servers": []}]
)
@pytest.mark.parametrize("kinds", [TWO_MONGOSES, REPLICA_SET], ids=["sharded", "replica set"])
def test_without_a_list(kinds: dict[Any, str], arguments: dict[str, Any]) -> None:
    """No list, None and an empty one are alike: all suitable servers are selected, by chance."""
    topology = make_topology(kinds)
    everybody = set(kinds)
    assert select(topology, **arguments) == everybody
    chosen = {
        topology.select_server(
            any_server_selector, *select_arguments(), **arguments
        ).description.address
        for _ in range(5 * OFTEN)
    }
    assert chosen == everybody
    descriptions = topology.description.apply_selector(any_server_selector, None, **arguments)
    assert {description.address for description in descriptions} == everybody


def test_returned_at_once_when_there_is_no_other() -> None:
    """With all on the list, or the others unknown, a listed server is selected without waiting."""
    topology = make_topology(TWO_MONGOSES)
    assert select(topology, deprioritized_servers=[A, B]) == {A}
    assert select(topology, deprioritized_servers=[B, A]) == {B}
    alone = make_topology(TWO_MONGOSES, known=False)
    describe(alone, A, "mongos")
    assert select(alone, deprioritized_servers=[A]) == {A}
    assert select(alone, deprioritized_servers=[A, B]) == {A}


def test_address_that_is_not_there() -> None:
    """An address that the topology does not have changes nothing."""
    topology = make_topology(TWO_MONGOSES)
    assert select(topology, deprioritized_servers=[C]) == {A, B}
    assert select(topology, deprioritized_servers=[C, A]) == {B}


def test_replica_set_honours_a_list_that_is_given() -> None:
    """As the specification asks since 2025-12: left out by every read preference, if possible."""
    topology = make_topology(REPLICA_SET)
    listed = {"deprioritized_servers": [A]}
    assert select(topology, ReadPreference.NEAREST, **listed) == {B, C}
    assert select(topology, ReadPreference.PRIMARY_PREFERRED, **listed) == {B, C}
    assert select(topology, ReadPreference.SECONDARY, deprioritized_servers=[B]) == {C}
    assert select(topology, ReadPreference.SECONDARY_PREFERRED, deprioritized_servers=[B, C]) == {A}
    # The only suitable ones.
    assert select(topology, ReadPreference.PRIMARY, **listed) == {A}
    assert select(topology, ReadPreference.SECONDARY, deprioritized_servers=[B, C]) == {B, C}


def test_a_single_server_ignores_the_list() -> None:
    """A topology of one standalone server has no choice."""
    topology = make_topology({A: "standalone"})
    assert topology.description.topology_type_name == "Single"
    assert select(topology, deprioritized_servers=[A]) == {A}


@pytest.mark.skipif(VERSION < (3, 12), reason="PyMongo knows load balancers from 3.12 on")
def test_a_load_balancer_ignores_the_list() -> None:
    """A load balanced topology has no choice."""
    topology = make_topology({A: "load balancer"})
    assert topology.description.topology_type_name == "LoadBalanced"
    assert select(topology, deprioritized_servers=[A]) == {A}


def test_an_unknown_topology() -> None:
    """With no server known, selection times out as it does without a list."""
    topology = make_topology(TWO_MONGOSES, known=False)
    topology._opened = True
    with pytest.raises(ServerSelectionTimeoutError):
        select(topology, deprioritized_servers=[A])


def test_an_explicit_address_ignores_the_list() -> None:
    """Who asks for an address gets it."""
    topology = make_topology(TWO_MONGOSES)
    assert select(topology, address=A, deprioritized_servers=[A]) == {A}
    (description,) = topology.description.apply_selector(
        any_server_selector, A, deprioritized_servers=[A]
    )
    assert description.address == A


@pytest.mark.parametrize("wrong", [["a:1"], "a:1", 5, [None], [("a", 1, 2)], ("a", 1)])
def test_something_else_on_the_list(wrong: Any) -> None:
    """The error says what a list may hold, and what it was given."""
    topology = make_topology(TWO_MONGOSES)
    with pytest.raises(TypeError, match="takes a list of servers, server descriptions or"):
        select(topology, deprioritized_servers=wrong)


# -- The application's server_selector -------------------------------------------------------------


def test_server_selector_sees_a_world_without_them() -> None:
    """It is asked about the others (P3): min(address) no longer returns to the listed server."""
    seen: list[set[Any]] = []

    def lowest(servers: list[Any]) -> list[Any]:
        seen.append({server.address for server in servers})
        return [min(servers, key=lambda server: server.address)]

    topology = make_topology({**TWO_MONGOSES, C: "mongos"}, server_selector=lowest)
    assert select(topology, deprioritized_servers=[A]) == {B}
    assert seen == [{B, C}]


@pytest.mark.parametrize("kinds", [TWO_MONGOSES, REPLICA_SET], ids=["sharded", "replica set"])
def test_server_selector_that_accepts_only_the_listed_one(kinds: dict[Any, str]) -> None:
    """Its choice is taken at once, even with a selection timeout of 0 (P4)."""
    topology = make_topology(
        kinds, server_selector=lambda servers: [s for s in servers if s.address == A]
    )
    assert select(topology, deprioritized_servers=[A]) == {A}


def test_server_selector_that_expects_the_listed_one() -> None:
    """One that raises without its favourite is asked again about everybody."""
    topology = make_topology(
        TWO_MONGOSES, server_selector=lambda servers: [{s.address: s for s in servers}[A]]
    )
    assert select(topology, deprioritized_servers=[A]) == {A}


def test_server_selector_is_never_asked_about_nobody() -> None:
    """It sees no empty list that it would not see without us."""
    topology = make_topology(TWO_MONGOSES, server_selector=lambda servers: [servers[0]])
    assert select(topology, deprioritized_servers=[B, A]) == {B}


def test_error_of_the_server_selector() -> None:
    """What it raises about everybody reaches the caller."""

    def broken(servers: list[Any]) -> list[Any]:
        raise LookupError("no such region")

    topology = make_topology(TWO_MONGOSES, server_selector=broken)
    with pytest.raises(LookupError, match="no such region"):
        select(topology, deprioritized_servers=[A])


# -- The faults of newer versions, on every version ------------------------------------------------


def test_latency_window_counts_from_the_fastest_left() -> None:
    """P1: without the near server the far one is selected, and the window begins there."""
    topology = make_topology({A: "mongos", B: "mongos", C: "mongos"}, {A: 0.001, B: 0.08, C: 0.2})
    assert select(topology) == {A}
    assert select(topology, deprioritized_servers=[A]) == {B}
    assert select(topology, deprioritized_servers=[A, B]) == {C}


def test_a_server_that_was_removed_and_added_again() -> None:
    """P2: a server is known by its address, even if the list holds the object that was before."""
    old = server_of(make_topology(TWO_MONGOSES), A)
    topology = make_topology(TWO_MONGOSES)
    assert server_of(topology, A) is not old
    for _ in range(OFTEN):
        server = topology.select_server(
            any_server_selector, *select_arguments(), deprioritized_servers=[old]
        )
        assert server.description.address == B


@pytest.mark.parametrize("turn", range(10))
def test_the_list_holds_while_selection_waits(turn: int) -> None:
    """P4: when both servers come at the same moment, the listed one is not selected."""
    topology = make_topology(TWO_MONGOSES, known=False)
    topology._opened = True
    with ThreadPoolExecutor(1) as threads:
        selected = threads.submit(
            select, topology, deprioritized_servers=[A], server_selection_timeout=10
        )
        wait_until(lambda: is_waited_for(topology), "a selection that waits")
        with topology._lock:
            for address in TWO_MONGOSES:
                topology._process_change(description_of(address, "mongos"))
        assert selected.result() == {B}


def is_waited_for(topology: Any) -> bool:
    """Tell whether a selection waits for the topology to change."""
    condition = topology._condition
    return bool(getattr(condition, "_waiters", ()))


def test_the_shared_description_stays_as_it_is() -> None:
    """P5: what other threads ask of the same description is not changed by a list."""
    topology = make_topology(REPLICA_SET)
    description = topology.description
    select(topology, ReadPreference.NEAREST)
    before = {
        name: copy.copy(value) if isinstance(value, (dict, list)) else value
        for name, value in vars(description).items()
    }
    select(topology, ReadPreference.NEAREST, deprioritized_servers=[B])
    select(topology, ReadPreference.PRIMARY, deprioritized_servers=[A])
    assert vars(description) == before
    members = Selection.from_topology_description(description).server_descriptions
    assert {member.address for member in members} == {A, B, C}


def test_other_threads_see_the_whole_description() -> None:
    """P5: has_writable_server() and a plain selection are right while others select with a list."""
    topology = make_topology(REPLICA_SET)
    description = topology.description
    done = threading.Event()

    def select_with_a_list() -> None:
        while not done.is_set():
            select(topology, ReadPreference.NEAREST, deprioritized_servers=[A])
            select(topology, ReadPreference.SECONDARY, deprioritized_servers=[B])

    threads = [threading.Thread(target=select_with_a_list) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(500):
            assert description.has_writable_server()
            assert select(topology, ReadPreference.SECONDARY) == {B, C}
    finally:
        done.set()
        for thread in threads:
            thread.join()


def test_a_list_of_stale_descriptions() -> None:
    """P9: a listed description of a primary that is gone is no server to select."""
    topology = make_topology(REPLICA_SET)
    old = server_of(topology, A).description
    hosts = (B, C)
    describe(topology, B, "primary", hosts=hosts)
    describe(topology, C, "secondary", hosts=hosts)
    assert server_of(topology, A) is None
    for _ in range(OFTEN):
        server = topology.select_server(
            ReadPreference.PRIMARY, *select_arguments(), deprioritized_servers=[old]
        )
        assert server.description.address == B


# -- Asynchronous ----------------------------------------------------------------------------------


@pytest.mark.skipif(not HAS_ASYNC, reason="PyMongo is asynchronous from 4.9 on")
def test_an_asynchronous_topology() -> None:
    """The topology of an AsyncMongoClient takes the same lists."""

    async def main() -> None:
        topology = make_topology(TWO_MONGOSES, of="AsyncMongoClient", known=False)
        for address in TWO_MONGOSES:
            await describe(topology, address, "mongos")
        for form in FORMS.values():
            for _ in range(OFTEN):
                server = await topology.select_server(
                    any_server_selector, "find", deprioritized_servers=form(topology)
                )
                assert server.description.address == B
            servers = await topology.select_servers(
                any_server_selector, "find", deprioritized_servers=form(topology)
            )
            assert [server.description.address for server in servers] == [B]
        empty: list[dict[str, Any]] = [
            {},
            {"deprioritized_servers": None},
            {"deprioritized_servers": []},
        ]
        for nothing in empty:
            servers = await topology.select_servers(any_server_selector, "find", **nothing)
            assert len(servers) == 2
        servers = await topology.select_servers(
            any_server_selector, "find", 0, deprioritized_servers=[A, B]
        )
        assert [server.description.address for server in servers] == [A]

    run(main())


# -- A change stream that is dropped in mid-resume -------------------------------------------------


def test_a_resume_that_is_never_finished() -> None:
    """With the event loop gone, task and coroutine are collected, and nothing is remembered."""
    memory = Memory()
    memory.begin(None)
    switch = Switch()
    switch.is_on = True

    async def pending(stream: object) -> None:
        assert not memory.is_empty
        await asyncio.get_running_loop().create_future()

    stream = SimpleNamespace(_cursor=SimpleNamespace(address=A))
    gone: list[weakref.ref[Any]] = []

    async def main() -> None:
        resume = Resume(memory).asynchronous(pending, switch)
        task = asyncio.ensure_future(resume(stream))
        gone.append(weakref.ref(task))
        await asyncio.sleep(0)
        assert not memory.is_empty

    events = asyncio.new_event_loop()
    events.run_until_complete(main())
    events.close()
    del events
    wait_until_gone(*gone)

    def is_forgotten() -> bool:
        gc.collect()  # PyPy closes a coroutine later than it drops its task
        return memory.is_empty

    wait_until(is_forgotten, "the resume to be forgotten")


def test_the_arguments_of_the_caller_stay_as_they_are() -> None:
    """A dictionary that is passed on as ** is not changed (Python 3.8 hands over that very one)."""
    topology = make_topology(TWO_MONGOSES)
    options: dict[str, Any] = {"deprioritized_servers": [A]}
    for _ in range(2):
        server = topology.select_server(any_server_selector, *select_arguments(), **options)
        assert server.description.address == B
        (server,) = topology.select_servers(any_server_selector, *select_arguments(), **options)
        assert server.description.address == B
        (description,) = topology.description.apply_selector(any_server_selector, None, **options)
        assert description.address == B
    assert options == {"deprioritized_servers": [A]}


def test_prefer() -> None:
    """The selector that the integration tests use takes its favourite, or the others."""
    topology = make_topology(TWO_MONGOSES, server_selector=prefer(A))
    assert select(topology) == {A}
    assert select(topology, deprioritized_servers=[A]) == {B}
