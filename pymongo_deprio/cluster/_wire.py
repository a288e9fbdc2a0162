"""The MongoDB wire protocol: messages on a socket, and what is inside them.

Documents are looked at without decoding them: most messages only pass through, and they are long.
"""

from __future__ import annotations

import struct
from typing import (
    TYPE_CHECKING,
    Any,
    Container,
    Dict,
    Iterator,
    Mapping,
    NamedTuple,
)

import bson

if TYPE_CHECKING:
    import socket

OP_REPLY = 1
OP_QUERY = 2004
OP_MSG = 2013

CHECKSUM_PRESENT = 1
MORE_TO_COME = 1 << 1
EXHAUST_ALLOWED = 1 << 16

MAX_MESSAGE_SIZE = 48_000_000
MAX_DOCUMENT_SIZE = 16 * 1024 * 1024
MAX_DEPTH = 200
"""How deep documents may be nested, as on a server."""

_HEADER = struct.Struct("<iiii")
_INT32 = struct.Struct("<i")
_INT64 = struct.Struct("<q")
_REPLY_FIELDS = struct.Struct("<iqii")

_RECEIVE_AT_ONCE = 1 << 20
_RECEIVE_AT_LEAST = 1 << 16

DOCUMENT = 0x03
INT64 = 0x12
_STRING = 0x02
_ARRAY = 0x04
_REGEX = 0x0B
_CODE_WITH_SCOPE = 0x0F
_FIXED_SIZES = {
    0x01: 8,  # double
    0x06: 0,  # undefined
    0x07: 12,  # object id
    0x08: 1,  # boolean
    0x09: 8,  # date
    0x0A: 0,  # null
    0x10: 4,  # int32
    0x11: 8,  # timestamp
    INT64: 8,
    0x13: 16,  # decimal128
    0x7F: 0,  # max key
    0xFF: 0,  # min key
}
# How much longer a value is than the length at its beginning says.
_PREFIXED_SIZES = {
    _STRING: 4,
    DOCUMENT: 0,
    _ARRAY: 0,
    0x05: 5,  # binary: length and subtype come before the bytes
    0x0C: 16,  # database pointer: a string and an object id
    0x0D: 4,  # code
    0x0E: 4,  # symbol
    _CODE_WITH_SCOPE: 0,
}


class ProtocolError(Exception):
    """What arrived is not a message of the wire protocol."""


class Header(NamedTuple):
    """The first sixteen bytes of every message."""

    length: int
    request_id: int
    response_to: int
    op_code: int


class Element(NamedTuple):
    """Where one field of a document lies: type, whole element, and its value within that."""

    kind: int
    start: int
    value: int
    end: int


Elements = Dict[str, Element]


def header(message: bytes) -> Header:
    """Read the header of a message of at least sixteen bytes."""
    return Header(*_HEADER.unpack_from(message))


def elements(data: bytes, start: int) -> Elements:
    """Locate the fields of the document that begins at `start`, without decoding any."""
    return dict(_walk(data, start))


def _walk(data: bytes, start: int) -> Iterator[tuple[str, Element]]:
    end = _document_end(data, start, len(data)) - 1
    position = start + 4
    while position < end:
        kind = data[position]
        name_end = _cstring_end(data, position + 1, end)
        value_end = _value_end(data, kind, name_end + 1, end)
        name = data[position + 1 : name_end].decode("utf-8", "replace")
        yield name, Element(kind, position, name_end + 1, value_end)
        position = value_end


def _document_end(data: bytes, start: int, limit: int) -> int:
    end = start + _int32(data, start, limit)
    if end < start + 5 or end > limit or data[end - 1]:
        raise ProtocolError(f"no document at byte {start} of a message")
    return end


def _value_end(data: bytes, kind: int, start: int, limit: int) -> int:
    if kind in _FIXED_SIZES:
        end = start + _FIXED_SIZES[kind]
    elif kind in _PREFIXED_SIZES:
        length = _int32(data, start, limit)
        end = start + length + _PREFIXED_SIZES[kind] if length >= 0 else limit + 1
    elif kind == _REGEX:
        end = _cstring_end(data, _cstring_end(data, start, limit) + 1, limit) + 1
    else:
        raise ProtocolError(f"unknown BSON type 0x{kind:02x}")
    if end > limit or end < start:
        raise ProtocolError("a BSON value is longer than its document")
    return end


