"""The seams are found by looking at the installed PyMongo."""

from __future__ import annotations

import functools
import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Iterator
from unittest.mock import Mock

import pymongo
import pytest
from pymongo.change_stream import ChangeStream
from pymongo.topology_description import TopologyDescription
from support import HAS_ASYNC, VERSION, closure, partly

import pymongo_deprio
from pymongo_deprio import UnsupportedPyMongoError, UnsupportedPyMongoWarning, _activation, _seams

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster


def seams() -> set[tuple[type, str]]:
    """Return the places of PyMongo that would be patched."""
    return {(seam.owner, seam.name) for seam in _seams.find(_activation._state)}


SEAMS = seams()
# Both, where somebody hides that the one takes a list, and the other one hands it on.
TAKING_A_LIST = {(owner, "select_server") for owner, name in SEAMS if name == "select_servers"}


def test_the_seams_of_this_pymongo() -> None:
    """The retry loops, the attempts and the selections of this PyMongo are all found."""
    if VERSION < (3, 11):
        loops = {"_retry_with_session", "_retryable_read", "_select_server"}
    elif VERSION < (4, 6):
        loops = {"_retry_internal", "_retryable_read", "_select_server"}
    else:
        loops = {"run", "_get_server"}
    names = {"apply_selector", "select_servers", "_create_cursor"}
    if VERSION < (4, 16):
        names.add("select_server")
    if VERSION >= (4, 1):
        names.add("_execute_command")
    assert {name for _, name in SEAMS} == names | loops
    topologies = [owner for owner, name in SEAMS if name == "select_servers"]
    assert len(topologies) == (2 if HAS_ASYNC else 1)
    for name in loops:
        assert sum(name == found for _, found in SEAMS) == len(topologies)


# Without a bulk write as we know it there is nothing to repair. Before the loop of writes had a
# method of its own, it was in another.
INDISPENSABLE = {seam for seam in SEAMS if seam[1] not in {"_retry_internal", "_execute_command"}}


@pytest.fixture(
    params=sorted(INDISPENSABLE, key=str), ids=lambda seam: ".".join((seam[0].__module__, seam[1]))
)
def missing(request: pytest.FixtureRequest) -> Iterator[str]:
    """Take one seam away for the length of a test."""
    owner, name = request.param
    original = vars(owner)[name]
    delattr(owner, name)
    yield name
    setattr(owner, name, original)


def test_a_missing_seam_warns_and_changes_nothing(missing: str) -> None:
    """One warning names PyMongo's version and the seam; nothing is patched."""
    before = {place: vars(place[0]).get(place[1]) for place in SEAMS}
    with pytest.warns(UnsupportedPyMongoWarning) as warned:
        handle = pymongo_deprio.enable()
    with handle:
        assert not pymongo_deprio.is_enabled()
        assert {place: vars(place[0]).get(place[1]) for place in SEAMS} == before
    assert len(warned) == 1
    assert warned[0].filename == __file__
    assert pymongo.version in str(warned[0].message)
    assert f".{missing}" in str(warned[0].message)


