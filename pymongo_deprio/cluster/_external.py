"""A cluster that exists already: it is checked and made to fail, not started or ended."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Mapping, NoReturn, Sequence
from urllib.parse import unquote_plus

import pymongo
from pymongo import MongoClient
from pymongo.common import MIN_HEARTBEAT_INTERVAL
from pymongo.errors import ConnectionFailure, OperationFailure, PyMongoError
from pymongo.uri_parser import parse_uri

from pymongo_deprio.cluster._admin import COMMAND_SECONDS, address_name, checked
from pymongo_deprio.cluster._base import Cluster, check_number
from pymongo_deprio.cluster._errors import (
    ClusterError,
    ClusterStateError,
    CommandFailedError,
    ServerUnreachableError,
)
from pymongo_deprio.cluster._real import HELLOS, RealMongos

if TYPE_CHECKING:
    from pymongo_deprio.cluster._admin import Address

_SYSTEM_DATABASES = ("admin", "config", "local")
_SRV_OPTIONS = ("srvservicename", "srvmaxhosts")
_HOUR_MS = 3_600_000
_URI = re.compile(
    r"mongodb(\+srv)?://(?P<user>([^/?@]*@)?)[^/?]*/?(?P<database>[^?]*)\??(?P<options>.*)"
)


class ExternalMongos(RealMongos):
    """One mongos of an `ExternalCluster`. Fail points are all that can be done to it."""

    def __init__(self, address: Address, uri: str) -> None:
        """Make a client for administrative commands; nothing is contacted yet."""
        super().__init__(address)
        self._uri = uri
        self._closed = False
        self._quiet_at = time.monotonic() + 2 * MIN_HEARTBEAT_INTERVAL
        self._admin: MongoClient[Any] = MongoClient(uri, **_admin_options())

    @property
    def uri(self) -> str:
        """A connection string for this mongos alone, with the credentials and options given."""
        return self._uri

    @property
    def state(self) -> str:
        """Always `running`: nobody here pauses or kills it."""
        return "running"

    def _run_command(self, command: Mapping[str, Any], database: str = "admin") -> dict[str, Any]:
        if self._closed:
            raise ClusterStateError(f"the cluster of {self!r} is used in its with block only")
        host = address_name(self._address)
        name = next(iter(command))
        try:
            # Unchecked: a reply that says so would make PyMongo take the mongos for dead.
            reply: dict[str, Any] = self._admin[database].command(dict(command), check=False)
        except ConnectionFailure as error:
            reason = str(error).partition(", Timeout: ")[0]
            raise ServerUnreachableError(f"{host} does not answer: {reason}") from error
        except OperationFailure as error:
            raise CommandFailedError(
                f"{name} on {host} failed: {error}", error.details or {"code": error.code}
            ) from error
        except PyMongoError as error:
            raise ClusterError(f"{name} on {host} failed: {error}") from error
        return checked(self._address, command, reply)

    def _configure(self, document: Mapping[str, Any]) -> dict[str, Any]:
        if not HELLOS.isdisjoint(document.get("data", {}).get("failCommands", ())):
            # PyMongo says hello twice before it is content for an hour, see `_admin_options`.
            time.sleep(max(0.0, self._quiet_at - time.monotonic()))
        return super()._configure(document)

    def _refuse(self) -> NoReturn:
        raise ClusterStateError(
            f"{self!r} was not started here, so it cannot be paused, resumed, killed or started:"
            " a LocalCluster and a DockerCluster can do that to theirs"
        )

    pause = resume = kill = start = _refuse

    def close(self) -> None:
        """Switch off what is still on, and close the connection."""
        try:
            if self._fail_point is not None:
                self._fail_point()
            if self._hello_delay_ms:
                self._delay_hello_again(0)
        finally:
            self._closed = True
            self._admin.close()


def _admin_options() -> dict[str, Any]:
    milliseconds = round(COMMAND_SECONDS * 1000)
    options = dict.fromkeys(
        ("serverSelectionTimeoutMS", "connectTimeoutMS", "socketTimeoutMS"), milliseconds
    )
    # A fail point that concerns hello must not make this client lose the mongos: it could never be
    # switched off again.
    options["heartbeatFrequencyMS"] = _HOUR_MS
    if pymongo.version_tuple >= (3, 11):
        options["directConnection"] = True  # before, one host in the URI meant that
    return {**options, "retryReads": False, "retryWrites": False}


class ExternalCluster(Cluster):
    """A cluster that somebody else started. Its mongoses take fail points, and nothing more.

    For that, each mongos must run with the parameter `enableTestCommands=1`::

        with ExternalCluster("mongodb://user:secret@one:27017,two:27017/?tls=true") as cluster:
            with cluster.mongos[0].fail_command("find", error_code=6):
                ...

    A context manager: its end switches off the fail points that are still on. Enter it once.
    """

    def __init__(self, uri: str, *, mongos: int | None = None) -> None:
        """Say which cluster; nothing is contacted yet.

        `uri` is a connection string with the addresses of mongoses, or one with `mongodb+srv://`.
        Its credentials and options count for all clients of the cluster. `mongos`: use only the
        first so many of them.
        """
        super().__init__()
        if mongos is not None:
            check_number(mongos)
        self._given_uri = uri
        self._number = mongos
        self._uri = ""
        self._mongos: list[ExternalMongos] = []

    def __repr__(self) -> str:
        """Show the servers."""
        return f"<ExternalCluster {self._mongos}>"

    def _open(self) -> None:
        parsed = _parse(self._given_uri)
        addresses = _first(parsed["nodelist"], self._number)
        self._uri = uri_with_hosts(self._given_uri, addresses, parsed["options"])
        for address in addresses:
            uri = uri_with_hosts(self._given_uri, [address], parsed["options"])
            self._mongos.append(_make_mongos(address, uri))
        database = parsed["database"]
        for mongos in self._mongos:
            mongos.check(None if database in _SYSTEM_DATABASES else database)

    def _close(self) -> None:
        errors = []
        for mongos in self._mongos:
            try:
                mongos.close()
            except ClusterError as error:  # noqa: PERF203 - the others are to be closed as well
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def mongos(self) -> Sequence[ExternalMongos]:
        """The mongoses, in the order of `uri`."""
        self._must_be_running()
        return list(self._mongos)

    @property
    def uri(self) -> str:
        """A connection string that names all mongoses, with the credentials and options given."""
        self._must_be_running()
        return self._uri


def _first(addresses: Sequence[Address], number: int | None) -> Sequence[Address]:
    if number is not None and number > len(addresses):
        raise ClusterError(
            f"mongos={number}, but the connection string has {len(addresses)} mongoses:"
            f" {', '.join(map(address_name, addresses))}"
        )
    return addresses[:number]


def _parse(uri: str) -> dict[str, Any]:
    try:
        return dict(parse_uri(uri, validate=False))
    except (PyMongoError, ValueError) as error:
        failure = _bad_uri(uri, error)
    # Out here, so that PyMongo's own error is not shown with it.
    raise failure


def _make_mongos(address: Address, uri: str) -> ExternalMongos:
    try:
        return ExternalMongos(address, uri)
    except (PyMongoError, ValueError) as error:
        failure = _bad_uri(uri, error)
    raise failure


def _bad_uri(uri: str, error: Exception) -> ClusterError:
    reason = str(error)
    if any(secret in reason for secret in _secrets(uri)):
        reason = "user and password must be escaped, and a host must follow them"
    return ClusterError(
        f"this is no connection string for PyMongo {pymongo.version}: {reason}. It looks like"
        " mongodb://user:password@host1:27017,host2:27017/?option=value"
    )


def _secrets(uri: str) -> set[str]:
    """Give what may be a password, or a piece of one that is not escaped."""
    rest = uri.partition("://")[2]
    before, at, _ = rest.rpartition("@")
    ports = [piece for piece in re.findall(":([^:/?,]+)", rest) if not piece.isdigit()]
    pieces = re.split("[:@/?]", before) if at else ports
    return {text for piece in pieces for text in (piece, unquote_plus(piece)) if text}


def uri_with_hosts(uri: str, addresses: Sequence[Address], options: Mapping[str, Any]) -> str:
    """Give a connection string for these servers, with the credentials and options of another.

    `options` are those that PyMongo found, also in the DNS.
    """
    match = _URI.fullmatch(uri)
    assert match is not None, "PyMongo has parsed it"  # noqa: S101 - for mypy
    given = [option for option in re.split("[&;]", match["options"]) if option]
    if match[1]:
        given = _without_srv(given, options)
    hosts = ",".join(map(address_name, addresses))
    query = "?" + "&".join(given) if given else ""
    return f"mongodb://{match['user']}{hosts}/{match['database']}{query}"


def _without_srv(given: Sequence[str], options: Mapping[str, Any]) -> list[str]:
    names = {option.partition("=")[0].lower() for option in given} | set(_SRV_OPTIONS)
    if names & {"tls", "ssl"}:
        names |= {"tls", "ssl"}
    found = [f"{name}={_text(options[name])}" for name in options if name.lower() not in names]
    kept = [option for option in given if option.partition("=")[0].lower() not in _SRV_OPTIONS]
    return kept + found


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
