"""DockerCluster: a real stack, which is skipped where Docker or the image is missing."""

from __future__ import annotations

import io
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Iterator

import pytest
from pymongo.errors import AutoReconnect, NetworkTimeout, OperationFailure

from pymongo_deprio.cluster import (
    Cluster,
    ClusterError,
    ClusterNotReadyError,
    ClusterStateError,
    CommandFailedError,
    DockerCluster,
    DockerMongos,
    DockerNotFoundError,
    ExternalCluster,
    Mongos,
    _docker,
)
from pymongo_deprio.cluster._compose import compose_file, free_ports
from pymongo_deprio.cluster._docker import find_docker

if TYPE_CHECKING:
    from docker import DockerClient

IMAGE = os.environ.get("MONGO_IMAGE", "mongo:8.0")
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def engine() -> Iterator[DockerClient]:
    """Give the engine, if it is there and has the image."""
    try:
        find_docker()
    except DockerNotFoundError as error:
        pytest.skip(str(error))
    import docker  # noqa: PLC0415 - an extra

    with closing(docker.from_env()) as engine:
        if not engine.images.list(IMAGE):
            pytest.skip(f"there is no image {IMAGE}: docker pull {IMAGE}")
        yield engine


@pytest.fixture(scope="module")
def stack(engine: DockerClient) -> Iterator[DockerCluster]:
    """Two mongoses that the tests here share; each test leaves them as they were."""
    with DockerCluster(2) as cluster:
        yield cluster


@pytest.fixture
def one(stack: DockerCluster) -> DockerMongos:
    """Give the first of the two mongoses."""
    return stack.mongos[0]


def left(engine: DockerClient, project: str) -> list[Any]:
    """Return what is there of a project."""
    label: Any = {"label": f"com.docker.compose.project={project}"}
    return [
        *engine.containers.list(all=True, filters=label, ignore_removed=True),
        *engine.volumes.list(filters=label),
        *engine.networks.list(filters=label),
    ]


def project_of(cluster: DockerCluster) -> str:
    """Return the project name of a cluster."""
    assert cluster._stack is not None
    return cluster._stack.project


def eventually(condition: Callable[[], object]) -> bool:
    """Wait for a condition, for at most 30 seconds."""
    deadline = time.monotonic() + 30
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_it_is_a_cluster(stack: DockerCluster) -> None:
    """A client knows all mongoses; reads, writes and transactions go through each."""
    assert isinstance(stack, Cluster)
    assert all(isinstance(mongos, Mongos) for mongos in stack.mongos)
    with stack.client() as client:
        assert client.nodes == {mongos.address for mongos in stack.mongos}
        client.test.create_collection("c")
    for mongos in stack.mongos:
        with mongos.client() as client:
            with client.start_session() as session, session.start_transaction():
                client.test.c.insert_one({"at": mongos.address[1]}, session=session)
            assert client.test.c.count_documents({"at": mongos.address[1]}) == 1
    with stack.client() as client:
        client.drop_database("test")


def test_a_killed_mongos_refuses_and_comes_back_on_its_port(one: DockerMongos) -> None:
    """Its connections break, and the same client finds it again."""
    address = one.address
    with one.client(retryReads=False) as client:
        client.test.c.find_one()
        with one.kill():
            assert one.state == "killed"
            with pytest.raises(ConnectionRefusedError), socket.create_connection(address):
                pass
            with pytest.raises(AutoReconnect):
                client.test.c.find_one()
            for action in (one.pause, one.resume):
                with pytest.raises(ClusterStateError, match="start"):
                    action()
            one.kill()
        assert one.state == "running"
        assert one.address == address
        client.test.c.find_one()
    one.start()


def test_a_paused_mongos_hangs_and_goes_on(one: DockerMongos) -> None:
    """Its connections stay open: a command is answered after the pause."""
    with one.client(socketTimeoutMS=200, retryReads=False) as client:
        client.test.c.find_one()
        with one.pause():
            assert one.state == "paused"
            one.pause()
            with socket.create_connection(one.address, timeout=1):
                pass
            with pytest.raises(NetworkTimeout):
                client.test.c.find_one()
            with pytest.raises(ClusterStateError, match="paused"):
                one.command("ping")
        assert one.state == "running"
        client.test.c.find_one()
    one.resume()


