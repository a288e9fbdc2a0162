"""An emulated mongos: it answers what a mongos answers itself, and forwards everything else.

One thread serves one client connection, with a connection of its own to the mongod, in lockstep.
So each side feels the other's slowness, and a connection that hangs holds up no other.
"""

from __future__ import annotations

import datetime as dt
import itertools
import socket
import threading
import time
from typing import Any, Callable, Mapping

import bson

from pymongo_deprio.cluster import _failpoint as failpoint
from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._bulk_write import BULK_WRITE_WIRE_VERSION, bulk_write
from pymongo_deprio.cluster._command import Command, CommandError
from pymongo_deprio.cluster._failpoint import Caller, FailCommand
from pymongo_deprio.cluster._router import Router
from pymongo_deprio.cluster._upstream import Upstream, UpstreamClosedError, shard_document

# Commands of this emulation alone.
COMMAND_COUNTS = "pymongoDeprioCommands"
HELLO_DELAY = "pymongoDeprioHelloDelay"
MAX_WIRE_VERSION = "pymongoDeprioMaxWireVersion"

_SESSION_TIMEOUT_MINUTES = 30
_STACK_SIZE = 512 * 1024
_SECONDS_BETWEEN_ACCEPTS = 0.1
_HELLOS = frozenset({"hello", "isMaster", "ismaster"})
_HELLO_LIMITS = (
    "maxBsonObjectSize",
    "maxMessageSizeBytes",
    "maxWriteBatchSize",
    "minWireVersion",
    "maxWireVersion",
)

# Beginnings of the names of commands that only a mongod has.
_NOT_ON_A_MONGOS = ("replSet", "_configsvr", "_shardsvr", "applyOps", "prepareTransaction")


class HangUpError(Exception):
    """Close this client's connection without a reply."""


class Mongos:
    """What all connections of one emulated mongos share."""

    def __init__(self, mongod: tuple[str, int], hello_delay_ms: float = 0) -> None:
        """Stand in front of the mongod at this address, which must be answering."""
        self.mongod = mongod
        self.id = bson.ObjectId()
        self.hello_delay_ms = hello_delay_ms
        self.router = Router()
        self.fail_command = FailCommand()
        self.limits = self._ask_limits()

    def _ask_limits(self) -> dict[str, Any]:
        upstream = Upstream(self.mongod, self.router, relay=_ignore)
        command = Command.parse(wire.encode_msg(bson.encode({"hello": 1, "$db": "admin"})))
        try:
            reply = wire.OpMsg.parse(upstream.execute(command) or b"")
        finally:
            upstream.close()
        hello = wire.decode(reply.body)
        return {limit: hello[limit] for limit in _HELLO_LIMITS}

    def serve(self, listener: socket.socket) -> None:
        """Accept connections for ever."""
        threading.stack_size(_STACK_SIZE)
        for number in itertools.count(1):
            sock = _accept(listener)
            try:
                connection = Connection(self, sock, number)
                threading.Thread(target=connection.serve, daemon=True).start()
            except (OSError, RuntimeError):  # the client is gone, or there is no thread to be had
                sock.close()


def _ignore(_message: bytes) -> None:
    pass


def _accept(listener: socket.socket) -> socket.socket:
    while True:
        try:
            return listener.accept()[0]
        except OSError:  # noqa: PERF203 - waiting is what the loop is for
            time.sleep(_SECONDS_BETWEEN_ACCEPTS)  # out of file descriptors, most likely


