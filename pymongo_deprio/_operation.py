"""The memory of one operation: where its attempts went, and what the next should leave out.

It is kept in a ContextVar, so that threads, tasks and greenlets each see their own. A context can
be copied while an operation runs (a task that is created then, PyMongo's own monitors among them);
so an operation also knows its owner, and forgets everything when it ends.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, NamedTuple

from pymongo_deprio._cooldown import Suspicion

if TYPE_CHECKING:
    from contextvars import Token

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


class _NoLoop:
    """Stands where no object runs the loop, so that nobody has to ask whether there is one."""

    _server = None
    _last_error = None


class Operation:
    """One call of PyMongo's retry loop on one client."""

    # Defaults stand on the class: an operation without failure should cost one small object.
    client: Any = None
    """The client it runs on; None once it has ended."""
    owner: object = None
    """The thread or task that it runs in."""
    loop: Any = _NoLoop
    """PyMongo's object that runs the retry loop, from 4.6 on: it knows what failed where."""
    server: Any = None
    """The server that the latest attempt was sent to."""
    asked: tuple[Any, ...] = ()
    """The arguments of its first attempt: selector, session and, from 4.7 on, the name."""
    attempts: int = 1
    failed: tuple[Address, ...] = ()
    """Where attempts failed; the latest failure stands last."""
    error: BaseException | None = None
    """What the latest of them failed with, where that can be learned."""
    suspicions: tuple[Suspicion, ...] = ()
    """Those of them that speak of the server."""
    lent: Lent | None = None
    """What selection should leave out, lent for the length of one selection."""
    held: bool = False
    """Whether a retry was held on the mongos of its transaction."""
    topology: Any = None
    """The settings of its topology, once something was looked up or noted for it."""
    since: float = 0.0
    """When the latest attempt was planned; 0.0 as long as nothing was cooling."""
    may_probe: bool = False
    """Whether it may be sent to a mongos to see whether that is well again."""
    is_probing: bool = False
    """Whether it was."""

    is_beginning: bool = False
    """Whether no attempt has failed yet, and there is nothing to leave out."""

    def __init__(self, client: Any, owner: object, loop: Any = _NoLoop) -> None:
        self.client = client
        self.owner = owner
        self.loop = loop
        self.is_beginning = True

    @staticmethod
    def here() -> object:
        """Return who would be the owner of an operation that is opened here."""
        return get_ident()

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

    def lent_to(self, topology: Any) -> Lent | None:
        """Return what a selection from the topology of these settings should leave out."""
        lent = self.lent
        if lent is not None and lent.topology is topology and self.owner == self.here():
            return lent
        return None

    def close(self, token: Token[Operation | None] | None) -> None:
        """End the operation, and forget everything: a copied context may keep this object."""
        self.__dict__.clear()
        try:
            if token is not None:
                CURRENT.reset(token)
        except ValueError:
            # A coroutine that was never finished is closed by the garbage collector, elsewhere.
            pass


class AsyncOperation(Operation):
    """The same, owned by a task."""

    @staticmethod
    def here() -> object:
        """Return the running task, or None outside an event loop."""
        try:
            return asyncio.current_task()
        except RuntimeError:
            return None


CURRENT: ContextVar[Operation | None] = ContextVar("pymongo_deprio_operation", default=None)
