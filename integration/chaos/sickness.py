"""The faults: one mongos after the other falls sick, in an order that the seed gives."""

from __future__ import annotations

import random
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, ContextManager, Iterator, Sequence

from model import COMMANDS, SETTLE, TIMEOUT, Fault, Model
from support import finished, wait_until

if TYPE_CHECKING:
    from load import Side

    from pymongo_deprio.cluster import LocalCluster
    from pymongo_deprio.cluster._local import LocalMongos


class Sickness:
    """Makes one mongos sick at a time: the only retry that there is has to end on a well one.

    Each recovers, and the clients know it again and have lost their dead connections, before the
    next one falls sick.
    """

    def __init__(
        self, cluster: LocalCluster, sides: Sequence[Side], seed: int, model: Model
    ) -> None:
        self._cluster = cluster
        self._sides = sides
        self._chance = random.Random(seed)
        self._model = model

    def spread(self, seconds: float) -> None:
        """Let mongoses be sick for so long altogether, one after the other."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            kind = self._chance.choice(list(KINDS))
            mongos = self._chance.choice(self._cluster.mongos)
            began = time.monotonic()
            with KINDS[kind](self, mongos) as fail_point:
                time.sleep(self._chance.uniform(0.3, 1.5))
            hits = getattr(fail_point, "hits", None)
            ended = time.monotonic()
            self._model.faults.append(Fault(kind, mongos.address, began, ended, hits))
            time.sleep(SETTLE)
            for side in self._sides:
                wait_until(lambda: len(side.client.nodes) == 3, "all mongoses")  # noqa: B023

    def _some_commands(self) -> list[str]:
        # A getMore fails in another way: only with a label a change stream resumes.
        commands = [name for name in COMMANDS if name != "getMore"]
        return self._chance.sample(commands, self._chance.randint(1, len(commands)))

    def failed(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Answer an error, with the labels that a server puts on it."""
        return mongos.fail_command(self._some_commands(), error_code=6)

    def failed_get_more(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Answer an error after which change streams resume."""
        labels = ["ResumableChangeStreamError"]
        return mongos.fail_command(["getMore"], error_code=6, error_labels=labels)

    def closed(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Close connections instead of answering."""
        return mongos.fail_command([*self._some_commands(), "getMore"], close_connection=True)

    def blocked(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Execute commands when nobody waits for them any more."""
        block = int(1500 * TIMEOUT)
        return mongos.fail_command(self._some_commands(), block_time_ms=block)

    def paused(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Hang."""
        return mongos.pause()

    def killed(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Die, and come back."""
        return mongos.kill()

    def delayed(self, mongos: LocalMongos) -> ContextManager[Any]:
        """Answer hello late: the others are nearer."""
        return mongos.delay_hello(self._chance.uniform(20, 200))

    @contextmanager
    def removed(self, mongos: LocalMongos) -> Iterator[None]:
        """Leave the clients' topologies and come back, as by SRV polling."""
        every = [one.address for one in self._cluster.mongos]
        self._poll_srv([address for address in every if address != mongos.address])
        yield
        self._poll_srv(every)

    def _poll_srv(self, addresses: list[Any]) -> None:
        for side in self._sides:
            self._update(side, addresses).result()

    @staticmethod
    def _update(side: Side, addresses: list[Any]) -> Any:
        async def update() -> None:
            await finished(side.client._topology.on_srv_update(addresses))

        return side.submit(update())


KINDS: dict[str, Callable[[Sickness, LocalMongos], ContextManager[Any]]] = {
    "failed": Sickness.failed,
    "failed getMore": Sickness.failed_get_more,
    "closed": Sickness.closed,
    "blocked": Sickness.blocked,
    "paused": Sickness.paused,
    "killed": Sickness.killed,
    "delayed": Sickness.delayed,
    "removed": Sickness.removed,
}
