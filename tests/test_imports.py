"""Who may import whom, and what importing does."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import pymongo_deprio

PACKAGE = Path(pymongo_deprio.__file__).parent
# Each line may import from the lines above it.
LAYERS = [
    {"_errors", "_events"},
    {"_options", "_selection"},
    {"_cooldown", "_environment"},
    {"_memory", "_operation"},
    {"_patching"},
    {"_inside"},
    {"_attempts"},
    {"_lending", "_loops", "_wrappers"},
    {"_seams"},
    {"_activation", "_faults"},
    {"__init__"},
    {"auto"},
    {"_launcher"},
    {"cluster"},
    {"_plugin_options", "_survey"},
    {"_plugin_clusters", "_doctor", "_host"},
    {"_demo", "pytest_plugin"},
    {"cli"},
    {"__main__"},
]
ONLY_IN = {"wrapt": {"_patching"}}


def imports(path: Path) -> set[str]:
    """Return the modules that a file imports, for types too."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.update(f"{node.module}.{alias.name}" for alias in node.names)
    return names


def module_of(name: str) -> str:
    """Return the module of ours that an import means."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 and (PACKAGE / f"{parts[1]}.py").exists() else "__init__"


@pytest.mark.parametrize("path", sorted(PACKAGE.glob("*.py")), ids=lambda path: path.stem)
def test_imports_run_downwards(path: Path) -> None:
    """A module imports only from the layers below its own, and wrapt only where it is allowed."""
    level = next(index for index, layer in enumerate(LAYERS) if path.stem in layer)
    allowed = set().union(*LAYERS[:level])
    for name in imports(path):
        if name.split(".")[0] == "pymongo_deprio" and ".cluster" not in name:
            assert module_of(name) in allowed, f"{path.stem} imports {name}"
        assert path.stem in ONLY_IN.get(name.split(".")[0], {path.stem}), name


def test_cluster_stands_apart() -> None:
    """The clusters know nothing of the patch."""
    for path in (PACKAGE / "cluster").glob("*.py"):
        for name in imports(path):
            assert not name.startswith("pymongo_deprio") or ".cluster" in name, f"{path}: {name}"


def test_importing_the_package_changes_nothing() -> None:
    """Importing the package, even its front door, imports no PyMongo."""
    code = (
        "import sys, pymongo_deprio; "
        "print([name for name in sys.modules if name.partition('.')[0] in ('pymongo', 'bson')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
