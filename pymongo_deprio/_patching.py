"""Puts a wrapper on an attribute of a class, and takes exactly it off again."""

from __future__ import annotations

from typing import Any, Callable

import wrapt

Wrapper = Callable[[Any, Any, "tuple[Any, ...]", "dict[str, Any]"], Any]
"""Called as wrapt calls it: with the bound original, the instance, and the call's arguments."""


# It is generic from wrapt 2 on only.
class _Sleeper(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A wrapper that binds to the original itself while it is asleep."""

    def __init__(
        self, original: Any, wrapper: Wrapper, enabled: Any, asleep: Callable[[], bool]
    ) -> None:
        super().__init__(original, wrapper, enabled)
        self._self_asleep = asleep

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
        """Prepare a patch.

        :param owner: the class whose own namespace holds the attribute.
        :param name: the attribute.
        :param wrapper: what to call in its place.
        :param asleep: while this returns True the original is called without the wrapper.
        """
        self.place = (owner, name)
        self._owner = owner
        self._name = name
        self._original = vars(owner)[name]
        # wrapt asks whether it is enabled on every call: a list's length is the cheapest answer.
        self._on: list[bool] = []
        enabled: Any = self._on.__len__
        self._wrapper: Any = (
            _Sleeper(self._original, wrapper, enabled, asleep)
            if asleep
            else wrapt.FunctionWrapper(self._original, wrapper, enabled)
        )

    def apply(self) -> None:
        """Put the wrapper on, or wake it where it was left below somebody else's."""
        if vars(self._owner)[self._name] is self._original:
            setattr(self._owner, self._name, self._wrapper)
        self._on[:] = [True]

    def remove(self) -> bool:
        """Take the wrapper off and return True.

        Where somebody else's wrapper lies on top, or the attribute is gone, ours stays where it is,
        does nothing from now on, and False is returned.
        """
        self._on.clear()
        if vars(self._owner).get(self._name) is not self._wrapper:
            return False
        setattr(self._owner, self._name, self._original)
        return True
