"""The memory of an operation: what it keeps, and to whom it lends that."""

from __future__ import annotations

import contextvars
from typing import Any

from pymongo_deprio._operation import LENT, Lent, Operation, lending

A, B = ("a", 1), ("b", 2)
A_LIST = Lent("a topology", (A,))


class Server:
    """Has an address, as a server of PyMongo has it."""

    def __init__(self, address: Any) -> None:
        self.description = self
        self.address = address


def test_failures_are_kept_once_and_the_latest_is_last() -> None:
    """A server that fails again becomes the latest failure: it is the last to be taken back."""
    operation = Operation()
    for address in A, B, A:
        operation.server = Server(address)
        operation.fail(None, suspicious=False)
    assert operation.failed == (B, A)
    assert operation.attempts == 4


def test_a_list_is_lent_for_one_block() -> None:
    """Within it another one may be lent; other contexts see none of them."""
    with lending(A_LIST):
        with lending(None):
            assert not LENT.get()
        assert LENT.get() == [A_LIST]
        assert not contextvars.Context().run(LENT.get)
    assert not LENT.get()


def test_a_context_that_was_copied_in_the_block() -> None:
    """What was lent ends with the block for a thread or task, too, that began in it."""
    with lending(A_LIST):
        elsewhere = contextvars.copy_context()
        assert elsewhere.run(LENT.get) == [A_LIST]
    assert not elsewhere.run(LENT.get)


def test_a_block_that_ends_in_another_context() -> None:
    """A coroutine that was never finished is closed anywhere: that raises nothing."""
    block = lending(A_LIST)
    elsewhere = contextvars.copy_context()
    elsewhere.run(block.__enter__)
    block.__exit__(None, None, None)
    assert not LENT.get()
    assert not elsewhere.run(LENT.get)
