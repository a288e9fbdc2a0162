"""Events say what happened, and are counted."""

from __future__ import annotations

import logging

import pytest

from pymongo_deprio import CooldownEnded, CooldownStarted, Retry, Stats, _activation

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def retry(*, chosen: tuple[str, int], deprioritized: tuple[tuple[str, int], ...]) -> Retry:
    """Return a retry after a failure on A."""
    return Retry(
        operation="find", attempt=2, failed=(A,), deprioritized=deprioritized, chosen=chosen
    )


@pytest.mark.parametrize(
    ("chosen", "deprioritized", "redirected", "fallback"),
    [
        (B, (A,), True, False),
        (A, (A,), False, True),
        (B, (A, B), False, True),
        (C, (A, B), True, False),
        (A, (), False, False),
        (B, (), False, False),
    ],
)
def test_redirected_and_fallback(
    chosen: tuple[str, int],
    deprioritized: tuple[tuple[str, int], ...],
    redirected: bool,
    fallback: bool,
) -> None:
    """A retry under a list is redirected or a fallback; without one it is neither."""
    event = retry(chosen=chosen, deprioritized=deprioritized)
    assert (event.redirected, event.fallback) == (redirected, fallback)
    assert Stats().counting(event) == Stats(1, int(redirected), int(fallback))


def test_frozen() -> None:
    """Neither an event nor the counters can be changed by who receives them."""
    with pytest.raises(AttributeError):
        retry(chosen=B, deprioritized=(A,)).chosen = A  # type: ignore[misc]
    with pytest.raises(AttributeError):
        Stats().retries = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("event", "level", "line"),
    [
        (
            Retry("find", 2, (A,), (B, A), C),
            logging.DEBUG,
            "Retry of find, attempt 2: failed on a:1, avoided b:2, a:1, chose c:3",
        ),
        (
            Retry(None, 3, (("/tmp/socket", None),), (A,), A),  # noqa: S108 - nothing is opened
            logging.DEBUG,
            (
                "Retry of an operation, attempt 3: failed on /tmp/socket, avoided a:1, chose a:1,"
                " as no other is suitable"
            ),
        ),
        (
            CooldownStarted(A, 1.04, 2),
            logging.WARNING,
            (
                "Mongos a:1 cools down for 1.0 s (strike 2): an operation failed there and"
                " succeeded on another"
            ),
        ),
        (
            CooldownEnded(A, "success"),
            logging.INFO,
            "Mongos a:1 is done cooling down: success",
        ),
    ],
)
def test_what_is_logged(
    caplog: pytest.LogCaptureFixture,
    event: Retry | CooldownStarted | CooldownEnded,
    level: int,
    line: str,
) -> None:
    """Each event is one line at its level, the one that printing it shows."""
    caplog.set_level(logging.DEBUG, "pymongo_deprio")
    _activation._state.report(event)
    assert caplog.record_tuples == [("pymongo_deprio", level, line)]
    assert str(event) == line


def test_counts() -> None:
    """What is counted is added to what was counted before."""
    stats = Stats(1, 1, 0, 2, 3, 4).plus(probes=1, avoided=2)
    assert stats == Stats(1, 1, 0, 2, 4, 6)
    assert stats.counting(CooldownStarted(A, 1.0, 1)) == Stats(1, 1, 0, 3, 4, 6)
    assert stats.counting(CooldownEnded(A, "left")) == stats
