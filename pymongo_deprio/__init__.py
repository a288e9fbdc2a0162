"""Makes PyMongo retry on a different mongos.

``import pymongo_deprio; pymongo_deprio.enable()`` is all that an application needs: from then on
the retry of a failed operation leaves out the mongos that failed while another one is suitable.
"""

from __future__ import annotations

from importlib.metadata import version as _version

from pymongo_deprio._activation import Activation, disable, enable, is_enabled, stats
from pymongo_deprio._errors import UnsupportedPyMongoError, UnsupportedPyMongoWarning
from pymongo_deprio._events import Address, Event, Listener, Retry, Stats

__all__ = [
    "Activation",
    "Address",
    "Event",
    "Listener",
    "Retry",
    "Stats",
    "UnsupportedPyMongoError",
    "UnsupportedPyMongoWarning",
    "disable",
    "enable",
    "is_enabled",
    "stats",
]


def __getattr__(name: str) -> str:
    if name == "__version__":
        return _version("pymongo_deprio")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
