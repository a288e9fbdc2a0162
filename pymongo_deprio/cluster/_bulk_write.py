"""The bulkWrite of MongoDB 8.0, for a mongod that does not have it: done by single writes.

Each write carries the session, the transaction number and a statement number of its own, so a
retried bulkWrite does nothing twice.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

import bson

from pymongo_deprio.cluster import _wire as wire
from pymongo_deprio.cluster._command import Command, CommandError

BULK_WRITE_WIRE_VERSION = 25
"""That of MongoDB 8.0, from which on a driver offers this command."""

Document = Dict[str, Any]
Execute = Callable[[Command], Optional[bytes]]

_KINDS = ("insert", "update", "delete")
_ON_EVERY_WRITE = ("lsid", "txnNumber", "autocommit", "writeConcern", "$clusterTime")


def bulk_write(command: Command, execute: Execute) -> Document:
    """Do the writes of a bulkWrite one after the other, and give its reply.

    `execute` has the mongod do one of them. Raises `CommandError` for what is no bulkWrite, and if
    a write fails as a whole rather than with a write error.
    """
    namespaces = [entry.get("ns") for entry in _documents(command, "nsInfo")]
    counts = dict.fromkeys(("nErrors", "nInserted", "nMatched", "nModified"), 0)
    counts.update(nUpserted=0, nDeleted=0)
    results: list[Document] = []
    for index, operation in enumerate(_documents(command, "ops")):
        kind, namespace = _kind(operation, namespaces)
        reply = execute(_single(command, index, kind, namespace, operation)) or b""
        document = wire.decode(wire.OpMsg.parse(reply).body)
        results.append(_result(index, kind, document, counts))
        if counts["nErrors"] and command.get("ordered") is not False:
            break
    if command.get("errorsOnly") is True:
        results = [result for result in results if not result["ok"]]
    cursor = {"id": bson.int64.Int64(0), "firstBatch": results, "ns": "admin.$cmd.bulkWrite"}
    return {"cursor": cursor, **counts, "ok": 1.0}


def _documents(command: Command, name: str) -> list[Document]:
    given = command.get(name) if name in command.fields else command.request.sequence(name)
    if not isinstance(given, list) or not all(isinstance(item, dict) for item in given):
        raise CommandError(14, f"bulkWrite takes a list of documents as {name}, not {given!r}")
    return given


def _kind(operation: Document, namespaces: list[Any]) -> tuple[str, str]:
    kind = next(iter(operation), "")
    number = operation.get(kind)
    if kind in _KINDS and isinstance(number, int) and 0 <= number < len(namespaces):
        namespace = namespaces[number]
        if isinstance(namespace, str):
            return kind, namespace
    raise CommandError(9, f"not an operation of a bulkWrite: {operation!r}")


def _single(
    command: Command, index: int, kind: str, namespace: str, operation: Document
) -> Command:
    database, _, collection = namespace.partition(".")
    document: Document = {kind: collection, "$db": database, "stmtId": index}
    if index == 0 and command.get("startTransaction") is True:
        document["startTransaction"] = True
    for option in ("bypassDocumentValidation", "let"):
        if command.get(option) is not None:
            document[option] = command.get(option)
    arguments = {name: value for name, value in operation.items() if name != kind}
    if kind == "insert":
        document["documents"] = [arguments.get("document")]
    else:
        renamed = {"filter": "q", "updateMods": "u"}
        statement = {renamed.get(name, name): value for name, value in arguments.items()}
        if kind == "delete":
            statement["limit"] = 0 if statement.pop("multi", False) else 1
        document[f"{kind}s"] = [statement]
    if "txnNumber" not in command.fields or command.in_transaction:
        del document["stmtId"]
    encoded = wire.append_raw(bson.encode(document), command.encoded(*_ON_EVERY_WRITE))
    return Command.parse(wire.encode_msg(encoded))


def _result(index: int, kind: str, reply: Document, counts: dict[str, int]) -> Document:
    if reply.get("ok") != 1:
        raise CommandError(reply["code"], reply["errmsg"], reply.get("errorLabels", []))
    errors = reply.get("writeErrors")
    if errors:
        counts["nErrors"] += 1
        return {**errors[0], "ok": 0.0, "idx": index, "n": 0}
    result: Document = {"ok": 1.0, "idx": index, "n": reply["n"]}
    if kind == "insert":
        counts["nInserted"] += reply["n"]
    elif kind == "delete":
        counts["nDeleted"] += reply["n"]
    else:
        upserted = reply.get("upserted", [])
        counts["nUpserted"] += len(upserted)
        counts["nMatched"] += reply["n"] - len(upserted)
        counts["nModified"] += reply["nModified"]
        result["nModified"] = reply["nModified"]
        if upserted:
            result["upserted"] = {"_id": upserted[0]["_id"]}
    return result
