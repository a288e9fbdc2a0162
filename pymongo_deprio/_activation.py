"""Switches the patch on and off: the one lock and the one state."""

from __future__ import annotations

import importlib
import logging
import os
import threading
import warnings
import weakref
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, ContextManager, Iterator

from pymongo_deprio._errors import UnsupportedPyMongoError, UnsupportedPyMongoWarning
from pymongo_deprio._events import Stats
from pymongo_deprio._memory import Memory
from pymongo_deprio._options import Cooldown, Options, cooldown_of

if TYPE_CHECKING:
    from types import TracebackType

    from pymongo_deprio._attempts import Observer
    from pymongo_deprio._events import Event, Listener
    from pymongo_deprio._patching import Patch

_log = logging.getLogger("pymongo_deprio")


class Activation:
    """What :func:`enable` returns. Closing it, or leaving its ``with``, takes that call back.

    What was enabled before is then in force again, or nothing. Handles may be closed in any order,
    and more than once.
    """

    def close(self) -> None:
        """Take back the ``enable()`` that returned this handle."""
        _state.leave(self)

    def __enter__(self) -> Activation:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _State:
    def __init__(self) -> None:
        self.memory = Memory()
        self.after_fork()
        self.stats = Stats()
        # What is in force stands last. A handle that nobody holds any more can't be closed.
        self._entries: list[tuple[weakref.ref[Activation], Options]] = []
        self._patches: list[Patch] = []
        self._is_changing = False

    def after_fork(self) -> None:
        self.memory.after_fork()
        # Reentrant: a signal handler or a finalizer may come here while its own thread holds them.
        self._lock = threading.RLock()
        # Apart, and never held while anything else is called: a retry takes it.
        self._counting = threading.RLock()

    def is_enabled(self) -> bool:
        return bool(self._entries)

    def enter(self, options: Options) -> Activation:
        handle = Activation()
        try:
            with self._lock:
                was_enabled = self.is_enabled()
                self._entries = [*self._closable(), (weakref.ref(handle), options)]
                self._reconcile()
        except BaseException:
            self.leave(handle)
            raise
        # Without the lock: a handler of the application's may write to MongoDB, and wait for a
        # thread that waits for the lock.
        if not was_enabled:
            _log.info("Enabled")
        return handle

    def leave(self, handle: Activation) -> None:
        self._keep(lambda entry: entry[0]() is not handle)

    def disable(self) -> None:
        self._keep(lambda entry: False)  # noqa: ARG005 - none of them

    @contextmanager
    def preserved(self) -> Iterator[None]:
        entries = self._entries
        try:
            yield
        finally:
            with self._lock:
                self._entries = entries
                self._reconcile()

    def _keep(self, wanted: Callable[[tuple[weakref.ref[Activation], Options]], bool]) -> None:
        with self._lock:
            was_enabled = bool(self._patches)
            self._entries = [entry for entry in self._entries if wanted(entry)]
            self._reconcile()
        if was_enabled and not self.is_enabled():
            _log.info("Disabled")

    def count(self, **more: int) -> None:
        with self._counting:
            self.stats = self.stats.plus(**more)

    def report(self, event: Event) -> None:
        with self._counting:
            self.stats = self.stats.counting(event)
        _log.log(event.level, "%s", event)
        entries = self._entries
        listener = entries[-1][1].on_event if entries else None
        if listener is not None:
            try:
                listener(event)
            except Exception:  # noqa: BLE001 - an operation does not fail for its observer
                _log.exception("The listener %r failed on %r", listener, event)

    def _closable(self) -> list[tuple[weakref.ref[Activation], Options]]:
        """Return the entries that can still come into force.

        What lies below an entry that nobody can close never does: without this, an application
        that enables again and again would pile them up.
        """
        for index in range(len(self._entries) - 1, -1, -1):
            if self._entries[index][0]() is None:
                return self._entries[index:]
        return self._entries

    def _reconcile(self) -> None:
        """Patch or unpatch as the entries want it."""
        if self._is_changing:
            return  # a signal handler has come in between: the call below it will see to it
        self._is_changing = True
        try:
            done = None
            while done is not self._entries:  # else a signal handler has come in between
                done = self._entries
                if bool(done) != bool(self._patches):
                    (self._patch if done else self._unpatch)()
                if done:
                    self.memory.begin(done[-1][1].cooldown)
                else:
                    self.memory.end()
        finally:
            self._is_changing = False

    def _patch(self) -> None:
        # Only for those who enable: the pytest plugin is imported by every run of pytest.
        from pymongo_deprio import _seams  # noqa: PLC0415 - it needs asyncio
        from pymongo_deprio._patching import Patch  # noqa: PLC0415 - it needs wrapt

        try:
            for seam in _seams.find(self):
                self._patches.append(Patch(seam.owner, seam.name, seam.wrapper, is_hot=seam.is_hot))
                self._patches[-1].apply()
        except BaseException:
            self._unpatch()
            raise

    def _unpatch(self) -> None:
        try:
            self._remove_patches()
        finally:
            self._remove_patches()  # the rest, if it was interrupted

    def _remove_patches(self) -> None:
        while self._patches:
            self._patches[-1].remove()
            self._patches.pop()


