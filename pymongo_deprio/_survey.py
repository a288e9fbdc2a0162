"""What a client finds out of a cluster by listening to it, without a command of its own."""

from __future__ import annotations

import re
import time
import warnings
from contextlib import closing
from dataclasses import dataclass
from typing import Any, Iterator
from urllib.parse import unquote_plus

from pymongo import MongoClient
from pymongo.errors import PyMongoError

SECONDS = 5.0
"""How long servers have to answer."""
SECONDS_OF_HEARTBEATS = 1.2
"""How long round-trip times are measured after that."""
_SECONDS_BETWEEN_LOOKS = 0.05
_LETTERS_OF_A_PIECE = 4


class SurveyError(Exception):
    """The cluster cannot be asked; the message says why, without any password."""


@dataclass(frozen=True)
class Member:
    """A server as the client knows it."""

    address: str
    kind: str
    """Its type in the words of the specification of server discovery: Mongos, RSPrimary, …"""
    round_trip_ms: float | None
    outside_window: bool
    """Whether it is too far away to be selected while the fastest one is there."""
    error: str | None
    """Why it is not known."""


@dataclass(frozen=True)
class Survey:
    """A cluster as the client knows it, and the client's options that matter for retries."""

    topology: str
    """Sharded, ReplicaSetWithPrimary, Single, LoadBalanced, Unknown, …"""
    members: list[Member]
    local_threshold_ms: float
    retry_reads: bool
    retry_writes: bool
    socket_timeout_ms: float | None
    """None where an operation may wait for an answer without end."""
    warnings: list[str]
    """What PyMongo had to say of the URI."""


def take(uri: str) -> Survey:
    """Look at a cluster for some seconds.

    :raises SurveyError: if the URI cannot be used.
    """
    _check_that_hosts_come_last(uri)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            # With connections beside those of its monitors it would log in.
            client: MongoClient[Any] = MongoClient(
                uri, heartbeatFrequencyMS=500, minPoolSize=0, connect=True
            )
            with closing(client):
                description = _settled(client)
        except (PyMongoError, ValueError, TypeError, OSError) as error:
            raise SurveyError(f"the URI cannot be used: {_safe(str(error), uri)}") from None
    # Up to 3.12 they are attributes of the client itself, and `options` is a database.
    options: Any = client.options if hasattr(MongoClient, "options") else client
    window = options.local_threshold_ms
    timeout = client._topology._settings.pool_options.socket_timeout  # noqa: SLF001 - in seconds
    return Survey(
        description.topology_type_name,
        list(_members(description, window)),
        window,
        options.retry_reads,
        options.retry_writes,
        None if timeout is None else timeout * 1000,
        [
            _safe(str(warning.message), uri)
            for warning in caught
            if issubclass(warning.category, UserWarning)
        ],
    )


def _check_that_hosts_come_last(uri: str) -> None:
    """Refuse what would make a host of a piece of a password, and show it."""
    behind = re.split("[/?]", uri.partition("://")[2], maxsplit=1)[1:]
    if "@" in "".join(behind):
        raise SurveyError(
            "the URI cannot be used: there is an @ behind the hosts. In user, password and options "
            "write / as %2F, ? as %3F, @ as %40"
        )


def _settled(client: MongoClient[Any]) -> Any:
    """Wait until all servers have answered, or have had the time to, and again for heartbeats."""
    deadline = time.monotonic() + SECONDS
    _ = client.nodes  # starts to look, from 4.12 on
    while _unknown(client) and time.monotonic() < deadline:
        time.sleep(_SECONDS_BETWEEN_LOOKS)
    time.sleep(SECONDS_OF_HEARTBEATS)
    return client._topology.description  # noqa: SLF001 - public from 3.12 on


def _unknown(client: MongoClient[Any]) -> bool:
    servers = client._topology.description.server_descriptions().values()  # noqa: SLF001 - the same
    return any(server.server_type_name == "Unknown" for server in servers)


def _members(description: Any, window: float) -> Iterator[Member]:
    servers = sorted(description.server_descriptions().items())
    times = {address: server.round_trip_time for address, server in servers}
    fastest = min((seconds for seconds in times.values() if seconds is not None), default=0)
    for (host, port), server in servers:
        address = f"{host}:{port}" if port else host
        seconds = times[host, port] if server.server_type_name != "Unknown" else None
        yield Member(
            address,
            server.server_type_name,
            None if seconds is None else round(seconds * 1000, 1),
            seconds is not None and (seconds - fastest) * 1000 > window,
            None if server.server_type_name != "Unknown" else _told(server.error, address),
        )


def _told(error: Exception | None, address: str) -> str:
    if error is None:
        return f"no answer in {SECONDS:g} seconds: it hangs, or wants TLS, or a firewall is between"
    text = str(error).partition(" (configured timeouts")[0]
    start = f"{address}: "
    return text[len(start) :] if text.startswith(start) else text


def _safe(text: str, uri: str) -> str:
    """Return an error's text, unless it shows a piece of a password of the URI."""
    if any(piece in text for secret in _secrets(uri) for piece in _pieces(secret)):
        return "a host or a port is wrong, or user and password are not escaped by percent signs"
    return text


def _secrets(uri: str) -> Iterator[str]:
    # Up to the last @, as a password may have one itself; or all, where the host was forgotten.
    login = re.search(r"://[^:]*:(?:(.*)@|([^?]*))", uri, re.DOTALL)
    options = re.findall(r"(?i)(?:password|properties)=([^&]*)", uri)
    for secret in [*(login.groups("") if login else ()), *options]:
        yield from {secret, unquote_plus(secret)}


def _pieces(secret: str) -> Iterator[str]:
    length = min(len(secret), _LETTERS_OF_A_PIECE)
    if length:
        yield from (secret[at : at + length] for at in range(len(secret) - length + 1))
