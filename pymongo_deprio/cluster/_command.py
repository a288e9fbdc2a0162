"""A command as a mongos sees it, and the replies that a mongos makes up itself."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple

import bson

from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._codes import name_of


class CommandError(Exception):
    """A command is answered with an error.

    `labels` are the error labels of the answer; None leaves them to the server's rules.
    """

    def __init__(self, code: int, message: str, labels: list[str] | None = None) -> None:
        """Keep what the answer will say."""
        super().__init__(message)
        self.code = code
        self.message = message
        self.labels = labels

    def document(self, labels: list[str]) -> dict[str, Any]:
        """Make the reply with these labels."""
        return {
            **({"errorLabels": labels} if labels else {}),
            "ok": 0.0,
            "errmsg": self.message,
            "code": self.code,
            "codeName": name_of(self.code),
        }


class Command(NamedTuple):
    """A command as it arrived in an OP_MSG."""

    request: wire.OpMsg
    fields: wire.Elements
    name: str

    @classmethod
    def parse(cls, message: bytes) -> Command:
        """Look into the message; raises `wire.ProtocolError` if there is no command in it."""
        request = wire.OpMsg.parse(message)
        fields = request.elements()
        if not fields:
            raise wire.ProtocolError("an empty command")
        return cls(request, fields, next(iter(fields)))

    def get(self, field: str) -> Any:
        """Decode one field; None if it is not there."""
        element = self.fields.get(field)
        return None if element is None else wire.value_of(self.request.message, element)

    def encoded(self, *fields: str) -> bytes:
        """Give some fields as they are encoded, which decoding need not give back."""
        found = [self.fields[field] for field in fields if field in self.fields]
        return b"".join(self.request.message[at.start : at.end] for at in found)

    def with_fields(self, fields: Mapping[str, Any]) -> Command:
        """Give the command with other values of some fields."""
        body = wire.replace_fields(self.request.body, fields)
        return Command.parse(self.request.with_body(body))

    def without(self, field: str) -> Command:
        """Give the command without one field."""
        if field not in self.fields:
            return self
        body = wire.remove_field(self.request.body, field)
        return Command.parse(self.request.with_body(body))

    @property
    def in_transaction(self) -> bool:
        """Whether this is a statement, the commit or the abort of a transaction."""
        return "autocommit" in self.fields

    @property
    def wants_reply(self) -> bool:
        """False for an unacknowledged write."""
        return not self.request.flags & wire.MORE_TO_COME

    def reply(self, document: Mapping[str, Any], times: bytes) -> bytes:
        """Make a reply of a document and the cluster's times, which are encoded already."""
        encoded = wire.append_raw(bson.encode(document), times)
        request_id = wire.header(self.request.message).request_id
        return wire.encode_msg(encoded, response_to=request_id)
