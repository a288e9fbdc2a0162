"""Fixtures for the tests of the embedded cluster."""

from __future__ import annotations

import socket
from contextlib import closing
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator

import bson
import pytest

from pymongo_deprio.cluster import LocalCluster, LocalMongos
from pymongo_deprio.cluster import _wire as wire

if TYPE_CHECKING:
    from pymongo import MongoClient

Command = Callable[..., Dict[str, Any]]


@pytest.fixture(scope="session")
def servers() -> Iterator[LocalCluster]:
    """Two mongoses that the tests here share; each test leaves them as they were."""
    with LocalCluster(2) as cluster:
        yield cluster


@pytest.fixture
def near(servers: LocalCluster) -> LocalMongos:
    """Give the first of the two mongoses."""
    return servers.mongos[0]


@pytest.fixture
def far(servers: LocalCluster) -> LocalMongos:
    """Give the second of the two mongoses."""
    return servers.mongos[1]


@pytest.fixture
def client(servers: LocalCluster) -> Iterator[MongoClient[Any]]:
    """Give a client of both mongoses, with an empty database `test`."""
    with closing(servers.client()) as client:
        client.drop_database("test")
        yield client


class Wire:
    """A raw connection to one server."""

    def __init__(self, address: tuple[str, int]) -> None:
        """Connect; nothing is sent, not even a hello."""
        self.socket = socket.create_connection(address, timeout=10)
        self.stream = wire.Stream(self.socket)

    def send(self, document: dict[str, Any], flags: int = 0) -> None:
        """Send a command in an OP_MSG with these flags."""
        message = bytearray(wire.encode_msg(bson.encode(document), request_id=77))
        message[16:20] = flags.to_bytes(4, "little")
        self.stream.send(bytes(message))

    def receive(self) -> dict[str, Any]:
        """Wait for the next reply."""
        return wire.decode(wire.OpMsg.parse(self.receive_message()).body)

    def receive_message(self) -> bytes:
        """Wait for the next message, and give it whole."""
        message = self.stream.receive()
        assert message is not None, "the connection was closed"
        return message

    def run(self, name: str, value: Any = 1, db: str = "test", **fields: Any) -> dict[str, Any]:
        """Run a command and give its reply, be it an error."""
        self.send({name: value, **fields, "$db": db})
        return self.receive()

    def is_closed(self) -> bool:
        """Wait until the server closes or answers; tell whether it closed."""
        try:
            return self.stream.receive() is None
        except ConnectionResetError:
            return True


@pytest.fixture
def connect() -> Iterator[Callable[[tuple[str, int]], Wire]]:
    """Give a function that connects to an address; the connections are closed afterwards."""
    opened = []

    def connect(address: tuple[str, int]) -> Wire:
        opened.append(Wire(address))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.socket.close()