def test_a_paused_mongos_can_be_killed(one: DockerMongos) -> None:
    """And started again, not paused any more."""
    one.pause()
    one.kill()
    one.start()
    assert one.command("ping")["ok"] == 1


def test_a_fail_point_ends_with_its_block(one: DockerMongos) -> None:
    """And says how many commands it met."""
    with one.client(retryReads=False) as client:
        with one.fail_command("find", error_code=11) as point:
            for _ in range(2):
                with pytest.raises(OperationFailure):
                    client.test.c.find_one()
        client.test.c.find_one()
    assert point.hits == 2


def test_a_fail_point_ends_with_the_mongos(one: DockerMongos) -> None:
    """A killed one forgets it, a paused one when it goes on."""
    with one.fail_command("ping", error_code=11):
        one.kill()
    one.start()
    assert one.command("ping")["ok"] == 1
    with one.fail_command("ping", error_code=11) as point:
        one.pause()
    one.resume()
    assert one.command("ping")["ok"] == 1
    assert point.hits == 0


def test_a_hello_delay_takes_the_fail_point(one: DockerMongos) -> None:
    """It outlives a restart; whichever of the two comes second is refused."""
    with one.delay_hello(80):
        assert hello_seconds(one) >= 0.08
        with pytest.raises(ClusterStateError, match="end delay_hello first"):
            one.fail_command("find", error_code=11)
        with one.kill():
            pass
        assert hello_seconds(one) >= 0.08
        with one.delay_hello(160):
            assert hello_seconds(one) >= 0.16
        assert 0.08 <= hello_seconds(one) < 0.16
    assert hello_seconds(one) < 0.08
    refused = pytest.raises(ClusterStateError, match="end that fail point")
    with one.fail_command("find", error_code=11), refused:
        one.delay_hello(80)
    with one.delay_hello(0):
        pass


def hello_seconds(mongos: DockerMongos) -> float:
    """Measure one hello."""
    began = time.monotonic()
    mongos.command("hello")
    return time.monotonic() - began


def test_two_clusters_side_by_side(stack: DockerCluster, engine: DockerClient) -> None:
    """Each has its own data; the one with three mongoses leaves nothing, the other one stays."""
    with DockerCluster(3) as three, three.client() as client:
        project = project_of(three)
        assert len(client.nodes) == 3
        client.test.c.insert_one({})
        with stack.client() as other:
            assert other.test.c.count_documents({}) == 0
        for mongos in three.mongos:
            assert mongos.command("ping")["ok"] == 1
        # Two mongods with their volumes, init, three mongoses, and a network.
        assert len(left(engine, project)) == 9
    assert left(engine, project) == []
    assert three._mongos[0].state == "killed"
    with pytest.raises(ClusterStateError, match="no longer running"):
        three.client()
    with stack.client() as client:
        assert client.admin.command("ping")["ok"] == 1


def test_a_single_mongos(engine: DockerClient) -> None:
    """It is ready, though no other mongos waited for the cluster to be initiated."""
    with DockerCluster(1) as cluster, cluster.client() as client:
        client.test.c.insert_one({})
        assert client.nodes == {cluster.mongos[0].address}


def test_a_mongos_without_test_commands(stack: DockerCluster, engine: DockerClient) -> None:
    """The error of a fail point says which parameter is missing."""
    (port,) = free_ports(1)
    container = engine.containers.run(
        IMAGE,
        ["mongos", "--configdb", "config/config:27017", "--bind_ip_all"],
        network=f"{project_of(stack)}_default",
        ports={"27017/tcp": ("127.0.0.1", port)},
        detach=True,
    )
    plain = DockerMongos(container, port, lambda: True)
    try:
        plain._wait_until_ready()
        with ExternalCluster(plain.uri) as cluster:
            for mongos in (plain, cluster.mongos[0]):
                with pytest.raises(CommandFailedError, match="enableTestCommands=1"):
                    mongos.fail_command("find", error_code=11)
                with pytest.raises(CommandFailedError, match="enableTestCommands=1"):
                    mongos.delay_hello(10)
    finally:
        container.remove(v=True, force=True)


