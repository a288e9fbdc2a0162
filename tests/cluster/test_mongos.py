"""The emulated mongos: as PyMongo sees it, and on raw sockets."""

from __future__ import annotations

import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Any, Callable

import bson
import pytest
from bson.int64 import Int64
from pymongo.errors import AutoReconnect, OperationFailure

from pymongo_deprio.cluster import CommandFailedError
from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._mongos import HELLO_DELAY, Mongos

if TYPE_CHECKING:
    from cluster.conftest import Wire
    from pymongo import MongoClient

    from pymongo_deprio.cluster import LocalCluster, LocalMongos

    Connect = Callable[[tuple[str, int]], Wire]

ALL_BITS = 0xFFFF


@pytest.mark.parametrize("name", ["hello", "isMaster", "ismaster"])
def test_hello_is_that_of_a_mongos(near: LocalMongos, connect: Connect, name: str) -> None:
    """It says isdbgrid and the mongod's wire versions, and nothing of a replica set."""
    reply = connect(near.address).run(name, helloOk=True, compression=["zlib"], db="admin")
    assert reply["msg"] == "isdbgrid"
    assert reply["isWritablePrimary" if name == "hello" else "ismaster"] is True
    assert reply["helloOk"] is True
    assert reply["maxWireVersion"] >= 17
    assert reply["logicalSessionTimeoutMinutes"] == 30
    assert "$clusterTime" in reply
    assert not {"setName", "hosts", "me", "topologyVersion", "compression"} & set(reply)


def test_hello_in_an_op_query_is_answered_by_an_op_reply(
    near: LocalMongos, connect: Connect
) -> None:
    """Every PyMongo up to 4.x opens its connections so."""
    connection = connect(near.address)
    query = struct.pack("<i", 4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1)
    query += bson.encode({"ismaster": 1})
    connection.stream.send(struct.pack("<iiii", len(query) + 16, 5, 0, wire.OP_QUERY) + query)
    message = connection.receive_message()
    assert wire.header(message)[1:] == (0, 5, wire.OP_REPLY)
    assert bson.decode(message[36:])["msg"] == "isdbgrid"


def test_any_other_op_query_is_refused_by_the_mongod(near: LocalMongos, connect: Connect) -> None:
    """As the real server answers it."""
    connection = connect(near.address)
    query = struct.pack("<i", 4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1)
    query += bson.encode({"find": "c"})
    connection.stream.send(struct.pack("<iiii", len(query) + 16, 5, 0, wire.OP_QUERY) + query)
    assert bson.decode(connection.receive_message()[36:])["codeName"] == "UnsupportedOpQueryCommand"


def test_commands_of_a_mongod_are_unknown(near: LocalMongos, connect: Connect) -> None:
    """A mongos has no replica set commands."""
    reply = connect(near.address).run("replSetGetStatus", db="admin")
    assert (reply["code"], reply["codeName"]) == (59, "CommandNotFound")


def test_it_says_which_process_and_shards_it_is(near: LocalMongos, connect: Connect) -> None:
    """ServerStatus, isdbgrid, listShards and config.shards agree on a sharded cluster."""
    connection = connect(near.address)
    assert connection.run("serverStatus", db="admin")["process"] == "mongos"
    assert connection.run("isdbgrid", db="admin")["isdbgrid"] == 1
    shards = connection.run("listShards", db="admin")["shards"]
    assert connection.run("find", "shards", db="config")["cursor"]["firstBatch"] == shards


@pytest.mark.parametrize(
    "garbage",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<iiii", 1 << 30, 1, 0, wire.OP_MSG),
        struct.pack("<iiii", 20, 1, 0, wire.OP_MSG) + b"\0\0\0\0",
        struct.pack("<iiii", 26, 1, 0, wire.OP_MSG) + b"\0\0\0\0\0\5\0\0\0\0",
        struct.pack("<iiii", 20, 1, 0, 2012) + b"\0\0\0\0",
    ],
    ids=["http", "too long", "no section", "empty command", "compressed"],
)
def test_garbage_closes_its_connection_and_no_other(
    near: LocalMongos, connect: Connect, garbage: bytes
) -> None:
    """The other connection goes on, and so does the mongos."""
    other, bad = connect(near.address), connect(near.address)
    assert other.run("ping")["ok"] == 1
    bad.socket.sendall(garbage)
    assert bad.is_closed()
    assert other.run("ping")["ok"] == 1
    assert connect(near.address).run("ping")["ok"] == 1


