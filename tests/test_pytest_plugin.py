"""The pytest plugin, by projects that use it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from projects import starts

if TYPE_CHECKING:
    from pathlib import Path

    from projects import Run


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
