# ruff: noqa: T201
"""What a type checker makes of the public face; checked by mypy --strict, never run."""

from __future__ import annotations

import pymongo_deprio

retries: list[pymongo_deprio.Retry] = []


def listener(event: pymongo_deprio.Event) -> None:
    """Use every attribute of an event."""
    operation: str | None = event.operation
    attempt: int = event.attempt
    failed: tuple[pymongo_deprio.Address, ...] = event.failed
    deprioritized: tuple[pymongo_deprio.Address, ...] = event.deprioritized
    host: str
    port: int | None
    host, port = event.chosen
    print(operation, attempt, failed, deprioritized, host, port)
    print(event.fallback is True, event.redirected is True)


pymongo_deprio.enable()
pymongo_deprio.enable(on_event=listener, strict=True)
pymongo_deprio.enable(on_event=retries.append)
pymongo_deprio.enable(on_event=print)
pymongo_deprio.enable(on_event=1)  # type: ignore[arg-type]
pymongo_deprio.enable(strict=None)  # type: ignore[arg-type]
pymongo_deprio.enable(listener)  # type: ignore[call-arg]

handle: pymongo_deprio.Activation = pymongo_deprio.enable()
handle.close()
with pymongo_deprio.enable() as entered:
    entered.close()

enabled: bool = pymongo_deprio.is_enabled()
stats: pymongo_deprio.Stats = pymongo_deprio.stats()
counts: tuple[int, int, int] = (stats.retries, stats.redirected, stats.fallbacks)
nothing: None = pymongo_deprio.disable()  # type: ignore[func-returns-value]
version: str = pymongo_deprio.__version__
warning: type[Warning] = pymongo_deprio.UnsupportedPyMongoWarning
error: type[Exception] = pymongo_deprio.UnsupportedPyMongoError
