"""What is checked, each as a session of its own: ``nox -s lint types tests matrix demo``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Sequence

import nox

nox.options.sessions = ["lint", "types", "tests", "matrix"]
nox.options.error_on_external_run = True

HERE = Path(__file__).parent
# The last patch of every line of PyMongo, and a Python that carries it: the C extensions of 3.9 to
# 3.11 break on newer ones, and each Python from our floor on is used somewhere.
LINES = {
    "3.9.0": "3.8",
    "3.10.1": "3.8",
    "3.11.4": "3.8",
    "3.12.3": "3.9",
    "3.13.0": "3.10",
    "4.0.2": "3.10",
    "4.1.1": "3.10",
    "4.2.0": "3.10",
    "4.3.3": "3.11",
    "4.4.1": "3.11",
    "4.5.0": "3.11",
    "4.6.3": "3.12",
    "4.7.3": "3.12",
    "4.8.0": "3.12",
    "4.9.2": "3.8",
    "4.10.1": "3.13",
    "4.11.3": "3.9",
    "4.12.1": "3.13",
    "4.13.2": "3.10",
    "4.14.1": "3.11",
    "4.15.5": "3.12",
    "4.16.0": "3.9",
    "4.17.0": "3.10",
    "4.18.3": "3.12",
    "4.19.0": "3.13",
    "4.20.1": "3.11",
}
NEWEST = list(LINES)[-1]
# A PyMongo 3, the last that goes back to a sick mongos by chance, the last that leaves replica sets
# alone, and the newest.
BENCHMARKED = ["3.12.3", "4.6.3", "4.15.5", NEWEST]
# Libraries that are built on PyMongo, and a Python that carries them. Alone, all lines but the last
# one go back to a mongos that failed. The tests are integration/apps/test_libraries_*.py.
LIBRARIES = {
    "3.12.3": ("3.9", ["motor==2.5.1"]),
    "4.6.3": ("3.11", ["motor", "mongoengine", "beanie<2", "odmantic", "celery"]),
    # From 6.0 on the backend for Django wants MongoDB 7.0, and the mongod of the extra demo is 6.0.
    "4.15.5": ("3.12", ["motor>=3.7", "beanie>=2", "django-mongodb-backend<6"]),
    "4.20.1": (
        "3.13",
        [
            "motor>=3.7",
            "mongoengine",
            "beanie>=2",
            "odmantic",
            "django-mongodb-backend<6",
            "celery",
        ],
    ),
}
# The core and the prose tests: what is around the core does not differ with PyMongo.
AROUND = [
    "tests/cluster",
    "tests/test_auto.py",
    "tests/test_cli.py",
    "tests/test_docs.py",
    "tests/test_doctor.py",  # its verdicts are in test_faults.py
    "tests/test_environment.py",
    "tests/test_fuzz_options.py",
    "tests/test_host.py",
    "tests/test_imports.py",
    "tests/test_launcher.py",
    "tests/test_readme.py",
    "tests/test_survey.py",
    "tests/test_plugin_clusters.py",
    "tests/test_plugin_options.py",
    "tests/test_pytest_plugin.py",
]
NOT_AROUND = [f"--ignore={path}" for path in AROUND]
MATRIX_TESTS = ["tests", "integration", *NOT_AROUND]
# What is put on PyMongo, and that it works there: the rest does not differ with wrapt.
WRAPT_TESTS = ["tests", "integration/test_prose.py", *NOT_AROUND]


# PyPy, the debug build and the free-threaded ones: what few machines have.
INTERPRETERS = ["pypy3", "python3.11-dbg", "python3.13t", "python3.14t"]

BINARIES = "Scripts" if os.name == "nt" else "bin"
IS_INSTALLED = """
import sys, pymongo_deprio
assert pymongo_deprio.__file__.startswith(sys.prefix), pymongo_deprio.__file__
"""


IS_PATCHED = """
import pymongo, pymongo_deprio
assert pymongo_deprio.is_enabled()
"""


class Combination(NamedTuple):
    """One run of the matrix."""

    pymongo: str
    python: str
    wrapt: str = "wrapt"
    extensions: bool = True
    tests: Sequence[str] = MATRIX_TESTS

    def __str__(self) -> str:  # noqa: D105
        wrapt = self.wrapt if self.extensions else "wrapt without its C extension"
        return f"PyMongo {self.pymongo}, Python {self.python}, {wrapt}"


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format."""
    session.install("ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types, also those that a user sees."""
    session.install("-e", ".[test]", "matplotlib", "mypy", "nox", "types-docker")
    session.run("mypy", "--strict")


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests on the newest PyMongo."""
    session.install(".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def demo(session: nox.Session) -> None:
    """Run the demo."""
    session.install(".[demo]")
    session.run("pymongo-deprio", "demo", *session.posargs)


@nox.session
def picture(session: nox.Session) -> None:
    """Make the picture of the demo, on a PyMongo that shows the difference."""
    session.install(".[demo]", "pymongo==4.5.0")
    session.run("python", "docs/picture.py")


@nox.session
def docker(session: nox.Session) -> None:
    """Run the integration tests on a real cluster in Docker; ``-- 4.6.3`` for another PyMongo."""
    session.install(".[test]", *(f"pymongo=={version}" for version in session.posargs))
    session.run("pytest", "integration", "--deprio-cluster=docker", "--deprio-require")


@nox.session
def chaos(session: nox.Session) -> None:
    """Let mongoses fall sick below mixed load; ``-- 4.6.3 --seconds 60 --seed 1 --runs 20``."""
    versions = [one for one in session.posargs[:1] if not one.startswith("-")]
    session.install(".[test]", *(f"pymongo=={version}" for version in versions))
    options = session.posargs[len(versions) :]
    session.run("python", "integration/chaos/chaos.py", *options, env={"PYTHONPATH": "tests"})


@nox.session(python="3.11")
def benchmarks(session: nox.Session) -> None:
    """Measure what the patch costs and is good for; ``-- --quick`` on the newest, ``-- 4.6.3``."""
    session.install("matplotlib>=3.7", "rich>=13")
    uv, wheel = _prepare(session)
    by_default = [NEWEST] if "--quick" in session.posargs else BENCHMARKED
    pythons = []
    for release in [one for one in session.posargs if one in LINES] or by_default:
        venv = wheel.parent / release
        for step in _installing(uv, venv, LINES[release], f"{wheel}[demo]", f"pymongo=={release}"):
            session.run(*step)
        pythons.append(str(venv / BINARIES / "python"))
    options = [one for one in session.posargs if one not in LINES]
    session.run("python", "benchmarks/run.py", *options, *pythons)


@nox.session
def example(session: nox.Session) -> None:
    """Run the example's tests and the README's project, as a user would, from the built wheel."""
    session.install("uv")
    # Not below the checkout, whose settings pytest would take for those of the README's project.
    with tempfile.TemporaryDirectory() as outside:
        folder = Path(outside, "examples")
        shutil.copytree(HERE / "examples", folder)
        wheel = _build(str(Path(session.bin, "uv")), folder)
        readme = (HERE / "README.md").read_text(encoding="utf-8")
        (project,) = re.findall(r"```python\n(# test_orders.py\n.*?)```", readme, re.DOTALL)
        (folder / "test_orders.py").write_text(project, encoding="utf-8")
        for pymongo in "pymongo==4.5.0", "pymongo":
            session.install("--upgrade", f"{wheel}[demo]", "pytest", pymongo)
            with session.chdir(folder):
                session.run("python", "-c", IS_INSTALLED)
                with session.chdir("orders"):
                    session.run("python", "-m", "pytest", "-q")
                # Alone, PyMongo goes back to a mongos that has failed.
                output = session.run(
                    *("pytest", "-rA", "--tb=no", "test_orders.py"), success_codes=[1], silent=True
                )
                session.log(output)
                for outcome in (
                    "FAILED test_orders.py::test_alone",
                    "PASSED test_orders.py::test_en",
                ):
                    if outcome not in str(output):
                        session.error(f"the README's project should say {outcome}...")


@nox.session
def package(session: nox.Session) -> None:
    """Build what would be published, install it into empty environments, and use it there."""
    session.install("build[uv]", "twine", "uv")
    uv = str(Path(session.bin, "uv"))
    # Outside of the checkout: there a type checker or Python would find the sources.
    with tempfile.TemporaryDirectory() as outside:
        session.run("python", "-m", "build", "--installer", "uv", "--outdir", outside, silent=True)
        files = [str(path) for path in sorted(Path(outside).iterdir())]
        session.run("twine", "check", "--strict", *files)
        (wheel,) = (file for file in files if file.endswith(".whl"))
        shutil.copytree(HERE / "tests" / "typing", Path(outside, "typing"))
        session.chdir(outside)
        for python in "3.8", "3.13":
            _use_package(session, uv, wheel, python)
        session.install(wheel, "mypy", "pyright[nodejs]", "pytest")
        session.run("mypy", "--strict", "typing")
        session.run(
            "pyright", "--warnings", "--pythonpath", str(Path(session.bin, "python")), "typing"
        )


@nox.session
def matrix(session: nox.Session) -> None:
    """Run the core and prose tests on every line of PyMongo; ``-- 4.6.3 4.16.0`` for some."""
    combinations = [Combination(*line) for line in LINES.items()]
    combinations.append(Combination("4.16.0", "3.9", wrapt="wrapt==1.14.0", tests=WRAPT_TESTS))
    combinations.append(Combination("4.20.1", "3.11", extensions=False, tests=WRAPT_TESTS))
    _run(session, combinations)


@nox.session
def every_release(session: nox.Session) -> None:
    """Do the same for every release of PyMongo since 3.9.0, or for some."""
    listed = session.run("python", "-m", "pip", "index", "versions", "pymongo", silent=True)
    (versions,) = re.findall(r"Available versions: (.*)", str(listed))
    by_line = {_line(release): python for release, python in LINES.items()}
    combinations = [
        Combination(release, by_line[_line(release)])
        for release in reversed(versions.split(", "))
        if _line(release) in by_line
    ]
    _run(session, combinations)


@nox.session(python="3.12")
def recipes(session: nox.Session) -> None:
    """Run the recipes of the documentation with their libraries, on three versions of PyMongo."""
    libraries = "motor", "mongoengine", "celery"
    # From 6.0 on the backend for Django wants MongoDB 7.0, and the mongod of the extra demo is 6.0.
    newer = *libraries, "beanie>=2", "django-mongodb-backend<6", "fastapi", "httpx"
    for pymongo, needed in {
        "pymongo==4.6.3": (*libraries, "beanie<2"),
        "pymongo==4.15.5": newer,
        "pymongo": newer,
    }.items():
        session.install("--upgrade", ".[test]", *needed, pymongo)
        session.run("pytest", "integration/apps/test_recipes.py", *session.posargs)


@nox.session
def libraries(session: nox.Session) -> None:
    """Run libraries that are built on PyMongo with a sick mongos; ``-- 4.6.3`` for some."""
    uv, wheel = _prepare(session)
    for pymongo in session.posargs or LIBRARIES:
        python, needed = LIBRARIES[pymongo]
        venv = wheel.parent / pymongo
        requirements = [f"{wheel}[test]", f"pymongo=={pymongo}", *needed]
        for step in _installing(uv, venv, python, *requirements):
            session.run(*step)
        # Named, a file whose library is missing is an error, and not left out.
        names = [re.split(r"\W", library)[0] for library in needed]
        files = [f"integration/apps/test_libraries_{name}.py" for name in names]
        session.run(str(venv / BINARIES / "pytest"), "--deprio-require", *files, external=True)


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation site; a broken link is an error."""
    session.install(".[docs]")
    with tempfile.TemporaryDirectory() as outside:
        session.run("mkdocs", "build", "--strict", "--site-dir", outside)


@nox.session
def servers(session: nox.Session) -> None:
    """Run the example below ``pymongo-deprio run``, by servers and workers that fork and spawn."""
    session.install(
        ".[test]",
        "pymongo==4.6.3",  # goes back to a sick mongos when it is alone, which is to be seen
        "gunicorn>=22",
        "celery>=5.3",
        "pyuwsgi>=2.0.21",  # uWSGI, without a compiler
    )
    session.run("pytest", "integration/apps/test_launcher_servers.py", *session.posargs)


@nox.session
def agents(session: nox.Session) -> None:
    """Run it together with the launchers of APM agents."""
    session.install(
        ".[test]",
        "pymongo==4.16.0",  # the newest that ddtrace 4.16 traces; moves alone, so spans compare
        "ddtrace>=4",
        "elastic-apm>=6.20",
        "newrelic>=10",
        "opentelemetry-distro>=0.50b0",
        "opentelemetry-instrumentation-pymongo>=0.50b0",
        "sentry-sdk>=2.10",
    )
    session.run("pytest", "integration/apps/test_launcher_agents.py", *session.posargs)


@nox.session(python="3.12")
def runtimes(session: nox.Session) -> None:
    """Run loads of greenlets, of tasks on uvloop and of pools of processes, on two PyMongos."""
    libraries = "gevent", "eventlet>=0.36", "uvloop>=0.19", "motor>=3.3"
    for pymongo in "pymongo==4.6.3", "pymongo":  # the first goes back to a sick mongos when alone
        session.install("--upgrade", ".[test]", *libraries, pymongo)
        session.run("pytest", "-n2", "integration/apps/test_runtimes.py", *session.posargs)


@nox.session(python=False)
def interpreters(session: nox.Session) -> None:
    """Run the core and prose tests on each of the other interpreters that is on PATH."""
    found = [path for path in map(shutil.which, INTERPRETERS) if path]
    if not found:
        session.error(f"none of {', '.join(INTERPRETERS)} is on PATH: install one of them")
    for python in found:
        venv = Path(session.create_tmp(), Path(python).name)
        session.run(python, "-m", "venv", "--clear", str(venv), external=True)
        interpreter = str(venv / BINARIES / "python")
        is_debug = python.endswith("-dbg")
        # Compiled here, what is written in C has the checks of a debug build as well.
        options = ["--no-binary=pymongo,wrapt"] if is_debug else []
        session.run(interpreter, "-m", "pip", "install", "-q", *options, ".[test]", external=True)
        # PyPy closes a socket late that is left to it, and its developer mode complains of that.
        pytest = [interpreter, *(["-X", "dev"] if is_debug else []), "-m", "pytest"]
        tests = session.posargs or MATRIX_TESTS
        session.run(*pytest, "-n2", "--timeout=300", *tests, external=True)


@nox.session(python="3.11")
def fuzz(session: nox.Session) -> None:
    """Look longer for input that breaks options, the rule or the emulated mongos."""
    session.install(".[test]", "atheris")
    session.run(
        "pytest",
        "--hypothesis-profile=fuzz",
        "--timeout=1200",
        "tests/test_fuzz_options.py",
        "tests/test_selection.py",
        "tests/cluster/test_fuzz.py",
        "tests/cluster/test_wire.py",
        *session.posargs,
    )
    session.run("python", "tests/cluster/fuzz_wire.py", "-max_total_time=60")


def _use_package(session: nox.Session, uv: str, wheel: str, python: str) -> None:
    """Run the commands from the wheel alone, and PyMongo with the patch on."""
    venv = Path(f"venv-{python}")
    for step in _installing(uv, venv, python, f"{wheel}[demo]"):
        session.run(*step)
    binaries = venv / BINARIES
    command, interpreter = str(binaries / "pymongo-deprio"), str(binaries / "python")
    session.run(interpreter, "-c", IS_INSTALLED, external=True)
    session.run(command, "doctor", external=True)
    session.run(command, "demo", "--ops", "40", external=True)
    session.run(command, "run", "--", interpreter, "-c", IS_PATCHED, external=True)


def _installing(uv: str, venv: Path, python: str, *requirements: str) -> list[list[str]]:
    """Return the commands that make a virtual environment with some packages."""
    found = shutil.which(f"python{python}") or python
    return [
        [uv, "venv", "-q", "--python", found, str(venv)],
        [uv, "pip", "install", "-q", "--python", str(venv), *requirements],
    ]


def _line(release: str) -> str:
    return ".".join(release.split(".")[:2])


def _run(session: nox.Session, combinations: list[Combination]) -> None:
    if session.posargs:
        combinations = [one for one in combinations if one.pymongo in session.posargs]
    uv, wheel = _prepare(session)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        passed = list(pool.map(lambda one: _run_one(one, uv, wheel), combinations))
    if not all(passed):
        session.error(f"{passed.count(False)} of {len(passed)} combinations failed")
    session.log(f"{len(passed)} combinations passed")


def _prepare(session: nox.Session) -> tuple[str, Path]:
    """Return uv, and the wheel to install, in a folder that has room for virtual environments."""
    session.install("uv")
    uv = str(Path(session.bin, "uv"))
    root = Path(session.create_tmp())
    shutil.rmtree(root, ignore_errors=True)
    return uv, _build(uv, root)


def _build(uv: str, folder: Path) -> Path:
    subprocess.run([uv, "build", "-q", "--wheel", "-o", folder, HERE], check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _run_one(combination: Combination, uv: str, wheel: Path) -> bool:
    began = time.monotonic()
    venv = wheel.parent / re.sub(r"[^\w.=]+", "-", str(combination))
    requirements = [f"{wheel}[test]", f"pymongo=={combination.pymongo}", combination.wrapt]
    commands = [
        *_installing(uv, venv, combination.python, *requirements),
        [str(venv / BINARIES / "pytest"), "-q", "-p", "no:cacheprovider", *combination.tests],
    ]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    if not combination.extensions:
        environment["WRAPT_DISABLE_EXTENSIONS"] = "1"
    output = ""
    for command in commands:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        output = done.stdout
        if done.returncode:
            break
    shutil.rmtree(venv, ignore_errors=True)
    closing = output.strip().splitlines()[-1] if output.strip() else "no output"
    verdict = "FAILED" if done.returncode else "passed"
    report = f"{combination}: {verdict}, {closing} ({time.monotonic() - began:.0f} s in all)"
    print(report if not done.returncode else f"{output[-12000:]}\n{report}", flush=True)
    return not done.returncode
