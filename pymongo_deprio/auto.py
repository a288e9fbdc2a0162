"""Importing this module enables the patch, as ``pymongo-deprio run`` does from outside.

PyMongo is patched at once if it has been imported, and otherwise as soon as it is. The options come
from the environment:

- ``PYMONGO_DEPRIO_ENABLED``: 0 leaves PyMongo as it is;
- ``PYMONGO_DEPRIO_COOLDOWN``: true, or such as ``base=1,maximum=30``, in seconds, as for
  :class:`pymongo_deprio.Cooldown`;
- ``PYMONGO_DEPRIO_STRICT``: 1 lets importing PyMongo raise where it cannot be patched.

Flags are 1, true, yes or on, and 0, false, no or off. Where one of the variables cannot be
understood, or PyMongo cannot be patched, one line on standard error says so and the application
runs without the patch. ``pymongo_deprio.enable()`` with other options may follow: the latest call
counts.
"""

from __future__ import annotations

import contextlib
import sys

import pymongo_deprio
from pymongo_deprio import _environment
from pymongo_deprio._patching import when_imported


def _start() -> None:
    try:
        wanted = _environment.read()
    except ValueError as error:
        _tell(f"{error}. PyMongo is not patched.")
        return
    if wanted.enabled:
        when_imported("pymongo", lambda: _enable(wanted))


def _enable(wanted: _environment.Environment) -> None:
    try:
        pymongo_deprio.enable(strict=True, cooldown=wanted.cooldown)
    except Exception as error:
        if wanted.strict:
            raise
        _tell(error)


def _tell(message: object) -> None:
    # A daemon may have closed it.
    with contextlib.suppress(Exception):
        sys.stderr.write(f"pymongo_deprio: {message}\n")


_start()
