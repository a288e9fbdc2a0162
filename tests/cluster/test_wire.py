"""The wire protocol: framing, sections, and looking into documents."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import struct
from typing import Any, Callable

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from pymongo_deprio.cluster import _wire as wire

names = st.text(st.characters(blacklist_characters="\0", blacklist_categories=["Cs"]), max_size=8)
scalars: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.floats(allow_nan=False),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=20),
    st.binary(max_size=20),
    st.binary(max_size=20).map(lambda data: Binary(data, 2)),
    st.integers(0, 2**62).map(Int64),
    st.builds(ObjectId),
    st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    st.just(dt.datetime(2024, 2, 29)),  # noqa: DTZ001 - BSON's own dates are naive
    st.just(Regex("^a", "i")),
    st.just(Code("f()")),
    st.just(Code("f()", {"a": 1})),
    st.just(Decimal128("1.5")),
    st.just(MinKey()),
    st.just(MaxKey()),
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)
documents = st.dictionaries(names, values, max_size=6)


def op_msg(*sections: bytes, flags: int = 0, checksum: bytes = b"") -> bytes:
    """Make an OP_MSG of sections that are encoded already."""
    payload = struct.pack("<i", flags) + b"".join(sections) + checksum
    return struct.pack("<iiii", len(payload) + 16, 7, 0, wire.OP_MSG) + payload


def body(document: dict[str, Any]) -> bytes:
    """Make a section of kind 0."""
    return b"\0" + bson.encode(document)


def sequence(name: str, *items: dict[str, Any]) -> bytes:
    """Make a section of kind 1."""
    return raw_sequence(name, *map(bson.encode, items))


def raw_sequence(name: str, *documents: bytes) -> bytes:
    """Make a section of kind 1 of documents that are encoded already, or are none."""
    content = name.encode() + b"\0" + b"".join(documents)
    return b"\1" + struct.pack("<i", len(content) + 4) + content


@given(documents)
def test_elements_finds_every_field_of_any_document(document: dict[str, Any]) -> None:
    """Names in order, and each value decodes to what a full decoding gives."""
    encoded = bson.encode(document)
    elements = wire.elements(encoded, 0)
    decoded = bson.decode(encoded)
    assert list(elements) == list(decoded)
    assert {name: wire.value_of(encoded, at) for name, at in elements.items()} == decoded


@given(documents, documents)
def test_replace_fields_changes_these_fields_only(
    document: dict[str, Any], changes: dict[str, Any]
) -> None:
    """The other fields keep their bytes and their order; the new ones stand at the end."""
    replaced = bson.decode(wire.replace_fields(bson.encode(document), changes))
    # As they are encoded: that moves an _id to the front.
    before, new = (bson.decode(bson.encode(one)) for one in (document, changes))
    assert replaced == {**before, **new}
    assert list(replaced) == [*(name for name in before if name not in changes), *new]


@given(documents, st.binary(max_size=60), st.integers(0, 200))
def test_damaged_documents_raise_protocol_error_and_nothing_else(
    document: dict[str, Any], damage: bytes, at: int
) -> None:
    """Whatever the bytes are, the answer is a result or a `ProtocolError`."""
    encoded = bytearray(bson.encode(document))
    encoded[at : at + len(damage)] = damage
    with contextlib.suppress(wire.ProtocolError):
        wire.elements(bytes(encoded), 0)


@given(st.binary(max_size=80))
def test_damaged_messages_raise_protocol_error_and_nothing_else(payload: bytes) -> None:
    """The same for whole messages."""
    message = struct.pack("<iiii", len(payload) + 16, 1, 0, wire.OP_MSG) + payload
    for look in (wire.OpMsg.parse, wire.query_command, wire.more_to_come):
        with contextlib.suppress(wire.ProtocolError):
            look(message)


@given(documents, st.lists(documents, max_size=3), st.booleans(), st.booleans())
def test_the_body_is_found_wherever_it_stands(
    document: dict[str, Any], items: list[dict[str, Any]], first: bool, checksum: bool
) -> None:
    """Before or after a document sequence, with and without a checksum."""
    sections = [body(document), sequence("documents", *items)]
    message = op_msg(
        *(sections if first else sections[::-1]),
        flags=wire.CHECKSUM_PRESENT if checksum else 0,
        checksum=b"\xaa\xbb\xcc\xdd" if checksum else b"",
    )
    parsed = wire.OpMsg.parse(message)
    assert parsed.body == bson.encode(document)


def test_another_body_keeps_the_sequences_and_drops_the_checksum() -> None:
    """A checksum that no longer fits would make the server refuse the message."""
    items = sequence("documents", {"_id": 1}, {"_id": 2})
    message = op_msg(
        items, body({"a": 1}), flags=wire.CHECKSUM_PRESENT | wire.MORE_TO_COME, checksum=b"1234"
    )
    changed = wire.OpMsg.parse(message).with_body(bson.encode({"b": 2}))
    assert changed == op_msg(items, body({"b": 2}), flags=wire.MORE_TO_COME)


def test_a_flag_is_taken_off_alone() -> None:
    """The other flags and all sections stay."""
    message = op_msg(body({"a": 1}), flags=wire.EXHAUST_ALLOWED | wire.MORE_TO_COME)
    assert wire.OpMsg.parse(message).without_flag(wire.EXHAUST_ALLOWED) == op_msg(
        body({"a": 1}), flags=wire.MORE_TO_COME
    )


@pytest.mark.parametrize(
    "message",
    [
        op_msg(),
        op_msg(body({}), body({})),
        op_msg(sequence("documents", {"_id": 1})),
        op_msg(b"\2" + bson.encode({})),
        op_msg(b"\1" + struct.pack("<i", 3)),
        op_msg(body({"a": 1}), flags=wire.CHECKSUM_PRESENT),
    ],
    ids=["empty", "two bodies", "no body", "unknown section", "short sequence", "cut by checksum"],
)
def test_malformed_messages_are_refused(message: bytes) -> None:
    """An OP_MSG has exactly one body, and sections that fit."""
    with pytest.raises(wire.ProtocolError):
        wire.OpMsg.parse(message)


def nested(wrap: Callable[[Any], Any], levels: int) -> bytes:
    """Encode a document that holds another so often, without the recursion of an encoder."""
    document = bson.encode({})
    for _ in range(levels - 1):
        kind, before = wrap(document)
        field = bytes([kind]) + b"0\0" + before + document
        document = struct.pack("<i", len(field) + 5) + field + b"\0"
    return document


@pytest.mark.parametrize(
    "wrap",
    [
        lambda _: (0x03, b""),
        lambda _: (0x04, b""),
        lambda inner: (0x0F, struct.pack("<iib", len(inner) + 9, 1, 0)),
    ],
    ids=["document", "array", "code with scope"],
)
def test_documents_are_nested_as_deep_as_on_a_server(
    wrap: Callable[[bytes], tuple[int, bytes]],
) -> None:
    """To decode deeper ones would overflow the stack of a thread and so end the process."""
    assert wire.decode(nested(wrap, wire.MAX_DEPTH))
    for levels in wire.MAX_DEPTH + 1, 5_000:
        with pytest.raises(wire.ProtocolError, match="nested more than 200 levels deep"):
            wire.decode(nested(wrap, levels))


@pytest.mark.parametrize("reference", [{"$ref": None}, {"$ref": 5, "$id": 1}, {"$ref": {}}])
def test_a_reference_that_is_none(reference: dict[str, Any]) -> None:
    """It is decoded or refused, as the version of PyMongo has it."""
    with contextlib.suppress(wire.ProtocolError):
        assert "a" in wire.decode(bson.encode({"a": reference}))


def test_a_broken_document_in_a_sequence() -> None:
    """It is found when the sequence is decoded."""
    whole = bson.encode({"a": "b"})
    for broken in whole[:-1] + b"x", whole[:-1], b"\0", whole.replace(b"b", b"\xff"):
        message = op_msg(body({"a": 1}), raw_sequence("ops", whole, broken))
        with pytest.raises(wire.ProtocolError):
            wire.OpMsg.parse(message).sequence("ops")


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_command_in_an_op_query_is_found(*, wrapped: bool) -> None:
    """Plain, or within `$query` beside a read preference."""
    command = {"isMaster": 1, "client": {}}
    query = {"$query": command, "$readPreference": {}} if wrapped else command
    content = (
        struct.pack("<i", 4) + b"admin.$cmd\0" + struct.pack("<ii", 0, -1) + bson.encode(query)
    )
    message = struct.pack("<iiii", len(content) + 16, 1, 0, wire.OP_QUERY) + content
    assert wire.query_command(message) == bson.encode(command)


def test_a_query_on_a_collection_is_no_command() -> None:
    """It is for the mongod to refuse."""
    content = struct.pack("<i", 0) + b"test.c\0" + struct.pack("<ii", 0, 1) + bson.encode({})
    message = struct.pack("<iiii", len(content) + 16, 1, 0, wire.OP_QUERY) + content
    assert wire.query_command(message) is None


@given(st.lists(documents, min_size=1, max_size=4), st.integers(1, 30))
def test_messages_arrive_whole_however_they_are_cut(
    contents: list[dict[str, Any]], size: int
) -> None:
    """Several messages in one piece, or one in many pieces: `receive` gives one at a time."""
    messages = [wire.encode_msg(bson.encode(content)) for content in contents]
    everything = b"".join(messages)
    stream = wire.Stream(Pieces(everything, size))  # type: ignore[arg-type]
    assert [stream.receive() for _ in messages] == messages
    assert stream.receive() is None


class Pieces:
    """A socket whose data arrives in pieces of one size."""

    def __init__(self, data: bytes, size: int) -> None:
        """Hold the data back."""
        self._data = data
        self._size = size

    def recv(self, _most: int) -> bytes:
        """Give the next piece."""
        piece, self._data = self._data[: self._size], self._data[self._size :]
        return piece


@pytest.mark.parametrize(
    "data",
    [
        struct.pack("<iiii", 15, 0, 0, wire.OP_MSG),
        struct.pack("<iiii", -1, 0, 0, wire.OP_MSG),
        struct.pack("<iiii", wire.MAX_MESSAGE_SIZE + 1, 0, 0, wire.OP_MSG),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack("<iiii", 30, 0, 0, wire.OP_MSG) + b"cut",
        b"cut",
    ],
    ids=["too short", "negative", "too long", "http", "cut message", "cut header"],
)
def test_what_is_no_message_raises(data: bytes) -> None:
    """Sizes out of bounds, and connections that end inside a message."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(data)
        theirs.close()
        with pytest.raises(wire.ProtocolError):
            wire.Stream(ours).receive()
