"""Looks at the installed PyMongo and lists the places to wrap.

What is there decides, not the version: PyMongo 3.9 to 4.20 keep the retry loop, the selection of an
attempt's server and the selection from a topology description in methods of the same names, though
not all of them everywhere.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import operator
import sys
from typing import TYPE_CHECKING, Any, Callable, Iterator, NamedTuple

from pymongo_deprio import _wrappers
from pymongo_deprio._errors import UnsupportedPyMongoError
from pymongo_deprio._inside import Parameters
from pymongo_deprio._operation import is_selecting

if TYPE_CHECKING:
    from types import ModuleType

    from pymongo_deprio._patching import Wrapper
    from pymongo_deprio._wrappers import Observer


class Seam(NamedTuple):
    """One attribute of PyMongo, and what to put on it."""

    owner: type
    name: str
    wrapper: Wrapper
    asleep: Callable[[], bool] | None = None


def find(observer: Observer) -> list[Seam]:
    """Return the seams of the installed PyMongo, in the order in which to wrap them.

    :param observer: is told of each retry, and remembers.
    :raises UnsupportedPyMongoError: if one is missing.
    """
    descriptions = importlib.import_module("pymongo.topology_description")
    apply_selector = _Place(descriptions, "TopologyDescription", "apply_selector")
    apply_selector.require("address")
    seams = [apply_selector.seam(_wrappers.Selection(apply_selector.function))]
    # Where the class is, since 4.9 another module; pymongo.MongoClient may have been replaced.
    client = importlib.import_module("pymongo.mongo_client").MongoClient
    package = client.__module__.rpartition(".")[0]
    seams += _of_client(package, "MongoClient", observer)
    if importlib.util.find_spec("pymongo.asynchronous") is not None:
        seams += _of_client("pymongo.asynchronous", "AsyncMongoClient", observer)
    return seams


class _Place:
    """A method of a class of PyMongo."""

    def __init__(self, module: ModuleType, class_name: str, name: str) -> None:
        self._label = f"{module.__name__}.{class_name}.{name}"
        self._name = name
        cls = getattr(module, class_name, None)
        owners = (base for base in getattr(cls, "__mro__", ()) if name in vars(base))
        self._owner: type | None = next(owners, None)
        self.function: Any = vars(self._owner)[name] if self._owner else None

    def __bool__(self) -> bool:
        return self._owner is not None

    def has(self, parameter: str) -> bool:
        return self.function is not None and parameter in Parameters(self.function)

    def calls(self, method: str) -> bool:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        return code is not None and method in code.co_names

    def require(self, *parameters: str) -> None:
        if not self:
            raise _unsupported(self._label)
        for parameter in parameters:
            if not self.has(parameter):
                raise _unsupported(f"the parameter {parameter!r} of {self._label}")

    def seam(self, wrapper: Wrapper, asleep: Callable[[], bool] | None = None) -> Seam:
        self.require()
        assert self._owner is not None  # noqa: S101 - for the type checker
        return Seam(self._owner, self._name, wrapper, asleep)


def _of_client(package: str, client: str, observer: Observer) -> Iterator[Seam]:
    asynchronous = client.startswith("Async")
    twin = operator.attrgetter("asynchronous" if asynchronous else "sync")
    module = importlib.import_module(f"{package}.mongo_client")
    for method in "select_server", "select_servers":
        place = _Place(module, "Topology", method)
        place.require()
        lending = _wrappers.Lending(place.function)
        # A first attempt has nothing to leave out, and does not pay for this wrapper.
        yield place.seam(twin(lending), is_selecting)

    select_server = _Place(module, client, "_select_server")
    select_server.require("session", "address")
    attempt = _wrappers.Attempt(
        select_server.function, observer, retries_on_overload=_retries_on_overload()
    )
    yield select_server.seam(twin(attempt))

    for place in _retry_loops(module, client):
        yield place.seam(twin(_wrappers.Loop(place.function, observer)))

    streams = importlib.import_module(f"{package}.change_stream")
    stream = "AsyncChangeStream" if asynchronous else "ChangeStream"
    resume = _wrappers.Resume(observer.memory)
    yield _Place(streams, stream, "_create_cursor").seam(twin(resume))


def _retry_loops(module: ModuleType, client: str) -> list[_Place]:
    """Return where the loops of reads and writes are, which moved into one method over time."""
    names = {"_retry_internal"} if _Place(module, client, "_retry_internal") else set()
    for name in "_retry_with_session", "_retryable_read":
        place = _Place(module, client, name)
        place.require()
        names.add("_retry_internal" if place.calls("_retry_internal") else name)
    return [_Place(module, client, name) for name in sorted(names)]


def _retries_on_overload() -> bool:
    options = importlib.import_module("pymongo.client_options").ClientOptions
    return hasattr(options, "enable_overload_retargeting")


def _unsupported(missing: str) -> UnsupportedPyMongoError:
    version = getattr(sys.modules.get("pymongo"), "version", "of an unknown version")
    return UnsupportedPyMongoError(
        f"PyMongo {version} cannot be patched: it has no {missing}. Nothing was changed, and "
        f"PyMongo works as it does alone. Use a version of pymongo_deprio that knows this PyMongo, "
        f"or a PyMongo from 3.9 to 4.20."
    )