@pytest.mark.parametrize(
    "module", ["topology_description", "mongo_client", "change_stream", "synchronous.mongo_client"]
)
def test_a_missing_module_warns_and_changes_nothing(
    module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A module that a later PyMongo no longer has is as its seams missing."""
    if module.startswith("synchronous") and not HAS_ASYNC:
        pytest.skip("there is one package of modules only")
    monkeypatch.setitem(sys.modules, f"pymongo.{module}", None)
    for name in {"change_stream"} & {module}:
        monkeypatch.setitem(sys.modules, f"pymongo.synchronous.{name}", None)
    with pytest.warns(UnsupportedPyMongoWarning, match=module.rpartition(".")[2]):
        pymongo_deprio.enable()
    assert not pymongo_deprio.is_enabled()


def test_all_that_is_missing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """One message names everything that this PyMongo lacks."""
    for owner, name in SEAMS:
        monkeypatch.delattr(owner, name)
    with pytest.raises(UnsupportedPyMongoError) as caught:
        pymongo_deprio.enable(strict=True)
    for _, name in INDISPENSABLE:
        assert f".{name}" in str(caught.value)


def test_a_missing_seam_is_an_error_if_strict(missing: str) -> None:
    """The error names PyMongo's version and the seam, says what to do; nothing is patched."""
    with pytest.raises(UnsupportedPyMongoError) as caught:
        pymongo_deprio.enable(strict=True)
    assert not pymongo_deprio.is_enabled()
    assert pymongo.version in str(caught.value)
    assert f".{missing}" in str(caught.value)


@pytest.mark.filterwarnings("ignore::pymongo_deprio.UnsupportedPyMongoWarning")
def test_the_application_works_without_a_seam(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An application on a PyMongo without a seam reads and writes as it would without us."""
    owner = next(owner for owner, name in SEAMS if name == "select_servers")
    monkeypatch.setattr(owner, "renamed", vars(owner)["select_servers"], raising=False)
    monkeypatch.delattr(owner, "select_servers")
    monkeypatch.setattr(owner, "__getattr__", lambda self, name: self.renamed, raising=False)
    pymongo_deprio.enable()
    with cluster.client() as client:
        client.test.seams.insert_one({"_id": 1})
        assert client.test.seams.find_one() == {"_id": 1}
        client.test.seams.drop()


@pytest.mark.skipif(VERSION < (4, 1), reason="nothing in a bulk write is patched")
def test_another_bulk_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that we do not know is left alone, and the rest is patched."""
    others = {seam for seam in SEAMS if seam[1] == "_execute_command"}
    for owner, name in others:
        monkeypatch.delattr(owner, name)
    assert seams() == SEAMS - others


def test_below_a_closure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's wrapper that hides what it wraps hides no place from us, whichever it is on."""
    for owner, name in SEAMS:
        monkeypatch.setattr(owner, name, closure(vars(owner)[name]))
    assert seams() == SEAMS | TAKING_A_LIST


def test_what_is_no_method_is_a_missing_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test of the application has put a mock, that one stays as it is."""
    stub = Mock()
    monkeypatch.setattr(ChangeStream, "_create_cursor", stub)
    with pytest.raises(UnsupportedPyMongoError, match="_create_cursor"):
        pymongo_deprio.enable(strict=True)
    assert ChangeStream._create_cursor is stub


def lose(what: str, owner: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the object that runs the loop be another than we know."""
    if what == "run":
        monkeypatch.delattr(owner, "run")
    elif what == "arguments":
        monkeypatch.setattr(owner, "run", lambda self, more=None: None)
    else:
        held = _seams.Place.held
        monkeypatch.setattr(_seams.Place, "held", lambda self: held(self) - {what})


def loop_object(client: str) -> Any:
    """Return the class that runs the loop of a client."""
    module = vars(pymongo)[client].__module__
    return vars(sys.modules[module])["_ClientConnectionRetryable"]


@pytest.mark.skipif(VERSION < (4, 6), reason="the loop is a method of the client only")
@pytest.mark.parametrize("client", ["MongoClient", *(["AsyncMongoClient"] if HAS_ASYNC else [])])
@pytest.mark.parametrize("lost", ["run", "arguments", "_retryable", "_last_error"])
def test_a_loop_that_is_not_known(lost: str, client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the object that runs the loop is another, PyMongo is left alone."""
    owner = loop_object(client)
    lose(lost, owner, monkeypatch)
    with pytest.raises(UnsupportedPyMongoError, match=f"{owner.__module__}.{owner.__name__}"):
        pymongo_deprio.enable(strict=True)


def test_a_changed_signature_is_a_missing_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a parameter that we rely on, PyMongo is left alone as well."""
    monkeypatch.setattr(TopologyDescription, "apply_selector", lambda self, selector: None)
    with pytest.raises(
        UnsupportedPyMongoError, match=r"no parameter 'address' of .*apply_selector"
    ):
        pymongo_deprio.enable(strict=True)


def test_a_parameter_that_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where selection takes more than we would pass on, PyMongo is left alone as well."""

    def apply_selector(
        self: Any, selector: Any, address: Any, custom_selector: Any, more: Any
    ) -> None: ...

    monkeypatch.setattr(TopologyDescription, "apply_selector", apply_selector)
    with pytest.raises(UnsupportedPyMongoError, match=r"no call with no more than \(selector"):
        pymongo_deprio.enable(strict=True)


def test_below_a_wrapper_that_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's wrapper that names some parameters, and passes on the others, hides no place."""
    for owner, name in SEAMS:
        monkeypatch.setattr(owner, name, partly(vars(owner)[name]))
    assert seams() == SEAMS | TAKING_A_LIST


@pytest.mark.skipif(VERSION < (4, 6), reason="the loop is a method of the client only")
def test_a_loop_whose_making_is_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody's wrapper on the constructor does not hide what the object holds."""
    owner = loop_object("MongoClient")
    monkeypatch.setattr(owner, "__init__", functools.wraps(owner.__init__)(closure(owner.__init__)))
    assert seams() == SEAMS


def test_functions_that_use_no_names() -> None:
    """What is not written in Python uses none: on PyPy it has a code all the same."""
    of_pypy = SimpleNamespace(__code__=object())
    assert [*_seams._names_in(of_pypy), *_seams._names_in(len), *_seams._names_in(None)] == []
