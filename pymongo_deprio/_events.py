"""What happened, as frozen data, and how often."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import ClassVar, Optional, Protocol, Tuple, Union

Address = Tuple[str, Optional[int]]
"""Host and port of a server, as PyMongo writes it; the port of a Unix socket is None."""


@dataclass(frozen=True)
class Retry:
    """A server was selected for another attempt of an operation, since the one before failed."""

    level: ClassVar[int] = logging.DEBUG

    operation: str | None
    """The command's name, such as ``find``; None where PyMongo does not tell (before 4.7)."""
    attempt: int
    """Which attempt this is: 2 for the first retry."""
    failed: tuple[Address, ...]
    """Where attempts of this operation failed; the latest failure stands last."""
    deprioritized: tuple[Address, ...]
    """What selection was asked to leave out: cooling mongoses first, then those that failed. Empty
    where deprioritization does not apply: outside sharded clusters (but for overload retargeting)
    and where the address is given or pinned."""
    chosen: Address
    """The server that this attempt goes to."""
    error: BaseException | None = None
    """What the application would get if there were no retry; None where that cannot be learned. Who
    keeps it keeps the client as well, by its traceback."""

    @property
    def fallback(self) -> bool:
        """Whether nothing else was suitable, so that a deprioritized server is used again."""
        return self.chosen in self.deprioritized

    @property
    def redirected(self) -> bool:
        """Whether deprioritization applied and this attempt goes to another server."""
        return bool(self.deprioritized) and not self.fallback

    def __str__(self) -> str:
        """Tell it in one line."""
        return (
            f"Retry of {self.operation or 'an operation'}, attempt {self.attempt}: "
            f"failed on {_names(self.failed)}, avoided {_names(self.deprioritized)}, "
            f"chose {_names([self.chosen])}{', as no other is suitable' if self.fallback else ''}"
        )


@dataclass(frozen=True)
class CooldownStarted:
    """A mongos is left out by its client's operations for a while.

    One of them failed on it and then succeeded on another mongos.
    """

    level: ClassVar[int] = logging.WARNING

    address: Address
    """The mongos."""
    seconds: float
    """How long, before one operation is sent there to see whether it is well again."""
    strikes: int
    """How many times in a row that happened."""

    def __str__(self) -> str:
        """Tell it in one line."""
        return (
            f"Mongos {_names([self.address])} cools down for {self.seconds:.1f} s (strike "
            f"{self.strikes}): an operation failed there and succeeded on another"
        )


@dataclass(frozen=True)
class CooldownEnded:
    """A mongos is used like any other again."""

    level: ClassVar[int] = logging.INFO

    address: Address
    """The mongos."""
    reason: str
    """Either ``success``, of an operation that was sent there, or ``left``: it is no longer part of
    the cluster that its client knows."""

    def __str__(self) -> str:
        """Tell it in one line."""
        return f"Mongos {_names([self.address])} is done cooling down: {self.reason}"


Event = Union[Retry, CooldownStarted, CooldownEnded]


def _names(addresses: tuple[Address, ...] | list[Address]) -> str:
    return ", ".join(host if port is None else f"{host}:{port}" for host, port in addresses) or "-"


class Listener(Protocol):
    """What ``enable(on_event=…)`` takes: a callable that is given each event.

    It is called in the thread or task of the operation, which waits for it: it should return soon.
    What it raises is logged and ignored.
    """

    def __call__(self, event: Event, /) -> object:
        """Take notice of one event."""


@dataclass(frozen=True)
class Stats:
    """Counts since the start of the process, at one moment."""

    retries: int = 0
    """Attempts after a failed one, in every topology."""
    redirected: int = 0
    """Retries that deprioritization took to another server."""
    fallbacks: int = 0
    """Retries that went to a deprioritized server, as no other was suitable."""
    convictions: int = 0
    """How often a mongos began to cool down."""
    probes: int = 0
    """Operations that were sent to a cooling mongos to see whether it is well again."""
    avoided: int = 0
    """Selections that left out a cooling mongos."""

    def plus(self, **more: int) -> Stats:
        """Return these counts with some of them higher."""
        return replace(self, **{name: getattr(self, name) + count for name, count in more.items()})

    def counting(self, event: Event) -> Stats:
        """Return these counts with one more event."""
        if isinstance(event, Retry):
            return self.plus(retries=1, redirected=event.redirected, fallbacks=event.fallback)
        return self.plus(convictions=isinstance(event, CooldownStarted))
