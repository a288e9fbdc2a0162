"""What is done alike to a real mongos, wherever it runs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any, Mapping

from pymongo_deprio.cluster._admin import address_name, fail_command_document
from pymongo_deprio.cluster._base import FAIL_POINT_OFF, FailPoint, Mongos
from pymongo_deprio.cluster._errors import ClusterNotReadyError, ClusterStateError

if TYPE_CHECKING:
    from pymongo_deprio.cluster._admin import Address

HELLOS = frozenset({"hello", "isMaster", "ismaster"})


class RealMongos(Mongos):
    """A mongos that lends its one `failCommand` to `fail_command` or to `delay_hello`."""

    def __init__(self, address: Address) -> None:
        """Begin without fail points; the cluster does this."""
        super().__init__()
        self._address = address

    @property
    def address(self) -> Address:
        """Host and port, as PyMongo's events and descriptions give them."""
        return self._address

    def _switch_on(self, document: Mapping[str, Any]) -> FailPoint:
        if self._hello_delay_ms:
            raise ClusterStateError(
                f"the one failCommand of {self!r} delays its hello: end delay_hello first"
            )
        return super()._switch_on(document)

    def _send_hello_delay(self, milliseconds: float) -> None:
        if self._fail_point is not None:
            raise ClusterStateError(
                f"{self!r} has one failCommand, and fail_command has set it: end that fail point"
                " before delay_hello"
            )
        whole = round(milliseconds)
        on = fail_command_document(sorted(HELLOS), block_time_ms=whole) if whole else FAIL_POINT_OFF
        self._configure(on)

    def check(self, database: str | None = None) -> None:
        """Raise a `ClusterError` unless it is a mongos that answers and takes writes.

        What it writes, to this database or one of its own, is removed again.
        """
        # MongoDB before 4.4.2 knows no hello.
        hello = self._run_command({"isMaster": 1})
        if hello.get("msg") != "isdbgrid":
            name = hello.get("setName")
            kind = "a single mongod" if name is None else f"a member of the replica set {name!r}"
            raise ClusterNotReadyError(
                f"{address_name(self._address)} is {kind}: give the addresses of mongoses"
            )
        self._run_command({"ping": 1})
        self._check_write(database)

    def _check_write(self, database: str | None) -> None:
        own = f"pymongo_deprio_{uuid.uuid4().hex}"
        name = database or own
        remove = {"drop": own} if database else {"dropDatabase": 1}
        try:
            reply = self._run_command({"insert": own, "documents": [{}]}, name)
        finally:
            self._run_command(remove, name)
        if reply.get("n") != 1:
            raise ClusterNotReadyError(f"{address_name(self._address)} takes no writes: {reply}")
