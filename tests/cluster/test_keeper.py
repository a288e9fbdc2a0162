"""Nothing is left running or on disk, however the program ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Callable, Iterator

import pytest

from pymongo_deprio.cluster import ClusterError, ClusterStateError, LocalCluster

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

Start = Callable[[str], "Program"]

ROOT = Path(__file__).parents[2]


class Program:
    """A program with a cluster, in a process of its own."""

    def __init__(self, body: str) -> None:
        """Start it; `body` runs within the block, `cluster` being the cluster."""
        text = """
            import os, signal, sys, time
            from pymongo_deprio.cluster import LocalCluster
            with LocalCluster(2) as cluster:
                keeper = cluster._processes._keeper.pid
                print(keeper, cluster._processes.directory, flush=True)
        """
        text = textwrap.dedent(text) + textwrap.indent(textwrap.dedent(body), "    ")
        self.process = subprocess.Popen(
            [sys.executable, "-c", text],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
            start_new_session=True,
        )
        self.keeper = 0
        self.servers: list[int] = []

    def look(self) -> None:
        """Read which processes it has started; its body must wait for a line until then."""
        keeper, directory = self.read().split()
        self.directory = Path(directory)
        self.keeper = int(keeper)
        self.servers = children_of(self.keeper)
        assert len(self.servers) == 3

    def say(self, text: str) -> str:
        """Write a line to the program, and read one."""
        assert self.process.stdin is not None
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()
        return self.read()

    def read(self) -> str:
        """Read a line from the program."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().decode().strip()

    def leaves_nothing(self) -> bool:
        """Wait until the servers and the directory are gone; False if they are not in 5 seconds."""
        pids = [self.keeper, *self.servers]
        return eventually(lambda: not (any(map(is_alive, pids)) or self.directory.exists()))

    def close(self) -> None:
        """End it and what it started, if it has not ended."""
        self.process.kill()
        self.process.communicate()
        for pid in [self.keeper, *self.servers]:
            if pid and is_alive(pid):
                os.kill(pid, signal.SIGKILL)


def eventually(condition: object) -> bool:
    """Wait for a condition, for at most 5 seconds."""
    assert callable(condition)
    deadline = time.monotonic() + 5
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def children_of(pid: int) -> list[int]:
    """Give the children of a process."""
    children = Path(f"/proc/{pid}/task/{pid}/children")
    return [int(child) for child in children.read_text().split()]


def is_alive(pid: int) -> bool:
    """Whether a process exists and is not merely waiting to be reaped."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"


@pytest.fixture
def start() -> Iterator[Callable[[str], Program]]:
    """Give a function that starts a program with this body; it is ended after the test."""
    programs: list[Program] = []

    def start(body: str) -> Program:
        programs.append(Program(body))
        programs[-1].look()
        return programs[-1]

    yield start
    for program in programs:
        program.close()


WAIT = "sys.stdin.readline()"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda number: number.name)
def test_a_killed_program_leaves_nothing(start: Start, number: signal.Signals) -> None:
    """The keeper sees it gone and cleans up, a paused mongos included."""
    program = start(f"{WAIT}\ncluster.mongos[0].pause()\nprint('paused', flush=True)\n{WAIT}")
    assert program.say("") == "paused"
    program.process.send_signal(number)
    assert program.leaves_nothing()


def test_an_interrupted_program_cleans_up_itself(start: Start) -> None:
    """Ctrl-C goes to the whole group; the servers do not get it before the program is done."""
    program = start(
        """
        sys.stdin.readline()
        try:
            print("ready", flush=True)
            sys.stdin.readline()
        except KeyboardInterrupt:
            print(cluster.mongos[0].command("ping")["ok"], flush=True)
            raise
        """
    )
    assert program.say("") == "ready"
    os.killpg(program.process.pid, signal.SIGINT)
    out, err = program.process.communicate(timeout=10)
    assert out.strip() == b"1.0"
    assert err.strip().endswith(b"KeyboardInterrupt")
    assert program.leaves_nothing()


@pytest.mark.parametrize("ending", ["raise ValueError", "os._exit(4)"])
def test_a_program_that_ends_leaves_nothing(start: Start, ending: str) -> None:
    """By an exception, or at once without any cleaning up."""
    program = start(f"{WAIT}\n{ending}")
    program.process.communicate(b"\n", timeout=10)
    assert program.leaves_nothing()


def test_a_forked_child_leaves_the_cluster_to_its_parent(start: Start) -> None:
    """It can leave the block and exit, and cannot end a server by mistake."""
    program = start(
        """
        sys.stdin.readline()
        if not os.fork():
            try:
                cluster.mongos[0].kill()
            except Exception as error:
                print(type(error).__name__, flush=True)
            cluster.__exit__(None, None, None)
            os._exit(0)
        os.wait()
        print(cluster.mongos[0].command("ping")["ok"], flush=True)
        sys.stdin.readline()
        """
    )
    assert program.say("") == "ClusterStateError"
    assert program.read() == "1.0"
    program.process.communicate(b"\n", timeout=10)
    assert program.leaves_nothing()


def test_a_forked_child_that_lives_on_keeps_nothing_alive(start: Start) -> None:
    """Though it has a copy of the socket that tells the keeper."""
    program = start(
        """
        sys.stdin.readline()
        child = os.fork()
        if not child:
            time.sleep(60)
            os._exit(0)
        print(child, flush=True)
        sys.stdin.readline()
        """
    )
    child = int(program.say(""))
    try:
        program.process.kill()
        assert program.leaves_nothing()
        assert is_alive(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_killed_keeper_takes_the_servers_along(start: Start) -> None:
    """The program gets a clear error, and removes the directory itself."""
    program = start(
        """
        sys.stdin.readline()
        try:
            cluster.mongos[0].kill()
        except Exception as error:
            print(type(error).__name__, flush=True)
        """
    )
    os.kill(program.keeper, signal.SIGKILL)
    assert eventually(lambda: not any(map(is_alive, program.servers)))
    assert program.say("") == "ClusterError"
    program.process.communicate(timeout=10)
    assert program.leaves_nothing()


def test_a_start_that_is_interrupted_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the servers are running by then."""

    def interrupt(*_arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pymongo_deprio.cluster._local.LocalMongos", interrupt)
    cluster = LocalCluster()
    with pytest.raises(KeyboardInterrupt):
        cluster.__enter__()
    assert cluster._processes is not None
    assert not cluster._processes.directory.exists()
    assert cluster._processes._keeper is not None
    assert cluster._processes._keeper.returncode == 0


def test_the_files_are_private(servers: LocalCluster) -> None:
    """Other users of the machine cannot read them."""
    assert servers._processes is not None
    assert servers._processes.directory.stat().st_mode & 0o777 == 0o700


def test_a_failing_request_is_an_error_and_the_next_one_works(servers: LocalCluster) -> None:
    """The keeper lives on."""
    processes = servers._processes
    assert processes is not None
    with pytest.raises(ClusterError, match="cannot spawn"):
        processes.spawn(["/no/such/program"], processes.directory / "log")
    assert processes.reserve_port() > 0


def test_requests_before_the_start_are_refused() -> None:
    """There is no keeper to ask."""
    from pymongo_deprio.cluster._processes import Processes  # noqa: PLC0415 - for this test

    with pytest.raises(ClusterStateError, match="not running"):
        Processes().reserve_port()