class Connection:
    """One client's connection."""

    def __init__(self, mongos: Mongos, sock: socket.socket, number: int) -> None:
        """Take over an accepted socket."""
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._mongos = mongos
        self._number = number
        self._client = wire.Stream(sock)
        self._upstream = Upstream(mongos.mongod, mongos.router, relay=self._client.send)
        self._app_name: str | None = None
        self._own: dict[str, Callable[[Command], Mapping[str, Any]]] = {
            **dict.fromkeys(_HELLOS, self._hello),
            "configureFailPoint": self._configure_fail_point,
            COMMAND_COUNTS: self._command_counts,
            HELLO_DELAY: self._hello_delay,
            MAX_WIRE_VERSION: self._max_wire_version,
            "isdbgrid": self._is_db_grid,
            "listShards": self._list_shards,
            "balancerStatus": self._balancer_status,
            "enableSharding": self._nothing_to_do,
            "shardCollection": self._nothing_to_do,
            "flushRouterConfig": self._nothing_to_do,
        }

    def serve(self) -> None:
        """Answer one message after the other until either side closes."""
        try:
            while True:
                message = self._client.receive()
                if message is None:
                    return
                self._serve_message(message)
        except (HangUpError, UpstreamClosedError, OSError, wire.ProtocolError):
            pass  # this connection is over: the client sees it closed, others see nothing
        finally:
            self._client.close()
            self._upstream.close()

    def _serve_message(self, message: bytes) -> None:
        op_code = wire.header(message).op_code
        if op_code == wire.OP_MSG:
            command = Command.parse(message)
            reply = self._answer(command)
            if command.wants_reply and reply is not None:
                self._client.send(reply)
        elif op_code == wire.OP_QUERY:
            self._client.send(self._answer_query(message))
        else:
            raise wire.ProtocolError(f"op code {op_code}")

    def _answer_query(self, message: bytes) -> bytes:
        document = wire.query_command(message)
        if document is None or next(iter(wire.elements(document, 0)), "") not in _HELLOS:
            return self._upstream.exchange(message)  # the mongod says what is wrong with it
        reply = self._answer(Command.parse(wire.encode_msg(document))) or b""
        return wire.encode_reply(
            wire.OpMsg.parse(reply).body, response_to=wire.header(message).request_id
        )

    def _answer(self, command: Command) -> bytes | None:
        self._note(command)
        caller = self._caller(command)
        try:
            self._fail_before(command, caller)
            reply = self._execute(command)
        except CommandError as error:
            labels = error.labels
            if labels is None:
                labels = failpoint.automatic_labels(caller, error.code)
            reply = command.reply(error.document(labels), self._mongos.router.times)
        return reply if reply is None else self._fail_after(caller, reply)

    def _note(self, command: Command) -> None:
        if command.name not in (COMMAND_COUNTS, HELLO_DELAY, MAX_WIRE_VERSION):
            self._mongos.router.count(command.name)
        if command.name in _HELLOS and "client" in command.fields:
            self._app_name = _app_name(command.get("client"))

    def _caller(self, command: Command) -> Caller:
        return Caller(
            command.name, self._app_name, "txnNumber" in command.fields, command.in_transaction
        )

    def _fail_before(self, command: Command, caller: Caller) -> None:
        data = self._mongos.fail_command.before(caller)
        if data is None:
            return
        labels = failpoint.given_labels(data)
        seconds = failpoint.block_seconds(data)
        time.sleep(seconds)
        if failpoint.closes(data):
            raise HangUpError
        code = failpoint.error_code(data)
        if code:
            raise CommandError(code, "Failing command via 'failCommand' failpoint", labels)
        limit_ms = command.get("maxTimeMS") if seconds else None
        if isinstance(limit_ms, int) and 0 < limit_ms <= seconds * 1000:
            raise CommandError(50, "operation exceeded time limit", labels)

    def _fail_after(self, caller: Caller, reply: bytes) -> bytes:
        data = self._mongos.fail_command.after(caller)
        if data is None:
            return reply
        parsed = wire.OpMsg.parse(reply)
        labels = failpoint.given_labels(data)
        if labels is None:
            labels = wire.decode(parsed.body).get("errorLabels", [])
            code = failpoint.write_concern_code(data)
            labels += failpoint.automatic_labels(caller, write_concern_code=code)
        fields = {"writeConcernError": data["writeConcernError"], "errorLabels": labels}
        body = wire.replace_fields(parsed.body, fields)
        return parsed.with_body(body if labels else wire.remove_field(body, "errorLabels"))

    def _execute(self, command: Command) -> bytes | None:
        own = self._own.get(command.name)
        if own is not None:
            return command.reply(own(command), self._mongos.router.times)
        if command.name == "bulkWrite" and self._has_bulk_write():
            return command.reply(
                bulk_write(command, self._upstream.execute), self._mongos.router.times
            )
        if command.name.startswith(_NOT_ON_A_MONGOS):
            raise CommandError(59, f"no such command: '{command.name}'")
        return self._upstream.execute(command)

    def _has_bulk_write(self) -> bool:
        return bool(self._mongos.limits["maxWireVersion"] >= BULK_WRITE_WIRE_VERSION)

    # Commands that a mongos answers by itself.

    def _hello(self, command: Command) -> dict[str, Any]:
        time.sleep(self._mongos.hello_delay_ms / 1000)
        return {
            "isWritablePrimary" if command.name == "hello" else "ismaster": True,
            **({"helloOk": True} if command.get("helloOk") is True else {}),
            # A client behind a load balancer tells servers apart by this.
            **({"serviceId": self._mongos.id} if command.get("loadBalanced") is True else {}),
            "msg": "isdbgrid",
            **self._mongos.limits,
            "localTime": dt.datetime.now(dt.timezone.utc),
            "logicalSessionTimeoutMinutes": _SESSION_TIMEOUT_MINUTES,
            "connectionId": self._number,
            "ok": 1.0,
        }

    def _configure_fail_point(self, command: Command) -> dict[str, Any]:
        document = wire.decode(command.request.body)
        if document.get("$db") != "admin":
            raise CommandError(13, "configureFailPoint may only be run against the admin database.")
        return {"count": self._mongos.fail_command.configure(document), "ok": 1.0}

    def _command_counts(self, command: Command) -> dict[str, Any]:
        counts = self._mongos.router.counts(reset=command.get("reset") is True)
        return {"counts": counts, "ok": 1.0}

    def _hello_delay(self, command: Command) -> dict[str, Any]:
        delay = command.get(HELLO_DELAY)
        is_number = isinstance(delay, (int, float)) and not isinstance(delay, bool)
        if not is_number or not 0 <= delay <= failpoint.MOST_SECONDS * 1000:
            raise CommandError(2, f"{HELLO_DELAY} takes a number of milliseconds, not {delay!r}")
        self._mongos.hello_delay_ms = delay
        return {"ok": 1.0}

    def _max_wire_version(self, command: Command) -> dict[str, Any]:
        version = command.get(MAX_WIRE_VERSION)
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise CommandError(2, f"{MAX_WIRE_VERSION} takes a number, not {version!r}")
        before = self._mongos.limits["maxWireVersion"]
        self._mongos.limits["maxWireVersion"] = version
        return {"before": before, "ok": 1.0}

    def _is_db_grid(self, _command: Command) -> dict[str, Any]:
        return {"isdbgrid": 1, "hostname": socket.gethostname(), "ok": 1.0}

    def _list_shards(self, _command: Command) -> dict[str, Any]:
        return {"shards": [shard_document(self._mongos.mongod)], "ok": 1.0}

    def _balancer_status(self, _command: Command) -> dict[str, Any]:
        return {"mode": "off", "inBalancerRound": False, "numBalancerRounds": 0, "ok": 1.0}

    def _nothing_to_do(self, _command: Command) -> dict[str, Any]:
        return {"ok": 1.0}


def _app_name(client: Any) -> str | None:
    application = client.get("application") if isinstance(client, Mapping) else None
    name = application.get("name") if isinstance(application, Mapping) else None
    return name if isinstance(name, str) else None
