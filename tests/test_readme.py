"""What the README shows works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support import MARKS_UNKNOWN

README = Path(__file__).parent.parent / "README.md"


def examples(*, of_pytest: bool) -> list[str]:
    """Return the Python examples, those with tests or the others."""
    found = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return [example for example in found if ("def test_" in example) is of_pytest]


def test_examples() -> None:
    """The Python examples run, one after the other as somebody may type them; retries are seen."""
    scripts = examples(of_pytest=False)
    assert len(scripts) == 3
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(scripts)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    *events, enabled, stats = done.stdout.splitlines()
    assert enabled == "True"
    assert stats.startswith("Stats(retries=")
    assert events
    assert all(event.startswith("Retry of ") for event in events)


@pytest.mark.skipif(MARKS_UNKNOWN, reason="here it is a matter of chance, as the README says")
def test_project(pytester: pytest.Pytester) -> None:
    """In the project for pytest, the test without the patch fails and the one with it passes."""
    (project,) = examples(of_pytest=True)
    path = pytester.makepyfile(test_orders=project)
    result = pytester.runpytest_subprocess(path, "-p", "no:cacheprovider", timeout=60)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["FAILED *::test_alone*"])