def test_a_client_that_has_shut_its_writing_side_gets_its_reply(
    near: LocalMongos, connect: Connect
) -> None:
    """Half-closed is not closed."""
    connection = connect(near.address)
    connection.send({"ping": 1, "$db": "test"})
    connection.socket.shutdown(socket.SHUT_WR)
    assert connection.receive()["ok"] == 1
    assert connection.is_closed()


def test_several_messages_at_once_are_answered_in_order(
    near: LocalMongos, connect: Connect
) -> None:
    """Commands need not wait for the replies before them."""
    connection = connect(near.address)
    for number in range(20):
        connection.send({"find": "c", "filter": {"n": number}, "comment": number, "$db": "test"})
    replies = [connection.receive_message() for _ in range(20)]
    assert {wire.header(reply).response_to for reply in replies} == {77}


def test_unacknowledged_writes_pass_and_get_no_reply(near: LocalMongos, connect: Connect) -> None:
    """The next reply is that of the next command; the write has happened."""
    connection = connect(near.address)
    connection.run("drop", "quiet")
    insert = {"insert": "quiet", "documents": [{}], "writeConcern": {"w": 0}, "$db": "test"}
    connection.send(insert, flags=wire.MORE_TO_COME)
    assert connection.run("count", "quiet")["n"] == 1


def test_exhaust_is_answered_as_by_a_mongos(near: LocalMongos, connect: Connect) -> None:
    """One reply to one getMore, though the client would take more."""
    connection = connect(near.address)
    connection.run("insert", "many", documents=[{} for _ in range(10)])
    cursor = connection.run("find", "many", batchSize=2)["cursor"]["id"]
    more = {"getMore": Int64(cursor), "collection": "many", "batchSize": 2, "$db": "test"}
    connection.send(more, flags=wire.EXHAUST_ALLOWED)
    assert not wire.more_to_come(connection.receive_message())
    assert connection.run("killCursors", "many", cursors=[Int64(cursor)])["cursorsKilled"]


def test_a_message_with_a_checksum_passes(near: LocalMongos, connect: Connect) -> None:
    """The mongod checks it, so it must arrive as it was sent."""
    connection = connect(near.address)
    message = bytearray(wire.encode_msg(bson.encode({"ping": 1, "$db": "test"})) + b"\0\0\0\0")
    message[:4] = len(message).to_bytes(4, "little")
    message[16] = wire.CHECKSUM_PRESENT
    message[-4:] = struct.pack("<I", crc32c(bytes(message[:-4])))
    connection.stream.send(bytes(message))
    assert connection.receive()["ok"] == 1


