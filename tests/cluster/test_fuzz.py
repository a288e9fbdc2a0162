"""The emulated mongos under fire: whatever is sent, it answers what is valid and closes the rest.

The connections are served in this process, so that an exception in one of their threads is seen.
What only a process can show, that it lives on and leaks nothing, is tested on a mongos of its own.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import wait_until

from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._bulk_write import BULK_WRITE_WIRE_VERSION
from pymongo_deprio.cluster._mongos import (
    COMMAND_COUNTS,
    MAX_WIRE_VERSION,
    Connection,
    Mongos,
)

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster, LocalMongos

SECONDS = 20
"""How long a connection may take to end before it counts as hanging."""


class Served:
    """The connections of one emulated mongos, each with its thread."""

    def __init__(self, mongos: Mongos) -> None:
        self.mongos = mongos
        self.errors: list[BaseException] = []
        self._listener = socket.create_server(("127.0.0.1", 0))

    def close(self) -> None:
        self._listener.close()

    @contextlib.contextmanager
    def connection(self) -> Iterator[socket.socket]:
        """Give a connected socket; after the block all that served it has to end."""
        with socket.create_connection(self._listener.getsockname(), SECONDS) as ours:
            theirs = self._listener.accept()[0]
            connection = Connection(self.mongos, theirs, 1)
            thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
            thread.start()
            yield ours
        thread.join(SECONDS)
        assert not thread.is_alive(), "the connection is served though its client is gone"
        assert theirs.fileno() == -1
        upstream = connection._upstream._stream
        assert upstream is None or upstream._socket.fileno() == -1
        assert not self.errors

    def _serve(self, connection: Connection) -> None:
        try:
            connection.serve()
        except BaseException as error:  # noqa: BLE001 - whatever it is, the test shows it
            self.errors.append(error)


@pytest.fixture(scope="module")
def served(servers: LocalCluster) -> Iterator[Served]:
    """Give a mongos that is served in this process."""
    with contextlib.closing(Served(Mongos(servers.mongod_address))) as served:
        yield served


@pytest.fixture(scope="module")
def well(served: Served) -> Iterator[wire.Stream]:
    """Give the connection of a well client, which is there all the time."""
    with served.connection() as sock:
        yield wire.Stream(sock)


class Request(NamedTuple):
    """A valid message, the command that it counts as, and what its reply holds, if there is one."""

    message: bytes
    name: str
    reply: dict[str, Any] | None


def op_msg(*sections: bytes, flags: int = 0, op_code: int = wire.OP_MSG) -> bytes:
    """Make an OP_MSG of encoded sections."""
    payload = struct.pack("<i", flags) + b"".join(sections)
    return struct.pack("<iiii", len(payload) + 16, 7, 0, op_code) + payload


def body(document: dict[str, Any]) -> bytes:
    """Make a section of kind 0."""
    return b"\0" + bson.encode(document)


def sequence(name: str, *documents: bytes) -> bytes:
    """Make a section of kind 1."""
    content = name.encode() + b"\0" + b"".join(documents)
    return b"\1" + struct.pack("<i", len(content) + 4) + content


def query(document: dict[str, Any]) -> bytes:
    """Make an OP_QUERY with a command."""
    content = struct.pack("<i", 4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1)
    content += bson.encode(document)
    return struct.pack("<iiii", len(content) + 16, 7, 0, wire.OP_QUERY) + content


INSERT = body({"insert": "fuzz", "$db": "test"})
HELLO = body({"hello": 1, "$db": "admin"})
GET_MORE = body({"getMore": bson.int64.Int64(1), "collection": "c", "$db": "test"})
PING = op_msg(body({"ping": 1, "$db": "test"}))
DOCUMENTS = sequence("documents", bson.encode({}), bson.encode({"a": "b"}))
QUIET = body({"insert": "fuzz", "writeConcern": {"w": 0}, "$db": "test"})
REQUESTS = [
    Request(PING, "ping", {"ok": 1}),
    Request(query({"ismaster": 1}), "ismaster", {"ok": 1, "msg": "isdbgrid"}),
    Request(query({"hello": 1, "client": {}}), "hello", {"ok": 1, "msg": "isdbgrid"}),
    Request(op_msg(HELLO), "hello", {"msg": "isdbgrid"}),
    Request(op_msg(HELLO, flags=wire.MORE_TO_COME), "hello", None),
    Request(op_msg(GET_MORE, flags=wire.MORE_TO_COME), "getMore", None),
    Request(op_msg(INSERT, DOCUMENTS), "insert", {"ok": 1, "n": 2}),
    Request(op_msg(DOCUMENTS, INSERT), "insert", {"ok": 1, "n": 2}),
    Request(op_msg(QUIET, DOCUMENTS, flags=wire.MORE_TO_COME), "insert", None),
    Request(op_msg(body({"find": "none", "$db": "test"})), "find", {"ok": 1}),
    Request(op_msg(body({"count": "none", "$db": "test"})), "count", {"n": 0}),
    Request(op_msg(body({"nonesuch": 1, "$db": "test"})), "nonesuch", {"ok": 0, "code": 59}),
    Request(op_msg(GET_MORE), "getMore", {"ok": 0, "code": 43}),
]
LENGTHS = [0, -1, 15, 2**31 - 1, -(2**31), wire.MAX_MESSAGE_SIZE + 1]
MALFORMED = [
    op_msg(),
    op_msg(INSERT, INSERT),
    op_msg(DOCUMENTS),
    op_msg(body({})),
    op_msg(b"\2" + INSERT[1:]),
    op_msg(INSERT, b"\1" + struct.pack("<i", 2**31 - 1)),
    op_msg(INSERT, b"\1" + struct.pack("<i", -1)),
    op_msg(INSERT, flags=wire.CHECKSUM_PRESENT),
    op_msg(INSERT[:-1] + b"x"),
]
KNOWN_OP_CODES = (wire.OP_QUERY, wire.OP_MSG)

requests = st.lists(st.sampled_from(REQUESTS), max_size=5)
cuts = st.lists(st.integers(1, 60), max_size=12)
endings = st.one_of(
    st.just(b""),
    st.integers(1, len(PING) - 1).map(lambda length: PING[:length]),
    st.builds(
        lambda length, rest: struct.pack("<i", length) + rest,
        st.sampled_from(LENGTHS),
        st.binary(min_size=12, max_size=40),
    ),
    st.integers(-(2**31), 2**31 - 1)
    .filter(lambda op_code: op_code not in KNOWN_OP_CODES)
    .map(lambda op_code: op_msg(INSERT, op_code=op_code)),
    *map(st.just, MALFORMED),
    st.binary(min_size=1, max_size=15),
)


def send(sock: socket.socket, data: bytes, cuts: list[int]) -> None:
    """Send data in pieces, the last of which is what is left; stop where nobody listens."""
    with contextlib.suppress(ConnectionError):
        for length in cuts:
            piece, data = data[:length], data[length:]
            sock.sendall(piece)
        sock.sendall(data)


def rest_of(stream: wire.Stream) -> list[bytes]:
    """Say that nothing more is sent, and return what arrives until the other side closes."""
    with contextlib.suppress(OSError):
        stream._socket.shutdown(socket.SHUT_WR)
    messages = []
    with contextlib.suppress(ConnectionError):
        while True:
            message = stream.receive()
            if message is None:
                break
            messages.append(message)
    return messages


def decoded(message: bytes) -> dict[str, Any]:
    """Return the document in a reply."""
    is_reply = wire.header(message).op_code == wire.OP_REPLY
    return wire.decode(message[36:] if is_reply else wire.OpMsg.parse(message).body)


def ask(stream: wire.Stream, command: dict[str, Any]) -> dict[str, Any]:
    """Run a command and return its reply."""
    stream.send(op_msg(body({**command, "$db": "admin"})))
    return decoded(stream.receive() or b"")


@given(requests=requests, ending=endings, cuts=cuts)
def test_valid_messages_are_answered_and_what_is_none_closes(
    served: Served, well: wire.Stream, requests: list[Request], ending: bytes, cuts: list[int]
) -> None:
    """In order, however they are cut or joined; each is counted, and what is none is not."""
    before = Counter(served.mongos.router.counts(reset=False))
    with served.connection() as sock:
        stream = wire.Stream(sock)
        send(sock, b"".join(request.message for request in requests), cuts)
        for request in requests:
            if request.reply is not None:
                message = stream.receive() or b""
                assert wire.header(message).response_to == 7
                assert request.reply.items() <= decoded(message).items()
        send(sock, ending, cuts)
        if len(ending) >= 16:
            assert ask(well, {"ping": 1})["ok"] == 1
            before["ping"] += 1
        assert rest_of(stream) == []
    arrived = Counter(request.name for request in requests)
    assert Counter(served.mongos.router.counts(reset=False)) == before + arrived


edits = st.lists(
    st.tuples(st.integers(0, 400), st.integers(0, 8), st.binary(max_size=8)),
    min_size=1,
    max_size=4,
)


@given(requests=requests, edits=edits, cuts=cuts)
def test_damaged_messages_hang_nothing_and_hurt_nobody(
    served: Served,
    well: wire.Stream,
    requests: list[Request],
    edits: list[tuple[int, int, bytes]],
    cuts: list[int],
) -> None:
    """Whatever is answered is whole, its connection ends, and a well client is served."""
    data = PING + b"".join(request.message for request in requests)
    for at, length, replacement in edits:
        data = data[:at] + replacement + data[at + length :]
    with served.connection() as sock:
        send(sock, data, cuts)
        assert ask(well, {"ping": 1})["ok"] == 1
        # Not decoded: a server repeats in its errors the broken letters that it was sent.
        assert all(map(wire.header, rest_of(wire.Stream(sock))))


numbers = st.one_of(
    st.integers(-(2**63), 2**63 - 1),
    st.sampled_from([0, 1, 6, 2**31, 0.5, -0.0, float("nan"), float("inf"), -1e300, 1e300]),
)
keys = st.text("ab$", max_size=2)
anything = st.recursive(
    st.one_of(
        st.none(), st.booleans(), numbers, st.text("ab.$", max_size=3), st.binary(max_size=3)
    ),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(keys, inner, max_size=2),
    max_leaves=4,
)


def some(**fields: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Make documents that lack some of these fields, and have nonsense in others."""
    return st.fixed_dictionaries({}, optional={name: of | anything for name, of in fields.items()})


