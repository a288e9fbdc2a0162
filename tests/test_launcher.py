"""``pymongo-deprio run``: the patch is on in every Python process below it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from support import run_installed

from pymongo_deprio._launcher import BOOTSTRAP

if TYPE_CHECKING:
    from pathlib import Path

ENABLED = "import pymongo, pymongo_deprio; print(pymongo_deprio.is_enabled())"


def run(*command: str, before: tuple[str, ...] = (), **options: Any) -> Any:
    """Run a command below the launcher."""
    launcher = sys.executable, "-m", "pymongo_deprio", "run", *before, "--"
    return run_installed(*launcher, *command, **options)


def output(*command: str, **options: Any) -> str:
    """Return what a command prints below the launcher; it must not complain."""
    done = run(*command, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return str(done.stdout.strip())


def python(code: str, **options: Any) -> str:
    """Return what some Python prints below the launcher."""
    return output(sys.executable, "-c", code, **options)


def test_the_application_is_patched() -> None:
    """An application that does not know of us is patched when it imports PyMongo, not before."""
    assert python(f"import sys; print('pymongo_deprio' in sys.modules); {ENABLED}") == "False\nTrue"


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_processes_of_multiprocessing(method: str, tmp_path: Path) -> None:
    """A child that an application starts is patched, however it starts it."""
    script = tmp_path / "application.py"
    script.write_text(f"""
import multiprocessing
def work():
    {ENABLED}
if __name__ == "__main__":
    child = multiprocessing.get_context({method!r}).Process(target=work)
    child.start()
    child.join()
""")
    assert output(sys.executable, str(script)) == "True"


def test_a_module_a_script_and_a_shell(tmp_path: Path) -> None:
    """However Python is started, even by something else."""
    (tmp_path / "application.py").write_text(ENABLED)
    for command in (
        [sys.executable, "application.py"],
        [sys.executable, "-m", "application"],
        ["sh", "-c", f"'{sys.executable}' application.py"],
    ):
        assert output(*command, cwd=tmp_path) == "True"


def test_options() -> None:
    """They are handed on to the application's processes."""
    code = (
        "import pymongo; from pymongo_deprio._activation import _state;"
        "print(_state._entries[-1][1].cooldown)"
    )
    told = python(code, before=("--cooldown=base=2", "--strict"))
    assert told == "Cooldown(base=2.0, maximum=30.0, jitter=0.15)"
    assert python(code, before=("--cooldown",)).startswith("Cooldown(base=1.0")
    assert python(code) == "None"
    names = "import os; print(os.environ['PYMONGO_DEPRIO_STRICT'])"
    assert python(names, before=("--strict",)) == "1"


def test_switched_off() -> None:
    """An operator's PYMONGO_DEPRIO_ENABLED=0 counts."""
    assert python(ENABLED, env={**os.environ, "PYMONGO_DEPRIO_ENABLED": "0"}) == "False"


def test_a_wrong_value_in_the_environment() -> None:
    """The application runs, without the patch, and standard error says why."""
    environment = {**os.environ, "PYMONGO_DEPRIO_COOLDOWN": "base=0"}
    done = run(sys.executable, "-c", ENABLED, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "False")
    assert done.stderr.startswith("pymongo_deprio: PYMONGO_DEPRIO_COOLDOWN must be")


def test_a_sitecustomize_of_its_own(tmp_path: Path) -> None:
    """The one that would have been run without us is run, and is the one that is imported."""
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.was_run = True")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = f"import sys, sitecustomize; print(sys.was_run, sitecustomize.__file__); {ENABLED}"
    told = python(code, env=environment)
    assert told == f"True {tmp_path / 'sitecustomize.py'}\nTrue"


def test_a_sitecustomize_that_fails(tmp_path: Path) -> None:
    """It is reported as without us, and PyMongo is patched."""
    (tmp_path / "sitecustomize.py").write_text("import nonesuch")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run(sys.executable, "-c", ENABLED, env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "True")
    assert "No module named 'nonesuch'" in done.stderr


