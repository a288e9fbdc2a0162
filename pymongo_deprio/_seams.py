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
from threading import get_ident
from typing import TYPE_CHECKING, Any, Callable, Iterable, Iterator, NamedTuple, Sequence

from pymongo_deprio import _wrappers
from pymongo_deprio._attempts import Attempts
from pymongo_deprio._errors import UnsupportedPyMongoError
from pymongo_deprio._inside import Parameters, current_task
from pymongo_deprio._lending import Lending
from pymongo_deprio._loops import LoopMethods, LoopObject

if TYPE_CHECKING:
    from types import ModuleType

    from pymongo_deprio._attempts import Observer
    from pymongo_deprio._patching import Wrapper

_OF_SELECTION = ("selector", "address", "custom_selector", "deprioritized_servers")
_HELD_BY_LOOP = ("_client", "_session", "_retryable", "_address", "_server", "_last_error")
# Without these it fetches no batch ahead.
_HELD_BY_BULK = ("retrying", "current_run", "next_run")


class Seam(NamedTuple):
    """One attribute of PyMongo, and what to put on it."""

    owner: type
    name: str
    wrapper: Wrapper
    is_hot: bool
    """Whether every operation passes it."""


def find(observer: Observer) -> list[Seam]:
    """Return the seams of the installed PyMongo, in the order in which to wrap them.

    :param observer: is told of each retry, and remembers.
    :raises UnsupportedPyMongoError: if one is missing.
    """
    seams, missing = look(observer)
    if missing:
        raise _unsupported(missing)
    return seams


def look(observer: Observer) -> tuple[list[Seam], list[str]]:
    """Return the seams of the installed PyMongo, and what it lacks, in words."""
    seams = []
    missing = []
    for wanted in _wanted(observer):
        place = wanted.place
        lacking = place.lacks(wanted.parameters, wanted.attributes, wanted.known)
        missing += lacking
        if place.owner is not None and not lacking:
            wrapper = wanted.wrapper_of(place.function)
            seams.append(Seam(place.owner, place.name, wrapper, wanted.is_hot))
    return seams, missing


class Place:
    """A method of a class of PyMongo, which may be missing."""

    def __init__(self, module: str, class_name: str, name: str) -> None:
        self.name = name
        self._label = f"{module}.{class_name}.{name}"
        cls = getattr(_module(module), class_name, None)
        owners = (base for base in getattr(cls, "__mro__", ()) if name in vars(base))
        self.owner: type | None = next(owners, None)
        self.function: Any = vars(self.owner)[name] if self.owner else None

    def lacks(
        self,
        parameters: Iterable[str],
        attributes: Iterable[str] = (),
        known: tuple[str, ...] | None = None,
    ) -> list[str]:
        if self.owner is None or not hasattr(self.function, "__get__"):
            return [self._label]
        there = Parameters(self.function)
        held = self.held()
        lacking = [
            f"parameter {name!r} of"
            for name in parameters
            if there.are_all and name not in there.names
        ]
        lacking += [f"attribute {name!r} beside" for name in attributes if name not in held]
        if known is not None and there.are_all and there.names != known[: len(there.names)]:
            lacking.append(f"call with no more than ({', '.join(known)}) of")
        return [f"{what} {self._label}" for what in lacking]

    def takes(self, parameter: str) -> bool:
        return self.owner is not None and parameter in Parameters(self.function).names

    def held(self) -> set[str]:
        """Return what the instances of its class have as attributes."""
        held: set[str] = set()
        for base in getattr(self.owner, "__mro__", ()):
            held.update(vars(base).get("__slots__", ()), _names_in(vars(base).get("__init__")))
        return held


class _Wanted(NamedTuple):
    """What is to be wrapped, and with what."""

    place: Place
    wrapper_of: Callable[[Any], Wrapper]
    parameters: tuple[str, ...] = ()
    known: tuple[str, ...] | None = None
    """All parameters that it may have, in their order; None if it may have any."""
    attributes: tuple[str, ...] = ()
    """What its instances hold, where that stands for parameters."""
    is_hot: bool = True


def _wanted(observer: Observer) -> Iterator[_Wanted]:
    place = Place("pymongo.topology_description", "TopologyDescription", "apply_selector")
    yield _Wanted(place, _always(_wrappers.selection), _OF_SELECTION[:3], _OF_SELECTION)
    # Where the class is, since 4.9 another module; pymongo.MongoClient may have been replaced.
    client = getattr(_module("pymongo.mongo_client"), "MongoClient", None)
    package = getattr(client, "__module__", "pymongo.mongo_client").rpartition(".")[0]
    yield from _of_client(package, "MongoClient", observer)
    if importlib.util.find_spec("pymongo.asynchronous") is not None:
        yield from _of_client("pymongo.asynchronous", "AsyncMongoClient", observer)