_state = _State()
if hasattr(os, "register_at_fork"):
    # Another thread of the parent may have held them.
    os.register_at_fork(after_in_child=_state.after_fork)


def enable(
    *,
    on_event: Listener | None = None,
    strict: bool = False,
    cooldown: bool | Cooldown | None = None,
) -> Activation:
    """Make every PyMongo client of this process retry on another mongos.

    Clients that were made before are covered as well as those made later, in every thread, sync and
    async. With the same options as before it changes nothing; with others, the latest call counts.

    :param on_event: called with a :class:`Retry` for each retry, and with a
        :class:`CooldownStarted` or :class:`CooldownEnded`, in the thread or task of the operation.
        What it raises is logged and ignored.
    :param strict: raise where this PyMongo cannot be patched, instead of warning.
    :param cooldown: remember a mongos between operations, which the specification does not ask for:
        one that failed an operation which then succeeded on another is left out for a while. True,
        or a :class:`Cooldown` that says for how long.
    :return: a handle that takes this call back when it is closed; also a context manager. It need
        not be kept.
    :raises TypeError: if ``on_event`` or ``strict`` is of the wrong type.
    :raises ValueError: if ``cooldown`` is something else.
    :raises UnsupportedPyMongoError: with ``strict``, if this PyMongo lacks what has to be patched.
        Without ``strict`` an :class:`UnsupportedPyMongoWarning` is issued, nothing is changed,
        :func:`is_enabled` stays False, and the handle does nothing.
    """
    options = Options(on_event, strict, cooldown_of(cooldown))
    # Before the lock is taken: another thread may be importing PyMongo, and enable at its end.
    importlib.import_module("pymongo")
    try:
        return _state.enter(options)
    except UnsupportedPyMongoError as error:
        if strict:
            raise
        warnings.warn(UnsupportedPyMongoWarning(str(error)), stacklevel=2)
        return Activation()


def disable() -> None:
    """Take the patch off, whoever enabled it: PyMongo is as it was before.

    Where somebody else's wrapper was put on top of ours in the meantime, that one stays and works,
    and ours does nothing. Without ``enable()`` before, this does nothing.
    """
    _state.disable()


def preserved() -> ContextManager[None]:
    """Return a block after which exactly that is enabled which was before, whatever it does."""
    return _state.preserved()


def observer() -> Observer:
    """Return who is told of what happens."""
    return _state


def is_enabled() -> bool:
    """Return whether PyMongo is patched."""
    return _state.is_enabled()


def stats() -> Stats:
    """Return the counts since the start of the process; disable() keeps them."""
    return _state.stats
