"""The recipes of docs/recipes.md work, with the real libraries, in processes of their own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
from contextlib import contextmanager, nullcontext
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Iterator

import pytest
from support import HAS_ASYNC, RETRYABLE, VERSION

from pymongo_deprio.cluster import LocalCluster

PAGE = Path(__file__).parents[2] / "docs" / "recipes.md"
ENABLE = "pymongo_deprio.enable()"
OPERATIONS = ["find", "aggregate", "insert", "update"]

# Stands beside each recipe: places orders, and prints how many failed and how often one moved.
MEASURE = """
import asyncio, json, time
import pymongo_deprio
from pymongo.errors import PyMongoError

loop = asyncio.new_event_loop()
asyncio.set_event_loop(loop)
run = loop.run_until_complete

def ready(client):
    # Before both mongoses are known, a retry has nowhere to go.
    for _ in range(3000):
        if len(client.nodes) == 2:
            return
        run(asyncio.sleep(0.01))
    raise RuntimeError("not all mongoses were found")

def measure(order):
    failed = 0
    for _ in range(5):
        try:
            assert order("tea")
        except Exception as error:
            # MongoEngine and Django raise their own from it.
            blamed = error, error.__cause__, error.__context__
            if not any(isinstance(one, PyMongoError) for one in blamed):
                raise
            failed += 1
    report(failed, pymongo_deprio.stats().redirected)

def report(failed, redirected):
    print(json.dumps({"failed": failed, "redirected": redirected}))
"""
DRIVERS = {
    "Motor": """
        import os
        import app
        from measure import measure, ready, run

        client = app.AsyncIOMotorClient(os.environ["MONGODB_URI"])
        run(client.admin.command("ping"))
        ready(client)
        measure(lambda item: run(app.order(client, item)))
    """,
    "MongoEngine": """
        import app
        from measure import measure, ready

        ready(app.client)
        measure(app.order)
    """,
    "Beanie": """
        import os
        import app
        from measure import measure, ready, run

        client = app.AsyncMongoClient(os.environ["MONGODB_URI"])
        run(client.admin.command("ping"))
        ready(client)
        run(app.init_beanie(database=client.shop, document_models=[app.Order]))
        measure(lambda item: run(app.order(item)))
    """,
    "Django MongoDB Backend": """
        import os
        import django
        from measure import measure, ready

        os.environ.update(DJANGO_SETTINGS_MODULE="shop.settings", SECRET_KEY="secret")
        django.setup()
        from django.db import connection
        from shop.orders import order

        connection.ensure_connection()
        ready(connection.connection)
        measure(order)
    """,
    "Celery": """
        from celery.signals import worker_process_init
        import pymongo_deprio
        from measure import measure, ready, report
        from tasks import add, app

        folder = {"data_folder_in": "queue", "data_folder_out": "queue", "control_folder": "queue"}
        folder["polling_interval"] = 0.05
        app.conf.update(broker_transport_options=folder, worker_proc_alive_timeout=30)

        @worker_process_init.connect
        def prepare(**options):
            ready(app.backend.database.client)

        @app.task(name="redirected")
        def redirected():
            return pymongo_deprio.stats().redirected

        if __name__ == "__main__":
            prepare()
            measure(lambda item: add.delay(2, 3).get(timeout=30, interval=0.05) == 5)
            if pymongo_deprio.is_enabled():
                report(0, redirected.delay().get(timeout=30, interval=0.05))
    """,
    "FastAPI": """
        import httpx
        from app import app, lifespan
        from measure import measure, ready, run

        http = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")

        def order(item):
            return run(http.post("/orders/" + item)).json() == {"item": item}

        serving = lifespan(app)
        run(serving.__aenter__())
        run(app.state.client.admin.command("ping"))
        ready(app.state.client)
        measure(order)
        run(serving.__aexit__(None, None, None))
    """,
}
LIBRARIES = {name: name.lower() for name in DRIVERS}
LIBRARIES["Django MongoDB Backend"] = "django_mongodb_backend"
WORKER = ["celery", "-A", "driver", "worker", "-c", "1", "-l", "WARNING", "--without-mingle"]


def missing(recipe: str) -> bool:
    """Return whether something that a recipe needs is not there."""
    return not find_spec(LIBRARIES[recipe]) or (recipe == "FastAPI" and not HAS_ASYNC)


RECIPES = [
    pytest.param(name, marks=pytest.mark.skipif(missing(name), reason=f"no {name} here"))
    for name in DRIVERS
]


@pytest.fixture(scope="module")
def far() -> Iterator[LocalCluster]:
    """Return a cluster whose second mongos is so far away that none begins there by itself."""
    with LocalCluster(hello_delay_ms=[0, 200]) as cluster:
        yield cluster


def files_of(recipe: str) -> dict[str, str]:
    """Return the files that a recipe shows, by their names."""
    (section,) = re.findall(
        rf"^## {recipe}$(.*?)(?=^## |\Z)",
        PAGE.read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    found = re.findall(r"```python\n# (\S+)\n(.*?)```", section, re.DOTALL)
    assert found
    return dict(found)


def write(folder: Path, recipe: str, *, enabled: bool) -> None:
    """Write a recipe's files, and the programs that use it."""
    files = files_of(recipe)
    files["measure.py"] = MEASURE
    files["driver.py"] = textwrap.dedent(DRIVERS[recipe])
    for name, code in files.items():
        if recipe == "Beanie" and int(version("beanie").split(".")[0]) < 2:
            code = code.replace(  # noqa: PLW2901 - as the recipe tells
                "from pymongo import AsyncMongoClient",
                "from motor.motor_asyncio import AsyncIOMotorClient as AsyncMongoClient",
            )
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(code if enabled else code.replace(ENABLE, ""), encoding="utf-8")


