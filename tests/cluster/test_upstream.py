"""What is forwarded, against a mongod that the test plays itself."""

from __future__ import annotations

import socket
import threading
from typing import Any

import bson
import pytest

from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._command import Command
from pymongo_deprio.cluster._router import Router
from pymongo_deprio.cluster._upstream import Upstream, UpstreamClosedError


def msg(document: dict[str, Any], flags: int = 0) -> bytes:
    """Make a message with these flags."""
    message = bytearray(wire.encode_msg(bson.encode(document)))
    message[16:20] = flags.to_bytes(4, "little")
    return bytes(message)


class FakeMongod:
    """Answers the first message with these replies, and closes."""

    def __init__(self, *replies: bytes) -> None:
        """Listen."""
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.received: list[bytes | None] = []
        self._replies = replies
        self.thread = threading.Thread(target=self._serve)
        self.thread.start()

    def _serve(self) -> None:
        sock, _ = self.listener.accept()
        with sock:
            self.received.append(wire.Stream(sock).receive())
            sock.sendall(b"".join(self._replies))

    def close(self) -> None:
        """Stop listening."""
        self.thread.join()
        self.listener.close()


class Scene:
    """An upstream in front of a fake mongod."""

    def __init__(self, *replies: bytes) -> None:
        """Connect both."""
        self.mongod = FakeMongod(*replies)
        self.router = Router()
        self.relayed: list[bytes] = []
        address = self.mongod.listener.getsockname()
        self.upstream = Upstream(address, self.router, self.relayed.append)

    def execute(self, message: bytes) -> bytes | None:
        """Execute one command and close everything."""
        try:
            return self.upstream.execute(Command.parse(message))
        finally:
            self.mongod.thread.join()
            self.upstream.close()
            self.mongod.close()


PING = msg({"ping": 1, "$db": "test"})
OK = msg({"ok": 1.0})


def test_messages_pass_untouched() -> None:
    """Request and reply are the same bytes on both sides."""
    scene = Scene(OK)
    assert scene.execute(PING) == OK
    assert scene.mongod.received == [PING]


def test_replies_that_more_follow_are_relayed_at_once() -> None:
    """A streamed reply reaches the client message by message."""
    first = msg({"ok": 1.0, "n": 1}, wire.MORE_TO_COME)
    second = msg({"ok": 1.0, "n": 2}, wire.MORE_TO_COME)
    scene = Scene(first, second, OK)
    assert scene.execute(PING) == OK
    assert scene.relayed == [first, second]


def test_a_mongod_that_hangs_up_raises() -> None:
    """There is no reply to give."""
    with pytest.raises(UpstreamClosedError):
        Scene().execute(PING)


def test_the_recovery_token_is_for_the_mongos_alone() -> None:
    """The mongod does not know the field; a reply in a transaction gets one."""
    scene = Scene(OK)
    scene.router.begin_transaction(bson.encode({"lsid": {"id": 1}})[4:-1], 5)
    commit = {"commitTransaction": 1, "lsid": {"id": 1}, "txnNumber": 5, "autocommit": False}
    token = {"recoveryToken": {"recoveredShardId": "shard01"}}
    reply = scene.execute(msg({**commit, **token, "$db": "admin"}))
    assert scene.mongod.received == [msg({**commit, "$db": "admin"})]
    assert reply == msg({"ok": 1.0, **token})


def test_times_are_learned_from_replies() -> None:
    """So that the mongos' own replies can carry them."""
    times = {"$clusterTime": {"clusterTime": bson.Timestamp(5, 1)}, "operationTime": 7}
    scene = Scene(msg({"ok": 1.0, **times}))
    scene.execute(PING)
    assert scene.router.times == bson.encode(times)[4:-1]


def test_cursors_are_learned_from_replies() -> None:
    """A cursor of 0 is none."""
    scene = Scene(msg({"cursor": {"firstBatch": [{}], "id": bson.Int64(5)}, "ok": 1.0}))
    scene.execute(msg({"find": "c", "$db": "test"}))
    assert scene.router.has_cursor(5)
    assert not scene.router.has_cursor(0)
