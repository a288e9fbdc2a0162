"""What happened, as frozen data, and how often."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Protocol, Tuple

Address = Tuple[str, Optional[int]]
"""Host and port of a server, as PyMongo writes it; the port of a Unix socket is None."""


@dataclass(frozen=True)
class Retry:
    """A server was selected for another attempt of an operation, since the one before failed."""

    operation: str | None
    """The command's name, such as ``find``; None where PyMongo does not tell (before 4.7)."""
    attempt: int
    """Which attempt this is: 2 for the first retry."""
    failed: tuple[Address, ...]
    """Where attempts of this operation failed; the latest failure stands last."""
    deprioritized: tuple[Address, ...]
    """What selection was asked to leave out. Empty where deprioritization does not apply: outside
    sharded clusters (but for overload retargeting) and where the address is given or pinned."""
    chosen: Address
    """The server that this attempt goes to."""

    @property
    def fallback(self) -> bool:
        """Whether nothing else was suitable, so that a deprioritized server is used again."""
        return self.chosen in self.deprioritized

    @property
    def redirected(self) -> bool:
        """Whether deprioritization applied and this attempt goes to another server."""
        return bool(self.deprioritized) and not self.fallback


Event = Retry


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

    def counting(self, event: Event) -> Stats:
        """Return these counts with one more event."""
        return Stats(
            self.retries + 1,
            self.redirected + event.redirected,
            self.fallbacks + event.fallback,
        )
