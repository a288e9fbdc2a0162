"""Uses the store below an APM agent, and prints what that recorded: ``python traced.py AGENT``.

Each agent is given a trace to record into, and its spans are taken from it in this process: nothing
is sent to anybody.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any

import pymongo_deprio

SICK = os.environ["SICK"]


def stay_here(event: str, arguments: tuple[Any, ...]) -> None:
    """Refuse a connection to anywhere else, whatever an agent may think of."""
    if event == "socket.connect":
        address = arguments[1]
        if isinstance(address, tuple) and address[0] != "127.0.0.1":
            raise PermissionError(f"an agent wants to connect to {address!r}")


def work() -> None:
    """Read and write once, each at the sick mongos first."""
    if "ENABLE_LATE" in os.environ:
        importlib.import_module("pymongo_deprio.auto")
    import shop  # noqa: PLC0415 - as late as an application may
    from orders.store import Store  # noqa: PLC0415
    from pymongo import MongoClient  # noqa: PLC0415

    def near(servers: list[Any]) -> list[Any]:
        return [server for server in servers if str(server.address[1]) == SICK] or servers

    client: Any = MongoClient(os.environ["MONGODB_URI"], server_selector=near)
    with client:
        shop.wait_for_both(client)
        store = Store(client.orders)
        store.in_stock("tea")
        store.stock_up("tea", 1)


def ddtrace() -> list[str]:
    """Return Datadog's spans."""
    from ddtrace.trace import TraceFilter, tracer  # noqa: PLC0415

    spans: list[Any] = []

    class Keep(TraceFilter):  # type: ignore[misc]
        def process_trace(self, trace: Any) -> None:
            spans.extend(trace)

    tracer.configure(trace_processors=[Keep()])
    with tracer.trace("work"):
        work()
    return [f"{span.resource} {span.error}" for span in spans if span.name == "pymongo.cmd"]


def opentelemetry() -> list[str]:
    """Return OpenTelemetry's spans."""
    from opentelemetry import trace  # noqa: PLC0415
    from opentelemetry.sdk.trace import export  # noqa: PLC0415
    from opentelemetry.sdk.trace.export import in_memory_span_exporter  # noqa: PLC0415

    kept = in_memory_span_exporter.InMemorySpanExporter()
    provider: Any = trace.get_tracer_provider()
    provider.add_span_processor(export.SimpleSpanProcessor(kept))
    work()
    return [f"{span.name} {span.status.status_code.name}" for span in kept.get_finished_spans()]


def newrelic() -> list[str]:
    """Return New Relic's nodes."""
    from newrelic import agent  # noqa: PLC0415

    application = agent.register_application(timeout=10)
    with agent.BackgroundTask(application, "work") as transaction:
        work()
        nodes = list(transaction.root_span.children)
    return [f"{node.target} {node.operation}" for node in nodes if hasattr(node, "target")]


class Kept:
    """Takes the place of what sends Elastic's events."""

    start_stop_order = 0
    spans: list[Any] = []  # noqa: RUF012 - there is one

    def __init__(self, *args: Any, **options: Any) -> None:
        """Need nothing."""

    def queue(self, kind: str, data: Any, *args: Any, **options: Any) -> None:
        """Keep an event."""
        if kind == "span":
            self.spans.append(data)

    def start_thread(self, *args: Any, **options: Any) -> None:
        """Start and stop nothing."""

    close = flush = stop_thread = start_thread


def elastic() -> list[str]:
    """Return Elastic's spans."""
    import elasticapm  # noqa: PLC0415

    client = elasticapm.Client(transport_class="__main__.Kept")
    client.begin_transaction("work")
    work()
    client.end_transaction("work")
    return [f"{span['name']} {span['outcome']}" for span in Kept.spans]


def sentry() -> list[str]:
    """Return Sentry's spans."""
    import sentry_sdk  # noqa: PLC0415

    kept: list[Any] = []

    class Keep(sentry_sdk.transport.Transport):  # type: ignore[misc]
        def capture_envelope(self, envelope: Any) -> None:
            kept.extend((envelope.get_transaction_event() or {}).get("spans", []))

    sentry_sdk.init(dsn="http://key@127.0.0.1:9/1", traces_sample_rate=1, transport=Keep)
    with sentry_sdk.start_transaction(name="work"):
        work()
    return [f"{next(iter(json.loads(span['description'])))} {span['status']}" for span in kept]


def main() -> None:
    """Print what was recorded of the two operations, and how many retries moved."""
    sys.addaudithook(stay_here)
    spans = [span for span in globals()[sys.argv[1]]() if "find" in span or "update" in span]
    print(json.dumps({"spans": spans, "redirected": pymongo_deprio.stats().redirected}))


if __name__ == "__main__":
    main()