fail_points = st.fixed_dictionaries(
    {
        "mode": st.just("alwaysOn") | some(times=numbers, skip=numbers) | anything,
        "data": st.builds(
            lambda effects: {"failCommands": ["ping", "hello"], **effects},
            some(
                errorCode=numbers,
                errorLabels=st.lists(anything, max_size=2),
                closeConnection=st.booleans(),
                writeConcernError=some(code=numbers, errmsg=st.text("ab")),
            ),
        )
        | anything,
    }
)


@given(fail_point=fail_points, value=anything, client=anything)
def test_own_commands_take_any_value(
    servers: LocalCluster, fail_point: dict[str, Any], value: Any, client: Any
) -> None:
    """Each is answered, be it by an error, and what it set breaks no other command's answer."""
    mongos = Mongos(servers.mongod_address)
    with contextlib.closing(Served(mongos)) as served, served.connection() as sock:
        stream = wire.Stream(sock)
        for command in (
            {"hello": value, "client": client, "helloOk": value},
            {COMMAND_COUNTS: value, "reset": value},
            {MAX_WIRE_VERSION: value},
            {"killCursors": "c", "cursors": value},
            {"getMore": value, "collection": client},
            {"configureFailPoint": value},
            {"configureFailPoint": "failCommand", **fail_point},
        ):
            assert ask(stream, command)["ok"] in (0, 1)
        data = fail_point.get("data")
        if not (isinstance(data, dict) and data.get("closeConnection") is True):
            assert ask(stream, {"ping": 1})["ok"] in (0, 1)
            assert ask(stream, {"hello": 1})["ok"] in (0, 1)


