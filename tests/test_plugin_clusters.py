"""The clusters of the pytest plugin: of every kind, absent or broken, well after each test."""

from __future__ import annotations

import io
import shutil
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Iterator

import pytest
from projects import ONE_TEST, starts

from pymongo_deprio.cluster import DockerNotFoundError
from pymongo_deprio.cluster._docker import DEFAULT_IMAGE, find_docker

if TYPE_CHECKING:
    from docker import DockerClient
    from projects import Run

    from pymongo_deprio.cluster import LocalCluster

SICK_TESTS = """
    import pytest

    names = []

    @pytest.fixture
    def database(deprio_database):
        deprio_database.things.insert_one({})
        names.append(deprio_database.name)
        yield deprio_database
        deprio_database.things.find_one()  # before the others are cleaned up

    def test_fails_inside_a_fail_point(deprio_cluster, database):
        with deprio_cluster.mongos[0].fail_command(["find", "dropDatabase"], error_code=6):
            pytest.fail("as it should")

    def test_never_leaves_a_fail_point(deprio_cluster, database):
        for each in deprio_cluster.mongos:
            each.fail_command(["find", "dropDatabase", "endSessions"], error_code=6)

    def test_the_cluster_alone(deprio_cluster):
        deprio_cluster.mongos[1].fail_command(["find", "listDatabases"], error_code=6)

    def test_gets_the_fixtures_late(request):
        database = request.getfixturevalue("deprio_database")
        database.things.insert_one({})
        names.append(database.name)
        for each in request.getfixturevalue("deprio_cluster").mongos:
            each.fail_command(["find", "dropDatabase"], error_code=6)

    def test_gets_a_client_late(request):
        request.getfixturevalue("deprio_client")
        for each in request.getfixturevalue("deprio_cluster").mongos:
            each.fail_command(["find", "endSessions"], error_code=6)
"""
SICKER_TESTS = """
    def test_pauses(deprio_cluster, database):
        for each in deprio_cluster.mongos:
            each.pause()

    def test_kills(deprio_cluster, database):
        for each in deprio_cluster.mongos:
            each.kill()

    @pytest.fixture
    def kills(deprio_cluster, database):
        for each in deprio_cluster.mongos:
            each.kill()
        pytest.fail("as it should")

    def test_setup_fails(kills):
        pass
"""
WELL_AGAIN = """
    @pytest.fixture(autouse=True)
    def all_are_well(request):
        yield
        if "deprio_cluster" in request.fixturenames:
            for mongos in request.getfixturevalue("deprio_cluster").mongos:
                with mongos.client(socketTimeoutMS=5000, retryReads=False) as client:
                    client.test.things.find_one()
                    assert not set(names) & set(client.list_database_names())
"""


def test_mongoses_are_well_after_each_test(run: Run) -> None:
    """Whatever a test leaves behind, and even if it fails: fail points, paused and killed ones.

    They are well before anything is cleaned up, so its database can be dropped.
    """
    result = run(SICK_TESTS + SICKER_TESTS + WELL_AGAIN)
    result.assert_outcomes(passed=6, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        [
            "ERROR *::test_setup_fails*",
            "FAILED *::test_fails_inside_a_fail_point*",
        ]
    )


# -- No cluster ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("nothing_installed")
def test_skips_without_mongod_and_docker(run: Run) -> None:
    """One line says what to install, for tests that need a cluster; others run."""
    result = run("""
        import pytest

        def test_client(deprio_client): pass
        def test_database(deprio_database): pass
        @pytest.mark.deprio(mongos=3)
        def test_three(deprio_cluster): pass
        def test_without_a_cluster(deprio): pass
    """)
    result.assert_outcomes(passed=1, skipped=3)
    lines = [line for line in result.outlines if "pip install" in line]
    assert 1 <= len(lines) <= 3  # pytest joins equal ones
    assert all(line.startswith("SKIPPED") for line in lines)


@pytest.mark.usefixtures("nothing_installed")
def test_collects_without_mongod_and_docker(run_here: Run) -> None:
    """Nothing is looked for before a fixture is asked for."""
    result = run_here(ONE_TEST, "--collect-only", "--deprio-require")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["*test_one*"])


