"""What is decided before each attempt of an operation, and noted after it, sync and async.

One mechanism serves every version: an operation remembers where its attempts failed, and lends that
list to each selection. How an operation and its attempts are found differs; see ``_loops``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pymongo_deprio._events import Retry
from pymongo_deprio._inside import (
    OVERLOADED,
    TRANSIENT,
    addresses,
    errors,
    is_starting_transaction,
    log_once,
    may_probe,
    speaks_of_the_server,
    type_of_topology,
    where_it_failed,
)
from pymongo_deprio._operation import Lent

if TYPE_CHECKING:
    from pymongo_deprio._events import Address, Event
    from pymongo_deprio._memory import Memory
    from pymongo_deprio._operation import Operation

# Of the commands of a transaction only these may move to another mongos (transactions
# specification, "Sharded Transactions").
_ENDS_OF_TRANSACTION = ("commitTransaction", "abortTransaction")


class Observer(Protocol):
    """Who is told of what happens, and keeps what is remembered."""

    memory: Memory

    def report(self, event: Event) -> None:
        """Take notice of an event."""

    def count(self, **more: int) -> None:
        """Count what is no event."""


class Attempts:
    """Decides and notes; what comes after an attempt raises nothing."""

    def __init__(self, observer: Observer, *, retries_on_overload: bool = False) -> None:
        """Decide by what an observer remembers, and let it know.

        :param retries_on_overload: whether this PyMongo retries overload errors. It does so in
            mid-transaction too, and outside sharded clusters it retargets if the client opted in.
        """
        self._observer = observer
        self._memory = observer.memory
        self._retries_on_overload = retries_on_overload

    # -- Before an attempt -------------------------------------------------------------------------

    def begin(self, operation: Operation, *, retryable: object) -> None:
        """Look whether an operation may probe.

        :param retryable: what PyMongo's retry loop is told.
        """
        try:
            operation.may_probe = may_probe(
                operation.client, operation.session, retryable=retryable
            )
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("An operation does not probe, since it is not known whether it is retried")

    def first(self, operation: Operation, *, here: int, bound: object) -> Lent | None:
        """Let an operation begin elsewhere than what is remembered to be sick.

        :param here: the thread or task that it runs in.
        :param bound: the address that it has to go to, if there is one.
        """
        if type_of_topology(operation.client) != "Sharded" or _is_bound(operation, bound):
            return None
        failed = self._memory.resumes(here)
        session = operation.session
        if session is not None and is_starting_transaction(session):
            failed += self._memory.begins_transaction(session)
        return self._lent(operation, failed, operation if operation.may_probe else None)

    def retry(
        self, operation: Operation, error: BaseException | None, *, bound: object, listed: Any = ()
    ) -> Lent | None:
        """Note that an operation's last attempt failed, and let it go elsewhere.

        :param error: what it failed with, if that is known.
        :param bound: the address that it has to go to, if there is one.
        :param listed: what PyMongo itself would leave out.
        """
        operation.fail(error, suspicious=speaks_of_the_server(error))
        if type_of_topology(operation.client) == "Sharded":
            return self._retry_on_mongos(operation, bound)
        if self._retries_on_overload:
            return Lent(operation.client._topology._settings, addresses(listed))
        return None

    def _retry_on_mongos(self, operation: Operation, bound: object) -> Lent | None:
        session = operation.session
        operation.home = None
        if self._retries_on_overload and session is not None and session.in_transaction:
            self._mend_pin(operation, session, bound)
        if operation.home or _is_bound(operation, bound):
            return None
        return self._lent(operation, operation.failed)

    def _lent(
        self, operation: Operation, failed: tuple[Address, ...], prober: object = None
    ) -> Lent | None:
        topology = operation.client._topology
        operation.topology = topology._settings
        cooling: frozenset[Address] = frozenset()
        probe = None
        if not self._memory.is_empty:
            known = topology._description.server_descriptions()
            plan, events = self._memory.plan(
                operation.topology, known, prober, is_retry=operation.server is not None
            )
            cooling, probe, operation.since = plan
            operation.is_probing |= probe is not None
            for event in events:
                self._observer.report(event)
        if failed or cooling or probe:
            return Lent(operation.topology, failed, cooling, probe)
        return None

    def _mend_pin(self, operation: Operation, session: Any, bound: object) -> None:
        """Mend what PyMongo does to the pin of a transaction that is refused for overload.

        It keeps the pin of a transaction whose first statement is a read, though nothing has begun
        there, and lets go of it for a write in the middle.
        """
        if is_starting_transaction(session):
            if operation.client.options.enable_overload_retargeting:
                # As its _unpin does, which is a coroutine for AsyncMongoClient.
                session._transaction.pinned_address = None
        elif not _is_bound(operation, bound) and _has_lost_its_pin(operation):
            operation.home = operation.failed[-1]
            operation.was_held = True

    # -- After an attempt --------------------------------------------------------------------------

    def selected(self, operation: Operation, lent: Lent | None) -> None:
        """Report what was chosen for an attempt."""
        try:
            chosen = operation.server.description.address
            if lent is not None:
                self._count(operation, lent, chosen)
            if operation.attempts > 1:
                self._observer.report(
                    Retry(
                        operation=getattr(operation.name, "value", operation.name),
                        attempt=operation.attempts,
                        failed=operation.failed,
                        deprioritized=lent.all if lent is not None else (),
                        chosen=chosen,
                        error=operation.error,
                    )
                )
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            log_once("A selection could not be reported")

    def _count(self, operation: Operation, lent: Lent, chosen: Address) -> None:
        if lent.probe is not None and chosen != lent.probe:
            operation.is_probing = False
            self._memory.release(operation.topology, operation)
        probes = int(lent.probe == chosen)
        avoided = int(bool(lent.cooling) and chosen not in lent.cooling)
        if probes or avoided:
            self._observer.count(probes=probes, avoided=avoided)

    def succeeded(self, operation: Operation) -> None:
        """Let the success of an operation say who is well, and who is not."""
        if operation.topology is None:
            return
        try:
            well = operation.server.description.address
            # What is not retried may not even be acknowledged: its success proves nothing.
            since = operation.since if operation.may_probe else 0.0
            for event in self._memory.judge(operation.topology, well, since, operation.suspicions):
                self._observer.report(event)
        except Exception:  # noqa: BLE001 - whatever it is, the operation succeeded
            log_once("What an operation's success says could not be noted")
        finally:
            self._give_back_probe(operation)

    def failed(self, operation: Operation, error: BaseException) -> None:
        """Let the session's next transaction begin elsewhere, if this operation ended one."""
        try:
            if isinstance(error, errors().PyMongoError):
                self._note(operation, error)
        except Exception:  # noqa: BLE001 - whatever it is, the caller gets PyMongo's error
            log_once("What an operation's error says could not be noted")
        finally:
            self._give_back_probe(operation)

    def _note(self, operation: Operation, error: Any) -> None:
        if operation.was_held and error.has_error_label(OVERLOADED):
            # PyMongo alone sends the last attempts to another mongos, whose answer tells the
            # application to run the transaction again.
            error._add_error_label(TRANSIENT)
        if operation.session is not None and error.has_error_label(TRANSIENT):
            failed = where_it_failed(operation, error)
            if failed:
                self._memory.ended_transaction(operation.session, failed)

    def _give_back_probe(self, operation: Operation) -> None:
        if operation.is_probing:
            self._memory.release(operation.topology, operation, failed=True)


def _is_bound(operation: Operation, bound: object) -> bool:
    """Tell whether the server is given, by an address or by the session's transaction."""
    return bool(bound or (operation.session and operation.session._pinned_address))


def _has_lost_its_pin(operation: Operation) -> bool:
    """Tell whether PyMongo let go of the mongos of a transaction in its middle.

    If that mongos is gone, it rightly did: it would be waited for in vain.
    """
    description = operation.client._topology._description
    home = description.server_descriptions().get(operation.failed[-1])
    return (
        operation.name not in _ENDS_OF_TRANSACTION
        and home is not None
        and home.is_server_type_known
    )
