"""The clusters of the pytest plugin: which kind, started when asked for, well after each test."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

import pytest

from pymongo_deprio.cluster import (
    Cluster,
    ClusterError,
    LocalCluster,
    MongodNotFoundError,
)
from pymongo_deprio.cluster._mongod import MONGOD_VARIABLE

if TYPE_CHECKING:
    from types import TracebackType

    from pymongo_deprio._plugin_options import Settings
    from pymongo_deprio.cluster import Mongos

_NO_MONGOD = (
    "no mongod was found: pip install 'pymongo_deprio[demo]' (x86_64 Linux), or give the path of"
    f" one as --deprio-mongod or in {MONGOD_VARIABLE}"
)


class _Failure(NamedTuple):
    """Why a cluster cannot be had."""

    reason: str
    is_broken: bool
    """It is there and does not work; otherwise it is not there."""


class Clusters:
    """The clusters of a run, by their number of mongoses.

    Each is started when it is asked for, and only once, even if that fails. A context manager:
    its end stops them all.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._outcomes: dict[int, Cluster | _Failure] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Clusters:  # noqa: PYI034 - Self needs Python 3.11
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stack.close()

    def get(self, mongos: int) -> Cluster:
        """Return the one with so many mongoses, or skip or fail the test that asks for it."""
        if mongos not in self._outcomes:
            self._outcomes[mongos] = self._start(mongos)
        outcome = self._outcomes[mongos]
        if not isinstance(outcome, _Failure):
            return outcome
        if outcome.is_broken or self._settings.require:
            pytest.fail(outcome.reason, pytrace=False)
        pytest.skip(outcome.reason)

    def _start(self, mongos: int) -> Cluster | _Failure:
        try:
            return self._stack.enter_context(self._choose(mongos))
        except MongodNotFoundError as error:
            if self._names_mongod():
                return _Failure(str(error), is_broken=True)
            return _Failure(_NO_MONGOD, is_broken=False)
        except ClusterError as error:
            return _Failure(str(error), is_broken=True)

    def _choose(self, mongos: int) -> Cluster:
        return LocalCluster(mongos, mongod=self._settings.mongod or None)

    def _names_mongod(self) -> bool:
        return bool(self._settings.mongod or os.environ.get(MONGOD_VARIABLE))


def heal(cluster: Cluster) -> None:
    """Make every mongos of a cluster as it was at first: it runs, and its fail point is off.

    Raises ClusterError if that does not work for one of them; the others are healed all the same.
    """
    with ExitStack() as stack:
        for mongos in cluster.mongos:
            stack.callback(_heal, mongos)


def _heal(mongos: Mongos) -> None:
    mongos.start()
    mongos.resume()
    mongos.fail_command("find", mode="off")
