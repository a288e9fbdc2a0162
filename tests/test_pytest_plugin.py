"""The pytest plugin, by projects that use it, each in a process of its own."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Iterator

import pytest

from pymongo_deprio.cluster import DockerNotFoundError
from pymongo_deprio.cluster._docker import DEFAULT_IMAGE, find_docker
from pymongo_deprio.cluster._mongod import find_mongod

if TYPE_CHECKING:
    from docker import DockerClient

    from pymongo_deprio.cluster import LocalCluster

Run = Callable[..., pytest.RunResult]

# Hides what could make a cluster: the wheel with a mongod, and Docker.
NOTHING_INSTALLED = """
    import sys
    sys.modules["fiftyone"] = sys.modules["docker"] = None
"""
ONE_TEST = "def test_one(deprio_cluster): pass"
# Hypothesis has a plugin that takes a second to load.
STRICT = ["-p", "no:hypothesispytest", "-p", "no:cacheprovider", "-ra", "-W", "error"]
STRICT += ["--strict-config", "--strict-markers"]
# PyMongo 3.9 and 3.10, when they are compiled.
STRICT += [
    "-W",
    "ignore:invalid escape sequence:DeprecationWarning",
    "-W",
    "ignore:PY_SSIZE_T_CLEAN",
]


@pytest.fixture
def run(pytester: pytest.Pytester) -> Run:
    """Give what runs pytest in a project of this one module, in a process of its own."""
    return lambda module, *arguments: pytester.runpytest_subprocess(
        pytester.makepyfile(module), *STRICT, *arguments, timeout=100
    )


@pytest.fixture
def run_here(pytester: pytest.Pytester) -> Run:
    """Give the same for this process: faster, for projects that change nothing."""
    return lambda module, *arguments: pytester.runpytest_inprocess(
        pytester.makepyfile(module), *STRICT, *arguments
    )


@pytest.fixture
def nothing_installed(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide every mongod and Docker from the project."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("PYMONGO_DEPRIO_MONGOD", raising=False)
    pytester.makeconftest(NOTHING_INSTALLED)


@pytest.fixture
def logging_mongod(tmp_path: Path) -> Path:
    """Give a mongod that writes a line to starts.log, beside it, each time it is started."""
    path = tmp_path / "logging-mongod"
    path.write_text(f'#!/bin/sh\necho started >> "$0.log"\nexec "{find_mongod()}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def broken_mongod(tmp_path: Path) -> Path:
    """Give one that cannot start, and says so; it logs as the other one does."""
    path = tmp_path / "broken-mongod"
    path.write_text('#!/bin/sh\necho started >> "$0.log"\necho "no room left"\nexit 1\n')
    path.chmod(0o755)
    return path


def starts(mongod: Path) -> int:
    """Return how often one of these was started."""
    return len(mongod.with_name(f"{mongod.name}.log").read_text().splitlines())


def test_importing_costs_nothing() -> None:
    """Every pytest run of the environment loads the plugin: it imports nothing that takes long."""
    code = (
        "import sys, pymongo_deprio.pytest_plugin; "
        "heavy = {'pymongo', 'bson', 'docker', 'wrapt'}; "
        "print([name for name in sys.modules if name.partition('.')[0] in heavy"
        " or name.startswith('pymongo_deprio.cluster')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_run_without_the_fixtures_imports_no_pymongo(run: Run) -> None:
    """Neither do the plugin's hooks."""
    result = run("""
        import sys

        def test_one():
            assert "pymongo" not in sys.modules
    """)
    result.assert_outcomes(passed=1)
    result.stdout.no_fnmatch_line("*pymongo_deprio:*")


# -- The fixtures ----------------------------------------------------------------------------------


def test_fixtures(run: Run) -> None:
    """The client knows all mongoses; each test has an empty database, which is gone afterwards."""
    run("""
        import pytest

        names = []

        @pytest.mark.parametrize("times", range(2))
        def test_database(times, deprio_client, deprio_database, deprio_cluster):
            assert deprio_client.nodes == {each.address for each in deprio_cluster.mongos}
            assert len(deprio_client.nodes) == 2
            assert deprio_database.client is deprio_client
            assert deprio_database.list_collection_names() == []
            assert deprio_database.name not in names
            names.append(deprio_database.name)
            deprio_database.things.insert_one({})
            assert deprio_database.name in deprio_client.list_database_names()

        def test_dropped(deprio_client):
            assert len(names) == 2
            assert not set(names) & set(deprio_client.list_database_names())

        def test_closed(deprio_client, deprio_database):
            deprio_database.things.insert_one({})
            names.append(deprio_database.name)
            deprio_client.close()

        def test_dropped_though_the_client_was_closed(deprio_client):
            assert names[-1] not in deprio_client.list_database_names()
    """).assert_outcomes(passed=5)


