"""A cluster of the official image in Docker."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Callable, Iterator, Mapping, Sequence

from pymongo_deprio.cluster._admin import run_command
from pymongo_deprio.cluster._base import CONNECT_SECONDS, Cluster, OwnMongos, check_number
from pymongo_deprio.cluster._compose import DEFAULT_HOST, HOST, Done, Stack, free_ports
from pymongo_deprio.cluster._errors import (
    ClusterError,
    ClusterNotReadyError,
    DockerNotFoundError,
    ServerUnreachableError,
)
from pymongo_deprio.cluster._real import RealMongos

if TYPE_CHECKING:
    from docker import DockerClient
    from docker.models.containers import Container

IMAGE_VARIABLE = "MONGO_IMAGE"
DEFAULT_IMAGE = "mongo:8.0"

_MOST_MONGOSES = 3
_PROJECT_LABEL = "com.docker.compose.project"
_SERVICE_LABEL = "com.docker.compose.service"
# A service comes after those that it waits for.
_SERVICES = ("config", "shard", "mongos0", "init", "mongos1", "mongos2")
_TRIES = 5
_TAKEN = ("port is already allocated", "address already in use", "ports are not available")
_PULL_SECONDS = 3600.0
_ENGINE_SECONDS = 60
_SECONDS_BETWEEN_LOOKS = 0.1
_LINES = 15


def find_docker(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Find Docker Compose and an engine that answers; give the command of Docker Compose.

    Raises `DockerNotFoundError`, which says what is missing.
    """
    compose = _find_compose(environment)
    _connect_engine(environment).close()
    return compose


def _find_compose(environment: Mapping[str, str]) -> list[str]:
    path = environment.get("PATH")
    docker = shutil.which("docker", path=path)
    if docker is not None and _works([docker, "compose", "version"]):
        return [docker, "compose"]
    compose = shutil.which("docker-compose", path=path)
    if compose is not None:
        return [compose]
    raise DockerNotFoundError(
        "neither 'docker compose' nor 'docker-compose' was found on the PATH: install Docker, and"
        " Docker Compose if it is not part of it"
    )


def _works(command: Sequence[str]) -> bool:
    done = subprocess.run(  # noqa: S603 - docker, and constant arguments
        command, stdin=subprocess.DEVNULL, capture_output=True, check=False
    )
    return done.returncode == 0


def _connect_engine(environment: Mapping[str, str] = os.environ) -> DockerClient:
    try:
        import docker  # noqa: PLC0415 - an extra, and slow: only for those who use it
    except ImportError as error:
        raise DockerNotFoundError(
            "Docker's Python package is not installed: pip install 'pymongo_deprio[docker]'"
        ) from error
    try:
        _try_socket(environment.get("DOCKER_HOST") or DEFAULT_HOST)
        return docker.from_env(environment=dict(environment), timeout=_ENGINE_SECONDS)
    except (docker.errors.DockerException, OSError) as error:
        raise DockerNotFoundError(
            "no Docker engine answers: start it, or give its address in DOCKER_HOST (it is"
            f" {environment.get('DOCKER_HOST')!r}). {error}"
        ) from error


def _try_socket(host: str) -> None:
    # Docker's package would leave a socket open that cannot be connected, and Python warn of it.
    scheme, _, path = host.partition("://")
    if scheme == "unix" and hasattr(socket, "AF_UNIX"):
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)


@contextmanager
def _errors_of_docker() -> Iterator[None]:
    import docker  # noqa: PLC0415 - as above

    try:
        yield
    except (docker.errors.DockerException, OSError) as error:
        raise ClusterError(f"Docker failed: {error}") from error


