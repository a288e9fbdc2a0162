"""A connection from a mongos to its mongod, and what a mongos makes of what it forwards."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Callable

import bson

from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._command import Command, CommandError

if TYPE_CHECKING:
    from pymongo_deprio.cluster._router import Router

REPLICA_SET = "rs0"
SHARD = "shard01"

_NO_CURSORS: dict[str, Any] = {"cursorsKilled": [], "cursorsAlive": [], "cursorsUnknown": []}
_RECOVERY_TOKEN = {"recoveryToken": {"recoveredShardId": SHARD}}


def shard_document(mongod: tuple[str, int]) -> dict[str, Any]:
    """Describe the only shard of a cluster in front of this mongod."""
    return {"_id": SHARD, "host": f"{REPLICA_SET}/{mongod[0]}:{mongod[1]}", "state": 1}


class UpstreamClosedError(Exception):
    """The mongod has closed the connection instead of answering."""


class Upstream:
    """Forwards one client's commands, in lockstep, over a connection that is opened when needed.

    `relay` takes replies that are followed by more.
    """

    def __init__(
        self, mongod: tuple[str, int], router: Router, relay: Callable[[bytes], None]
    ) -> None:
        """Prepare; nothing is connected yet."""
        self._mongod = mongod
        self._router = router
        self._relay = relay
        self._stream: wire.Stream | None = None
        self._special: dict[str, Callable[[Command], bytes | None]] = {
            "getMore": self._get_more,
            "killCursors": self._kill_cursors,
            "serverStatus": self._server_status,
        }

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self._stream is not None:
            self._stream.close()

    def execute(self, command: Command) -> bytes | None:
        """Have the mongod execute a command; give the reply, or None if none is wanted.

        Raises `CommandError` for what a mongos refuses.
        """
        if command.in_transaction:
            return self._execute_in_transaction(command)
        return self._special.get(command.name, self._forward)(command)

    def exchange(self, message: bytes) -> bytes:
        """Send a message and give the reply, as they are."""
        stream = self._connected()
        stream.send(message)
        while True:
            reply = stream.receive()
            if reply is None:
                raise UpstreamClosedError
            if not wire.more_to_come(reply):
                return reply
            self._relay(reply)

    def _connected(self) -> wire.Stream:
        if self._stream is None:
            sock = socket.create_connection(self._mongod)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._stream = wire.Stream(sock)
        return self._stream

    def _forward(self, command: Command) -> bytes | None:
        request = command.request
        message = request.message
        if request.flags & wire.EXHAUST_ALLOWED:
            # A mongos has no exhaust cursors: it answers each getMore by itself.
            message = request.without_flag(wire.EXHAUST_ALLOWED)
        if not command.wants_reply:
            self._connected().send(message)
            return None
        reply = self.exchange(message)
        self._observe(reply)
        return reply

    def _observe(self, reply: bytes) -> None:
        fields = wire.OpMsg.parse(reply).elements()
        self._router.observe(reply, fields)
        cursor = _cursor_id(reply, fields)
        if cursor:
            self._router.open_cursor(cursor)

    def _get_more(self, command: Command) -> bytes | None:
        cursor = command.get("getMore")
        if not isinstance(cursor, bson.int64.Int64):
            return self._forward(command)  # the mongod says what is wrong with it
        if not self._router.has_cursor(cursor):
            raise CommandError(43, f"cursor id {cursor} not found")
        reply = self._forward(command)
        if reply is not None and _cursor_id(reply, wire.OpMsg.parse(reply).elements()) == 0:
            self._router.close_cursor(cursor)
        return reply

    def _kill_cursors(self, command: Command) -> bytes | None:
        cursors = command.get("cursors")
        if not _are_cursors(cursors):
            return self._forward(command)  # the same
        own = [cursor for cursor in cursors if self._router.has_cursor(cursor)]
        foreign = [cursor for cursor in cursors if cursor not in own]
        for cursor in own:
            self._router.close_cursor(cursor)
        if not foreign:
            return self._forward(command)
        return command.reply(self._kill_own(command, own, foreign), self._router.times)

    def _kill_own(self, command: Command, own: list[int], foreign: list[int]) -> dict[str, Any]:
        if not own:
            return {**_NO_CURSORS, "cursorsNotFound": foreign, "ok": 1.0}
        reply = self._forward(command.with_fields({"cursors": own}))
        document = {} if reply is None else wire.decode(wire.OpMsg.parse(reply).body)
        for time in ("$clusterTime", "operationTime"):  # the new reply gets them anyway
            document.pop(time, None)
        return {**document, "cursorsNotFound": document.get("cursorsNotFound", []) + foreign}

    def _server_status(self, command: Command) -> bytes | None:
        reply = self._forward(command)
        if reply is None:
            return None
        parsed = wire.OpMsg.parse(reply)
        return parsed.with_body(wire.replace_fields(parsed.body, {"process": "mongos"}))

    def _execute_in_transaction(self, command: Command) -> bytes | None:
        session, number = command.encoded("lsid"), command.get("txnNumber")
        if command.get("startTransaction") is True:
            self._router.begin_transaction(session, number)
        elif not self._router.knows_transaction(session, number):
            self._check_foreign(command, number)
        reply = self._forward(command.without("recoveryToken"))
        if reply is None:
            return None
        parsed = wire.OpMsg.parse(reply)
        return parsed.with_body(wire.replace_fields(parsed.body, _RECOVERY_TOKEN))

    def _check_foreign(self, command: Command, number: int) -> None:
        """Refuse what cannot be done on a mongos where the transaction was not begun."""
        if command.name == "commitTransaction":
            self._check_foreign_commit(command, number)
        elif command.name != "abortTransaction" or "recoveryToken" not in command.fields:
            raise CommandError(
                251, f"cannot continue transaction {number}: it was not begun on this mongos"
            )

    def _check_foreign_commit(self, command: Command, number: int) -> None:
        # Such a mongos can but learn how the transaction ended: it asks the shard, and the shard
        # aborts what is still in progress. Only what is committed already passes.
        if "recoveryToken" not in command.fields:
            raise CommandError(
                50940, "Cannot recover the transaction decision without a recoveryToken"
            )
        abort = bson.encode({"abortTransaction": 1, "autocommit": False, "$db": "admin"})
        abort = wire.append_raw(abort, command.encoded("lsid", "txnNumber"))
        reply = self.exchange(wire.encode_msg(abort))
        if wire.decode(wire.OpMsg.parse(reply).body).get("ok") == 1:
            raise CommandError(
                251,
                f"Transaction {number} has been aborted: it was not begun on this mongos,"
                " and no commit had reached the shard",
            )


def _are_cursors(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, bson.int64.Int64) for value in values)


def _cursor_id(reply: bytes, fields: wire.Elements) -> int | None:
    cursor = fields.get("cursor")
    if cursor is None or cursor.kind != wire.DOCUMENT:
        return None
    number = wire.elements(reply, cursor.value).get("id")
    if number is None or number.kind != wire.INT64:
        return None
    return wire.int64_of(reply, number)
