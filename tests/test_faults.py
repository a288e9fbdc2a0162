"""The scripts in docs/faults show what docs/faults.md says, on the PyMongo of this run."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Tuple

import pytest
from support import VERSION

from pymongo_deprio import _faults

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster

DOCS = Path(__file__).parent.parent / "docs"
FAULTS = [f"p{number}" for number in range(1, 12)]
TEXT = (DOCS / "faults.md").read_text(encoding="utf-8")

Row = Tuple[Tuple[int, ...], Tuple[int, ...], List[str]]


def version(text: str) -> tuple[int, ...]:
    """Return a version of PyMongo as numbers."""
    return tuple(map(int, text.split(".")))


def rows() -> list[Row]:
    """Return the page's table: the first and the last version of each line, and its cells."""
    found = re.findall(r"^\| ([\d.]+)(?: to ([\d.]+))? \| (.*) \|$", TEXT, re.MULTILINE)
    return [(version(a), version(b or a), cells.split(" | ")) for a, b, cells in found]


def shown_alone() -> set[str]:
    """Return what this PyMongo shows alone, as the page says."""
    (cells,) = (cells for first, last, cells in rows() if first <= VERSION <= last)
    assert set(cells) <= {"shown", "no"}
    return {fault for fault, cell in zip(FAULTS, cells) if cell == "shown"}


def script(fault: str) -> Any:
    """Return the module of a script."""
    return importlib.import_module(fault)


@pytest.mark.parametrize("fault", FAULTS)
def test_alone(fault: str, cluster: LocalCluster) -> None:
    """PyMongo alone shows the faults of its row in the table, as the doctor says, and no other."""
    shown = script(fault).shows(cluster)
    assert shown is (fault in shown_alone())
    (verdict,) = (one for one in _faults.of_this_pymongo() if one.name == fault.upper())
    assert shown is verdict.is_there


@pytest.mark.usefixtures("enabled")
@pytest.mark.parametrize("fault", FAULTS)
def test_enabled(fault: str, cluster: LocalCluster) -> None:
    """With the patch none of them is shown."""
    assert script(fault).shows(cluster) is False


def test_the_page_tells_how_to_see_each() -> None:
    """Each script stands on the page, and has a column in the table."""
    assert re.findall(r"^- See it: `python docs/faults/(\w+)\.py`", TEXT, re.MULTILINE) == FAULTS
    assert {path.stem for path in (DOCS / "faults").glob("p*.py")} == set(FAULTS)
    assert all(len(cells) == len(FAULTS) for _, _, cells in rows())
