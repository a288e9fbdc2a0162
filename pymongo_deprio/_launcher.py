"""Starts a command with the patch on in every Python process that it starts."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

from pymongo_deprio import _environment

BOOTSTRAP = str(Path(__file__).parent / "_bootstrap")
"""The folder whose sitecustomize.py enables the patch."""


def run(command: list[str], *, cooldown: str | None, strict: bool) -> int:
    """Run a command in place of this process, which does not return where that is possible.

    :param command: the program and its arguments.
    :param cooldown: the cooldown as it stands in the environment; None leaves that as it is.
    :param strict: whether importing PyMongo fails where it cannot be patched.
    :return: the command's exit code.
    :raises OSError: if it cannot be started.
    """
    environment = {**os.environ, "PYTHONPATH": _python_path()}
    if cooldown is not None:
        environment[_environment.COOLDOWN] = cooldown
    if strict:
        environment[_environment.STRICT] = "1"
    if os.name == "nt":  # where exec returns to the shell at once
        return subprocess.run(command, env=environment, check=False).returncode  # noqa: S603
    _restore_signals()
    return os.execvpe(command[0], command, environment)  # noqa: S606 - no shell is wanted


def start_beside_opentelemetry() -> None:
    """Enable the patch for a command below ``pymongo-deprio run opentelemetry-instrument``.

    That runs its own sitecustomize only. It calls this first, by the entry point
    ``opentelemetry_pre_instrument``, in each process that it instruments.
    """
    if BOOTSTRAP in os.environ.get("PYTHONPATH", "").split(os.pathsep):
        import pymongo_deprio.auto  # noqa: F401, PLC0415 - importing it is what enables


def _python_path() -> str:
    before = os.environ.get("PYTHONPATH")
    # An empty part would be the current folder.
    return os.pathsep.join([BOOTSTRAP, before] if before else [BOOTSTRAP])


def _restore_signals() -> None:
    """Give the command the signals that Python ignores for itself."""
    for name in "SIGPIPE", "SIGXFSZ":
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_DFL)
