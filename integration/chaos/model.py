"""What is known of the load: what was acknowledged, what failed where, and what must be so."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections import Counter
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Mapping, NamedTuple

from pymongo.monitoring import CommandListener
from support import RETRIES_ON_OVERLOAD

from pymongo_deprio import Retry

if TYPE_CHECKING:
    from pymongo.monitoring import (
        CommandFailedEvent,
        CommandStartedEvent,
        CommandSucceededEvent,
    )

    from pymongo_deprio import Address, Event

TIMEOUT = float(os.environ.get("CHAOS_TIMEOUT", "0.5"))
"""Of a socket and of a connection, in seconds. On a machine that stalls for longer a well mongos
looks like a sick one."""
SELECTION = 2.0
"""How long a server is waited for, in seconds."""
ATTEMPT = 2 * TIMEOUT
"""A handshake and a command may each take the timeout."""
SLACK = 1.5
"""What a busy machine needs beside, in seconds."""
SETTLE = ATTEMPT + 0.5
"""How long a fault shows after its end: an attempt takes so long, a heartbeat comes after 0.5 s."""
COMMANDS = "find", "getMore", "insert", "update", "aggregate", "commitTransaction"
"""What the load sends. (An abort is not awaited by PyMongo as the others are: it hides errors.)"""

BOUND = "getMore", "insert", "update"
"""What belongs to one mongos, the writes in a transaction."""

_RETRIED_ONCE = 2 * ATTEMPT + SLACK
# What belongs to one mongos waits for it if that has gone. A transaction in which a statement and
# both attempts to abort it failed is run again, and by then another mongos may be the sick one.
LIMITS = {
    "find_one": _RETRIED_ONCE,
    "find": _RETRIED_ONCE + SELECTION,
    "insert_one": _RETRIED_ONCE,
    "ordered bulk": _RETRIED_ONCE,
    "unordered bulk": _RETRIED_ONCE,
    "transaction": 2 * (3 * ATTEMPT + SELECTION) + SLACK,
}


SENT_WITHOUT_RETRY: ContextVar[list[str]] = ContextVar("sent_without_retry")
"""The writes of one operation that PyMongo sent without a number, and so would not retry."""


class Failure(NamedTuple):
    """A command that failed."""

    at: float
    command: str
    address: Address
    reason: str


class Fault(NamedTuple):
    """What was done to a mongos, until when, and how many commands its fail point met."""

    kind: str
    address: Address
    began: float
    ended: float
    hits: int | None

    def shows(self, at: float) -> bool:
        """Tell whether clients may feel it at a time."""
        return self.began <= at <= self.ended + SETTLE


class Heard(CommandListener):
    """What the clients tell of their commands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.begun: Counter[tuple[Address, str]] = Counter()
        self.failures: list[Failure] = []

    def started(self, event: CommandStartedEvent) -> None:
        with self._lock:
            self.begun[event.connection_id, event.command_name] += 1
        if event.command_name in ("insert", "update") and "txnNumber" not in event.command:
            SENT_WITHOUT_RETRY.get([]).append(event.command_name)

    def succeeded(self, event: CommandSucceededEvent) -> None: ...

    def failed(self, event: CommandFailedEvent) -> None:
        reason = str(event.failure.get("code") or event.failure.get("errtype"))
        failure = Failure(time.monotonic(), event.command_name, event.connection_id, reason)
        self.failures.append(failure)