def crc32c(data: bytes) -> int:
    """Compute the checksum of the wire protocol, slowly."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def test_large_messages_pass_both_ways(client: MongoClient[Any]) -> None:
    """Document sequences near the limit of 48 MB, and replies of 16 MB."""
    data = b"x" * 1_450_000
    client.test.large.insert_many([{"_id": number, "data": data} for number in range(32)])
    found = list(client.test.large.find())
    assert [len(document["data"]) for document in found] == [len(data)] * 32


def test_many_connections_at_once(near: LocalMongos, connect: Connect) -> None:
    """Each is answered, while all are open."""
    connections = [connect(near.address) for _ in range(100)]
    for connection in connections:
        connection.send({"ping": 1, "$db": "test"})
    assert all(connection.receive()["ok"] == 1 for connection in connections)


def test_a_client_that_does_not_read_holds_up_no_other(
    near: LocalMongos, connect: Connect, client: MongoClient[Any]
) -> None:
    """Its replies wait in the sockets, not in the memory of the mongos."""
    client.test.large.insert_one({"data": b"x" * (8 << 20)})
    slow = connect(near.address)
    slow.send({"find": "large", "$db": "test"})
    assert connect(near.address).run("ping")["ok"] == 1
    assert len(slow.receive()["cursor"]["firstBatch"][0]["data"]) == 8 << 20


def test_a_held_command_holds_up_no_other(near: LocalMongos, connect: Connect) -> None:
    """Fail points can be set and cleared while commands are held by one."""
    held = [connect(near.address) for _ in range(5)]
    began = time.monotonic()
    with near.fail_command("ping", block_time_ms=400):
        for connection in held:
            connection.send({"ping": 1, "$db": "test"})
        assert connect(near.address).run("count", "c")["ok"] == 1
    assert time.monotonic() - began < 0.4
    assert all(connection.receive()["ok"] == 1 for connection in held)
    assert time.monotonic() - began >= 0.4


def test_a_held_command_past_its_time_limit_is_an_error(
    near: LocalMongos, connect: Connect
) -> None:
    """As on the real server: held to the end, and then MaxTimeMSExpired."""
    with near.fail_command("find", block_time_ms=60):
        reply = connect(near.address).run("find", "c", maxTimeMS=50)
    assert reply["codeName"] == "MaxTimeMSExpired"


def test_a_cursor_belongs_to_its_mongos(
    near: LocalMongos, far: LocalMongos, connect: Connect
) -> None:
    """GetMore and killCursors on the other mongos do not find it."""
    here, there = connect(near.address), connect(far.address)
    here.run("insert", "many", documents=[{} for _ in range(10)])
    cursor = Int64(here.run("find", "many", batchSize=2)["cursor"]["id"])
    refused = there.run("getMore", cursor, collection="many")
    assert (refused["code"], refused["codeName"]) == (43, "CursorNotFound")
    assert there.run("killCursors", "many", cursors=[cursor])["cursorsNotFound"] == [cursor]
    assert len(here.run("getMore", cursor, collection="many", batchSize=2)["cursor"]["nextBatch"])
    reply = here.run("killCursors", "many", cursors=[cursor, Int64(5)])
    assert (reply["cursorsKilled"], reply["cursorsNotFound"]) == ([cursor], [5])
    assert here.run("getMore", cursor, collection="many")["code"] == 43


def test_an_exhausted_cursor_is_forgotten(near: LocalMongos, connect: Connect) -> None:
    """A getMore after the last is CursorNotFound, as from the mongod."""
    connection = connect(near.address)
    connection.run("insert", "many", documents=[{} for _ in range(3)])
    cursor = Int64(connection.run("find", "many", batchSize=1)["cursor"]["id"])
    assert connection.run("getMore", cursor, collection="many")["cursor"]["id"] == 0
    assert connection.run("getMore", cursor, collection="many")["code"] == 43


def test_a_retried_write_happens_once_whichever_mongos_it_goes_to(
    near: LocalMongos, far: LocalMongos, connect: Connect
) -> None:
    """The mongoses share the history of retryable writes."""
    connect(near.address).run("drop", "once")
    insert: dict[str, Any] = {
        "documents": [{"_id": 1}],
        "lsid": {"id": session_id()},
        "txnNumber": Int64(1),
    }
    assert connect(near.address).run("insert", "once", **insert)["n"] == 1
    assert connect(far.address).run("insert", "once", **insert)["n"] == 1
    assert connect(far.address).run("count", "once")["n"] == 1


def session_id() -> Any:
    """Make a new session id."""
    return bson.Binary(bson.ObjectId().binary + b"1234", 4)


class Transaction:
    """A transaction in raw commands."""

    def __init__(self) -> None:
        """Take a new session."""
        self.ids: dict[str, Any] = {
            "lsid": {"id": session_id()},
            "txnNumber": Int64(1),
            "autocommit": False,
        }

    def insert(self, connection: Wire, **fields: Any) -> dict[str, Any]:
        """Insert a document."""
        return connection.run("insert", "txn", documents=[{}], **self.ids, **fields)

    def end(self, connection: Wire, how: str, **fields: Any) -> dict[str, Any]:
        """Commit or abort."""
        return connection.run(f"{how}Transaction", db="admin", **self.ids, **fields)


@pytest.fixture
def txn(client: MongoClient[Any]) -> Transaction:
    """Give a transaction that has not begun, and its empty collection."""
    client.test.create_collection("txn")
    return Transaction()


def test_a_statement_on_another_mongos_is_no_such_transaction(
    near: LocalMongos, far: LocalMongos, connect: Connect, txn: Transaction
) -> None:
    """It is labelled transient, and the transaction goes on where it was begun."""
    here, there = connect(near.address), connect(far.address)
    begun = txn.insert(here, startTransaction=True)
    assert begun["recoveryToken"] == {"recoveredShardId": "shard01"}
    strayed = txn.insert(there)
    assert (strayed["code"], strayed["errorLabels"]) == (251, ["TransientTransactionError"])
    assert txn.insert(here)["ok"] == 1
    assert txn.end(here, "commit", recoveryToken=begun["recoveryToken"])["ok"] == 1
    assert here.run("count", "txn")["n"] == 2


def test_a_commit_that_has_happened_can_be_repeated_on_another_mongos(
    near: LocalMongos, far: LocalMongos, connect: Connect, txn: Transaction
) -> None:
    """The recovery token lets it ask the shard how the transaction ended."""
    here, there = connect(near.address), connect(far.address)
    token = txn.insert(here, startTransaction=True)["recoveryToken"]
    assert txn.end(here, "commit")["ok"] == 1
    assert txn.end(there, "commit", recoveryToken=token)["ok"] == 1
    assert here.run("count", "txn")["n"] == 1


def test_a_commit_that_has_not_happened_is_an_abort_on_another_mongos(
    near: LocalMongos, far: LocalMongos, connect: Connect, txn: Transaction
) -> None:
    """As with a real shard: undecided, the transaction is aborted and may be run again."""
    here, there = connect(near.address), connect(far.address)
    token = txn.insert(here, startTransaction=True)["recoveryToken"]
    reply = txn.end(there, "commit", recoveryToken=token)
    assert (reply["code"], reply["errorLabels"]) == (251, ["TransientTransactionError"])
    assert txn.end(here, "commit")["code"] == 251
    assert here.run("count", "txn")["n"] == 0


def test_a_commit_on_another_mongos_needs_its_token(
    far: LocalMongos, near: LocalMongos, connect: Connect, txn: Transaction
) -> None:
    """Without one that mongos cannot know which shard to ask."""
    here = connect(near.address)
    txn.insert(here, startTransaction=True)
    assert txn.end(connect(far.address), "commit")["code"] == 50940
    assert txn.end(here, "abort")["ok"] == 1


def test_an_abort_passes_on_another_mongos(
    near: LocalMongos, far: LocalMongos, connect: Connect, txn: Transaction
) -> None:
    """With its token; nothing of the transaction is left."""
    here = connect(near.address)
    token = txn.insert(here, startTransaction=True)["recoveryToken"]
    assert txn.end(connect(far.address), "abort", recoveryToken=token)["ok"] == 1
    assert here.run("count", "txn")["n"] == 0


def test_pymongo_runs_transactions_and_reads_its_own_writes(client: MongoClient[Any]) -> None:
    """Sessions, transactions and causal consistency through both mongoses."""
    client.test.create_collection("txn")
    for number in range(10):
        with client.start_session(causal_consistency=True) as session:
            with session.start_transaction():
                client.test.txn.insert_one({"_id": number}, session=session)
            assert client.test.txn.count_documents({}, session=session) == number + 1


def test_secondary_reads_are_served(client: MongoClient[Any]) -> None:
    """The one member takes every read preference."""
    from pymongo import ReadPreference  # noqa: PLC0415 - for one test

    client.test.c.insert_one({"_id": 1})
    for name in ("SECONDARY", "SECONDARY_PREFERRED", "NEAREST"):
        collection = client.test.c.with_options(read_preference=getattr(ReadPreference, name))
        assert collection.find_one() == {"_id": 1}


def test_a_fail_point_belongs_to_one_mongos(
    near: LocalMongos, far: LocalMongos, client: MongoClient[Any]
) -> None:
    """The other mongos does not fail, and neither does the mongod."""
    with near.fail_command("ping", error_code=11), near.client() as sick, far.client() as well:
        with pytest.raises(OperationFailure) as caught:
            sick.test.command("ping")
        assert caught.value.code == 11
        assert well.test.command("ping")["ok"] == 1
    assert client.test.command("ping")["ok"] == 1


def test_close_connection_closes_without_a_reply(near: LocalMongos, connect: Connect) -> None:
    """The connection ends; a new one works."""
    with near.fail_command("ping", close_connection=True, times=1):
        connection = connect(near.address)
        connection.send({"ping": 1, "$db": "test"})
        assert connection.is_closed()
        assert connect(near.address).run("ping")["ok"] == 1


def test_hello_can_be_failed_and_a_new_client_sees_it(near: LocalMongos) -> None:
    """A failing handshake is a network error to PyMongo."""
    unconnected = near.client(connect=False, serverSelectionTimeoutMS=50)
    point = near.fail_command(["hello", "isMaster"], close_connection=True)
    with point, unconnected, pytest.raises(AutoReconnect):
        unconnected.test.command("ping")


def test_a_write_concern_error_is_added_to_what_has_happened(
    near: LocalMongos, connect: Connect
) -> None:
    """The write is done; retryable codes are labelled unless the labels are given."""
    connection = connect(near.address)
    connection.run("drop", "wce")
    lsid = {"id": session_id()}
    error = {"code": 91, "errmsg": "q"}
    with near.fail_command("insert", write_concern_error=error):
        reply = connection.run("insert", "wce", documents=[{}], lsid=lsid, txnNumber=Int64(1))
    assert (reply["n"], reply["writeConcernError"]) == (1, error)
    assert reply["errorLabels"] == ["RetryableWriteError"]
    with near.fail_command("insert", write_concern_error=error, error_labels=[]):
        reply = connection.run("insert", "wce", documents=[{}], lsid=lsid, txnNumber=Int64(2))
    assert reply["writeConcernError"] == error
    assert "errorLabels" not in reply
    assert connection.run("count", "wce")["n"] == 2


def test_app_name_is_that_of_the_connection(near: LocalMongos) -> None:
    """A client with another name, or none, is not failed."""
    point = near.fail_command("ping", error_code=11, app_name="marked")
    with point, near.client() as unmarked, near.client(appname="marked") as marked:
        assert unmarked.test.command("ping")["ok"] == 1
        with pytest.raises(OperationFailure):
            marked.test.command("ping")


def test_a_fail_point_is_set_on_admin_only(near: LocalMongos, connect: Connect) -> None:
    """As on the real server."""
    reply = connect(near.address).run("configureFailPoint", "failCommand", mode="off")
    assert (reply["code"], reply["codeName"]) == (13, "Unauthorized")


def test_threads_share_a_client(client: MongoClient[Any]) -> None:
    """Twenty threads write and read through both mongoses, and nothing is lost."""

    def work(number: int) -> None:
        for step in range(10):
            client.test.shared.insert_one({"_id": (number << 8) + step})
            client.test.shared.find_one({"_id": (number << 8) + step})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert client.test.shared.count_documents({}) == 200


def test_closing_the_mongod_connection_closes_the_clients(
    servers: LocalCluster, near: LocalMongos, connect: Connect
) -> None:
    """When the mongod hangs up in the middle, the client sees its connection closed."""
    connection = connect(near.address)
    connection.run("ping")
    point = {"mode": {"times": 1}, "data": {"failCommands": ["dbStats"], "closeConnection": True}}
    connect(servers.mongod_address).run("configureFailPoint", "failCommand", db="admin", **point)
    connection.send({"dbStats": 1, "$db": "test"})
    assert connection.is_closed()


def test_a_document_that_is_nested_too_deep_ends_its_connection_only(
    near: LocalMongos, connect: Connect
) -> None:
    """Decoding it must not end the process."""
    document = bson.encode({})
    for _ in range(5_000):
        field = b"\x030\0" + document
        document = struct.pack("<i", len(field) + 5) + field + b"\0"
    fields = b"\x10hello\0\1\0\0\0\x03client\0" + document
    bad = connect(near.address)
    bad.stream.send(wire.encode_msg(struct.pack("<i", len(fields) + 5) + fields + b"\0"))
    assert bad.is_closed()
    assert connect(near.address).run("ping")["ok"] == 1


@pytest.mark.parametrize("delay", [-1, float("nan"), float("inf"), 1e300, "5", True, None])
def test_a_hello_delay_that_cannot_be_slept(near: LocalMongos, delay: Any) -> None:
    """It is refused, and hello is answered as before."""
    with pytest.raises(CommandFailedError, match="takes a number of milliseconds"):
        near.command({HELLO_DELAY: delay})
    assert near.command({"hello": 1})["ok"] == 1


class EnoughError(Exception):
    """Ends a mongos that would accept connections for ever."""


class Few:
    """A listener with so many connections, each of which a client has opened already."""

    def __init__(self, number: int) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.clients = [
                socket.create_connection(listener.getsockname(), timeout=10) for _ in range(number)
            ]
            self._accepted = [listener.accept() for _ in range(number)]

    def accept(self) -> tuple[socket.socket, Any]:
        if not self._accepted:
            raise EnoughError
        return self._accepted.pop(0)


def test_a_connection_for_which_there_is_no_thread(
    servers: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed, and the next one is served."""

    def start(thread: threading.Thread) -> None:
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    mongos, listener = Mongos(servers.mongod_address), Few(2)
    stack_size = threading.stack_size()
    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(EnoughError):
        mongos.serve(listener)  # type: ignore[arg-type]
    threading.stack_size(stack_size)
    without_thread, served = listener.clients
    with without_thread, served:
        assert without_thread.recv(1) == b""
        served.sendall(wire.encode_msg(bson.encode({"ping": 1, "$db": "test"})))
        assert wire.Stream(served).receive()