def _cstring_end(data: bytes, start: int, limit: int) -> int:
    end = data.find(b"\0", start, limit)
    if end < 0:
        raise ProtocolError("a name without an end")
    return end


def _int32(data: bytes, start: int, limit: int) -> int:
    if start + 4 > limit:
        raise ProtocolError("a length is cut off")
    return int(_INT32.unpack_from(data, start)[0])


def value_of(data: bytes, element: Element) -> Any:
    """Decode the value of one field."""
    return next(iter(decode(_document(data[element.start : element.end])).values()))


def decode(document: bytes) -> dict[str, Any]:
    """Decode a whole document; one that is not BSON raises `ProtocolError`."""
    _check_depth(document)
    try:
        return dict(bson.decode(document))
    except (bson.errors.InvalidBSON, TypeError) as error:  # a broken DBRef, on 3.x
        raise ProtocolError(f"not BSON: {error}") from error


def _check_depth(document: bytes) -> None:
    # Decoding goes one level down the thread's stack for each, and not every Python guards that.
    level = [0]
    for _ in range(MAX_DEPTH):
        level = [inner for start in level for inner in _nested(document, start)]
        if not level:
            return
    raise ProtocolError(f"a document is nested more than {MAX_DEPTH} levels deep")


def _nested(data: bytes, start: int) -> Iterator[int]:
    for _, element in _walk(data, start):
        if element.kind in (DOCUMENT, _ARRAY):
            yield element.value
        elif element.kind == _CODE_WITH_SCOPE:
            yield _value_end(data, _STRING, element.value + 4, element.end)


def int64_of(data: bytes, element: Element) -> int:
    """Read the value of a field of type `INT64`."""
    return int(_INT64.unpack_from(data, element.value)[0])


def replace_fields(document: bytes, fields: Mapping[str, Any]) -> bytes:
    """Give a document with these fields at its end, instead of those of the same names."""
    return append_raw(_without(document, fields), bson.encode(fields)[4:-1])


def remove_field(document: bytes, field: str) -> bytes:
    """Give a document without one field."""
    return _without(document, (field,))


def _without(document: bytes, names: Container[str]) -> bytes:
    kept = (element for name, element in _walk(document, 0) if name not in names)
    return _document(b"".join(document[element.start : element.end] for element in kept))


def append_raw(document: bytes, encoded_fields: bytes) -> bytes:
    """Give a document with fields that are encoded already at its end."""
    return _document(document[4:-1] + encoded_fields)


def _document(encoded_fields: bytes) -> bytes:
    return _INT32.pack(len(encoded_fields) + 5) + encoded_fields + b"\0"


def more_to_come(message: bytes) -> bool:
    """Whether the sender says that another message follows without being asked for."""
    flags = _int32(message, 16, len(message))
    return header(message).op_code == OP_MSG and bool(flags & MORE_TO_COME)


class OpMsg(NamedTuple):
    """An OP_MSG: the whole message, its flags, and where its command or reply document lies."""

    message: bytes
    flags: int
    body_start: int
    body_end: int

    @classmethod
    def parse(cls, message: bytes) -> OpMsg:
        """Find the body among the sections; raises `ProtocolError` if the message is malformed."""
        flags = _int32(message, 16, len(message))
        body = None
        for kind, start, end in _sections(message, _sections_end(message, flags)):
            if kind == 0:
                if body is not None:
                    raise ProtocolError("an OP_MSG with two bodies")
                body = (start, end)
        if body is None:
            raise ProtocolError("an OP_MSG without a body")
        return cls(message, flags, *body)

    @property
    def body(self) -> bytes:
        """The command or reply document, still encoded."""
        return self.message[self.body_start : self.body_end]

    def elements(self) -> Elements:
        """Locate the fields of the body, in the message."""
        return elements(self.message, self.body_start)

    def sequence(self, name: str) -> list[dict[str, Any]]:
        """Decode the document sequence of this name; without one, give an empty list."""
        prefix = name.encode() + b"\0"
        for kind, start, end in _sections(self.message, _sections_end(self.message, self.flags)):
            if kind == 1 and self.message.startswith(prefix, start + 4):
                return list(_decoded(self.message[start + 4 + len(prefix) : end]))
        return []

    def with_body(self, body: bytes) -> bytes:
        """Give the message with another body and the same document sequences."""
        return self._rebuilt(self.flags, body)

    def without_flag(self, flag: int) -> bytes:
        """Give the message without this flag."""
        return self._rebuilt(self.flags & ~flag, self.body)

    def _rebuilt(self, flags: int, body: bytes) -> bytes:
        # The checksum covers what has been changed; it is optional and so left out.
        end = _sections_end(self.message, self.flags)
        payload = b"".join(
            (
                _INT32.pack(flags & ~CHECKSUM_PRESENT),
                self.message[20 : self.body_start],
                body,
                self.message[self.body_end : end],
            )
        )
        old = header(self.message)
        return _HEADER.pack(len(payload) + 16, *old[1:]) + payload


