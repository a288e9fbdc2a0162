"""A patch puts one wrapper on one attribute, and takes exactly it off again."""

from __future__ import annotations

import inspect
import sys
from typing import Any, Callable

import pytest

from pymongo_deprio._patching import Method, Patch, Switch


class Base:
    """What is patched."""

    def method(self, value: int) -> int:
        """Return twice the value."""
        return 2 * value


@pytest.fixture
def owner() -> type:
    """Return a class of this test alone."""
    return type("Owner", (), dict(vars(Base)))


def ten_more(method: Method, switch: Switch) -> Method:
    """Return ten more than the original."""

    def more(instance: Any, value: int) -> Any:
        assert type(instance).__name__ == "Owner"
        return method(instance, value) + (10 if switch.is_on else 0)

    return more


@pytest.fixture(params=[True, False], ids=["a function", "a proxy"])
def patch_of(request: pytest.FixtureRequest) -> Callable[..., Patch]:
    """Return what makes a patch of a method, of either kind."""
    return lambda owner, wrapper=ten_more: Patch(owner, "method", wrapper, is_hot=request.param)


def test_apply_and_remove(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """The wrapper works while it is on; afterwards the attribute is the identical original."""
    original = vars(owner)["method"]
    for _ in range(10):
        assert owner().method(1) == 2
        patch = patch_of(owner)
        patch.apply()
        assert owner().method(1) == 12
        patch.remove()
        assert vars(owner)["method"] is original


def test_looks_like_the_original(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """Name and docstring of the attribute stay."""
    patch_of(owner).apply()
    assert owner.method.__name__ == "method"
    assert owner.method.__doc__ == "Return twice the value."


def test_marks_of_others(owner: Any) -> None:
    """What somebody has noted on the original is not noted on a function of ours."""

    def method(self: Any) -> None: ...

    vars(method)["is_wrapped_by_somebody"] = True
    owner.method = method
    Patch(owner, "method", ten_more, is_hot=True).apply()
    assert not hasattr(owner.method, "is_wrapped_by_somebody")


@pytest.mark.skipif(sys.version_info < (3, 12), reason="nothing can be marked so")
def test_coroutine_functions(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """What passes a coroutine on is taken for a coroutine function, as the original is."""

    async def method(self: Any) -> None: ...

    owner.method = method
    patch_of(owner).apply()
    assert inspect.iscoroutinefunction(owner.method)
    assert inspect.iscoroutinefunction(owner().method)


def test_called_as_a_function(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """What is got from the class takes the instance as an argument, on or off."""
    patch = patch_of(owner)
    patch.apply()
    method = owner.method
    assert method(owner(), 1) == 12
    assert list(inspect.signature(method).parameters) == ["self", "value"]
    assert list(inspect.signature(owner().method).parameters) == ["value"]
    patch.remove()
    assert method(owner(), 1) == 2


def test_on_top_of_a_wrapper_that_must_be_bound(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """Somebody's descriptor below ours gets the instance by being bound, as without us."""

    class Descriptor:
        def __get__(self, instance: Any, owner: Any) -> Any:
            return lambda value: (instance, value)

        def __call__(self, *args: Any) -> None:
            raise AssertionError(args)

    owner.method = Descriptor()

    def second(method: Method, switch: Switch) -> Method:
        return lambda instance, value: method(instance, value)[1]

    patch_of(owner, second).apply()
    assert owner().method(1) == 1


def closure(wrapped: Any) -> Any:
    """Return a wrapper that tells nothing of what it wraps."""

    def on_top(self: Any, value: int) -> int:
        return wrapped.__get__(self, type(self))(value) + 100  # type: ignore[no-any-return]

    return on_top


def test_somebody_on_top(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """Below another wrapper ours does nothing any more; a later patch goes on top, and off."""
    patch = patch_of(owner)
    patch.apply()
    owner.method = on_top = closure(vars(owner)["method"])
    assert owner().method(1) == 112
    patch.remove()
    assert vars(owner)["method"] is on_top
    assert owner().method(1) == 102
    for _ in range(3):
        again = patch_of(owner)
        again.apply()
        assert owner().method(1) == 112
        again.remove()
        assert vars(owner)["method"] is on_top


def test_somebody_on_top_who_went_away(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """When another wrapper is gone and lays our dead one open, the next patch clears it away."""
    original = vars(owner)["method"]
    patch = patch_of(owner)
    patch.apply()
    ours = vars(owner)["method"]
    owner.method = closure(ours)
    patch.remove()
    owner.method = ours
    assert owner().method(1) == 2
    patch = patch_of(owner)
    patch.apply()
    assert owner().method(1) == 12
    patch.remove()
    assert vars(owner)["method"] is original


def test_somebody_who_was_there_before_and_goes_away(
    owner: Any, patch_of: Callable[..., Patch]
) -> None:
    """A wrapper below ours that is taken off over our head takes ours with it; the next works."""
    original = vars(owner)["method"]
    owner.method = closure(original)
    patch = patch_of(owner)
    patch.apply()
    assert owner().method(1) == 112
    owner.method = original
    assert owner().method(1) == 2
    patch.remove()
    assert vars(owner)["method"] is original
    again = patch_of(owner)
    again.apply()
    assert owner().method(1) == 12
    again.remove()
    assert vars(owner)["method"] is original


def test_removed_attribute(owner: Any, patch_of: Callable[..., Patch]) -> None:
    """An attribute that somebody deleted is not brought back by taking the wrapper off."""
    patch = patch_of(owner)
    patch.apply()
    del owner.method
    patch.remove()
    assert "method" not in vars(owner)
