"""The memory between operations: which mongoses of one client cool down, and until when.

The specification knows no such memory. A mongos is convicted by contrast: an operation failed on it
and then succeeded on another, so the fault does not lie behind the mongoses. It is left out for a
while, then one operation is sent there to see; one success ends it. Pure: the clock and the chance
are given, and what is to be told is returned.
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Collection, Iterable, NamedTuple

from pymongo_deprio._events import CooldownEnded, CooldownStarted

if TYPE_CHECKING:
    from pymongo_deprio._events import Address, Event
    from pymongo_deprio._options import Cooldown

_DOUBLINGS = 64
"""More of them would leave the range of numbers, long after every maximum."""


@dataclass
class _Cooling:
    strikes: int
    began: float
    seconds: float
    # Weak: one that was never finished must not keep the others away for good.
    prober: weakref.ref[object] | None = None
    probed_since: float = 0.0

    def is_probed(self, now: float, maximum: float) -> bool:
        # A probe that takes longer is perhaps only a long query.
        is_new = self.probed_since <= now < self.probed_since + maximum
        return is_new and self.prober is not None and self.prober() is not None

    def is_over(self, now: float) -> bool:
        # Before its beginning is a clock that was set back.
        return not self.began <= now < self.began + self.seconds


class Plan(NamedTuple):
    """What one selection should do."""

    cooling: frozenset[Address]
    """What to leave out while others are suitable."""
    probe: Address | None
    """Where to go if that is suitable, to see whether it is well again."""
    at: float
    """When this was said."""


class Suspicion(NamedTuple):
    """A mongos on which an attempt failed."""

    address: Address
    since: float
    """When the attempt was planned; 0.0 if nothing was cooling then."""


class Cooldowns:
    """The cooling mongoses of one client."""

    def __init__(
        self,
        options: Cooldown,
        clock: Callable[[], float],
        uniform: Callable[[float, float], float],
    ) -> None:
        """Begin with none.

        :param clock: the time in seconds, from any beginning but 0.0 on.
        :param uniform: a number by chance from the first to the second.
        """
        self._options = options
        self._clock = clock
        self._uniform = uniform
        self._cooling: dict[Address, _Cooling] = {}

    def __len__(self) -> int:
        """Return how many are cooling."""
        return len(self._cooling)

    def forget_all_but(self, known: Collection[Address]) -> list[Event]:
        """Forget the mongoses that have left the topology."""
        left = [address for address in self._cooling if address not in known]
        for address in left:
            del self._cooling[address]
        return [CooldownEnded(address, "left") for address in left]

    def plan(self, prober: object = None, *, is_retry: bool = False) -> Plan:
        """Say what a selection should leave out, and whether it should probe.

        :param prober: who may do that, until ``release``; None if it must not.
        :param is_retry: it must not try its luck where nobody has probed yet.
        """
        now = self._clock()
        cooling: set[Address] = set()
        probe = None
        for address, entry in self._cooling.items():
            is_probed = entry.is_probed(now, self._options.maximum)
            if is_retry or is_probed or not entry.is_over(now):
                cooling.add(address)
            elif prober is not None and probe is None:
                entry.prober, entry.probed_since = weakref.ref(prober), now
                probe = address
        return Plan(frozenset(cooling), probe, now)

    def release(self, prober: object, *, failed: bool = False) -> None:
        """Let others probe, as this one did not or has ended.

        :param failed: it ended, and unless it was judged it found nothing out: the next one waits
            as long as it did, or one after the other would probe and fail.
        """
        for entry in self._cooling.values():
            if entry.prober is not None and entry.prober() is prober:
                entry.prober = None
                if failed:
                    entry.began = self._clock()

    def judge(self, well: Address, since: float, suspicions: Iterable[Suspicion]) -> list[Event]:
        """Draw the conclusions from an operation that succeeded.

        :param well: where it succeeded.
        :param since: when that attempt was planned; what was before a conviction says nothing.
        :param suspicions: where its earlier attempts failed.
        """
        events: list[Event] = []
        entry = self._cooling.get(well)
        if entry is not None and entry.began < since:
            del self._cooling[well]
            events.append(CooldownEnded(well, "success"))
        events += [
            self._convict(suspicion.address)
            for suspicion in suspicions
            if suspicion.address != well and self._is_news(suspicion)
        ]
        return events

    def _is_news(self, suspicion: Suspicion) -> bool:
        """Tell it from one of many operations that failed at the same moment."""
        entry = self._cooling.get(suspicion.address)
        return entry is None or entry.began < suspicion.since

    def _convict(self, address: Address) -> CooldownStarted:
        before = self._cooling.get(address)
        strikes = before.strikes + 1 if before else 1
        seconds = min(
            self._options.base * 2.0 ** min(strikes - 1, _DOUBLINGS), self._options.maximum
        ) * self._uniform(1 - self._options.jitter, 1 + self._options.jitter)
        now = self._clock()
        self._cooling[address] = _Cooling(strikes, now, seconds)
        return CooldownStarted(address, seconds, strikes)
