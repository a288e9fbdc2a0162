"""The launchers of APM agents and ours go together, in both orders; the agents lose no span."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, NamedTuple

import pytest
from serving import LAUNCHER, PROJECT, environment, program, python
from support import RETRYABLE

if TYPE_CHECKING:
    from pathlib import Path

    from pymongo_deprio.cluster import Cluster


class Agent(NamedTuple):
    """An agent."""

    launcher: list[str]
    """What stands before a command that is to be traced; nothing if the application does it."""
    spans: list[str]
    """What it records of a read and a write that are both retried."""


# Those that see commands have a span for each attempt, the others one for each operation.
AGENTS = {
    "ddtrace": Agent(
        program("ddtrace-run"),
        [
            'find stock {"_id": "?"} 1',
            'find stock {"_id": "?"} 0',
            'update stock {"_id": "?"} 1',
            'update stock {"_id": "?"} 0',
        ],
    ),
    "opentelemetry": Agent(
        program("opentelemetry-instrument"),
        ["orders.find ERROR", "orders.find UNSET", "orders.update ERROR", "orders.update UNSET"],
    ),
    "newrelic": Agent(
        program("newrelic-admin", "run-program"), ["stock find_one", "stock update_one"]
    ),
    "elastic": Agent(
        program("elasticapm-run"),
        ["orders.stock.find_one success", "orders.stock.update_one success"],
    ),
    "sentry": Agent([], ["find internal_error", "find ok", "update internal_error", "update ok"]),
}
NOBODY = "http://127.0.0.1:9"
# The traces stay in the process that records them, and nothing else is to leave it either.
KEPT_AT_HOME = {
    "DD_TRACE_AGENT_URL": NOBODY,
    "DD_INSTRUMENTATION_TELEMETRY_ENABLED": "false",
    "DD_REMOTE_CONFIGURATION_ENABLED": "false",
    "DD_CRASHTRACKING_ENABLED": "false",
    "OTEL_TRACES_EXPORTER": "none",
    "OTEL_METRICS_EXPORTER": "none",
    "OTEL_LOGS_EXPORTER": "none",
    "NEW_RELIC_CONFIG_FILE": str(PROJECT / "newrelic.ini"),
    "NEW_RELIC_HOST": "127.0.0.1",
    "NEW_RELIC_PORT": "9",
    "ELASTIC_APM_SERVER_URL": NOBODY,
    "ELASTIC_APM_SERVICE_NAME": "shop",
    "ELASTIC_APM_CLOUD_PROVIDER": "none",
    "ELASTIC_APM_CENTRAL_CONFIG": "false",
    "ELASTIC_APM_METRICS_INTERVAL": "0s",
}


CASES = [
    (agent, order)
    for agent in AGENTS
    for order in ("alone", "inside", "outside", "late")
    # What elasticapm-run starts runs no other launcher's code, so that it has to stand outside;
    # Sentry has no launcher.
    if (agent, order) not in {("elastic", "inside"), ("sentry", "inside")}
]


@pytest.mark.parametrize(("agent", "order"), CASES)
def test_agents(agent: str, order: str, cluster: Cluster, tmp_path: Path) -> None:
    """An agent records the same with the patch as without, and the retries move.

    Alone is the agent without the patch; inside and outside is where it stands to our launcher, and
    late is an application that enables the patch itself after the agent has started.
    """
    launcher, spans = AGENTS[agent]
    sick = cluster.mongos[0]
    command = {
        "alone": launcher,
        "inside": [*LAUNCHER, *launcher],
        "outside": [*launcher, *LAUNCHER],
        "late": launcher,
    }[order]
    env = {**environment(cluster.uri), **KEPT_AT_HOME, "SICK": str(sick.address[1])}
    if order == "late":
        env["ENABLE_LATE"] = "1"
    with sick.fail_command(["find", "update"], **RETRYABLE):
        output = subprocess.check_output(
            [*command, *python(PROJECT / "traced.py", agent)], env=env, cwd=tmp_path
        )
    assert json.loads(output) == {"spans": spans, "redirected": 0 if order == "alone" else 2}
