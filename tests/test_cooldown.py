"""Which mongoses cool down, for how long, and who may look whether they are well again."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymongo_deprio import Cooldown, CooldownEnded, CooldownStarted
from pymongo_deprio._cooldown import Cooldowns, Suspicion
from pymongo_deprio._selection import select

A, B, C = ("a", 1), ("b", 2), ("c", 3)


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Prober:
    """Stands for an operation: it can be referred to weakly."""


@pytest.fixture
def clock() -> Clock:
    """Return a clock."""
    return Clock()


@pytest.fixture
def cooldowns(clock: Clock) -> Cooldowns:
    """Return the memory of a client, without chance."""
    return Cooldowns(Cooldown(base=1, maximum=30, jitter=0.5), clock, lambda low, high: 1.0)


def convict(cooldowns: Cooldowns, clock: Clock, address: Any = A, well: Any = B) -> list[Any]:
    """Let an operation fail on one mongos and succeed on another, and time go by before it."""
    clock.now += 0.001
    since = cooldowns.plan().at
    return list(cooldowns.judge(well, since, [Suspicion(address, since)]))


def look(cooldowns: Cooldowns, prober: object = None) -> tuple[set[Any], Any]:
    """Return what a selection should leave out, and what it should probe."""
    plan = cooldowns.plan(prober)
    return set(plan.cooling), plan.probe


def test_convicted_by_contrast(cooldowns: Cooldowns, clock: Clock) -> None:
    """An operation that failed on A and succeeded on B lets A cool down, and nobody else."""
    assert convict(cooldowns, clock) == [CooldownStarted(A, 1.0, 1)]
    assert cooldowns.plan().cooling == {A}


def test_all_that_failed_are_convicted(cooldowns: Cooldowns) -> None:
    """But not the one where it succeeded in the end, though it had failed there before."""
    suspicions = [Suspicion(address, 0.0) for address in (A, B, C)]
    events = cooldowns.judge(C, 0.0, suspicions)
    assert events == [CooldownStarted(A, 1.0, 1), CooldownStarted(B, 1.0, 1)]
    assert cooldowns.plan().cooling == {A, B}


def test_the_time_doubles_up_to_the_maximum(cooldowns: Cooldowns, clock: Clock) -> None:
    """Each conviction in a row lasts twice as long, but never longer than the maximum."""
    seconds = []
    for _ in range(100):
        (event,) = convict(cooldowns, clock)
        seconds.append(event.seconds)
        clock.now += event.seconds
    assert seconds == [1, 2, 4, 8, 16] + [30] * 95


def test_jitter(clock: Clock) -> None:
    """The time varies by the share that was given, both ways."""
    for chance, seconds in (min, 1.7), (max, 2.3):
        cooldowns = Cooldowns(Cooldown(2, 2, 0.15), clock, chance)
        (event,) = convict(cooldowns, clock)
        assert event.seconds == pytest.approx(seconds)


def test_many_failures_at_once_are_one_conviction(cooldowns: Cooldowns, clock: Clock) -> None:
    """Attempts that were planned before a conviction say nothing new after it."""
    before = clock.now
    convict(cooldowns, clock)
    clock.now += 0.5
    for since in (0.0, before):
        assert cooldowns.judge(B, since, [Suspicion(A, since)]) == []


def test_one_success_ends_it_and_forgets_the_count(cooldowns: Cooldowns, clock: Clock) -> None:
    """After a success the next conviction is the first again."""
    for _ in range(3):
        convict(cooldowns, clock)
    clock.now += 1
    assert cooldowns.judge(A, clock.now, []) == [CooldownEnded(A, "success")]
    assert len(cooldowns) == 0
    assert convict(cooldowns, clock) == [CooldownStarted(A, 1.0, 1)]


def test_a_success_from_before_ends_nothing(cooldowns: Cooldowns, clock: Clock) -> None:
    """What was sent before the conviction does not show that the mongos is well now."""
    before = clock.now
    convict(cooldowns, clock)
    assert cooldowns.judge(A, before, []) == []
    assert cooldowns.judge(A, 0.0, []) == []
    assert cooldowns.plan().cooling == {A}


def test_one_probe(cooldowns: Cooldowns, clock: Clock) -> None:
    """When the time is over one operation may look, while the others leave the mongos out."""
    convict(cooldowns, clock)
    first, second = Prober(), Prober()
    clock.now += 0.99
    assert look(cooldowns, first) == ({A}, None)
    clock.now += 0.01
    assert look(cooldowns, first) == (set(), A)
    clock.now += 29.9
    assert look(cooldowns, second) == ({A}, None)
    assert look(cooldowns) == ({A}, None)
    cooldowns.release(second)
    assert look(cooldowns, second) == ({A}, None)
    cooldowns.release(first)
    assert look(cooldowns, second) == (set(), A)


def test_a_probe_that_takes_long(cooldowns: Cooldowns, clock: Clock) -> None:
    """It keeps the others away for the maximum, and not for as long as a long query takes."""
    convict(cooldowns, clock)
    clock.now += 1
    first, second = Prober(), Prober()
    assert look(cooldowns, first) == (set(), A)
    clock.now += 30
    assert look(cooldowns, second) == (set(), A)
    assert look(cooldowns, first) == ({A}, None)


def test_a_probe_whose_operation_failed(cooldowns: Cooldowns, clock: Clock) -> None:
    """The next one waits as long as it did, without another strike."""
    convict(cooldowns, clock)
    clock.now += 1
    probe = Prober()
    assert look(cooldowns, probe) == (set(), A)
    cooldowns.release(probe, failed=True)
    clock.now += 0.9
    assert look(cooldowns, probe) == ({A}, None)
    clock.now += 0.1
    assert look(cooldowns, probe) == (set(), A)
    cooldowns.release(probe)
    assert convict(cooldowns, clock) == [CooldownStarted(A, 2.0, 2)]


def test_a_retry_is_cautious(cooldowns: Cooldowns, clock: Clock) -> None:
    """It leaves out a mongos whose time is over, but whom nobody has probed."""
    convict(cooldowns, clock)
    clock.now += 1
    assert cooldowns.plan(is_retry=True).cooling == {A}
    assert cooldowns.plan().cooling == set()


def test_a_probe_that_is_lost(cooldowns: Cooldowns, clock: Clock) -> None:
    """One that was dropped without release, as by an exception out of the blue, holds up nobody."""
    convict(cooldowns, clock)
    clock.now += 1
    lost = Prober()
    assert look(cooldowns, lost) == (set(), A)
    del lost
    gc.collect()
    assert look(cooldowns, Prober()) == (set(), A)


def test_a_probe_that_fails_is_a_strike(cooldowns: Cooldowns, clock: Clock) -> None:
    """The mongos cools down for longer then, and the next probe comes after that."""
    convict(cooldowns, clock)
    clock.now += 1
    probe = Prober()
    at = cooldowns.plan(probe).at
    clock.now += 0.5
    assert cooldowns.judge(B, at, [Suspicion(A, at)]) == [CooldownStarted(A, 2.0, 2)]
    cooldowns.release(probe)
    clock.now += 1.9
    assert look(cooldowns, probe) == ({A}, None)
    clock.now += 0.1
    assert look(cooldowns, probe) == (set(), A)


def test_who_must_not_probe_may_go_there(cooldowns: Cooldowns, clock: Clock) -> None:
    """When the time is over, the mongos is one like the others until somebody probes."""
    convict(cooldowns, clock)
    clock.now += 1
    assert look(cooldowns) == (set(), None)


def test_a_clock_that_is_set_back(cooldowns: Cooldowns, clock: Clock) -> None:
    """It does not let the mongos cool down for as long as it was set back."""
    convict(cooldowns, clock)
    clock.now -= 500
    assert cooldowns.plan().cooling == set()


def test_who_leaves_is_forgotten(cooldowns: Cooldowns, clock: Clock) -> None:
    """An address that is no longer part of the cluster has no strikes when it comes back."""
    convict(cooldowns, clock, A, C)
    convict(cooldowns, clock, B, C)
    assert cooldowns.forget_all_but({B, C}) == [CooldownEnded(A, "left")]
    assert cooldowns.forget_all_but({B, C}) == []
    assert cooldowns.plan().cooling == {B}
    assert convict(cooldowns, clock, A, C) == [CooldownStarted(A, 1.0, 1)]


ADDRESSES = st.sampled_from([A, B, C])
STEPS = st.one_of(
    st.tuples(st.just("fail"), ADDRESSES, ADDRESSES),
    st.tuples(st.just("succeed"), ADDRESSES),
    st.tuples(st.just("probe"), st.booleans()),
    st.tuples(st.just("wait"), st.floats(-50, 50)),
    st.tuples(st.just("know"), st.sets(ADDRESSES, min_size=1)),
)


@given(
    steps=st.lists(STEPS, max_size=40),
    options=st.builds(
        Cooldown,
        base=st.floats(0.01, 10),
        maximum=st.floats(10, 100),
        jitter=st.floats(0, 0.99),
    ),
    chance=st.floats(0, 1),
)
def test_any_history(steps: list[Any], options: Cooldown, chance: float) -> None:
    """Whatever happened: somebody known is selected, and nobody is left out for too long.

    A mongos that nobody probes is left out at most for the maximum and the jitter since it was
    convicted last; what left the cluster is not remembered.
    """
    clock, known = Clock(), {A, B, C}
    cooldowns = Cooldowns(options, clock, lambda low, high: low + chance * (high - low))
    convicted_at: dict[Any, float] = {}
    for kind, *values in steps:
        clock.now += 0.001
        events: list[Any] = []
        if kind == "wait":
            clock.now += values[0]
        elif kind == "know":
            (known,) = values
            events = cooldowns.forget_all_but(known)
        else:
            events = an_operation(cooldowns, kind, values, known)
        for event in events:
            if isinstance(event, CooldownStarted):
                convicted_at[event.address] = clock.now
        # Between operations nobody is probing.
        cooling = cooldowns.plan().cooling
        assert cooling <= known
        for address in cooling:
            assert clock.now - convicted_at[address] <= options.maximum * (1 + options.jitter)
        assert selected(known, cooling)


def selected(known: set[Any], cooling: Any) -> list[Any]:
    """Return what a selection finds suitable that would take anybody."""
    return select(lambda left_out: sorted(known - left_out), [], known, cooling, sharded=True)


def an_operation(cooldowns: Cooldowns, kind: str, values: list[Any], known: set[Any]) -> list[Any]:
    """Let an operation on known servers take place, as the wrappers do."""
    if kind == "probe":
        (succeeds,) = values
        prober = Prober()
        plan = cooldowns.plan(prober)
        try:
            if plan.probe is None or not succeeds:
                return []
            return list(cooldowns.judge(plan.probe, plan.at, []))
        finally:
            cooldowns.release(prober)
    if not known.issuperset(values):
        return []
    since = cooldowns.plan().at
    failed = [Suspicion(address, since) for address in values[:-1]]
    return list(cooldowns.judge(values[-1], since, failed))
