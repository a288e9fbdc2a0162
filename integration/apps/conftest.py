"""Leave out what needs a library that is not installed: nox installs them, one session for each."""

from importlib.util import find_spec

NEEDS = {
    "test_launcher_servers.py": "gunicorn",
    "test_launcher_agents.py": "ddtrace",
    "test_recipes.py": "motor",
}
collect_ignore_glob = [name for name, library in NEEDS.items() if find_spec(library) is None]
