"""All that needs wrapt: puts a wrapper on an attribute of a class, and takes exactly it off."""

from __future__ import annotations

from functools import update_wrapper
from types import FunctionType, MethodType
from typing import Any, Callable

import wrapt

Method = Callable[..., Any]
"""Is called with the instance, and the arguments of the call."""
Wrapper = Callable[[Method], Method]
"""Makes what is called in place of a method, out of it."""


# It is generic from wrapt 2 on only.
class _Proxy(wrapt.ObjectProxy):  # type: ignore[type-arg]
    """Stands on an attribute and looks like the original.

    What it is bound to is decided in the class that is derived for each attribute: wrapt's own
    FunctionWrapper asks and makes more on each call, which costs twice as much.
    """

    _self_on: list[bool]


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
        :param wrapper: makes what to call in its place.
        :param asleep: while this returns True the original is called without the wrapper.
        """
        self._owner = owner
        self._name = name
        self._original = _without_dead_proxies(vars(owner)[name])
        self._on: list[bool] = []  # empty is off: nothing is asked faster
        self._proxy = _proxy(self._original, wrapper, self._on, asleep)

    def apply(self) -> None:
        """Put the wrapper on."""
        self._on[:] = [True]
        setattr(self._owner, self._name, self._proxy)

    def remove(self) -> None:
        """Take the wrapper off.

        Where somebody else's wrapper lies on top, ours stays where it is and does nothing from now
        on. An attribute that somebody deleted is not brought back.
        """
        self._on.clear()
        if vars(self._owner).get(self._name) is self._proxy:
            setattr(self._owner, self._name, self._original)


def _proxy(
    original: Any, wrapper: Wrapper, on: list[bool], asleep: Callable[[], bool] | None
) -> _Proxy:
    bind = original.__get__
    method = update_wrapper(wrapper(_as_function(original)), original)

    class Proxy(_Proxy):
        if asleep is None:

            def __get__(self, instance: Any, owner: Any = None) -> Any:
                if instance is None:
                    return self
                return MethodType(method, instance) if on else bind(instance, owner)

        else:

            def __get__(self, instance: Any, owner: Any = None) -> Any:
                if instance is None:
                    return self
                return bind(instance, owner) if asleep() or not on else MethodType(method, instance)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Be called as a function, with the instance among the arguments."""
            return (method if on else original)(*args, **kwargs)

        _self_on = on  # the prefix by which wrapt knows what is the proxy's own

    return Proxy(original)


def _as_function(original: Any) -> Method:
    """Return what takes the instance as an argument, which a wrapper of somebody's may not."""
    if type(original) is FunctionType:
        return original

    def function(instance: Any, *args: Any, **kwargs: Any) -> Any:
        return original.__get__(instance, type(instance))(*args, **kwargs)

    return function


def about_wrapt() -> str:
    """Return wrapt's version, and whether it is compiled: if not, each call costs much more."""
    from importlib import metadata  # noqa: PLC0415 - slow, and for the doctor only

    compiled = "not compiled" if hasattr(wrapt.FunctionWrapper.__call__, "__code__") else "compiled"
    return f"{metadata.version('wrapt')}, {compiled}"


def when_imported(module: str, function: Callable[[], object]) -> None:
    """Call a function as soon as a module has been imported, or at once if it has been."""
    wrapt.register_post_import_hook(lambda _: function(), module)


def _without_dead_proxies(attribute: Any) -> Any:
    """Return what lies below wrappers of ours that were left, and then laid open again."""
    while isinstance(attribute, _Proxy) and not attribute._self_on:  # noqa: SLF001 - as above
        attribute = attribute.__wrapped__
    return attribute
