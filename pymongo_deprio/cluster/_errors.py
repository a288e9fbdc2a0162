"""What can go wrong with a cluster."""

from __future__ import annotations

from typing import Any, Mapping


class ClusterError(Exception):
    """A cluster could not be started, reached or used as asked; the base of all others here."""


class ClusterStateError(ClusterError):
    """A method was called at the wrong time, such as before the start or in a forked child."""


class MongodNotFoundError(ClusterError):
    """No mongod was found in any of the places where one is looked for."""


class MongodStartError(ClusterError):
    """A mongod was found, but it did not start or never answered."""


class DockerNotFoundError(ClusterError):
    """There is no Docker: its Python package, Docker Compose, or an engine that answers."""


class ClusterNotReadyError(ClusterError):
    """A cluster was started or found, but it does not do what a sharded cluster does."""


class ServerUnreachableError(ClusterError):
    """A server refused the connection, closed it, or did not answer in time."""


class CommandFailedError(ClusterError):
    """A server answered an administrative command with an error.

    `details` is the server's whole reply, `code` its error code (0 if it gave none).
    """

    def __init__(self, message: str, details: Mapping[str, Any]) -> None:
        """Keep the server's reply beside the message."""
        super().__init__(message)
        self.details = dict(details)
        self.code = int(details.get("code", 0))