def _of_client(package: str, client: str, observer: Observer) -> Iterator[_Wanted]:
    asynchronous = client.startswith("Async")
    twin = operator.attrgetter("asynchronous" if asynchronous else "sync")
    module = f"{package}.mongo_client"

    def lending(function: Any) -> Wrapper:
        return twin(Lending(function))  # type: ignore[no-any-return]

    select_servers = Place(module, "Topology", "select_servers")
    yield _Wanted(select_servers, lending)
    if not select_servers.takes("deprioritized_servers"):  # else it is given what this one is
        yield _Wanted(Place(module, "Topology", "select_server"), lending)
    if hasattr(_module(module), "_ClientConnectionRetryable") or asynchronous:
        yield from _loop_object(module, observer, asynchronous=asynchronous)
    else:
        yield from _loop_methods(module, client, observer)
    resume = twin(_wrappers.Resume(observer.memory))
    stream = "AsyncChangeStream" if asynchronous else "ChangeStream"
    place = Place(f"{package}.change_stream", stream, "_create_cursor")
    yield _Wanted(place, _always(resume), is_hot=False)
    bulk = bulk_that_fetches_ahead(package, "_AsyncBulk" if asynchronous else "_Bulk")
    if bulk is not None:
        yield _Wanted(bulk, _always(_wrappers.bulk_attempt), ("generator",), is_hot=False)


def _loop_object(module: str, observer: Observer, *, asynchronous: bool) -> Iterator[_Wanted]:
    """Return where the loop is from 4.6 on: in an object that holds what was an argument."""
    attempts = Attempts(observer, retries_on_overload=_retries_on_overload())
    loop = LoopObject(attempts, observer.memory, current_task if asynchronous else get_ident)
    run, get_server = loop.run, loop.get_server
    if asynchronous:
        run, get_server = loop.async_run, loop.async_get_server
    place = Place(module, "_ClientConnectionRetryable", "_get_server")
    yield _Wanted(place, _always(get_server), known=(), attributes=_HELD_BY_LOOP)
    place = Place(module, "_ClientConnectionRetryable", "run")
    yield _Wanted(place, _always(run), known=(), attributes=("_client",))


def _loop_methods(module: str, client: str, observer: Observer) -> Iterator[_Wanted]:
    """Return where the loops are up to 4.5, and the selections of their attempts."""
    loops = LoopMethods(Attempts(observer), observer.memory)
    # The loop of writes moved from the one to the other in 3.11.
    moved = Place(module, client, "_retry_internal").owner is not None
    write = "_retry_internal" if moved else "_retry_with_session"
    for name, wrapper, parameters in (
        ("_select_server", loops.select_server, ("server_selector", "session", "address")),
        (write, loops.write, ("retryable", "func", "session", "bulk")),
        ("_retryable_read", loops.read, ("func", "read_pref", "session", "address", "retryable")),
    ):
        yield _Wanted(Place(module, client, name), _always(wrapper), parameters)


def bulk_that_fetches_ahead(package: str, class_name: str) -> Place | None:
    """Return where a bulk write is done, unless no batch can be lost there: so up to 4.0."""
    place = Place(f"{package}.bulk", class_name, "_execute_command")
    return place if place.held().issuperset(_HELD_BY_BULK) else None


def _always(wrapper: Wrapper) -> Callable[[Any], Wrapper]:
    """Return what gives the same wrapper, whatever the original is."""
    return lambda _: wrapper


def _names_in(function: Any) -> Sequence[str]:
    """Return the names that a function uses; none if it is not written in Python."""
    # On PyPy also such a function has a code, which has no names.
    original = inspect.unwrap(function)
    return getattr(getattr(original, "__code__", None), "co_names", ())


def _module(name: str) -> ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _retries_on_overload() -> bool:
    options = getattr(_module("pymongo.client_options"), "ClientOptions", None)
    return hasattr(options, "enable_overload_retargeting")


def _unsupported(missing: list[str]) -> UnsupportedPyMongoError:
    version = getattr(sys.modules.get("pymongo"), "version", "of an unknown version")
    return UnsupportedPyMongoError(
        f"PyMongo {version} cannot be patched: it has no {', no '.join(missing)}. Nothing was "
        f"changed, and PyMongo works as it does alone. Use a version of pymongo_deprio that knows "
        f"this PyMongo, or a PyMongo from 3.9 to 4.20."
    )