def _sections_end(message: bytes, flags: int) -> int:
    return len(message) - (4 if flags & CHECKSUM_PRESENT else 0)


def _sections(message: bytes, end: int) -> Iterator[tuple[int, int, int]]:
    position = 20
    while position < end:
        kind, start = message[position], position + 1
        if kind == 0:
            position = _document_end(message, start, end)
        elif kind == 1:
            position = start + _int32(message, start, end)
            if not start + 5 <= position <= end:
                raise ProtocolError("a document sequence is longer than its message")
        else:
            raise ProtocolError(f"unknown section {kind} in an OP_MSG")
        yield kind, start, position


def _decoded(documents: bytes) -> Iterator[dict[str, Any]]:
    start = 0
    while start < len(documents):
        end = _document_end(documents, start, len(documents))
        yield decode(documents[start:end])
        start = end


def query_command(message: bytes) -> bytes | None:
    """Give the command document in an OP_QUERY, or None for another query."""
    name_end = _cstring_end(message, 20, len(message))
    if not message[20:name_end].endswith(b".$cmd"):
        return None
    start = name_end + 9
    document = message[start : _document_end(message, start, len(message))]
    wrapped = elements(document, 0).get("$query")
    if wrapped is not None and wrapped.kind == DOCUMENT:
        document = document[wrapped.value : wrapped.end]
    return document


def encode_msg(document: bytes, *, request_id: int = 0, response_to: int = 0) -> bytes:
    """Make an OP_MSG with this document as its body and no flags."""
    return (
        _HEADER.pack(len(document) + 21, request_id, response_to, OP_MSG) + b"\0\0\0\0\0" + document
    )


def encode_reply(document: bytes, *, response_to: int) -> bytes:
    """Make an OP_REPLY, the answer to an OP_QUERY."""
    await_capable = 8
    return (
        _HEADER.pack(len(document) + 36, 0, response_to, OP_REPLY)
        + _REPLY_FIELDS.pack(await_capable, 0, 0, 1)
        + document
    )


class Stream:
    """Whole messages on a blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        self._socket = sock
        self._received = bytearray()

    def send(self, message: bytes) -> None:
        """Send a message, and wait as long as the other side is slow."""
        self._socket.sendall(message)

    def receive(self) -> bytes | None:
        """Wait for the next message; None when the other side has closed.

        Raises `ProtocolError` if what arrives is no message, or ends inside one.
        """
        if not self._fill(_HEADER.size):
            return None
        length = _INT32.unpack_from(self._received)[0]
        if not _HEADER.size <= length <= MAX_MESSAGE_SIZE:
            raise ProtocolError(f"a message of {length} bytes")
        self._fill(length)
        message = bytes(memoryview(self._received)[:length])
        del self._received[:length]
        return message

    def _fill(self, size: int) -> bool:
        while len(self._received) < size:
            missing = size - len(self._received)
            data = self._socket.recv(min(max(missing, _RECEIVE_AT_LEAST), _RECEIVE_AT_ONCE))
            if data:
                self._received += data
            elif self._received:
                raise ProtocolError("the connection was closed inside a message")
            else:
                return False
        return True

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()
