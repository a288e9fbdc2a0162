"""What is measured, in general terms: ``python benchmarks/versions.py``."""

from __future__ import annotations

import platform
import re
import subprocess
from importlib.metadata import version
from typing import Iterator

import pymongo
from measure import Row, main

from pymongo_deprio.cluster._mongod import find_mongod


def rows(quick: bool) -> Iterator[Row]:
    """Name the versions."""
    shown = subprocess.run([find_mongod(), "--version"], stdout=subprocess.PIPE, check=True).stdout
    found = re.search(r"v(\d[\d.]+)", shown.decode())
    yield {
        "pymongo": pymongo.version,
        "c_extension": pymongo.has_c(),
        "python": platform.python_version(),
        "wrapt": version("wrapt"),
        "mongod": found[1] if found else "unknown",
    }


if __name__ == "__main__":
    main(rows)
