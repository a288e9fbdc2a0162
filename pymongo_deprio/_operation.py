"""The memory of one operation: where its attempts went, and what the next should leave out."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Iterator, NamedTuple, Sequence

from pymongo_deprio._cooldown import Suspicion

if TYPE_CHECKING:
    from pymongo_deprio._events import Address


class Lent(NamedTuple):
    """What one selection should leave out, and where it should go."""

    topology: Any
    """The settings of the topology that it is lent to: its descriptions carry them."""
    failed: tuple[Address, ...]
    """Where the operation, or what it continues, failed; the latest failure stands last."""
    cooling: frozenset[Address] = frozenset()
    """The mongoses that cool down: the first to be taken back."""
    probe: Address | None = None
    """Where to go, if it is suitable, to see whether it is well again."""

    @property
    def all(self) -> tuple[Address, ...]:
        """Everything to leave out; what is taken back first stands first."""
        return (*sorted(self.cooling.difference(self.failed), key=str), *self.failed)


class Operation:
    """One call of PyMongo's retry loop on one client."""

    # Defaults stand on the class: up to 4.5 one is made for each operation, and costs little.
    client: Any = None
    """The client it runs on; up to 4.5 None once it has ended."""
    session: Any = None
    name: Any = None
    """What it does; None where PyMongo does not tell."""
    server: Any = None
    """The server that the latest attempt was sent to."""
    attempts: int = 1
    failed: tuple[Address, ...] = ()
    """Where attempts failed; the latest failure stands last."""
    error: BaseException | None = None
    """What the latest of them failed with, where that can be learned."""
    suspicions: tuple[Suspicion, ...] = ()
    """Those of them that speak of the server."""
    home: Address | None = None
    """The mongos of its transaction, if the latest attempt is to be held there."""
    was_held: bool = False
    """Whether an attempt was."""
    topology: Any = None
    """The settings of its topology, once something was looked up or noted for it."""
    since: float = 0.0
    """When the latest attempt was planned; 0.0 as long as nothing was cooling."""
    may_probe: bool = False
    """Whether it may be sent to a mongos to see whether that is well again."""
    is_probing: bool = False
    """Whether it was."""

    def fail(self, error: BaseException | None, *, suspicious: bool) -> None:
        """Note that the latest attempt failed.

        :param suspicious: whether the error speaks of the server.
        """
        address = self.server.description.address
        self.failed = (*(other for other in self.failed if other != address), address)
        self.error = error
        if suspicious:
            self.suspicions = (*self.suspicions, Suspicion(address, self.since))
        self.attempts += 1


LENT: ContextVar[Sequence[Lent]] = ContextVar("pymongo_deprio_lent", default=())
"""Holds what the selection that runs should leave out, if anything."""


@contextlib.contextmanager
def lending(lent: Lent | None) -> Iterator[None]:
    """Lend something to the selection in this block."""
    lease = [] if lent is None else [lent]
    token = LENT.set(lease)
    try:
        yield
    finally:
        lease.clear()  # a task that was created in the selection has a copy of its context
        # A coroutine that was never finished is closed by the garbage collector, elsewhere.
        with contextlib.suppress(ValueError):
            LENT.reset(token)
