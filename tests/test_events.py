"""Events say what happened, and are counted."""

from __future__ import annotations

import pytest

from pymongo_deprio import Retry, Stats

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
