"""Leave out what needs a library that is not installed: ``nox -s recipes`` installs them."""

from importlib.util import find_spec

NEEDS = {"test_recipes.py": "motor"}
collect_ignore_glob = [name for name, library in NEEDS.items() if find_spec(library) is None]