operations = some(
    insert=st.integers(-1, 2),
    update=st.integers(-1, 2),
    delete=st.integers(-1, 2),
    document=st.just({"a": 1}),
    filter=st.just({"a": 1}),
    updateMods=st.just({"$set": {"a": 2}}),
    multi=st.booleans(),
)
namespaces = some(ns=st.sampled_from(["test.fuzz", "test", ".", "admin.system.users", ""]))


@given(
    operations=st.lists(operations, max_size=2) | anything,
    namespaces=st.lists(namespaces, max_size=2) | anything,
    as_sequences=st.booleans(),
    options=some(
        ordered=st.booleans(),
        errorsOnly=st.booleans(),
        let=st.just({}),
        writeConcern=st.just({"w": 0}),
    ),
)
def test_any_bulk_write_is_answered(
    servers: LocalCluster,
    operations: Any,
    namespaces: Any,
    as_sequences: bool,
    options: dict[str, Any],
) -> None:
    """What is no bulkWrite gets an error, as from a server."""
    mongos = Mongos(servers.mongod_address)
    mongos.limits["maxWireVersion"] = BULK_WRITE_WIRE_VERSION
    given = {"ops": operations, "nsInfo": namespaces}
    parts = [body({"bulkWrite": 1, **options, "$db": "admin"})]
    if as_sequences:
        for name, items in given.items():
            documents = (
                [item for item in items if isinstance(item, dict)]
                if isinstance(items, list)
                else []
            )
            parts.append(sequence(name, *map(bson.encode, documents)))
    else:
        parts = [body({"bulkWrite": 1, **given, **options, "$db": "admin"})]
    with contextlib.closing(Served(mongos)) as served, served.connection() as sock:
        stream = wire.Stream(sock)
        stream.send(op_msg(*parts))
        assert decoded(stream.receive() or b"")["ok"] in (0, 1)


