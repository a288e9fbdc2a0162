"""What is remembered from one operation to the next, and for whom.

Per client, weakly: the mongoses that cool down. Per session, weakly: where a transaction has just
ended that is to be run again. Per thread or task, while a change stream resumes: where it failed.
"""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import TYPE_CHECKING, Any, Collection, Iterable, Iterator
from weakref import WeakKeyDictionary

from pymongo_deprio._cooldown import Cooldowns, Plan, Suspicion

if TYPE_CHECKING:
    from pymongo_deprio._events import Address, Event
    from pymongo_deprio._options import Cooldown


class Memory:
    """The one memory of the process. It calls nobody while it holds its lock."""

    is_empty = True
    """Whether an operation has nothing to look up here: most of the time."""

    def __init__(self) -> None:
        """Begin empty, and remember nothing before ``begin``."""
        self._lock = threading.RLock()
        self._cooldown: Cooldown | None = None
        self._is_on = False
        # Clients are equal when they have the same seeds; the settings of each are its own.
        self._cooldowns: WeakKeyDictionary[Any, Cooldowns] = WeakKeyDictionary()
        self._sessions: WeakKeyDictionary[Any, tuple[Address, ...]] = WeakKeyDictionary()
        self._resuming: dict[int, tuple[Address, ...]] = {}

    def after_fork(self) -> None:
        """Forget everything, and who holds the lock: another thread of the parent may."""
        self._lock = threading.RLock()
        self._forget()

    def begin(self, cooldown: Cooldown | None) -> None:
        """Remember from now on; what is cooling by other options is forgotten."""
        with self._lock:
            if not self._is_on or cooldown != self._cooldown:
                self._cooldown = cooldown
                self._is_on = True
                self._forget()

    def end(self) -> None:
        """Forget everything, and remember nothing from now on."""
        with self._lock:
            self._is_on = False
            self._cooldown = None
            self._forget()

    def _forget(self) -> None:
        with self._changing():
            self._cooldowns.clear()
            self._sessions.clear()
            self._resuming.clear()

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            finally:
                self.is_empty = not (self._cooldowns or self._sessions or self._resuming)

    # -- Cooldown ----------------------------------------------------------------------------------

    def plan(
        self,
        client: Any,
        known: Collection[Address],
        prober: object = None,
        *,
        is_retry: bool = False,
    ) -> tuple[Plan, list[Event]]:
        """Say what a selection of a client should leave out; see `Cooldowns.plan`.

        :param client: the settings of its topology.
        :param known: all addresses of its topology; what left it is forgotten.
        """
        with self._changing():
            cooldowns = self._cooldowns.get(client)
            if cooldowns is None:
                return Plan(frozenset(), None, 0.0), []
            events = cooldowns.forget_all_but(known)
            if not cooldowns:
                del self._cooldowns[client]
            return cooldowns.plan(prober, is_retry=is_retry), events

    def release(self, client: Any, prober: object, *, failed: bool = False) -> None:
        """See `Cooldowns.release`."""
        with self._lock:
            cooldowns = self._cooldowns.get(client)
            if cooldowns is not None:
                cooldowns.release(prober, failed=failed)

    def judge(
        self, client: Any, well: Address, since: float, suspicions: Iterable[Suspicion]
    ) -> list[Event]:
        """See `Cooldowns.judge`; nothing without the option."""
        with self._changing():
            if self._cooldown is None:
                return []
            cooldowns = self._cooldowns.get(client)
            if cooldowns is None:
                cooldowns = Cooldowns(self._cooldown, time.monotonic, random.uniform)
            events = cooldowns.judge(well, since, suspicions)
            if cooldowns:
                self._cooldowns[client] = cooldowns
            else:
                self._cooldowns.pop(client, None)
            return events

    # -- Hints, for one operation ------------------------------------------------------------------

    def ended_transaction(self, session: Any, failed: tuple[Address, ...]) -> None:
        """Let the session's next transaction begin elsewhere."""
        with self._changing():
            if self._is_on:
                self._sessions[session] = failed

    def begins_transaction(self, session: Any) -> tuple[Address, ...]:
        """Return where the session's last transaction failed, once."""
        with self._changing():
            return self._sessions.pop(session, ())

    @contextlib.contextmanager
    def resuming(self, here: int, failed: Address) -> Iterator[None]:
        """Let the next operation of a thread or task, in this block, go elsewhere.

        :param here: tells the thread or task, which is not kept alive.
        """
        with self._changing():
            if self._is_on:
                self._resuming[here] = (failed,)
        try:
            yield
        finally:
            self.resumes(here)

    def resumes(self, here: int) -> tuple[Address, ...]:
        """Return where the change stream failed that the thread or task resumes, once."""
        with self._changing():
            return self._resuming.pop(here, ())