@contextmanager
def worker(folder: Path, environment: dict[str, str]) -> Iterator[None]:
    """Run a Celery worker of the recipe."""
    (folder / "queue").mkdir()
    command = [sys.executable, "-m", *WORKER]
    with subprocess.Popen(command, cwd=folder, env=environment, start_new_session=True) as process:
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise


def follow(recipe: str, folder: Path, cluster: LocalCluster) -> list[dict[str, Any]]:
    """Run a recipe with its near mongos sick, and return what the processes reported."""
    environment = {**os.environ, "MONGODB_URI": cluster.uri, "BROKER_URL": "filesystem://"}
    helper = worker(folder, environment) if recipe == "Celery" else nullcontext()
    with cluster.mongos[0].fail_command(OPERATIONS, **RETRYABLE), helper:
        done = subprocess.run(
            [sys.executable, "driver.py"],
            cwd=folder,
            env=environment,
            stdout=subprocess.PIPE,
            check=True,
            timeout=90,
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("recipe", RECIPES)
def test_recipe(recipe: str, tmp_path: Path, far: LocalCluster) -> None:
    """No operation fails while the near mongos is sick, and retries moved to the far one."""
    write(tmp_path, recipe, enabled=True)
    reports = follow(recipe, tmp_path, far)
    assert len(reports) == 1 + (recipe == "Celery")
    for report in reports:
        assert report["failed"] == 0
        assert report["redirected"] > 0


@pytest.mark.skipif(VERSION >= (4, 16), reason="PyMongo 4.16 takes a far mongos by itself")
@pytest.mark.parametrize("recipe", RECIPES)
def test_alone(recipe: str, tmp_path: Path, far: LocalCluster) -> None:
    """Without the recipe's one line every operation fails: PyMongo goes back to the near mongos."""
    assert any(ENABLE in code for code in files_of(recipe).values())
    write(tmp_path, recipe, enabled=False)
    (report,) = follow(recipe, tmp_path, far)
    assert report == {"failed": 5, "redirected": 0}


def test_every_recipe_is_run() -> None:
    """Each section of the page is one of those above."""
    headings = re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert headings == list(DRIVERS)
