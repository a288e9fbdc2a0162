# ruff: noqa: T201
"""What a type checker makes of the public face; checked by mypy --strict, never run."""

from __future__ import annotations

import pymongo_deprio

events: list[pymongo_deprio.Event] = []


def listener(event: pymongo_deprio.Event) -> None:
    """Use every attribute of every event."""
    print(event.level, str(event))
    host: str
    port: int | None
    if isinstance(event, pymongo_deprio.CooldownStarted):
        host, port = event.address
        seconds: float = event.seconds
        strikes: int = event.strikes
        print(seconds, strikes)
        return
    if isinstance(event, pymongo_deprio.CooldownEnded):
        reason: str = event.reason
        print(event.address, reason)
        return
    operation: str | None = event.operation
    attempt: int = event.attempt
    failed: tuple[pymongo_deprio.Address, ...] = event.failed
    deprioritized: tuple[pymongo_deprio.Address, ...] = event.deprioritized
    host, port = event.chosen
    error: BaseException | None = event.error
    print(operation, attempt, failed, deprioritized, host, port, error)
    print(event.fallback is True, event.redirected is True)


pymongo_deprio.enable()
pymongo_deprio.enable(on_event=listener, strict=True)
pymongo_deprio.enable(on_event=events.append)
pymongo_deprio.enable(on_event=print)
pymongo_deprio.enable(cooldown=True)
pymongo_deprio.enable(cooldown=None)
pymongo_deprio.enable(cooldown=pymongo_deprio.Cooldown(base=0.5, maximum=10, jitter=0))
pymongo_deprio.enable(cooldown=5)  # type: ignore[arg-type]
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
cooldowns: tuple[int, int, int] = (stats.convictions, stats.probes, stats.avoided)
nothing: None = pymongo_deprio.disable()  # type: ignore[func-returns-value]
version: str = pymongo_deprio.__version__
warning: type[Warning] = pymongo_deprio.UnsupportedPyMongoWarning
error: type[Exception] = pymongo_deprio.UnsupportedPyMongoError
