"""What is remembered between operations, for whom, and when it is forgotten."""

from __future__ import annotations

import gc
import threading

import pytest

from pymongo_deprio import Cooldown, CooldownEnded, CooldownStarted
from pymongo_deprio._cooldown import Suspicion
from pymongo_deprio._memory import Memory

A, B = ("a", 1), ("b", 2)
KNOWN = {A, B}
HERE = 7


class Thing:
    """Stands for a client's settings or a session: it can be referred to weakly."""


@pytest.fixture
def memory() -> Memory:
    """Return a memory that is on, with cooldown."""
    memory = Memory()
    memory.begin(Cooldown(base=1000, maximum=1000))
    return memory


def convict(memory: Memory, client: object) -> None:
    """Let an operation of a client fail on A and succeed on B."""
    (event,) = memory.judge(client, B, 0.0, [Suspicion(A, 0.0)])
    assert isinstance(event, CooldownStarted)


def test_empty_is_the_rule(memory: Memory) -> None:
    """There is nothing to look up before something failed, and after it was forgotten."""
    assert memory.is_empty
    client = Thing()
    convict(memory, client)
    assert not memory.is_empty
    plan, _ = memory.plan(client, KNOWN)
    assert memory.judge(client, A, plan.at + 1, []) == [CooldownEnded(A, "success")]
    assert memory.is_empty


def test_each_client_has_its_own(memory: Memory) -> None:
    """What one client learned is not held against a mongos by another."""
    client, other = Thing(), Thing()
    convict(memory, client)
    assert memory.plan(client, KNOWN)[0].cooling == {A}
    assert memory.plan(other, KNOWN)[0].cooling == set()


def test_what_left_is_forgotten(memory: Memory) -> None:
    """A selection that finds an address gone forgets it, and says so once."""
    client = Thing()
    convict(memory, client)
    plan, events = memory.plan(client, {B})
    assert plan.cooling == set()
    assert events == [CooldownEnded(A, "left")]
    assert memory.plan(client, {B})[1] == []
    assert memory.is_empty


def test_clients_that_are_gone_are_forgotten(memory: Memory) -> None:
    """Fifty clients that were made and dropped leave nothing."""
    for _ in range(50):
        convict(memory, Thing())
    gc.collect()
    assert memory.plan(Thing(), KNOWN)[0].cooling == set()
    assert memory.is_empty


@pytest.mark.parametrize("forget", ["fork", "end", "other options"])
def test_forgotten(memory: Memory, forget: str) -> None:
    """A forked child, disable() and other options begin with nothing."""
    client, session = Thing(), Thing()
    convict(memory, client)
    memory.ended_transaction(session, (A,))
    if forget == "fork":
        memory.after_fork()
    elif forget == "end":
        memory.end()
    else:
        memory.begin(Cooldown())
    assert memory.is_empty
    assert memory.plan(client, KNOWN)[0].cooling == set()
    assert memory.begins_transaction(session) == ()


def test_the_same_options_forget_nothing(memory: Memory) -> None:
    """enable() again with the same options changes nothing."""
    client = Thing()
    convict(memory, client)
    memory.begin(Cooldown(base=1000, maximum=1000))
    assert memory.plan(client, KNOWN)[0].cooling == {A}


def test_a_fork_does_not_wait_for_the_parents_lock(memory: Memory) -> None:
    """The child can go on even if another thread of the parent held the lock."""
    locked, release = threading.Event(), threading.Event()

    def hold() -> None:
        with memory._lock:
            locked.set()
            release.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    locked.wait()
    memory.after_fork()
    convict(memory, Thing())
    release.set()
    holder.join()


def test_nothing_is_remembered_while_off(memory: Memory) -> None:
    """An operation that ends after disable() leaves nothing."""
    memory.end()
    assert memory.judge(Thing(), B, 0.0, [Suspicion(A, 0.0)]) == []
    session = Thing()
    memory.ended_transaction(session, (A,))
    with memory.resuming(HERE, A):
        assert memory.is_empty
    assert memory.is_empty


def test_without_cooldown_only_hints(memory: Memory) -> None:
    """Without the option nobody cools down; sessions and change streams have their hints."""
    memory.begin(None)
    assert memory.judge(Thing(), B, 0.0, [Suspicion(A, 0.0)]) == []
    session = Thing()
    memory.ended_transaction(session, (A, B))
    assert memory.begins_transaction(session) == (A, B)
    assert memory.begins_transaction(session) == ()
    assert memory.is_empty


def test_a_hint_for_one_operation_of_one_thread(memory: Memory) -> None:
    """Who resumes a change stream is told once where it failed, and only within the block."""
    with memory.resuming(HERE, A):
        assert memory.resumes(HERE + 1) == ()
        assert memory.resumes(HERE) == (A,)
        assert memory.resumes(HERE) == ()
    assert memory.is_empty
    with memory.resuming(HERE, B):
        pass
    assert memory.resumes(HERE) == ()
    assert memory.is_empty


def test_a_session_that_is_gone_is_forgotten(memory: Memory) -> None:
    """Sessions are not kept alive by what is remembered for them."""
    session = Thing()
    memory.ended_transaction(session, (A,))
    del session
    gc.collect()
    memory.plan(Thing(), KNOWN)
    assert memory.is_empty