def test_taken_ports_are_given_up(engine: DockerClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others are tried."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        choices = iter([[port], free_ports(1)])
        monkeypatch.setattr(_docker, "free_ports", lambda number: next(choices))
        with DockerCluster(1) as cluster:
            assert cluster.mongos[0].address[1] != port
    assert next(choices, None) is None


@pytest.fixture
def make_image(engine: DockerClient) -> Iterator[Callable[[str], str]]:
    """Give a function that makes an image whose mongos is something else; removed afterwards."""
    tags: list[str] = []

    def make(mongos: str) -> str:
        tags.append(f"pymongo-deprio-test:{len(tags)}")
        script = f'if [ "$0" = mongos ]; then {mongos}; fi; exec docker-entrypoint.sh "$0" "$@"'
        quoted = script.replace('"', '\\"')
        dockerfile = f'FROM {IMAGE}\nENTRYPOINT ["sh", "-c", "{quoted}"]\n'
        engine.images.build(fileobj=io.BytesIO(dockerfile.encode()), tag=tags[-1], rm=True)
        return tags[-1]

    yield make
    for tag in tags:
        engine.images.remove(tag, force=True)


@pytest.mark.parametrize("number", [1, 2])
def test_a_mongos_that_ends(
    engine: DockerClient, make_image: Callable[[str], str], number: int
) -> None:
    """The error shows its last lines, and nothing is left."""
    cluster = DockerCluster(number, image=make_image("echo out of order; exit 3"))
    with pytest.raises(ClusterNotReadyError, match=r"mongos0.* exited,.*\n  out of order"):
        cluster.__enter__()
    assert left(engine, project_of(cluster)) == []


@pytest.mark.parametrize("number", [1, 2])
def test_a_cluster_that_takes_too_long(
    engine: DockerClient, make_image: Callable[[str], str], number: int
) -> None:
    """It is given up in time, and the error shows who is being waited for."""
    image = make_image("sleep 1000")
    cluster = DockerCluster(number, image=image, timeout=8)
    with pytest.raises(ClusterNotReadyError, match=image) as caught:
        cluster.__enter__()
    assert "mongos0" in str(caught.value)
    assert left(engine, project_of(cluster)) == []


def test_an_image_that_cannot_be_had(engine: DockerClient) -> None:
    """The error shows what Docker Compose says of it."""
    cluster = DockerCluster(1, image="127.0.0.1:1/no/such:image")
    with pytest.raises(ClusterNotReadyError, match=r"could not be pulled(.|\n)*127.0.0.1:1"):
        cluster.__enter__()
    assert left(engine, project_of(cluster)) == []


def run_program(body: str) -> subprocess.Popen[str]:
    """Start a program that prints its project before each command of Docker Compose."""
    text = """
        import os, sys
        from pymongo_deprio.cluster import DockerCluster
        from pymongo_deprio.cluster._compose import Stack
        run = Stack.run
        def told(self, *arguments, **options):
            print(self.project, flush=True)
            return run(self, *arguments, **options)
        Stack.run = told
    """
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(text) + textwrap.dedent(body)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
    )


def read(program: subprocess.Popen[str]) -> str:
    """Read a line from a program."""
    assert program.stdout is not None
    return program.stdout.readline().strip()


