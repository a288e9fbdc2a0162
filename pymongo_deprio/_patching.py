"""All that needs wrapt: puts a wrapper on an attribute of a class, and takes exactly it off."""

from __future__ import annotations

from typing import Any, Callable, List

import wrapt

Wrapper = Callable[[Any, Any, "tuple[Any, ...]", "dict[str, Any]"], Any]
"""Called as wrapt calls it: with the bound original, the instance, and the call's arguments."""


class _Switch(List[bool]):
    """Empty is off: wrapt asks on every call, and a list's length is the cheapest answer."""


# It is generic from wrapt 2 on only.
class _Sleeper(wrapt.FunctionWrapper):  # type: ignore[type-arg]
    """A wrapper that binds to the original itself while it is asleep."""

    def __init__(self, original: Any, wrapper: Wrapper, enabled: Any, asleep: Any) -> None:
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
        """Prepare a patch, to be applied once.

        :param owner: the class whose own namespace holds the attribute.
        :param name: the attribute.
        :param wrapper: what to call in its place.
        :param asleep: while this returns True the original is called without the wrapper.
        """
        self._owner = owner
        self._name = name
        self._original = _without_dead_wrappers(vars(owner)[name])
        self._on = _Switch()
        enabled: Any = self._on.__len__
        # Not one class for both: wrapt binds those that are derived from its own more slowly.
        self._wrapper: Any = (
            _Sleeper(self._original, wrapper, enabled, asleep)
            if asleep
            else wrapt.FunctionWrapper(self._original, wrapper, enabled)
        )

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


def about_wrapt() -> str:
    """Return wrapt's version, and whether it is compiled: if not, each call costs much more."""
    from importlib import metadata  # noqa: PLC0415 - slow, and for the doctor only

    compiled = "not compiled" if hasattr(wrapt.FunctionWrapper.__call__, "__code__") else "compiled"
    return f"{metadata.version('wrapt')}, {compiled}"


def when_imported(module: str, function: Callable[[], object]) -> None:
    """Call a function as soon as a module has been imported, or at once if it has been."""
    wrapt.register_post_import_hook(lambda _: function(), module)


def _without_dead_wrappers(attribute: Any) -> Any:
    """Return what lies below wrappers of ours that were left, and then laid open again."""
    while isinstance(attribute, wrapt.FunctionWrapper):
        switch = getattr(attribute._self_enabled, "__self__", None)  # noqa: SLF001 - wrapt's name
        if switch or not isinstance(switch, _Switch):
            break
        attribute = attribute.__wrapped__
    return attribute