class Model:
    """What was done and seen. Threads share it."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.numbers = itertools.count(1)
        self.operations: Counter[str] = Counter()
        self.expected: list[tuple[float, str]] = []
        self.attempted: dict[int, str] = {}
        self.acknowledged: dict[int, int] = {}
        """The numbers of acknowledged writes, and how many updates of each were acknowledged."""
        self.transactions: Counter[str] = Counter()
        self.unknown_transactions: Counter[str] = Counter()
        self.streams: dict[str, list[tuple[Any, int]]] = {}
        self.faults: list[Fault] = []
        self.retries: list[tuple[float, Address, Address, str]] = []
        self.heard = Heard()
        self.violations: list[str] = []

    def violated(self, promise: str, since: float | None = None) -> None:
        """Note a violation, and what led to it since a time."""
        now = time.monotonic()
        lines = [f"after {now - self.began:.2f} s: {promise}"]
        if since is not None:
            told = [(one.at, str(one[1:])) for one in list(self.heard.failures)]
            told += [(retry[0], retry[3]) for retry in list(self.retries)]
            told += [(one.began, f"{one.kind} began on {one.address}") for one in self.faults]
            told += [(one.ended, f"{one.kind} ended on {one.address}") for one in self.faults]
            led_to_it = sorted(one for one in told if since - SETTLE <= one[0] <= now)
            lines += [f"{at - self.began:.2f} s: {what}" for at, what in led_to_it[:40]]
        self.violations.append("\n    ".join(lines))

    def on_event(self, event: Event) -> None:
        """Take note of a retry; not the event itself, whose error keeps the client."""
        if isinstance(event, Retry):
            noted = (time.monotonic(), event.failed[-1], event.chosen, str(event))
            self.retries.append(noted)
            moved = event.redirected and event.chosen not in event.failed
            # Newer ones retry what belongs to one mongos, there, if it is refused a connection.
            stayed = RETRIES_ON_OVERLOAD and event.operation in BOUND and not event.deprioritized
            if not (moved or stayed):
                self.violated(f"a retry did not move: {event}", noted[0])

    def expect(self, what: str) -> None:
        """Note a failure that PyMongo's contract allows, below a sick mongos."""
        self.expected.append((time.monotonic(), what))

    def ended(self, kind: str, since: float) -> None:
        """Note that an operation has ended, in time or not."""
        took = time.monotonic() - since
        self.operations[kind] += 1
        if took > LIMITS[kind]:
            self.violated(f"{kind} took {took:.2f} s, more than {LIMITS[kind]} s", since)

    # -- At the end --------------------------------------------------------------------------------

    def check_documents(self, documents: list[dict[str, Any]], counters: Mapping[str, int]) -> None:
        """Compare what is there with what was acknowledged."""
        found = Counter(document["number"] for document in documents)
        for number in self.acknowledged.keys() - found.keys():
            self.violated(f"{self.attempted[number]} {number} was acknowledged and is not there")
        for number, times in found.items():
            if times > 1 or number not in self.attempted:
                self.violated(f"{self.attempted.get(number)} {number} is there {times} times")
        for document in documents:
            number, updates = document["number"], document["updates"]
            least = self.acknowledged.get(number, 0)
            most = self.acknowledged.get(number, 1)
            if not least <= updates <= most:
                self.violated(f"{self.attempted[number]} {number} has {updates} updates")
        for worker in counters.keys() | self.transactions.keys():
            least = self.transactions[worker]
            most = least + self.unknown_transactions[worker]
            if not least <= counters.get(worker, 0) <= most:
                self.violated(
                    f"{worker} counts {counters.get(worker, 0)} transactions, not {least} to {most}"
                )
        for stream, seen in self.streams.items():
            self._check_stream(stream, seen, found)

    def _check_stream(
        self, stream: str, seen: list[tuple[Any, int]], found: Mapping[int, int]
    ) -> None:
        numbers = Counter(number for _, number in seen)
        if numbers != found:
            odd = {n for n in numbers.keys() | found.keys() if numbers[n] != found.get(n, 0)}
            self.violated(f"the {stream} change stream differs from what is there in {sorted(odd)}")
        times = [time for time, _ in seen]
        if times != sorted(times):
            self.violated(f"the {stream} change stream is out of order")

    def check_faults(self) -> None:
        """Compare what failed with what was sick."""
        for at, failed, _, text in self.retries:
            self._check_sick(at, failed, text)
        for failure in self.heard.failures:
            # A commit that moves to another mongos may be told that the transaction is aborted.
            if failure.command in COMMANDS and failure.reason != "251":
                self._check_sick(failure.at, failure.address, str(failure[1:]))
        for at, what in self.expected:
            if not any(fault.shows(at) for fault in self.faults):
                self.violated(f"{what}, while all mongoses were well", at)
        for fault in self.faults:
            failures = [
                one
                for one in self.heard.failures
                if one.address == fault.address and one.command in COMMANDS and fault.shows(one.at)
            ]
            if fault.hits is not None and fault.hits != len(failures):
                self.violated(
                    f"{fault.kind}: the fail point was hit {fault.hits} times, and clients saw "
                    f"{len(failures)} failures",
                    fault.began,
                )

    def _check_sick(self, at: float, address: Address, what: str) -> None:
        if not any(fault.address == address and fault.shows(at) for fault in self.faults):
            self.violated(f"a well mongos failed: {what}", at)

    def check_servers(self, arrived: Mapping[Address, Mapping[str, int]]) -> None:
        """Compare what the clients say they sent with what the servers say has arrived."""
        killed = {fault.address for fault in self.faults if fault.kind == "killed"}
        for address, counts in arrived.items():
            for command in COMMANDS:
                begun, came = self.heard.begun[address, command], counts.get(command, 0)
                # One that was killed has forgotten what came before.
                if begun < came or (begun > came and address not in killed):
                    self.violated(f"{begun} {command} were sent to {address}, {came} arrived")
