"""The guard: a process that runs Docker Compose for a program, and cleans up when that is gone.

The program cannot see to that itself if it is killed. It sends one JSON document a line for each
command to run, and gets one back. When it says nothing more, the last command ends, and the stack
is taken down.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn, Sequence

_SECONDS_BETWEEN_LOOKS = 1.0
_SECONDS_FOR_LATECOMERS = 1.0


class Guard:
    """Runs the commands of process `owner`, one after the other, and `down` in the end."""

    def __init__(self, owner: int, down: Sequence[str]) -> None:
        """Prepare; nothing is run."""
        self._owner = owner
        self._down = down
        self._process: subprocess.Popen[str] | None = None
        self._ending = threading.Lock()

    def run(self) -> NoReturn:
        """Serve until the program closes the pipe or is gone; then leave nothing behind."""
        threading.Thread(target=self._watch, daemon=True).start()
        for line in sys.stdin:
            request = json.loads(line)
            if request is None:
                break
            self._start(**request)
        self._end()

    def _start(self, argv: Sequence[str], environment: dict[str, str], seconds: float) -> None:
        process = _popen(argv, {**os.environ, **environment})
        self._process = process
        threading.Thread(target=_answer, args=(process, seconds), daemon=True).start()

    def _watch(self) -> None:
        # A forked child of the program may hold the pipe open: so look at the parent as well.
        while os.getppid() == self._owner:
            time.sleep(_SECONDS_BETWEEN_LOOKS)
        self._end()

    def _end(self) -> NoReturn:
        self._ending.acquire()  # for good: the second thread that comes here waits for the exit
        if self._process is not None and self._process.poll() is None:
            _kill(self._process)
            # What it asked the engine for last may only just be coming into being.
            _popen(self._down, os.environ).communicate()
            time.sleep(_SECONDS_FOR_LATECOMERS)
        down = _popen(self._down, os.environ)
        output = down.communicate()[0]
        _say({"code": down.returncode, "output": output})
        os._exit(0)


def _popen(argv: Sequence[str], environment: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(  # noqa: S603 - what the program asks for
        argv,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
    )


def _answer(process: subprocess.Popen[str], seconds: float) -> None:
    code: int | None
    try:
        output = process.communicate(timeout=seconds)[0]
        code = process.returncode
    except subprocess.TimeoutExpired:
        _kill(process)
        output, code = process.communicate()[0], None
    _say({"code": code, "output": output})


def _kill(process: subprocess.Popen[str]) -> None:
    # `docker compose` is two processes.
    if os.name == "posix":
        os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()


def _say(answer: object) -> None:
    try:
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    except OSError:
        pass  # the program is gone


if __name__ == "__main__":
    Guard(int(sys.argv[1]), sys.argv[2:]).run()