def test_deprio_is_on_for_one_test(run: Run) -> None:
    """It records the retries, shows the redirected ones apart, and is off in the next test."""
    run("""
        import pymongo_deprio
        from pymongo_deprio.pytest_plugin import Deprio

        def test_on(deprio: Deprio, deprio_cluster, deprio_database):
            assert pymongo_deprio.is_enabled()
            assert deprio.events == deprio.retries == deprio.redirected == []
            sick, other = deprio_cluster.mongos
            with sick.fail_command("find", error_code=6):
                while not deprio.redirected:
                    deprio_database.things.find_one()
            (retry,) = deprio.events
            assert deprio.retries == deprio.redirected == [retry]
            assert (retry.failed, retry.chosen) == ((sick.address,), other.address)
            with sick.fail_command("find", error_code=6), other.fail_command("find", error_code=6):
                with sick.client() as client:
                    try:
                        client.test.things.find_one()
                    except Exception:
                        pass
            assert len(deprio.events) == len(deprio.retries) == 2
            assert deprio.redirected == [retry]

        def test_off():
            assert not pymongo_deprio.is_enabled()
    """).assert_outcomes(passed=2)


def test_deprio_restores_what_was_before(run: Run) -> None:
    """What the test disables is on again afterwards, with its options; what it enables is off."""
    run("""
        import pymongo_deprio
        import pytest

        seen = []

        @pytest.fixture(scope="module")
        def on():
            with pymongo_deprio.enable(on_event=seen.append) as handle:
                yield handle

        @pytest.fixture
        def check(on):
            yield
            assert pymongo_deprio.is_enabled()

        def test_disable(check, deprio):
            pymongo_deprio.disable()
            assert not pymongo_deprio.is_enabled()

        def test_close(on, check, deprio):
            on.close()

        def test_enable(check, deprio):
            pymongo_deprio.enable(on_event=print)

        def test_options_are_back(on, deprio_cluster, deprio_database):
            with deprio_cluster.mongos[0].fail_command("find", error_code=6):
                while not seen:
                    deprio_database.things.find_one()
            on.close()
            assert not pymongo_deprio.is_enabled()
    """).assert_outcomes(passed=4)


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


# -- Options ---------------------------------------------------------------------------------------


def test_the_command_line_comes_before_the_ini_file(
    run: Run, pytester: pytest.Pytester, broken_mongod: Path, logging_mongod: Path
) -> None:
    """Both know every setting; where they differ, the command line counts."""
    pytester.makeini(f"""
        [pytest]
        deprio = true
        deprio_cluster = local
        deprio_mongos = 3
        deprio_mongod = {broken_mongod}
        deprio_require = true
    """)
    module = """
        import pymongo_deprio

        def test_one(deprio_cluster):
            assert len(deprio_cluster.mongos) == {mongos}
            assert pymongo_deprio.is_enabled() is {enabled}
    """
    result = run(module.format(mongos=3, enabled=True))
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["pymongo_deprio: enabled for the whole run", "*no room left*"])
    mongod = f"--deprio-mongod={logging_mongod}"
    run(module.format(mongos=3, enabled=True), mongod).assert_outcomes(passed=1)
    arguments = mongod, "--deprio-mongos=1", "--no-deprio"
    run(module.format(mongos=1, enabled=False), *arguments).assert_outcomes(passed=1)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("deprio_mongos", "0", "a whole number from 1 on, not '0'"),
        ("deprio_mongos", "many", "a whole number from 1 on, not 'many'"),
        ("deprio_cluster", "cloud", "local, docker or mongodb://host:port, not 'cloud'"),
        ("deprio_cluster", "mongodb://", "not 'mongodb…'"),
        ("deprio_cluster", "mongo://me:secret@host", "not 'mongo…'"),
        ("deprio_cluster", "me:secret@host", "not 'me…'"),
    ],
)
def test_wrong_values(
    run_here: Run, pytester: pytest.Pytester, name: str, value: str, words: str
) -> None:
    """They are one line at the start, on the command line and in the ini file; no password."""
    option = f"--{name.replace('_', '-')}"
    results = [run_here(ONE_TEST, f"{option}={value}")]
    pytester.makeini(f"[pytest]\n{name} = {value}")
    results.append(run_here(ONE_TEST))
    for result in results:
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        (line,) = filter(None, result.errlines)
        assert line.startswith(f"ERROR: {option} (in the ini file: {name}) must be ")
        assert words in line
        assert "secret" not in f"{line}{result.stdout}"


