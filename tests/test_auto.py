"""Importing ``pymongo_deprio.auto`` enables the patch; each time in a process of its own."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest
from support import run_installed

if TYPE_CHECKING:
    import subprocess

ENABLED = "import pymongo_deprio; print(pymongo_deprio.is_enabled())"
BREAK = """
import pymongo.topology_description
del pymongo.topology_description.TopologyDescription.apply_selector
"""


def run(code: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run some Python with these variables in the environment, those of the options only."""
    kept = {name: text for name, text in os.environ.items() if "PYMONGO_DEPRIO" not in name}
    given = {f"PYMONGO_DEPRIO_{name}": text for name, text in variables.items()}
    return run_installed(sys.executable, "-c", code, env={**kept, **given})


def output(code: str, **variables: str) -> str:
    """Return what some Python prints; it must not complain."""
    done = run(code, **variables)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


def test_before_pymongo_is_imported() -> None:
    """PyMongo is not imported for it, and is patched as soon as it is."""
    code = f"import pymongo_deprio.auto, sys; print('pymongo' in sys.modules); {ENABLED}"
    assert output(f"{code}; import pymongo; {ENABLED}").split() == ["False", "False", "True"]


@pytest.mark.parametrize("first", ["pymongo", "pymongo.errors", "gridfs"])
def test_whatever_is_imported_first(first: str) -> None:
    """It may be a part of PyMongo, or what needs it."""
    assert output(f"import pymongo_deprio.auto; import {first}; {ENABLED}") == "True"


def test_after_pymongo_was_imported() -> None:
    """PyMongo is patched at once."""
    assert output(f"import pymongo; import pymongo_deprio.auto; {ENABLED}") == "True"


def test_switched_off() -> None:
    """With ENABLED=0 PyMongo stays as it is."""
    assert output(f"import pymongo_deprio.auto; import pymongo; {ENABLED}", ENABLED="0") == "False"


def test_cooldown() -> None:
    """COOLDOWN is what enable() is given, until the application enables with something else."""
    code = """
import pymongo_deprio.auto, pymongo
from pymongo_deprio._activation import _state
print(_state._entries[-1][1].cooldown)
with pymongo_deprio.enable():
    print(_state._entries[-1][1].cooldown)
print(_state._entries[-1][1].cooldown)
"""
    wanted = "Cooldown(base=3.0, maximum=9.0, jitter=0.15)"
    assert output(code, COOLDOWN="base=3,maximum=9").splitlines() == [wanted, "None", wanted]


@pytest.mark.parametrize(
    ("name", "text"), [("ENABLED", "perhaps"), ("COOLDOWN", "base=0"), ("STRICT", "2")]
)
def test_a_wrong_value(name: str, text: str) -> None:
    """One line on standard error says which and why; the application runs without the patch."""
    done = run(f"import pymongo_deprio.auto; import pymongo; {ENABLED}", **{name: text})
    assert (done.returncode, done.stdout.strip()) == (0, "False")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"pymongo_deprio: PYMONGO_DEPRIO_{name} must be")
    assert repr(text) in line
    assert line.endswith("PyMongo is not patched.")


def test_a_pymongo_that_cannot_be_patched() -> None:
    """One line on standard error says what it lacks; the application runs without the patch."""
    done = run(f"{BREAK}\nimport pymongo_deprio.auto; {ENABLED}")
    assert (done.returncode, done.stdout.strip()) == (0, "False")
    (line,) = done.stderr.splitlines()
    assert line.startswith("pymongo_deprio: PyMongo ")
    assert "it has no pymongo.topology_description.TopologyDescription.apply_selector" in line


def test_a_pymongo_that_cannot_be_patched_if_strict() -> None:
    """With STRICT=1 that is an error, where PyMongo is imported."""
    done = run(f"{BREAK}\nimport pymongo_deprio.auto; {ENABLED}", STRICT="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("pymongo_deprio._errors.UnsupportedPyMongoError")


def test_standard_error_is_closed() -> None:
    """Then there is nobody to tell, and the application runs all the same."""
    code = f"import sys; sys.stderr.close(); import pymongo_deprio.auto; import pymongo; {ENABLED}"
    assert run(code, ENABLED="perhaps").stdout.strip() == "False"


def test_another_thread_enables_meanwhile() -> None:
    """A thread that imports PyMongo and one that enables do not wait for each other for ever."""
    code = f"""
import pymongo_deprio.auto, importlib, threading
start = threading.Barrier(2)
def enable():
    start.wait()
    pymongo_deprio.enable()
thread = threading.Thread(target=enable)
thread.start()
start.wait()
importlib.import_module("pymongo")
thread.join()
{ENABLED}
"""
    for _ in range(3):
        assert output(code) == "True"
