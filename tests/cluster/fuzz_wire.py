"""Looks for bytes that the wire parser does not expect, led by the branches they take: atheris.

Run by ``nox -s fuzz``; an argument such as ``-max_total_time=60`` ends it.
"""

from __future__ import annotations

import contextlib
import struct
import sys
from typing import Any, Callable

import atheris

with atheris.instrument_imports(include=["pymongo_deprio.cluster"]):
    from pymongo_deprio.cluster import _wire as wire
    from pymongo_deprio.cluster._command import Command


def look_at_command(message: bytes) -> None:
    """Do with a message what the emulated mongos does with commands."""
    command = Command.parse(message)
    for field in command.fields:
        with contextlib.suppress(wire.ProtocolError):
            command.get(field)
    Command.parse(command.without(command.name).request.with_body(command.request.body))
    command.with_fields({"a": 1})
    command.request.without_flag(wire.EXHAUST_ALLOWED)
    command.request.sequence("documents")


LOOKS: list[Callable[[bytes], Any]] = [
    look_at_command,
    wire.query_command,
    wire.more_to_come,
    lambda message: wire.decode(message[16:]),
]


def test_one_input(data: bytes) -> None:
    """Take the bytes for what stands behind a header; only `ProtocolError` is expected."""
    message = struct.pack("<iiii", len(data) + 16, 1, 0, wire.OP_MSG) + data
    for look in LOOKS:
        with contextlib.suppress(wire.ProtocolError):
            look(message)


if __name__ == "__main__":
    atheris.Setup(sys.argv, test_one_input)
    atheris.Fuzz()
