"""Makes PyMongo retry on a different mongos.

``import pymongo_deprio; pymongo_deprio.enable()`` is all that an application needs: from then on
the retry of a failed operation leaves out the mongos that failed while another one is suitable.
"""

from __future__ import annotations

from pymongo_deprio._activation import Activation, disable, enable, is_enabled, stats
from pymongo_deprio._errors import UnsupportedPyMongoError, UnsupportedPyMongoWarning
from pymongo_deprio._events import (
    Address,
    CooldownEnded,
    CooldownStarted,
    Event,
    Listener,
    Retry,
    Stats,
)
from pymongo_deprio._options import Cooldown

__version__ = "0.1.0"

__all__ = [
    "Activation",
    "Address",
    "Cooldown",
    "CooldownEnded",
    "CooldownStarted",
    "Event",
    "Listener",
    "Retry",
    "Stats",
    "UnsupportedPyMongoError",
    "UnsupportedPyMongoWarning",
    "__version__",
    "disable",
    "enable",
    "is_enabled",
    "stats",
]
