"""Leave out what needs a library that is not installed: nox installs them, one session for each."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Iterator

import pytest
from pymongo import MongoClient

from pymongo_deprio.cluster import LocalCluster

pytest.register_assert_rewrite("coexistence")

from coexistence import Documents, Shop  # noqa: E402 - its assertions are rewritten first

NEEDS = {
    "test_launcher_servers.py": "gunicorn",
    "test_launcher_agents.py": "ddtrace",
    "test_libraries_beanie.py": "beanie",
    "test_libraries_celery.py": "celery",
    "test_libraries_django.py": "django_mongodb_backend",
    "test_libraries_mongoengine.py": "mongoengine",
    "test_libraries_motor.py": "motor",
    "test_libraries_odmantic.py": "odmantic",
    "test_recipes.py": "motor",
    "test_runtimes.py": "eventlet",
}
collect_ignore_glob = [name for name, library in NEEDS.items() if find_spec(library) is None]


@pytest.fixture(scope="session")
def shop() -> Iterator[Shop]:
    """Return a cluster of two mongoses, for libraries to use."""
    with LocalCluster() as cluster:
        mongod: MongoClient[Any] = MongoClient(cluster.replica_set_uri)
        with mongod:
            yield Shop(cluster, mongod)


@pytest.fixture
def documents() -> Documents:
    """Return what is in the database before a test."""
    return {
        "orders": [{"_id": 1, "item": "tea", "pieces": 1}, {"_id": 2, "item": "oil", "pieces": 5}]
    }