@pytest.mark.usefixtures("nothing_installed")
def test_require(run: Run, pytester: pytest.Pytester) -> None:
    """With --deprio-require, or the same in the ini file, the tests fail instead."""
    result = run(ONE_TEST, "--deprio-require")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["ERROR *::test_one - Failed: no mongod *pip install*"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    pytester.makeini("[pytest]\ndeprio_require = true")
    run(ONE_TEST).assert_outcomes(errors=1)
    run(ONE_TEST, "--no-deprio-require").assert_outcomes(skipped=1)


def test_a_mongod_that_cannot_start(run: Run, broken_mongod: Path) -> None:
    """The tests fail with its last words, and it is not tried again for each of them."""
    result = run(
        """
        import pytest

        def test_one(deprio_cluster): pass
        def test_two(deprio_database): pass
        @pytest.mark.deprio(mongos=3)
        def test_three(deprio_cluster): pass
        @pytest.mark.deprio(mongos=3)
        def test_four(deprio_client): pass
        def test_five(deprio_client): pass
        """,
        f"--deprio-mongod={broken_mongod}",
    )
    result.assert_outcomes(errors=5)
    result.stdout.fnmatch_lines(["*could not be started*", "*no room left*"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    assert starts(broken_mongod) == 2  # one for each number of mongoses


@pytest.mark.parametrize("by", ["--deprio-mongod", "PYMONGO_DEPRIO_MONGOD"])
def test_a_named_mongod_that_is_not_there(
    run: Run, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody meant it to be there: the tests fail."""
    monkeypatch.setenv("PYMONGO_DEPRIO_MONGOD", "/nonexistent/mongod")
    result = run(ONE_TEST, *([f"{by}=/nonexistent/mongod"] if by.startswith("--") else []))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*names '/nonexistent/mongod'*there is no such file*"])


# -- A cluster that runs already ------------------------------------------------------------------


def test_external_cluster(run: Run, cluster: LocalCluster) -> None:
    """It is used as a local one, but for pause and kill; its first mongoses, if it has more."""
    result = run(
        """
        import pytest
        from pymongo_deprio.cluster import ClusterStateError

        def test_one(deprio, deprio_cluster, deprio_database):
            with deprio_cluster.mongos[0].fail_command("insert", error_code=6):
                while not deprio.redirected:
                    deprio_database.things.insert_one({})

        def test_leaves_a_fail_point(deprio_cluster, deprio_database):
            for mongos in deprio_cluster.mongos:
                mongos.fail_command(["insert", "dropDatabase"], error_code=6)

        def test_leaves_a_delay(deprio_cluster, deprio_database):
            deprio_cluster.mongos[1].delay_hello(1)

        @pytest.mark.deprio(mongos=1)
        def test_the_first_of_two(deprio_client, deprio_database):
            deprio_database.things.insert_one({})
            assert len(deprio_client.nodes) == 1

        def test_pause(deprio_cluster):
            with deprio_cluster.mongos[1].fail_command("find", error_code=6):
                with pytest.raises(ClusterStateError):
                    deprio_cluster.mongos[0].pause()
        """,
        f"--deprio-cluster={cluster.uri}",
    )
    result.assert_outcomes(passed=5)


def test_external_cluster_with_too_few_mongoses(run: Run, cluster: LocalCluster) -> None:
    """Tests that need more are skipped with one line, or fail with --deprio-require."""
    module = """
        import pytest

        @pytest.mark.deprio(mongos=3)
        def test_three(deprio_client): pass
        def test_two(deprio_client): pass
    """
    option = f"--deprio-cluster={cluster.uri}"
    result = run(module, option)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*: 3 mongoses are needed, and *names 2"])
    run(module, option, "--deprio-require").assert_outcomes(passed=1, errors=1)


def test_external_cluster_that_is_not_there(run: Run) -> None:
    """The tests fail, as it was named; nobody sees the password."""
    uri = "mongodb://me:secret@127.0.0.1:1,127.0.0.1:2/"
    result = run(ONE_TEST, f"--deprio-cluster={uri}", "--deprio", "--showlocals")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["127.0.0.1:1 does not answer*"])
    assert "secret" not in f"{result.stdout}{result.stderr}"


# -- Docker ----------------------------------------------------------------------------------------


@pytest.fixture
def docker() -> Iterator[DockerClient]:
    """Give a Docker engine, or skip."""
    try:
        find_docker()
    except DockerNotFoundError as error:
        pytest.skip(str(error))
    from docker import from_env  # noqa: PLC0415 - it is there

    with closing(from_env()) as client:
        yield client


@pytest.fixture
def no_mongod(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Hide every mongod from the project, but not Docker."""
    commands = [shutil.which(command) for command in ("docker", "docker-compose")]
    for command in filter(None, commands):
        (tmp_path / Path(command).name).symlink_to(command)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PYMONGO_DEPRIO_MONGOD", raising=False)
    pytester.makeconftest('import sys; sys.modules["fiftyone"] = None')


@pytest.mark.usefixtures("no_mongod")
def test_docker_comes_after_the_mongod(
    run: Run, pytester: pytest.Pytester, docker: DockerClient
) -> None:
    """Without a mongod the cluster is a real one, which can be paused and killed; nothing stays."""
    project = """
    def test_what_is_it(deprio_cluster):
        from pathlib import Path
        Path("project").write_text(deprio_cluster._stack.project)
    """
    result = run(SICK_TESTS + SICKER_TESTS + WELL_AGAIN + project)
    result.assert_outcomes(passed=7, failed=1, errors=1)
    label = f"com.docker.compose.project={(pytester.path / 'project').read_text()}"
    assert not docker.containers.list(all=True, filters={"label": label})


@pytest.mark.usefixtures("nothing_installed")
def test_docker_that_is_not_there(run: Run) -> None:
    """Tests that need it are skipped with one line that says what is missing, or fail."""
    result = run(ONE_TEST, "--deprio-cluster=docker")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*docker compose*install Docker*"])
    run(ONE_TEST, "--deprio-cluster=docker", "--deprio-require").assert_outcomes(errors=1)


def test_docker_has_three_mongoses_at_most(run: Run, docker: DockerClient) -> None:
    """Tests that need more are skipped with one line."""
    result = run(ONE_TEST, "--deprio-cluster=docker", "--deprio-mongos=4")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["SKIPPED*mongos must be at most 3, not 4"])


def test_a_stack_that_never_gets_ready(
    run: Run, docker: DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tests fail, and it is not tried again for each of them."""
    dockerfile = f'FROM {DEFAULT_IMAGE}\nENTRYPOINT ["sh", "-c", "echo no room left; exit 1"]\n'
    image, _ = docker.images.build(fileobj=io.BytesIO(dockerfile.encode()), rm=True)
    monkeypatch.setenv("MONGO_IMAGE", str(image.id))
    try:
        result = run(
            """
            def test_one(deprio_cluster): pass
            def test_two(deprio_cluster): pass
            """,
            "--deprio-cluster=docker",
        )
    finally:
        docker.images.remove(str(image.id))
    result.assert_outcomes(errors=2)
    result.stdout.fnmatch_lines(["the cluster of image*did not get ready*", "*no room left*"])
