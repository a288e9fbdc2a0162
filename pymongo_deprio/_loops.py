"""How operations and their attempts are found: the wrappers around PyMongo's retry loops.

From 4.6 on an object of PyMongo's runs the loop, knows the server and the error of the attempt
before, and asks for each attempt's server: ``LoopObject`` stands there, and has nothing to do
before an attempt has failed. Up to 4.5 loops are methods whose variables nobody sees: for
``LoopMethods`` a second selection in one loop means that the first attempt failed.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Iterator

from pymongo_deprio._inside import last_error, locals_of_caller, log_once
from pymongo_deprio._operation import LENT, Operation, lending

if TYPE_CHECKING:
    from types import CodeType

    from pymongo_deprio._attempts import Attempts
    from pymongo_deprio._memory import Memory
    from pymongo_deprio._operation import Lent
    from pymongo_deprio._patching import Method, Switch

# -- From 4.6 on: an object that runs the loop -----------------------------------------------------


class LoopObject:
    """Wraps the object that runs the loop: its ``run``, and ``_get_server`` for each attempt.

    The operation is kept among the variables of what runs it, so that it ends there, however it
    does. It is made only if an attempt has failed, or something may be remembered for it.
    """

    def __init__(self, attempts: Attempts, memory: Memory, here: Callable[[], int]) -> None:
        """Accompany operations.

        :param here: returns the thread or task that an operation runs in.
        """
        self._attempts = attempts
        self._memory = memory
        self._here = here
        self._running: CodeType | None = None

    def run(self, run: Method, switch: Switch) -> Method:
        """Return what runs one operation."""

        def running(loop: Any) -> Any:
            kept: list[Operation] = []
            try:
                result = run(loop)
            except BaseException as error:
                if switch.is_on or kept:
                    self._failed(loop, kept, error)
                raise
            if kept:
                self._attempts.succeeded(kept[0])
            return result

        self._running = running.__code__
        return running

    def async_run(self, run: Method, switch: Switch) -> Method:
        """Return what runs one operation of an AsyncMongoClient."""

        async def running(loop: Any) -> Any:
            kept: list[Operation] = []
            try:
                result = await run(loop)
            except BaseException as error:
                if switch.is_on or kept:
                    self._failed(loop, kept, error)
                raise
            if kept:
                self._attempts.succeeded(kept[0])
            return result

        self._running = running.__code__
        return running

    def get_server(self, get_server: Method, switch: Switch) -> Method:
        """Return what selects the server of one attempt."""
        memory, lent = self._memory, LENT.get

        def get(loop: Any) -> Any:
            if loop._last_error is None and memory.is_empty and not lent():
                return get_server(loop)
            if not switch.is_on:
                return get_server(loop)
            with self._attempt(loop) as operation:
                operation.server = server = get_server(loop)
            return server

        return get

    def async_get_server(self, get_server: Method, switch: Switch) -> Method:
        """Return what selects the server of one attempt of an AsyncMongoClient."""
        memory, lent = self._memory, LENT.get

        def get(loop: Any) -> Any:
            if loop._last_error is None and memory.is_empty and not lent():
                return get_server(loop)
            return attempt(loop) if switch.is_on else get_server(loop)

        async def attempt(loop: Any) -> Any:
            with self._attempt(loop) as operation:
                operation.server = server = await get_server(loop)
            return server

        return get

    @contextlib.contextmanager
    def _attempt(self, loop: Any) -> Iterator[Operation]:
        """Give the operation of a loop, to select the server of its next attempt in this block."""
        kept = locals_of_caller(self._running, loop=loop).get("kept")
        if kept is None:  # it began before the patch was put on
            yield Operation()
            return
        if not kept:
            kept.append(_operation_of(loop))
        operation: Operation = kept[0]
        with self._lending(operation, loop) as lent:
            yield operation
        self._attempts.selected(operation, lent)

    def _lending(self, operation: Operation, loop: Any) -> ContextManager[Lent | None]:
        try:
            lent = self._before(operation, loop)
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            _log_left_to_pymongo()
            return contextlib.nullcontext()  # with the list that PyMongo has
        return _put_aside(loop, lent, operation.home or loop._address)

    def _before(self, operation: Operation, loop: Any) -> Lent | None:
        if operation.server is None:
            self._attempts.begin(operation, retryable=loop._retryable)
            return self._attempts.first(operation, here=self._here(), bound=loop._address)
        listed = getattr(loop, "_deprioritized_servers", None)  # from 4.7 on
        return self._attempts.retry(
            operation, loop._last_error, bound=loop._address, listed=listed or ()
        )

    def _failed(self, loop: Any, kept: list[Operation], error: BaseException) -> None:
        # Taken out: the error's traceback holds what was kept.
        self._attempts.failed(kept.pop() if kept else _operation_of(loop), error)


def _operation_of(loop: Any) -> Operation:
    operation = Operation()
    operation.client = loop._client
    operation.session = loop._session
    operation.server = loop._server
    operation.name = getattr(loop, "_operation", None)  # from 4.7 on
    return operation


@contextlib.contextmanager
def _put_aside(loop: Any, lent: Lent | None, address: object) -> Iterator[Lent | None]:
    """Lend to the selection in this block, and put aside what PyMongo would leave out by itself."""
    bound, listed = loop._address, getattr(loop, "_deprioritized_servers", None)
    with lending(lent):
        loop._address = address
        if listed:
            loop._deprioritized_servers = None
        try:
            yield lent
        finally:
            loop._address = bound
            if listed:
                loop._deprioritized_servers = listed


# -- Up to 4.5: methods that are loops -------------------------------------------------------------

OPERATION: ContextVar[Operation | None] = ContextVar("pymongo_deprio_operation", default=None)
"""The operation that runs."""


class LoopMethods:
    """Wraps methods of the client that are loops, and the selection of an attempt's server.

    Their parameters have stayed since 3.9; to name them costs half of what it costs to pass on
    whatever comes. A context can be copied while an operation runs; so the operation forgets its
    client when it ends.
    Reads and writes are wrapped alike, in two pieces, as one more call would cost what this saves.
    """

    def __init__(self, attempts: Attempts, memory: Memory) -> None:
        """Accompany operations."""
        self._attempts = attempts
        self._memory = memory

    def read(self, loop: Method, switch: Switch) -> Method:
        """Return what runs one read, for ``_retryable_read``. Up to 3.11 it takes more."""
        memory = self._memory

        def reading(  # noqa: PLR0917 - as PyMongo has them
            client: Any,
            func: Any,
            read_pref: Any,
            session: Any,
            address: Any = None,
            retryable: Any = True,
            **more: Any,
        ) -> Any:
            if not switch.is_on:
                more.update(address=address, retryable=retryable)
                return loop(client, func, read_pref, session, **more)
            operation = Operation()
            operation.client = client
            token = OPERATION.set(operation)
            try:
                if not memory.is_empty:
                    self._begin(operation, session, retryable)
                if more:  # to pass it on in any case would cost as much as half of all this
                    more.update(address=address, retryable=retryable)
                    result = loop(client, func, read_pref, session, **more)
                else:
                    result = loop(
                        client, func, read_pref, session, address=address, retryable=retryable
                    )
                if operation.topology is not None:
                    self._attempts.succeeded(operation)
                return result  # noqa: TRY300 - what succeeded is looked at once
            except BaseException as error:
                self._failed(operation, session, error)
                raise
            finally:
                operation.client = operation.server = None
                OPERATION.reset(token)

        return reading

    def write(self, loop: Method, switch: Switch) -> Method:
        """Return what runs one write, for ``_retry_internal`` or ``_retry_with_session``."""
        memory = self._memory

        def writing(client: Any, retryable: Any, func: Any, session: Any, bulk: Any) -> Any:
            if not switch.is_on:
                return loop(client, retryable, func, session, bulk)
            operation = Operation()
            operation.client = client
            token = OPERATION.set(operation)
            try:
                if not memory.is_empty:
                    self._begin(operation, session, retryable)
                result = loop(client, retryable, func, session, bulk)
                if operation.topology is not None:
                    self._attempts.succeeded(operation)
                return result  # noqa: TRY300 - what succeeded is looked at once
            except BaseException as error:
                self._failed(operation, session, error)
                raise
            finally:
                operation.client = operation.server = None
                OPERATION.reset(token)

        return writing

    def select_server(self, select_server: Method, switch: Switch) -> Method:
        """Return what selects a server: a second time in one operation, since an attempt failed."""
        memory, running, lent_now = self._memory, OPERATION.get, LENT.get

        def select(client: Any, server_selector: Any, session: Any, address: Any = None) -> Any:
            operation = running()
            if operation is None or operation.client is not client or not switch.is_on:
                return select_server(client, server_selector, session, address=address)
            if operation.server is None:
                if memory.is_empty and not lent_now():
                    server = select_server(client, server_selector, session, address=address)
                    operation.server = server
                    return server
                error = None
            else:
                error = last_error()
                if error is None:  # a command that a listener runs, or another thread's
                    return select_server(client, server_selector, session, address=address)
            operation.session = session
            lent = self._lent(operation, error, address)
            with lending(lent):
                operation.server = server = select_server(
                    client, server_selector, session, address=address
                )
            self._attempts.selected(operation, lent)
            operation.session = operation.error = None
            return server

        return select

    def _begin(self, operation: Operation, session: object, retryable: object) -> None:
        operation.session = session
        self._attempts.begin(operation, retryable=retryable)
        operation.session = None

    def _failed(self, operation: Operation, session: object, error: BaseException) -> None:
        operation.session = session
        self._attempts.failed(operation, error)
        operation.session = operation.error = None

    def _lent(
        self, operation: Operation, error: BaseException | None, address: object
    ) -> Lent | None:
        try:
            if operation.server is None:
                return self._attempts.first(operation, here=get_ident(), bound=address)
            return self._attempts.retry(operation, error, bound=address)
        except Exception:  # noqa: BLE001 - whatever it is, the operation goes on
            _log_left_to_pymongo()
            return None


def _log_left_to_pymongo() -> None:
    log_once("A selection is left to PyMongo, since what it should leave out is not known")