def open_files(mongos: LocalMongos) -> int:
    """Return how many files and sockets the process of a mongos has open."""
    return len(list(Path(f"/proc/{mongos._pid}/fd").iterdir()))


def status(mongos: LocalMongos, name: str) -> int:
    """Return a figure of the kernel's about the process of a mongos: threads, or kB of memory."""
    lines = Path(f"/proc/{mongos._pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


CONNECTIONS = 200
BEGUN = [
    b"",
    PING[:3],
    PING[:20],
    PING[:-1],
    struct.pack("<iiii", wire.MAX_MESSAGE_SIZE, 1, 0, wire.OP_MSG) + bytes(100),
]


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="the kernel tells it on Linux")
def test_many_that_begin_and_leave_cost_nothing(near: LocalMongos) -> None:
    """Hundreds of connections inside a message hold up no other, and leave nothing behind."""
    near.command({"ping": 1})
    files, threads, memory = open_files(near), status(near, "Threads"), status(near, "VmRSS")
    for round_ in range(3):
        with contextlib.ExitStack() as stack:
            begun = [
                stack.enter_context(socket.create_connection(near.address, SECONDS))
                for _ in range(CONNECTIONS)
            ]
            for number, sock in enumerate(begun):
                sock.sendall(BEGUN[number % len(BEGUN)])
            assert near.command({"ping": 1})["ok"] == 1
            wait_until(lambda: open_files(near) > CONNECTIONS, "accepted connections", SECONDS)
            if round_ == 1:  # leave by a reset
                for sock in begun:
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        wait_until(lambda: open_files(near) <= files, "closed sockets", SECONDS)
        wait_until(lambda: status(near, "Threads") <= threads, "ended threads", SECONDS)
    assert near.command({"ping": 1})["ok"] == 1
    # What was announced, 48 MB each, is not kept ready; a thread's stack and the like may be.
    assert status(near, "VmRSS") < memory + 100_000
