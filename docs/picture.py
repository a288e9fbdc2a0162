"""Makes demo.svg of what the demo prints: ``nox -s picture``."""

from __future__ import annotations

import os
import subprocess
import sys
from io import StringIO
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH = 80

done = subprocess.run(
    [sys.executable, "-m", "pymongo_deprio", "demo"],
    env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH)},
    stdout=subprocess.PIPE,
    text=True,
    check=True,
)
console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True)
console.print("$ pymongo-deprio demo")
console.print(Text.from_ansi(done.stdout))
console.save_svg(str(Path(__file__).with_name("demo.svg")), title="pymongo-deprio demo")
