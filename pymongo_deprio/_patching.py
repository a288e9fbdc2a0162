"""All that needs wrapt: puts a wrapper on an attribute of a class, and takes exactly it off."""

from __future__ import annotations

import inspect
from functools import update_wrapper
from types import FunctionType, MethodType
from typing import Any, Callable
from weakref import WeakValueDictionary

import wrapt

Method = Callable[..., Any]
"""Is called with the instance, and the arguments of the call."""


class Switch:
    """Whether a wrapper is on. One that is off may still be called, by somebody's on top of it."""

    is_on = False


Wrapper = Callable[[Method, Switch], Method]
"""Makes what is called in place of a method, out of it. Once it is off, it only passes on."""


class Patch:
    """One wrapper on one attribute."""

    def __init__(self, owner: type, name: str, wrapper: Wrapper, *, is_hot: bool = False) -> None:
        """Prepare a patch, to be applied once.

        :param owner: the class whose own namespace holds the attribute.
        :param name: the attribute.
        :param wrapper: makes what to call in its place.
        :param is_hot: whether every operation passes it. Then it is a plain function, which Python
            calls in a tenth of the time; else wrapt makes it look like the original in everything.
        """
        self._owner = owner
        self._name = name
        self._original = _without_ours(vars(owner)[name])
        self._switch = Switch()
        method = _like(self._original, wrapper(_as_function(self._original), self._switch))
        self._ours = method if is_hot else _proxy(self._original, method)

    def apply(self) -> None:
        """Put the wrapper on."""
        self._switch.is_on = True
        setattr(self._owner, self._name, self._ours)

    def remove(self) -> None:
        """Take the wrapper off.

        Where somebody else's wrapper lies on top, ours stays where it is and does nothing from now
        on. An attribute that somebody deleted is not brought back.
        """
        self._switch.is_on = False
        _taken_off[id(self._ours)] = self._ours
        if vars(self._owner).get(self._name) is self._ours:
            setattr(self._owner, self._name, self._original)


_taken_off: Any = WeakValueDictionary()
"""Those of ours that somebody still holds, and may put back, by their id."""


def _without_ours(attribute: Any) -> Any:
    """Return what lies below wrappers of ours that are off, and were laid open again."""
    while _taken_off.get(id(attribute)) is attribute:
        attribute = attribute.__wrapped__
    return attribute


def _like(original: Any, method: Method) -> Method:
    """Give a function the name, docstring and signature of the original, but not its marks."""
    update_wrapper(method, original, updated=())
    # Those that only pass a coroutine on are none themselves.
    if inspect.iscoroutinefunction(original) and hasattr(inspect, "markcoroutinefunction"):
        inspect.markcoroutinefunction(method)  # from Python 3.12 on
    return method


def _proxy(original: Any, method: Method) -> Any:
    # wrapt's own FunctionWrapper asks and makes more on each call.
    class Proxy(wrapt.ObjectProxy):  # type: ignore[type-arg] # it is generic from wrapt 2 on only
        def __get__(self, instance: Any, owner: Any = None) -> Any:
            return self if instance is None else MethodType(method, instance)

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Be called as a function, with the instance among the arguments."""
            return method(*args, **kwargs)

    return Proxy(original)


def _as_function(original: Any) -> Method:
    """Return what takes the instance as an argument, which a wrapper of somebody's may not."""
    if type(original) is FunctionType:
        return original

    def function(instance: Any, *args: Any, **kwargs: Any) -> Any:
        return original.__get__(instance, type(instance))(*args, **kwargs)

    return function


def about_wrapt() -> str:
    """Return wrapt's version, and whether it is compiled: if not, it is slower."""
    from importlib import metadata  # noqa: PLC0415 - slow, and for the doctor only

    compiled = "not compiled" if hasattr(wrapt.FunctionWrapper.__call__, "__code__") else "compiled"
    return f"{metadata.version('wrapt')}, {compiled}"


def when_imported(module: str, function: Callable[[], object]) -> None:
    """Call a function as soon as a module has been imported, or at once if it has been."""
    wrapt.register_post_import_hook(lambda _: function(), module)