class DockerMongos(RealMongos, OwnMongos):
    """One mongos of a `DockerCluster`, in a container of its own."""

    def __init__(self, container: Container, port: int, is_up: Callable[[], bool]) -> None:
        """Take over a container that is running; `DockerCluster` does this."""
        super().__init__((HOST, port))
        self._container = container
        self._is_up = is_up

    @property
    def state(self) -> str:
        """Either `running`, `paused` or `killed`."""
        if not self._is_up():
            return "killed"
        with _errors_of_docker():
            self._container.reload()
        status = self._container.status
        return status if status in ("running", "paused") else "killed"

    def _stop_process(self) -> None:
        with _errors_of_docker():
            self._container.pause()

    def _continue_process(self) -> None:
        with _errors_of_docker():
            self._container.unpause()

    def _kill_process(self) -> None:
        with _errors_of_docker():
            self._container.kill()
            self._container.wait(timeout=CONNECT_SECONDS)

    def _start_process(self) -> None:
        with _errors_of_docker():
            self._container.start()
        self._wait_until_ready()
        if self._hello_delay_ms:
            self._send_hello_delay(self._hello_delay_ms)

    def _start_if_possible(self) -> None:
        if self._is_up():
            self.start()

    def _wait_until_ready(self) -> None:
        deadline = time.monotonic() + CONNECT_SECONDS
        while True:
            try:
                run_command(self._address, {"ping": 1})
            except ServerUnreachableError:  # noqa: PERF203 - waiting is what the loop is for
                if time.monotonic() > deadline:
                    raise
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            else:
                return


class DockerCluster(Cluster):
    """A real sharded cluster in Docker: config servers, a shard, and one to three mongoses.

    For example, with a mongos that hangs::

        with DockerCluster(mongos=2) as cluster, cluster.client() as client:
            with cluster.mongos[0].pause():
                client.test.things.find_one()

    A context manager: the containers run from its beginning to its end, under a project name of
    their own, on free ports of the loopback address. They leave nothing behind, even if the program
    is killed. It needs the extra `docker` of this package, Docker and Docker Compose. Enter it
    once.
    """

    def __init__(
        self, mongos: int = 2, *, image: str | None = None, timeout: float = 120.0
    ) -> None:
        """Say what to start; nothing is started yet.

        `mongos` is their number, 1 to 3. `image` is that of the servers, MongoDB 6.0 or newer;
        otherwise it is taken from the environment's `MONGO_IMAGE`, or is `mongo:8.0`. It is pulled
        if it is not there. `timeout` is how many seconds the cluster may take after that until it
        is ready.
        """
        super().__init__()
        check_number(mongos)
        if mongos > _MOST_MONGOSES:
            raise ValueError(f"mongos must be at most {_MOST_MONGOSES}, not {mongos!r}")
        self._number = mongos
        self._image = image or os.environ.get(IMAGE_VARIABLE) or DEFAULT_IMAGE
        self._timeout = timeout
        self._deadline = 0.0
        self._engine: DockerClient | None = None
        self._stack: Stack | None = None
        self._is_up = False
        self._mongos: list[DockerMongos] = []

    def __repr__(self) -> str:
        """Show the servers."""
        return f"<DockerCluster {self._mongos}>"

    @property
    def mongos(self) -> Sequence[DockerMongos]:
        """The mongoses, in the order of `uri`."""
        self._must_be_running()
        return list(self._mongos)

    def _open(self) -> None:
        compose = find_docker()
        self._engine = _connect_engine()
        self._stack = Stack(compose, self._image)
        self._pull_if_missing(self._engine, self._stack)
        self._deadline = time.monotonic() + self._timeout
        self._is_up = True
        # In two steps, as Docker Compose waits for the second one in silence, whatever happens.
        self._start(self._stack, ["mongos0"], "init")
        others = [f"mongos{number}" for number in range(1, self._number)]
        if others:
            self._start(self._stack, others, "--no-deps")

    def _start(self, stack: Stack, services: Sequence[str], *arguments: str) -> None:
        ports = self._up(stack, services, arguments)
        containers = self._containers()
        for service, port in zip(services, ports):
            mongos = DockerMongos(containers[service], port, lambda: self._is_up)
            self._mongos.append(mongos)
            self._wait_until_ready(mongos)

    def _pull_if_missing(self, engine: DockerClient, stack: Stack) -> None:
        import docker  # noqa: PLC0415 - as above

        try:
            with _errors_of_docker():
                engine.images.get(self._image)
        except ClusterError as error:
            if not isinstance(error.__cause__, docker.errors.ImageNotFound):
                raise
            done = stack.run("pull", "mongos0", seconds=_PULL_SECONDS)
            if done.code != 0:
                raise ClusterNotReadyError(
                    f"the image {self._image!r} is not there and could not be pulled."
                    f"\n{_last_lines('Docker Compose', done.output)}"
                ) from error

    def _up(self, stack: Stack, services: Sequence[str], arguments: Sequence[str]) -> Sequence[int]:
        for _ in range(_TRIES):
            ports = free_ports(len(services))
            done = stack.run(
                *("up", "--detach", *arguments, *services),
                seconds=max(0.0, self._deadline - time.monotonic()),
                environment={
                    f"{service.upper()}_PORT": str(port) for service, port in zip(services, ports)
                },
            )
            if done.code == 0:
                return ports
            if not any(words in done.output for words in _TAKEN):
                break
        raise self._not_up(done)

    def _not_up(self, done: Done) -> ClusterNotReadyError:
        if done.code is None:
            reason = f"it was not up after {self._timeout:g} seconds"
        else:
            reason = f"Docker Compose ended with exit code {done.code}"
        return self._failure(f"{reason}.\n{_last_lines('Docker Compose', done.output)}")

    def _wait_until_ready(self, mongos: DockerMongos) -> None:
        while True:
            try:
                mongos.check()
            except ClusterError as error:  # noqa: PERF203 - as above
                failed = _first(self._containers(), _has_failed)
                if failed is not None or time.monotonic() > self._deadline:
                    raise self._failure(f"{mongos!r}: {error}") from error
                time.sleep(_SECONDS_BETWEEN_LOOKS)
            else:
                return

    def _containers(self) -> dict[str, Container]:
        assert self._engine is not None  # noqa: S101 - for mypy
        assert self._stack is not None  # noqa: S101
        label = f"{_PROJECT_LABEL}={self._stack.project}"
        with _errors_of_docker():
            containers = self._engine.containers.list(all=True, filters={"label": label})
        return {container.labels[_SERVICE_LABEL]: container for container in containers}

    def _failure(self, reason: str) -> ClusterNotReadyError:
        message = f"the cluster of image {self._image!r} did not get ready: {reason}"
        container = _at_fault(self._containers())
        if container is None:
            return ClusterNotReadyError(message)
        with _errors_of_docker():
            log = container.logs(tail=_LINES).decode(errors="replace")
        who = f"{container.name}, which is {container.status},"
        return ClusterNotReadyError(f"{message}\n{_last_lines(who, log)}")

    def _close(self) -> None:
        self._is_up = False
        try:
            if self._stack is not None:
                self._stack.down()
        finally:
            if self._engine is not None:
                self._engine.close()