def test_wrong_flag_in_the_ini_file(run_here: Run, pytester: pytest.Pytester) -> None:
    """It is one line as well."""
    pytester.makeini("[pytest]\ndeprio = maybe")
    result = run_here(ONE_TEST)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    (line,) = filter(None, result.errlines)
    assert "'maybe'" in line


# -- The whole run ---------------------------------------------------------------------------------


def test_whole_run(run: Run) -> None:
    """--deprio has it on from the first import on, and again after a test that disabled it."""
    result = run(
        """
        import pymongo_deprio

        assert pymongo_deprio.is_enabled()

        def test_disable():
            pymongo_deprio.disable()

        def test_on_again():
            assert pymongo_deprio.is_enabled()

        def test_disable_with_the_fixture(deprio):
            pymongo_deprio.disable()

        def test_on_with_the_fixture(deprio):
            assert pymongo_deprio.is_enabled()

        def test_on_without():
            assert pymongo_deprio.is_enabled()
        """,
        "--deprio",
    )
    result.assert_outcomes(passed=5)
    result.stdout.fnmatch_lines(["pymongo_deprio: enabled for the whole run"])


def test_whole_run_ends_with_the_run(pytester: pytest.Pytester) -> None:
    """A program that runs pytest has PyMongo as it was when that returns."""
    path = pytester.makepyfile("""
        import pymongo_deprio

        def test_one():
            assert pymongo_deprio.is_enabled()
    """)
    program = pytester.makepyfile(
        program=f"""
        import pymongo_deprio
        import pytest

        assert pytest.main(["-p", "no:cacheprovider", "--deprio", {str(path)!r}]) == 0
        assert not pymongo_deprio.is_enabled()
        """
    )
    assert pytester.runpython(program).ret == 0


def test_a_pymongo_that_cannot_be_patched(run: Run, pytester: pytest.Pytester) -> None:
    """The fixture fails, and --deprio ends the run: a test must not pass on an unpatched one."""
    pytester.makeconftest("""
        from pymongo.topology_description import TopologyDescription

        del TopologyDescription.apply_selector
    """)
    module = "def test_one(deprio): pass"
    result = run(module, "-W", "ignore")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*UnsupportedPyMongoError*apply_selector*"])
    result = run(module, "--deprio", "-W", "ignore")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: *apply_selector*"])


# -- The marker ------------------------------------------------------------------------------------


def test_marker(run: Run, logging_mongod: Path) -> None:
    """The closest marker counts; going to and fro between two numbers starts each cluster once."""
    result = run(
        """
        import pytest

        pytestmark = pytest.mark.deprio(mongos=3)
        uris = {}

        @pytest.fixture
        def number(deprio_client, deprio_cluster):
            number = len(deprio_client.nodes)
            assert uris.setdefault(number, deprio_cluster.uri) == deprio_cluster.uri
            return number

        def test_three(number): assert number == 3
        @pytest.mark.deprio(mongos=1)
        def test_one(number): assert number == 1
        def test_three_again(number): assert number == 3
        @pytest.mark.deprio(mongos=1)
        class TestOne:
            def test_one(self, number): assert number == 1
            @pytest.mark.deprio(mongos=3)
            def test_three(self, number): assert number == 3
        def test_no_cluster(): pass
        """,
        f"--deprio-mongod={logging_mongod}",
        "-v",
    )
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(["*::test_one[[]mongos=1[]] PASSED*"])
    assert starts(logging_mongod) == 2


def test_wrong_markers(run_here: Run) -> None:
    """The test fails with one line that names it, whether or not it uses a fixture."""
    wrong = {
        "deprio": "takes mongos=N, not (). To enable*use the fixture deprio",
        "deprio()": "takes mongos=N, not ()*",
        "deprio(3)": "takes mongos=N, not (3)*",
        "deprio(mongoses=3)": "takes mongos=N, not (mongoses=3)*",
        "deprio(mongos=0)": "must be a whole number from 1 on, not 0",
        "deprio(mongos=True)": "must be a whole number from 1 on, not True",
        "deprio(mongos='3')": "must be a whole number from 1 on, not '3'",
    }
    tests = [
        f"@pytest.mark.{marker}\ndef test_{number}({'deprio_cluster' * (number % 2)}): pass"
        for number, marker in enumerate(wrong)
    ]
    result = run_here("\n".join(["import pytest", *tests, "def test_other(): pass"]))
    result.assert_outcomes(passed=1, errors=len(wrong))
    for number, words in enumerate(wrong.values()):
        result.stdout.fnmatch_lines([f"*.py::test_{number}: @pytest.mark.deprio*{words}"])
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")


