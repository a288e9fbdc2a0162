"""What the pytest plugin is asked for, on the command line, in the ini file and by the marker."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from projects import ONE_TEST

if TYPE_CHECKING:
    from pathlib import Path

    from projects import Run


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
        ("deprio_mongos", "9" * 5000, "a whole number from 1 on, not '99"),
        ("deprio_cluster", "cloud", "local, docker or mongodb://host:port, not 'cloud'"),
        ("deprio_cluster", "mongodb://", "not 'mongodb…'"),
        ("deprio_cluster", "mongo://me:secret@host", "not 'mongo…'"),
        ("deprio_cluster", "me:secret@host", "not 'me…'"),
        ("deprio_cooldown", "maybe", "true, false or such as base=1,maximum=30,jitter=0.15, not"),
        ("deprio_cooldown", "base=", "not 'base=': could not convert"),
        ("deprio_cooldown", "bass=1", "not 'bass=1': 'bass' is none of"),
        ("deprio_cooldown", "base=2,maximum=1", "maximum must be a number of seconds from base"),
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


def test_wrong_markers(run_here: Run) -> None:
    """The test fails with one line that names it, whether or not it uses a fixture."""
    wrong = {
        "deprio": "takes mongos=N and cooldown=…, not (). To enable*use the fixture deprio",
        "deprio()": "takes mongos=N and cooldown=…, not ()*",
        "deprio(3)": "takes mongos=N and cooldown=…, not (3)*",
        "deprio(mongoses=3)": "takes mongos=N and cooldown=…, not (mongoses=3)*",
        "deprio(mongos=0)": "must be a whole number from 1 on, not 0",
        "deprio(mongos=True)": "must be a whole number from 1 on, not True",
        "deprio(mongos='3')": "must be a whole number from 1 on, not '3'",
        "deprio(cooldown=1)": "must be True, False or a Cooldown, not 1",
        "deprio(cooldown=None)": "must be True, False or a Cooldown, not None",
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


COOLDOWNS = """
    import pymongo_deprio
    import pytest
    from pymongo_deprio import Cooldown, CooldownStarted

    def started(cluster, database):
        sick = cluster.mongos[0]
        before = pymongo_deprio.stats()
        with sick.fail_command("find", error_code=6):
            while pymongo_deprio.stats().redirected == before.redirected:
                database.things.find_one()
        return pymongo_deprio.stats().convictions - before.convictions

    def test_option(deprio, deprio_cluster, deprio_database):
        assert started(deprio_cluster, deprio_database) == {option}
        seconds = [each.seconds for each in deprio.events if isinstance(each, CooldownStarted)]
        assert seconds == [7.0] * {option}
        assert len(deprio.retries) == 1

    @pytest.mark.deprio(cooldown=False)
    def test_off(deprio, deprio_cluster, deprio_database):
        assert started(deprio_cluster, deprio_database) == 0

    @pytest.mark.deprio(cooldown=Cooldown(base=3, jitter=0))
    class TestMarker:
        def test_of_the_class(self, deprio, deprio_cluster, deprio_database):
            started(deprio_cluster, deprio_database)
            assert [each.seconds for each in deprio.events if each not in deprio.retries] == [3.0]

        @pytest.mark.deprio(mongos=1)
        def test_beside_another_argument(self, deprio, deprio_cluster):
            assert len(deprio_cluster.mongos) == 1

    def test_whole_run(deprio_cluster, deprio_database):
        assert started(deprio_cluster, deprio_database) == {option}
"""


def test_cooldown(run: Run, pytester: pytest.Pytester) -> None:
    """It counts for the fixture and the whole run; the marker comes before, for the fixture."""
    pytester.makeini("[pytest]\ndeprio = true\ndeprio_cooldown = base=7,jitter=0")
    run(COOLDOWNS.format(option=1)).assert_outcomes(passed=5)
    arguments = "--deprio-cooldown=false", "-k", "not beside"
    run(COOLDOWNS.format(option=0), *arguments).assert_outcomes(passed=4, deselected=1)