def test_nothing_else_changes_in_the_process() -> None:
    """Modules, sys.path and sys.meta_path are as without us, but for one finder until PyMongo."""
    code = """
import sys
print(sorted(sys.modules), sys.path)
print([getattr(finder, "__module__", "") for finder in sys.meta_path])
"""
    alone = subprocess.run(
        [sys.executable, "-c", code], cwd=sys.prefix, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    modules, finders = python(code).splitlines()
    assert modules.replace("'sitecustomize', ", "") == alone[0].replace("'sitecustomize', ", "")
    assert finders == alone[1].replace("[", "['sitecustomize', ")


def test_a_python_without_us(tmp_path: Path) -> None:
    """Where PyMongo is there and we are not, standard error says so and the application runs."""
    (tmp_path / "pymongo.py").write_text("print('imported')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = run(sys.executable, "-S", "-c", "import sitecustomize, pymongo", env=environment)
    assert (done.returncode, done.stdout.strip()) == (0, "imported")
    assert done.stderr.startswith("pymongo_deprio: PyMongo is not patched in this process of ")


@pytest.mark.parametrize("close", ["sys.stderr.close()", "sys.stderr = None"])
def test_a_python_without_us_that_has_no_standard_error(close: str, tmp_path: Path) -> None:
    """Then nobody is told, and the application runs all the same."""
    (tmp_path / "pymongo.py").write_text("print('imported')")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = f"import sitecustomize, sys; {close}; import pymongo"
    assert output(sys.executable, "-S", "-c", code, env=environment) == "imported"


def test_a_pymongo_that_is_found_later() -> None:
    """An application that extends sys.path after it looked in vain has it patched as well."""
    code = f"""
import importlib.util, sys
found = sys.path[:]
sys.path[:] = [folder for folder in found if "site-packages" not in folder]
assert importlib.util.find_spec("pymongo") is None
try:
    import pymongo
except ImportError:
    sys.path[:] = found
{ENABLED}
"""
    assert python(code) == "True"


def test_a_folder_that_is_gone(tmp_path: Path) -> None:
    """A deleted current folder and a relative part of PYTHONPATH are no error of ours."""
    gone = tmp_path / "gone"
    gone.mkdir()
    done = subprocess.run(
        ["/bin/sh", "-c", f"rmdir '{gone}'; exec '{sys.executable}' -c pass"],
        cwd=gone,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([BOOTSTRAP, "relative"])},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "sitecustomize" not in done.stderr


def test_no_pymongo() -> None:
    """Where there is no PyMongo, importing it fails as without us."""
    done = run(sys.executable, "-S", "-c", "import sitecustomize, pymongo")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'pymongo'"


def test_threads_that_look_for_modules_meanwhile() -> None:
    """Who walks along sys.meta_path while PyMongo is imported misses none of those who follow."""
    code = """
import sys
walk = iter(sys.meta_path)
next(walk)
others = sys.meta_path[1:]
import pymongo
print(set(others) <= set(walk))
"""
    for flag in "0", "1":
        assert python(code, env={**os.environ, "PYMONGO_DEPRIO_ENABLED": flag}) == "True"


@pytest.mark.parametrize("module", ["logging", "inspect", "wrapt", "pymongo_deprio"])
def test_threads_that_import_meanwhile(module: str) -> None:
    """A thread that imports something that we need does not wait for one that imports PyMongo."""
    code = f"""
import importlib, threading
start = threading.Barrier(2)
def work(name):
    start.wait()
    importlib.import_module(name)
threads = [threading.Thread(target=work, args=[name]) for name in ("pymongo", {module!r})]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
{ENABLED}
"""
    for _ in range(3):
        assert python(code) == "True"


def test_hooks_of_others() -> None:
    """A finder of an agent's that answers once only is asked once, and its loader runs."""
    code = f"""
import sys
from importlib.machinery import PathFinder
class Once:
    asked = 0
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name == "pymongo":
            cls.asked += 1
            spec = PathFinder.find_spec(name, path, target)
            cls.loader = spec.loader
            return spec
sys.meta_path.insert(1, Once)
{ENABLED}
print(Once.asked, pymongo.__loader__ is Once.loader is pymongo.__spec__.loader)
"""
    assert python(code) == "True\n1 True"


def test_a_pymongo_that_cannot_be_patched(tmp_path: Path) -> None:
    """Standard error says so; with --strict importing it fails, each time."""
    (tmp_path / "pymongo").mkdir()
    (tmp_path / "pymongo" / "__init__.py").write_text("version = '9.0'")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = """
for _ in range(2):
    try:
        import pymongo
    except Exception as error:
        print(type(error).__name__)
    else:
        print(pymongo.version)
"""
    done = run(sys.executable, "-c", code, env=environment)
    assert done.stdout.split() == ["9.0"] * 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("pymongo_deprio: PyMongo 9.0 cannot be patched: it has no pymongo.topol")
    told = python(code, before=("--strict",), env=environment)
    assert told.split() == ["UnsupportedPyMongoError"] * 2


def test_exit_code_signals_and_the_process() -> None:
    """The command has the launcher's process: its code, its signals, its standard streams."""
    assert run(sys.executable, "-c", "raise SystemExit(7)").returncode == 7
    assert run("sh", "-c", "kill -TERM $$").returncode == -signal.SIGTERM
    with subprocess.Popen(
        [sys.executable, "-m", "pymongo_deprio", "run", "--", "sh", "-c", "echo $$"],
        cwd=sys.prefix,
        stdout=subprocess.PIPE,
        text=True,
    ) as launched:
        assert launched.stdout is not None
        assert launched.stdout.read() == f"{launched.pid}\n"


def test_signals_that_python_ignores() -> None:
    """The command gets SIGPIPE as a shell would give it: no Broken pipe in its logs."""
    done = run("sh", "-c", f"'{sys.executable}' -c 'print()' | true; kill -PIPE $$; echo alive")
    assert (done.returncode, done.stdout) == (-signal.SIGPIPE, "")


def test_the_path_of_the_application_is_kept(tmp_path: Path) -> None:
    """PYTHONPATH has our folder in front of what it had; nested launchers do no harm."""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    code = "import os; print(os.environ['PYTHONPATH'])"
    assert python(code, env=environment) == os.pathsep.join([BOOTSTRAP, str(tmp_path)])
    nested = [sys.executable, "-m", "pymongo_deprio", "run", "--", sys.executable, "-c", ENABLED]
    assert output(*nested) == "True"


@pytest.mark.parametrize(
    ("path", "enabled"), [(BOOTSTRAP, True), ("", False), ("/nonesuch", False)]
)
def test_beside_opentelemetry(path: str, enabled: bool) -> None:
    """What its launcher calls enables below our launcher only."""
    code = (
        f"from pymongo_deprio import _launcher; _launcher.start_beside_opentelemetry(); {ENABLED}"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", f"import sys; sys.path = {sys.path!r}; {code}"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == str(enabled)
