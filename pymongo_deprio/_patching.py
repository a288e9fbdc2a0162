"""Puts a wrapper on an attribute of a class, and takes exactly it off again."""

from __future__ import annotations

from typing import Any, Callable

import wrapt

Wrapper = Callable[[Any, Any, "tuple[Any, ...]", "dict[str, Any]"], Any]
"""Called as wrapt calls it: with the bound original, the instance, and the call's arguments."""


# It is generic from wrapt 2 on only.
class _Wrapper(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A wrapper of ours."""

    def __init__(self, original: Any, wrapper: Wrapper, on: list[bool], asleep: Any) -> None:
        # wrapt asks whether it is enabled on every call: a list's length is the cheapest answer.
        super().__init__(original, wrapper, on.__len__)  # type: ignore[arg-type]
        self._self_on = on
        self._self_asleep = asleep

    def is_dead(self) -> bool:
        """Tell whether it was left below somebody else's wrapper, and does nothing."""
        return not self._self_on


class _Sleeper(_Wrapper):
    """A wrapper that binds to the original itself while it is asleep."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        if self._self_asleep():
            return self.__wrapped__.__get__(instance, owner)
        return super().__get__(instance, owner)


class Patch:
    """One wrapper on one attribute."""

    def __init__(
        self,
        owner: type,
        name: str,
        wrapper: Wrapper,
        asleep: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare a patch, to be applied once.

        :param owner: the class whose own namespace holds the attribute.
        :param name: the attribute.
        :param wrapper: what to call in its place.
        :param asleep: while this returns True the original is called without the wrapper.
        """
        self._owner = owner
        self._name = name
        self._original = _without_dead_wrappers(vars(owner)[name])
        self._on: list[bool] = []
        kind = _Sleeper if asleep else _Wrapper
        self._wrapper = kind(self._original, wrapper, self._on, asleep)

    def apply(self) -> None:
        """Put the wrapper on."""
        self._on[:] = [True]
        setattr(self._owner, self._name, self._wrapper)

    def remove(self) -> None:
        """Take the wrapper off.

        Where somebody else's wrapper lies on top, ours stays where it is and does nothing from now
        on. An attribute that somebody deleted is not brought back.
        """
        self._on.clear()
        if vars(self._owner).get(self._name) is self._wrapper:
            setattr(self._owner, self._name, self._original)


def _without_dead_wrappers(attribute: Any) -> Any:
    """Return what lies below wrappers of ours that were left, and then laid open again."""
    while isinstance(attribute, _Wrapper) and attribute.is_dead():
        attribute = attribute.__wrapped__
    return attribute
