"""What the README shows works."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"


def test_examples() -> None:
    """The Python examples run, one after the other as somebody may type them; retries are seen."""
    examples = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(examples) == 3
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(examples)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    enabled, stats, *events = done.stdout.splitlines()
    assert enabled == "True"
    assert stats.startswith("Stats(retries=")
    assert all(event.startswith("Retry(") for event in events)
