"""What ``enable()`` was asked for."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymongo_deprio._events import Listener

FLAGS = {
    **dict.fromkeys(["1", "true", "yes", "on"], True),
    **dict.fromkeys(["0", "false", "no", "off"], False),
}
"""The words for yes and no, on a command line or in the environment."""


@dataclass(frozen=True)
class Cooldown:
    """How long a mongos is left out that fails operations which succeed on another.

    The n-th time in a row it is left out for ``base * 2**(n-1)`` seconds, but at most ``maximum``,
    give or take a share of ``jitter``. One success there forgets the count.

    :raises ValueError: if ``base`` is not above 0, ``maximum`` below it, or ``jitter`` not from 0
        to below 1.
    """

    base: float = 1.0
    """Seconds of the first time."""
    maximum: float = 30.0
    """Seconds at most."""
    jitter: float = 0.15
    """By what share the seconds vary by chance, so that not all clients come back together."""

    def __post_init__(self) -> None:
        """Check the values."""
        for name, value in vars(self).items():
            if isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"{name} must be a number, not {value!r}")  # noqa: TRY004
        if not 0 < self.base < math.inf:
            raise ValueError(f"base must be a number of seconds above 0, not {self.base!r}")
        if not self.base <= self.maximum < math.inf:
            raise ValueError(
                f"maximum must be a number of seconds from base ({self.base!r}) on, "
                f"not {self.maximum!r}"
            )
        if not 0 <= self.jitter < 1:
            raise ValueError(f"jitter must be a share from 0 to below 1, not {self.jitter!r}")


@dataclass(frozen=True)
class Options:
    """The options of one ``enable()``, validated."""

    on_event: Listener | None = None
    strict: bool = False
    cooldown: Cooldown | None = None

    def __post_init__(self) -> None:
        if self.on_event is not None and not callable(self.on_event):
            raise TypeError(
                f"on_event must be a callable that takes one event, or None, not {self.on_event!r}"
            )
        if not isinstance(self.strict, bool):
            raise TypeError(f"strict must be True or False, not {self.strict!r}")


def cooldown_of(given: bool | Cooldown | None) -> Cooldown | None:
    """Return what ``enable(cooldown=…)`` means.

    :raises ValueError: if it is no cooldown.
    """
    if isinstance(given, bool) or given is None:
        return Cooldown() if given else None
    if not isinstance(given, Cooldown):
        raise ValueError(f"cooldown must be True, False or a Cooldown(…), not {given!r}")  # noqa: TRY004
    return given


def cooldown_from(text: str) -> Cooldown | None:
    """Return what a text means, as it stands on a command line or in the environment.

    :raises ValueError: if it is no cooldown; the message goes on after the option's name.
    """
    if text.lower() in FLAGS:
        return cooldown_of(FLAGS[text.lower()])
    try:
        return Cooldown(**dict(_setting(part) for part in text.split(",")))
    except ValueError as error:
        raise ValueError(
            f"must be true, false or such as base=1,maximum=30,jitter=0.15, not {text!r}: {error}"
        ) from None


def _setting(part: str) -> tuple[str, float]:
    name, _, value = part.partition("=")
    names = [field.name for field in fields(Cooldown)]
    if name.strip() not in names:
        raise ValueError(f"{name.strip()!r} is none of {', '.join(names)}")
    return name.strip(), float(value)
