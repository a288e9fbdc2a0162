"""The options that stand in the environment."""

from __future__ import annotations

import os
from typing import NamedTuple

from pymongo_deprio._options import FLAGS, Cooldown, cooldown_from

ENABLED = "PYMONGO_DEPRIO_ENABLED"
COOLDOWN = "PYMONGO_DEPRIO_COOLDOWN"
STRICT = "PYMONGO_DEPRIO_STRICT"


class Environment(NamedTuple):
    """What the environment asks for."""

    enabled: bool
    cooldown: Cooldown | None
    strict: bool


def read() -> Environment:
    """Return what the environment asks for; a variable that is empty is as one that is not set.

    :raises ValueError: if one of the variables cannot be understood.
    """
    return Environment(_flag(ENABLED, default=True), _cooldown(), _flag(STRICT, default=False))


def _flag(name: str, *, default: bool) -> bool:
    given = os.environ.get(name, "").strip()
    if not given:
        return default
    try:
        return FLAGS[given.lower()]
    except KeyError:
        raise ValueError(f"{name} must be 1 or 0, not {given!r}") from None


def _cooldown() -> Cooldown | None:
    try:
        return cooldown_from(os.environ.get(COOLDOWN, "").strip() or "0")
    except ValueError as error:
        raise ValueError(f"{COOLDOWN} {error}") from None
