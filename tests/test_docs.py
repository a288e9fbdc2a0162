"""The recipes and the scripts in docs/ work, with the real libraries, and its links lead on."""

from __future__ import annotations

import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator

import pytest
from opentelemetry import metrics
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from prometheus_client.core import REGISTRY
from support import HOST_UNREACHABLE, Asked, wait_until

import pymongo_deprio

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "metrics.md"
TEXT = PAGE.read_text(encoding="utf-8")
PROMETHEUS, OPENTELEMETRY = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)

Metrics = Dict[str, Dict[str, float]]
"""The values by the metric's name, without what all have in common, and by server."""


def follow(recipe: str) -> None:
    """Do what a recipe says."""
    exec(compile(recipe, str(PAGE), "exec"), {})  # noqa: S102 - that is what is tested


@pytest.fixture
def prometheus() -> Iterator[Callable[[], Metrics]]:
    """Follow the recipe for Prometheus, and return what reads its metrics."""
    before = set(REGISTRY._collector_to_names)
    follow(PROMETHEUS)

    def read() -> Metrics:
        found: Metrics = {}
        for family in REGISTRY.collect():
            for sample in family.samples:
                match = re.fullmatch("pymongo_deprio_(.*)_total", sample.name)
                if match:
                    found.setdefault(match[1], {})[sample.labels.get("server", "")] = sample.value
        return found

    yield read
    for collector in set(REGISTRY._collector_to_names) - before:
        REGISTRY.unregister(collector)


@pytest.fixture
def opentelemetry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Metrics]]:
    """Follow the recipe for OpenTelemetry, and return what reads its metrics."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader])
    # The one that an application sets is there for the rest of the process.
    monkeypatch.setattr(metrics, "get_meter", provider.get_meter)
    follow(OPENTELEMETRY)

    def server(attributes: Any) -> str:
        return ":".join(str(attributes[key]) for key in sorted(attributes))

    def read() -> Metrics:
        data: Any = reader.get_metrics_data()
        (scope,) = data.resource_metrics[0].scope_metrics
        return {
            metric.name.replace("pymongo_deprio.", ""): {
                server(point.attributes): point.value for point in metric.data.data_points
            }
            for metric in scope.metrics
        }

    yield read
    provider.shutdown()


@pytest.mark.parametrize("library", ["prometheus", "opentelemetry"])
def test_metrics(
    library: str,
    request: pytest.FixtureRequest,
    cluster: LocalCluster,
    connect: Callable[..., Any],
    asked: Asked,
) -> None:
    """Threads meet a sick mongos: each failed attempt is counted there, and each total is right."""
    before = pymongo_deprio.stats()
    try:
        read = request.getfixturevalue(library)
        # PyMongo 3.9 and 3.10 forget a mongos that failed until they look for it again.
        things = connect(heartbeatFrequencyMS=500).test.things
        sick = cluster.mongos[0]
        with sick.fail_command("find", error_code=HOST_UNREACHABLE), ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: things.find_one(), range(200)))

        def is_probed() -> bool:
            things.find_one()
            return pymongo_deprio.stats().probes > before.probes

        wait_until(is_probed, "a probe")
    finally:
        pymongo_deprio.disable()
    after = pymongo_deprio.stats()
    failed = len(asked.where("failed", "find"))
    convictions = after.convictions - before.convictions
    assert failed >= convictions > 0
    assert after.retries - before.retries == failed
    assert after.avoided > before.avoided
    server = "{}:{}".format(*sick.address)
    found = read()
    assert found.pop("failed_attempts") == {server: failed}
    assert found.pop("cooldowns") == {server: convictions}
    assert found == {name: {"": value} for name, value in asdict(after).items()}


def test_queries_name_metrics_that_exist() -> None:
    """Each metric that the page tells to query is a total or one of the two labelled counters."""
    queried = set(re.findall(r"pymongo_deprio_(\w+)_total", TEXT))
    assert queried
    assert queried <= {*asdict(pymongo_deprio.stats()), "failed_attempts", "cooldowns"}
    described = re.findall(r"^\| `(\w+)` \|", TEXT, re.MULTILINE)
    assert described == list(asdict(pymongo_deprio.stats()))


@pytest.mark.parametrize(
    ("arguments", "verdict"), [([], "P10: shown"), (["--enabled"], "P10: not shown")]
)
def test_a_script_of_a_fault(arguments: list[str], verdict: str) -> None:
    """A script says what it saw, on a cluster of its own, and ends with the verdict."""
    command = [sys.executable, str(ROOT / "docs" / "faults" / "p10.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seen, last = done.stdout.splitlines()
    assert "sent aggregate to A, " in seen
    assert last == verdict


def without_code(page: Path) -> str:
    """Return a page without its blocks of code."""
    return re.sub(
        r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE
    )


def anchors(page: Path) -> set[str]:
    """Return what links to the headings of a page end with."""
    headings = re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize(
    "page", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    """Each link of a page to another file, or to a heading, has something at its end."""
    for link in re.findall(r"\]\((?!https?:)([^)]+)\)", without_code(page)):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link