def _at_fault(containers: Mapping[str, Container]) -> Container | None:
    """Give the container that keeps the others from becoming ready, as far as one can see."""
    for is_suspect in (_has_failed, _is_unhealthy, _is_busy):
        container = _first(containers, is_suspect)
        if container is not None:
            return container
    return containers.get("mongos0")


def _first(
    containers: Mapping[str, Container], is_suspect: Callable[[Container], bool]
) -> Container | None:
    in_order = [containers[service] for service in _SERVICES if service in containers]
    return next(filter(is_suspect, in_order), None)


def _has_failed(container: Container) -> bool:
    return bool(container.attrs["State"]["ExitCode"])


def _is_unhealthy(container: Container) -> bool:
    return _health(container) == "unhealthy"


def _is_busy(container: Container) -> bool:
    is_init = container.labels[_SERVICE_LABEL] == "init"
    return container.status == "running" and (is_init or _health(container) == "starting")


def _health(container: Container) -> str | None:
    health: str | None = container.attrs["State"].get("Health", {}).get("Status")
    return health


def _last_lines(writer: str, text: str) -> str:
    lines = text.strip().splitlines()[-_LINES:]
    if not lines:
        return f"{writer} wrote nothing."
    return "\n".join([f"The last that {writer} wrote:", *(f"  {line[:500]}" for line in lines)])
