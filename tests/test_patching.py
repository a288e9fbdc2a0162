"""A patch puts one wrapper on one attribute, and takes exactly it off again."""

from __future__ import annotations

from typing import Any

import pytest

from pymongo_deprio._patching import Patch


class Base:
    """What is patched."""

    def method(self, value: int) -> int:
        """Return twice the value."""
        return 2 * value


@pytest.fixture
def owner() -> type:
    """Return a class of this test alone."""
    return type("Owner", (), dict(vars(Base)))


def ten_more(wrapped: Any, instance: Any, args: Any, kwargs: Any) -> Any:
    """Return ten more than the original."""
    assert type(instance).__name__ == "Owner"
    return wrapped(*args, **kwargs) + 10


def test_apply_and_remove(owner: Any) -> None:
    """The wrapper works while it is on; afterwards the attribute is the identical original."""
    original = vars(owner)["method"]
    patch = Patch(owner, "method", ten_more)
    for _ in range(10):
        assert owner().method(1) == 2
        patch.apply()
        patch.apply()
        assert owner().method(1) == 12
        assert patch.remove()
        assert vars(owner)["method"] is original


def test_looks_like_the_original(owner: Any) -> None:
    """Name and docstring of the attribute stay."""
    Patch(owner, "method", ten_more).apply()
    assert owner.method.__name__ == "method"
    assert owner.method.__doc__ == "Return twice the value."


def test_somebody_on_top(owner: Any) -> None:
    """Below another wrapper ours goes to sleep where it is, and can be woken there."""
    patch = Patch(owner, "method", ten_more)
    patch.apply()
    ours = vars(owner)["method"]

    def on_top(self: Any, value: int) -> int:
        return ours.__get__(self, type(self))(value) + 100  # type: ignore[no-any-return]

    owner.method = on_top
    assert owner().method(1) == 112
    assert not patch.remove()
    assert vars(owner)["method"] is on_top
    assert owner().method(1) == 102
    patch.apply()
    assert vars(owner)["method"] is on_top
    assert owner().method(1) == 112


def test_somebody_on_top_who_went_away(owner: Any) -> None:
    """Once the other wrapper is gone, whatever it left, ours can be taken off or put on again."""
    original = vars(owner)["method"]
    patch = Patch(owner, "method", ten_more)
    patch.apply()
    ours = vars(owner)["method"]
    owner.method = lambda self, value: 0
    assert not patch.remove()
    owner.method = ours
    assert owner().method(1) == 2
    assert patch.remove()
    assert vars(owner)["method"] is original

    patch.apply()
    owner.method = original
    assert not patch.remove()
    patch.apply()
    assert owner().method(1) == 12


def test_removed_attribute(owner: Any) -> None:
    """An attribute that somebody deleted is not brought back by taking the wrapper off."""
    patch = Patch(owner, "method", ten_more)
    patch.apply()
    del owner.method
    assert not patch.remove()
    assert "method" not in vars(owner)


def test_asleep(owner: Any) -> None:
    """While a wrapper is asleep the original is called without it."""
    asleep = False
    patch = Patch(owner, "method", ten_more, lambda: asleep)
    patch.apply()
    assert owner().method(1) == 12
    asleep = True
    assert owner().method(1) == 2
    asleep = False
    assert owner().method(1) == 12
    patch.remove()
