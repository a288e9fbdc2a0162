"""What the patch is good for, by the load of the demo: ``python benchmarks/benefit.py``."""

from __future__ import annotations

from typing import Iterator

from measure import Row, main

from pymongo_deprio import _demo

_demo.SOCKET_TIMEOUT_MS = 200  # nobody watches: a shorter one gives more operations
PATCHES = ("alone", "enabled", "enabled with cooldown")


def rows(quick: bool) -> Iterator[Row]:
    """Let one of 2, 3 and 10 mongoses fail every operation, or hang."""
    for mongoses in (2,) if quick else (2, 3, 10):
        for hang, operations in ((False, 100 if quick else 2000), (True, 20 if quick else 240)):
            for patch, run in zip(PATCHES, _demo.run(operations, mongoses, hang=hang)):
                figures = run.figures()
                yield {
                    "mongoses": mongoses,
                    "one_of_them": "hangs" if hang else "fails",
                    "patch": patch,
                    "operations": figures["operations"],
                    "failed": figures["failed"],
                    "wasted_attempts": figures["attempts_on_sick_mongos"],
                    "200_ms_or_more": figures["timed_out"],
                    "median_ms": figures["median_ms"],
                    "p99_ms": figures["p99_ms"],
                }


if __name__ == "__main__":
    main(rows)