def test_markers_that_cannot_be_honoured(run: Run) -> None:
    """The number is never quietly another one."""
    result = run("""
        import unittest
        import pytest

        @pytest.mark.deprio(mongos=3)
        @pytest.mark.usefixtures("deprio_cluster")
        class TestCase(unittest.TestCase):
            def test_unittest(self): pass

        @pytest.mark.deprio(mongos=3)
        def test_late(request):
            with pytest.raises(pytest.fail.Exception, match="cannot be honoured"):
                request.getfixturevalue("deprio_client")

        @pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.deprio(mongos=3))])
        def test_parameter(x, deprio_cluster): pass

        @pytest.mark.deprio(mongos=2)
        def test_the_same(request):
            assert len(request.getfixturevalue("deprio_client").nodes) == 2
    """)
    result.assert_outcomes(passed=2, errors=2)
    for name in "TestCase::test_unittest", "test_parameter[[]1[]]":
        result.stdout.fnmatch_lines([f"*.py::{name}: *(mongos=3) cannot be honoured*has 2*"])


# -- Beside others ---------------------------------------------------------------------------------


def test_unittest(run: Run) -> None:
    """A TestCase takes the fixtures by an autouse fixture of its own."""
    run("""
        import unittest
        import pymongo_deprio
        import pytest

        @pytest.mark.usefixtures("deprio")
        class TestCase(unittest.TestCase):
            @pytest.fixture(autouse=True)
            def take(self, deprio_database):
                self.database = deprio_database

            def test_one(self):
                assert pymongo_deprio.is_enabled()
                self.database.things.insert_one({})
    """).assert_outcomes(passed=1)


def test_each_xdist_worker_has_a_cluster(run: Run, pytester: pytest.Pytester) -> None:
    """Four workers share nothing; a fail point of one is not met by another."""
    result = run(
        """
        import os
        from pathlib import Path
        import pytest

        @pytest.mark.parametrize("number", range(3))
        def test_one(number, deprio, deprio_cluster, deprio_database, worker_id):
            with Path(f"{worker_id}.txt").open("a") as uris:
                print(deprio_cluster.uri, file=uris)
            for each in deprio_cluster.mongos:
                with each.fail_command("insert", error_code=6, times=1) as fail_point:
                    deprio_database.things.insert_one({})
            assert deprio_database.things.count_documents({}) == 2
        """,
        "-n4",
        "--dist=each",
    )
    result.assert_outcomes(passed=12)
    uris = [set(path.read_text().splitlines()) for path in pytester.path.glob("gw*.txt")]
    assert [len(each) for each in uris] == [1] * 4
    assert len(set.union(*uris)) == 4


OTHERS = {
    # The names that pytest-mongo and pytest-mongodb take, and fixtures that use them.
    "like_pytest_mongo": """
        import pytest

        NAMES = ["exec", "params", "host", "port", "port_search_count", "tz_aware", "username",
                 "password", "auth_source", "uri", "tls", "dbname", "dbs"]

        def pytest_addoption(parser):
            for name in NAMES:
                parser.addini(f"mongo_{name}", name, default="")
                parser.addoption(f"--mongo-{name.replace('_', '-')}", dest=f"mongo_{name}")

        @pytest.fixture(scope="session")
        def mongo_proc(): return "process"
        @pytest.fixture(scope="session")
        def mongo_noproc(): return "no process"
    """,
    "like_pytest_mongodb": """
        import pytest

        def pytest_addoption(parser):
            parser.addini("mongodb_fixtures", "names", type="linelist")
            for name in "fixture_dir", "engine", "host", "dbname":
                parser.addini(f"mongodb_{name}", name, default="")
                parser.addoption(f"--mongodb-{name.replace('_', '-')}")

        @pytest.fixture
        def mongodb(pytestconfig): return pytestconfig.getoption("mongodb_host")
    """,
}


def test_beside_two_other_plugins(run: Run, pytester: pytest.Pytester) -> None:
    """What other MongoDB plugins add keeps its meaning, and so does what ours adds."""
    pytester.makepyfile(**OTHERS)
    pytester.makeini("[pytest]\nmongodb_engine = pymongo\nmongo_host = here\ndeprio_mongos = 3")
    run(
        """
        def test_one(mongo_proc, mongo_noproc, mongodb, deprio_client, pytestconfig):
            assert (mongo_proc, mongo_noproc, mongodb) == ("process", "no process", "there")
            assert pytestconfig.getini("mongodb_engine") == "pymongo"
            assert pytestconfig.getini("mongo_host") == "here"
            assert len(deprio_client.nodes) == 3
        """,
        *[argument for name in OTHERS for argument in ("-p", name)],
        "--mongodb-host=there",
    ).assert_outcomes(passed=1)
