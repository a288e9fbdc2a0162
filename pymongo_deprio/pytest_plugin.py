"""The pytest plugin: a sharded cluster whose mongoses can be made to fail, and the patch.

pytest finds it by itself. It imports PyMongo only when a test asks for one of its fixtures, or for
the run with ``--deprio``.
"""

from __future__ import annotations

import uuid
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any, Iterator

import pytest

import pymongo_deprio
from pymongo_deprio import _activation
from pymongo_deprio import _plugin_options as options

if TYPE_CHECKING:
    from pymongo import MongoClient
    from pymongo.database import Database

    from pymongo_deprio import Activation, Cooldown, Event, Retry
    from pymongo_deprio._plugin_clusters import Clusters
    from pymongo_deprio.cluster import Cluster

__all__ = ["Deprio"]

_SETTINGS = pytest.StashKey[options.Settings]()


class Deprio:
    """What happened while the fixture ``deprio`` had the patch on, oldest first."""

    def __init__(self, events: list[Event]) -> None:
        """Show what this list holds, which is filled by others."""
        self._events = events

    @property
    def events(self) -> list[Event]:
        """All events."""
        return list(self._events)

    @property
    def retries(self) -> list[Retry]:
        """Each attempt after a failed one."""
        return [event for event in self.events if isinstance(event, pymongo_deprio.Retry)]

    @property
    def redirected(self) -> list[Retry]:
        """The retries that went to another mongos since one was left out."""
        return [retry for retry in self.retries if retry.redirected]


class WholeRun:
    """Has the patch on in every test, also after one that called ``disable()``."""

    def __init__(self, cooldown: Cooldown | None) -> None:
        self._cooldown = cooldown
        self._activation: Activation | None = None

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Enable before any test module is imported."""
        try:
            self._enable()
        except pymongo_deprio.UnsupportedPyMongoError as error:
            raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Enable again."""
        if not pymongo_deprio.is_enabled():
            self._enable()

    def pytest_unconfigure(self) -> None:
        """Restore what was before the run."""
        if self._activation is not None:
            self._activation.close()

    def _enable(self) -> None:
        self._activation = pymongo_deprio.enable(strict=True, cooldown=self._cooldown)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options."""
    options.add_to(parser)


def pytest_configure(config: pytest.Config) -> None:
    """Read the options."""
    config.addinivalue_line("markers", options.MARKER)
    settings = config.stash[_SETTINGS] = options.read(config)
    if settings.whole_run:
        config.pluginmanager.register(WholeRun(settings.cooldown), "pymongo_deprio whole run")


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say that the patch is on."""
    if config.stash[_SETTINGS].whole_run:
        return "pymongo_deprio: enabled for the whole run"
    return None


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Hand the number of mongoses that a marker asks for to the fixture deprio_cluster."""
    with suppress(ValueError):  # reported by the test's setup
        mongos = options.marked(metafunc.definition).get("mongos")
        if mongos is not None and "deprio_cluster" in metafunc.fixturenames:
            metafunc.parametrize(
                "deprio_cluster", [mongos], indirect=True, ids=[f"mongos={mongos}"]
            )


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Make the mongoses well again after the test, before anything else is cleaned up."""
    _check_marker(item)
    outcome: Any = yield
    cluster = getattr(item, "funcargs", {}).get("deprio_cluster")
    if cluster is None:
        return
    if outcome.excinfo is None:
        item.addfinalizer(lambda: _heal(cluster))
    else:
        with suppress(pytest.fail.Exception):  # what failed first is reported
            _heal(cluster)


@pytest.fixture(scope="session")
def _deprio_clusters(pytestconfig: pytest.Config) -> Iterator[Clusters]:
    from pymongo_deprio._plugin_clusters import Clusters  # noqa: PLC0415 - it imports PyMongo

    with Clusters(pytestconfig.stash[_SETTINGS]) as clusters:
        yield clusters


@pytest.fixture(scope="session")
def deprio_cluster(request: pytest.FixtureRequest, _deprio_clusters: Clusters) -> Cluster:
    """Give a sharded cluster whose mongoses can be made to fail; after each test they are well."""
    mongos: int = getattr(request, "param", request.config.stash[_SETTINGS].mongos)
    return _deprio_clusters.get(mongos)


@pytest.fixture
def deprio_client(
    request: pytest.FixtureRequest, deprio_cluster: Cluster
) -> Iterator[MongoClient[Any]]:
    """Give a client that knows all mongoses of the cluster, and takes far ones as near ones."""
    _check_number(request.node, len(deprio_cluster.mongos))
    with closing(deprio_cluster.client(localThresholdMS=10_000)) as client:
        yield client
        _heal_if_asked_late(request, deprio_cluster)


@pytest.fixture
def deprio_database(
    request: pytest.FixtureRequest, deprio_cluster: Cluster, deprio_client: MongoClient[Any]
) -> Iterator[Database[Any]]:
    """Give an empty database of the test's own, by deprio_client; it is dropped afterwards."""
    name = f"deprio_{uuid.uuid4().hex}"
    yield deprio_client[name]
    _heal_if_asked_late(request, deprio_cluster)
    with closing(deprio_cluster.mongos[0].client()) as client:  # the test may have closed its own
        client.drop_database(name)


@pytest.fixture
def deprio(request: pytest.FixtureRequest) -> Iterator[Deprio]:
    """Enable pymongo_deprio for one test, and record what happens."""
    settings = request.config.stash[_SETTINGS]
    cooldown = options.marked(request.node).get("cooldown", settings.cooldown)
    events: list[Event] = []
    with _activation.preserved(), pymongo_deprio.enable(
        on_event=events.append, strict=True, cooldown=cooldown
    ):
        yield Deprio(events)


def _check_marker(item: pytest.Item) -> None:
    try:
        options.marked(item)
    except ValueError as error:
        pytest.fail(f"{item.nodeid}: {error}", pytrace=False)
    if "deprio_cluster" in getattr(item, "fixturenames", ()):
        parameters = getattr(getattr(item, "callspec", None), "params", {})
        _check_number(item, parameters.get("deprio_cluster", item.config.stash[_SETTINGS].mongos))


def _check_number(item: pytest.Item, mongos: int) -> None:
    wanted = options.marked(item).get("mongos", mongos)
    if mongos != wanted:
        pytest.fail(
            f"{item.nodeid}: @pytest.mark.deprio(mongos={wanted}) cannot be honoured, the cluster"
            f" has {mongos}: it counts for test functions and classes that name a deprio fixture"
            " as their argument or by usefixtures. In a unittest.TestCase, and where a fixture is"
            " got by getfixturevalue, --deprio-mongos does",
            pytrace=False,
        )


def _heal_if_asked_late(request: pytest.FixtureRequest, cluster: Cluster) -> None:
    """Heal after a test that got its fixtures by getfixturevalue: its setup did not know."""
    if "deprio_cluster" not in request.node.fixturenames:
        _heal(cluster)


def _heal(cluster: Cluster) -> None:
    from pymongo_deprio import _plugin_clusters  # noqa: PLC0415 - it imports PyMongo
    from pymongo_deprio.cluster import ClusterError  # noqa: PLC0415 - the same

    try:
        _plugin_clusters.heal(cluster)
    except ClusterError as error:
        pytest.fail(f"the mongoses could not be restored after the test: {error}", pytrace=False)
