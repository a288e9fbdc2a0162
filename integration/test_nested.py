"""What an application runs inside an operation, from a listener, is not that operation's retry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Callable

import pymongo
import pytest
from pymongo.server_selectors import any_server_selector
from support import (
    HOST_UNREACHABLE,
    RETRYABLE,
    VERSION,
    Asked,
    knows_all,
    prefer,
    select_arguments,
)

import pymongo_deprio
from pymongo_deprio import Retry

if TYPE_CHECKING:
    from pymongo_deprio import Event
    from pymongo_deprio.cluster import Cluster

REPEAT = 10
# On some versions outside any retry loop, on others in one of their own.
COMMANDS: dict[str, Callable[[Any], object]] = {
    "command": lambda client: client.admin.command("ping"),
    "create_index": lambda client: client.test.nested.create_index("n"),
    "insert_one": lambda client: client.test.nested.insert_one({}),
    "unacknowledged": lambda client: client.test.get_collection(
        "nested", write_concern=pymongo.WriteConcern(w=0)
    ).insert_one({}),
}


@pytest.mark.parametrize("inner", COMMANDS.values(), ids=list(COMMANDS))
@pytest.mark.parametrize("when", ["started", "failed"])
def test_a_command_in_a_command_listener(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    retries: list[Retry],
    when: str,
    inner: Callable[[Any], object],
) -> None:
    """The operation is retried on the other mongos once, and what is inside stays where it was."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(sick))
    client.test.nested.insert_one({})

    def hook(what: str, command: str, address: Any) -> None:
        if (what, command) == (when, "find") and address == sick:
            knows_all(client)
            inner(client)

    asked.hook = hook
    with cluster.mongos[0].fail_command(["find"], error_code=HOST_UNREACHABLE):
        for _ in range(REPEAT):
            knows_all(client)
            asked.reset()
            client.test.nested.find_one()
            assert asked.where("started", "find") == [sick, well]
            assert set(asked.where("started", "ping", "createIndexes", "insert")) == {sick}
    assert len(retries) == REPEAT


@pytest.mark.parametrize(
    "attempt",
    [
        1,
        pytest.param(
            2,
            marks=pytest.mark.skipif(
                VERSION < (3, 11), reason="3.9 and 3.10 do not know the sick one any more"
            ),
        ),
    ],
)
@pytest.mark.parametrize("remembers", [False, True])
def test_a_command_with_the_session_of_the_operation(
    cluster: Cluster,
    connect: Callable[..., Any],
    asked: Asked,
    attempt: int,
    remembers: bool,
) -> None:
    """It is no retry either, also while a mongos of some client cools down."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client, other = connect(server_selector=prefer(sick)), connect(server_selector=prefer(sick))
    collection = client.test.nested
    collection.insert_one({})
    events: list[Event] = []

    def hook(what: str, command: str, _: Any) -> None:
        inserts = asked.where("started", "insert")
        if (what, command) == ("started", "insert") and len(inserts) == attempt:
            collection.create_index("n", session=session)

    with pymongo_deprio.enable(on_event=events.append, cooldown=remembers), cluster.mongos[
        0
    ].fail_command(["insert"], **RETRYABLE), client.start_session() as session:
        other.test.nested.insert_one({})
        asked.reset()
        events.clear()
        asked.hook = hook
        collection.insert_one({}, session=session)
    assert asked.where("started", "insert") == [sick, well]
    assert asked.where("started", "createIndexes") == [sick]
    told = [event for event in events if isinstance(event, Retry)]
    assert [(retry.attempt, retry.failed, retry.chosen) for retry in told] == [(2, (sick,), well)]


def test_a_command_in_a_listener_of_ours(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked
) -> None:
    """A listener of retries that runs a command is called once for each, and sees no list."""
    sick, well = (mongos.address for mongos in cluster.mongos)
    client = connect(server_selector=prefer(sick))
    client.test.nested.insert_one({})
    events: list[Event] = []

    def listener(event: Event) -> None:
        events.append(event)
        client.admin.command("ping")

    with pymongo_deprio.enable(on_event=listener), cluster.mongos[0].fail_command(
        ["find"], error_code=HOST_UNREACHABLE
    ):
        for _ in range(REPEAT):
            knows_all(client)
            asked.reset()
            client.test.nested.find_one()
            assert asked.where("started", "find") == [sick, well]
            assert len(asked.where("started", "ping")) == 1
    assert len(events) == REPEAT


def test_a_list_given_inside_an_operation(
    cluster: Cluster, connect: Callable[..., Any], asked: Asked, enabled: None
) -> None:
    """Topology's methods take a list there too, on the same client and on another one."""
    listed, other = (mongos.address for mongos in cluster.mongos)
    client = connect()
    clients = [client, connect(event_listeners=[])]
    selected: set[Any] = set()

    def hook(what: str, command: str, address: Any) -> None:
        for one in clients:
            arguments = (any_server_selector, *select_arguments())
            options: Any = {"deprioritized_servers": [listed]}
            servers = one._topology.select_servers(*arguments, **options)
            servers += [one._topology.select_server(*arguments, **options)]
            selected.update(server.description.address for server in servers)

    client.test.nested.insert_one({})
    asked.hook = hook
    for _ in range(REPEAT):
        client.test.nested.find_one()
    assert selected == {other}
