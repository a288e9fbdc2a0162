"""What is noted after an attempt: nothing that goes wrong there reaches the application."""

from __future__ import annotations

from typing import Callable

import pytest
from pymongo.errors import ConnectionFailure

from pymongo_deprio import _activation, _inside
from pymongo_deprio._attempts import Attempts
from pymongo_deprio._inside import TRANSIENT
from pymongo_deprio._operation import Operation


class Unknown:
    """A server of a PyMongo that we do not know."""


def failure() -> ConnectionFailure:
    """Return an error that ends a transaction."""
    error = ConnectionFailure("gone")
    error._add_error_label(TRANSIENT)
    return error


AFTERWARDS: dict[str, Callable[[Attempts, Operation], object]] = {
    "selected": lambda attempts, operation: attempts.selected(operation, None),
    "succeeded": lambda attempts, operation: attempts.succeeded(operation),
    "failed": lambda attempts, operation: attempts.failed(operation, failure()),
    "begin": lambda attempts, operation: attempts.begin(operation, retryable=True),
}


@pytest.mark.parametrize("step", AFTERWARDS)
def test_what_goes_wrong_is_logged_once(step: str, caplog: pytest.LogCaptureFixture) -> None:
    """An operation whose parts are not what they were goes on, as without us."""
    operation = Operation()
    operation.client = operation.session = operation.server = operation.topology = Unknown()
    _inside.log_once.cache_clear()
    for _ in range(3):
        AFTERWARDS[step](Attempts(_activation._state), operation)
    assert caplog.text.count("AttributeError") == 1


def test_an_error_that_is_not_pymongos() -> None:
    """A cancellation, say, tells nothing of a mongos: it is not looked at."""
    operation = Operation()
    operation.session = operation.server = Unknown()
    Attempts(_activation._state).failed(operation, KeyboardInterrupt())
