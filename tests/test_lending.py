"""Both selections of a topology pass on all that they are given, and take a list besides."""

from __future__ import annotations

import functools
import inspect
from typing import Any, Callable

import pytest
from pymongo.server_selectors import any_server_selector
from support import closure, make_topology, select_arguments

import pymongo_deprio
from pymongo_deprio import _activation, _seams

A, B = ("a", 1), ("b", 2)
TWO_MONGOSES = {A: "mongos", B: "mongos"}
TOPOLOGY = type(make_topology(TWO_MONGOSES))
METHODS = ["select_server", "select_servers"]
WRAPPED = [seam.name for seam in _seams.find(_activation._state) if seam.owner is TOPOLOGY]
# Where chance is in PyMongo, this often: wrong with a probability of 1/2 each, 1e-9 in all.
OFTEN = 30


@pytest.fixture
def received(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], list[dict[str, Any]]]:
    """Return what lists the arguments that a method of PyMongo's topology receives from now on."""

    def record(name: str) -> list[dict[str, Any]]:
        original = getattr(TOPOLOGY, name)
        calls: list[dict[str, Any]] = []

        @functools.wraps(original)
        def recording(*args: Any, **kwargs: Any) -> None:
            calls.append(inspect.signature(original).bind(*args, **kwargs).arguments)

        monkeypatch.setattr(TOPOLOGY, name, recording)
        return calls

    return record


@pytest.mark.parametrize("name", WRAPPED)
def test_everything_is_passed_on(
    received: Callable[[str], list[dict[str, Any]]], name: str
) -> None:
    """Each parameter of the original, by name and by place, and a list does not get lost."""
    calls = received(name)
    topology = make_topology(TWO_MONGOSES)
    parameters = list(inspect.signature(getattr(TOPOLOGY, name)).parameters)[1:]
    values: dict[str, Any] = {name: name for name in parameters}
    if "deprioritized_servers" in values:
        values["deprioritized_servers"] = None
    wanted = {key: value for key, value in values.items() if value}
    with pymongo_deprio.enable(strict=True):
        select = getattr(topology, name)
        select(*values.values())
        select(**values)
        select(**{**values, "deprioritized_servers": None})
        select(**{**values, "deprioritized_servers": [A]})
    assert len(calls) == 4
    for call in calls:
        assert {key: value for key, value in call.items() if value and key != "self"} == wanted


def hiding_some(wrapped: Any) -> Any:
    """Return a wrapper that tells of some, which were all up to PyMongo 4.6."""

    def on_top(
        self: Any,
        selector: Any,
        server_selection_timeout: Any = None,
        address: Any = None,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        return wrapped(self, selector, server_selection_timeout, address, *args, **kwargs)

    return on_top


@pytest.mark.parametrize("hide", [closure, hiding_some])
@pytest.mark.parametrize("name", METHODS)
def test_below_somebody_who_hides_parameters(
    monkeypatch: pytest.MonkeyPatch, name: str, hide: Callable[[Any], Any]
) -> None:
    """A list that is given by name is honoured all the same."""
    monkeypatch.setattr(TOPOLOGY, name, hide(getattr(TOPOLOGY, name)))
    topology = make_topology(TWO_MONGOSES)
    with pymongo_deprio.enable(strict=True):
        select = getattr(topology, name)
        for _ in range(OFTEN):
            found = select(any_server_selector, *select_arguments(), deprioritized_servers=[A])
            servers = found if isinstance(found, list) else [found]
            assert [server.description.address for server in servers] == [B]
        assert select(any_server_selector, *select_arguments(), deprioritized_servers=None)
        assert topology.select_server(any_server_selector, *select_arguments())  # calls the other


@pytest.mark.parametrize("name", METHODS)
def test_a_wrapper_that_is_left(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One that is off, below somebody's, takes a list only where PyMongo does."""
    takes = "deprioritized_servers" in inspect.signature(getattr(TOPOLOGY, name)).parameters
    topology = make_topology(TWO_MONGOSES)
    monkeypatch.setattr(TOPOLOGY, name, getattr(TOPOLOGY, name))  # what it goes back to
    with pymongo_deprio.enable(strict=True):
        monkeypatch.setattr(TOPOLOGY, name, closure(vars(TOPOLOGY)[name]))
    select = getattr(topology, name)
    assert select(any_server_selector, *select_arguments())
    if takes:
        # From 4.16 on that is done in select_servers, but not for addresses.
        listed = [topology.get_server_by_address(A)]
        for _ in range(OFTEN):
            found = select(any_server_selector, *select_arguments(), deprioritized_servers=listed)
            servers = found if isinstance(found, list) else [found]
            assert [server.description.address for server in servers] == [B]
        return
    with pytest.raises(TypeError, match="deprioritized_servers"):
        select(any_server_selector, *select_arguments(), deprioritized_servers=[A])
