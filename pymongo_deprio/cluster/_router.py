"""What one mongos remembers: the transactions and cursors it opened, and what it was asked."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymongo_deprio.cluster._wire import Elements


class Router:
    """The memory of one mongos, shared by the threads that serve its connections.

    `times` are the newest `$clusterTime` and `operationTime` seen, encoded, for its own replies.
    """

    def __init__(self) -> None:
        """Begin as a mongos that has just been started."""
        self._lock = threading.Lock()
        self._commands: Counter[str] = Counter()
        self._transactions: dict[bytes, int] = {}
        self._cursors: set[int] = set()
        self.times = b""

    def observe(self, reply: bytes, fields: Elements) -> None:
        """Learn the cluster's times from a reply of the mongod."""
        times = [fields[name] for name in ("$clusterTime", "operationTime") if name in fields]
        if times:
            self.times = b"".join(reply[time.start : time.end] for time in times)

    def count(self, command: str) -> None:
        """Note that a command of this name has arrived."""
        with self._lock:
            self._commands[command] += 1

    def counts(self, *, reset: bool) -> dict[str, int]:
        """Give how many commands of which name have arrived since the last reset."""
        with self._lock:
            counts = dict(self._commands)
            if reset:
                self._commands.clear()
            return counts

    def begin_transaction(self, session: bytes, number: int) -> None:
        """Note that this session's current transaction was begun here."""
        with self._lock:
            self._transactions[session] = number

    def knows_transaction(self, session: bytes, number: int) -> bool:
        """Whether this transaction is the one the session last began here."""
        return self._transactions.get(session) == number

    def open_cursor(self, cursor: int) -> None:
        """Note that a reply of this mongos carried this cursor."""
        with self._lock:
            self._cursors.add(cursor)

    def close_cursor(self, cursor: int) -> None:
        """Forget an exhausted or killed cursor."""
        with self._lock:
            self._cursors.discard(cursor)

    def has_cursor(self, cursor: int) -> bool:
        """Whether this cursor was opened here and is still open."""
        return cursor in self._cursors