READY = """
with DockerCluster(1) as cluster:
    print("ready", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_killed_program_leaves_nothing(engine: DockerClient, number: signal.Signals) -> None:
    """The guard sees it gone, and takes the stack down."""
    with run_program(READY) as program:
        project = read(program)
        assert read(program) == "ready"
        assert left(engine, project)
        program.send_signal(number)
    assert eventually(lambda: not left(engine, project))


def test_a_program_that_is_killed_while_it_starts_leaves_nothing(engine: DockerClient) -> None:
    """Nothing comes into being after the end either."""
    with run_program(READY) as program:
        project = read(program)
        assert eventually(lambda: left(engine, project))
        program.kill()
    assert eventually(lambda: not left(engine, project))
    time.sleep(2)
    assert left(engine, project) == []


def test_an_interrupted_start_leaves_nothing(engine: DockerClient) -> None:
    """Ctrl-C does not wait for the stack to come up."""
    with run_program(READY) as program:
        project = read(program)
        assert eventually(lambda: left(engine, project))
        program.send_signal(signal.SIGINT)
    assert left(engine, project) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_leaves_the_cluster_to_its_parent(engine: DockerClient) -> None:
    """It can leave the block, and keeps nothing alive when the parent is killed."""
    body = """
        with DockerCluster(1) as cluster:
            child = os.fork()
            if not child:
                cluster.__exit__(None, None, None)
                print("left", flush=True)
                sys.stdin.readline()
                os._exit(0)
            print(child, cluster.mongos[0].command("ping")["ok"], flush=True)
            os.waitpid(child, 0)
    """
    with run_program(textwrap.dedent(body)) as program:
        project = read(program)
        lines = sorted([read(program), read(program)])
        child, ping = lines[0].split()
        assert (ping, lines[1]) == ("1.0", "left")
        assert left(engine, project)
        program.kill()
        assert eventually(lambda: not left(engine, project))
        os.kill(int(child), signal.SIGKILL)


def test_a_killed_guard(engine: DockerClient) -> None:
    """The program cleans up itself."""
    with DockerCluster(1) as cluster:
        assert cluster._stack is not None
        cluster._stack._guard.kill()
        cluster._stack._guard.wait()
    assert left(engine, project_of(cluster)) == []


def test_no_compose(tmp_path: Path) -> None:
    """The error says what to install."""
    with pytest.raises(DockerNotFoundError, match="neither 'docker compose' nor 'docker-compose'"):
        find_docker({**os.environ, "PATH": str(tmp_path)})


@pytest.fixture
def compose_on_path(tmp_path: Path) -> dict[str, str]:
    """Give an environment with a docker-compose, which is not run."""
    program = tmp_path / "docker-compose"
    program.touch(mode=0o755)
    return {"PATH": str(tmp_path)}


def test_no_engine(compose_on_path: dict[str, str]) -> None:
    """The error says where it was looked for, and what to do."""
    host = "unix:///no/such/socket"
    with pytest.raises(DockerNotFoundError, match=f"no Docker engine answers: .*{host}"):
        find_docker({**compose_on_path, "DOCKER_HOST": host})


def test_no_package(compose_on_path: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which extra to install."""
    monkeypatch.setitem(sys.modules, "docker", None)
    with pytest.raises(DockerNotFoundError, match=r"pymongo_deprio\[docker\]"):
        find_docker(compose_on_path)


def test_no_docker_at_the_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A cluster says the same when it is entered, and not before."""
    monkeypatch.setenv("PATH", str(tmp_path))
    cluster = DockerCluster()
    with pytest.raises(DockerNotFoundError):
        cluster.__enter__()


@pytest.mark.parametrize("number", [0, 4, 1.5, True])
def test_a_number_of_mongoses_that_there_cannot_be(number: Any) -> None:
    """Said before anything is started."""
    with pytest.raises(ValueError, match="mongos must be"):
        DockerCluster(number)


def test_the_image(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one given, that of the environment, or the default."""
    monkeypatch.setenv("MONGO_IMAGE", "mongo:7.0")
    assert DockerCluster(image="mongo:6.0")._image == "mongo:6.0"
    assert DockerCluster()._image == "mongo:7.0"
    monkeypatch.setenv("MONGO_IMAGE", "")
    assert DockerCluster()._image == "mongo:8.0"


def test_the_file_is_part_of_the_package() -> None:
    """It is installed, and the one that is used is that of the checkout."""
    installed = [path.name for path in metadata.files("pymongo_deprio") or ()]
    assert "docker-compose.yml" in installed
    assert compose_file().read_text() == (ROOT / "docker-compose.yml").read_text()


def test_importing_needs_no_docker() -> None:
    """The package is an extra."""
    code = "import sys, pymongo_deprio.cluster; print('docker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_engine_that_fails_is_a_cluster_error() -> None:
    """Callers need not know the errors of Docker's package."""
    raises = pytest.raises(ClusterError, match="Docker failed: gone")
    with raises, _docker._errors_of_docker():
        raise ConnectionError("gone")
