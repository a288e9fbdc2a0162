"""What ``enable()`` was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pymongo_deprio._events import Listener


@dataclass(frozen=True)
class Options:
    """The options of one ``enable()``, validated."""

    on_event: Listener | None = None
    strict: bool = False

    def __post_init__(self) -> None:
        if self.on_event is not None and not callable(self.on_event):
            raise TypeError(
                f"on_event must be a callable that takes one event, or None, not {self.on_event!r}"
            )
        if not isinstance(self.strict, bool):
            raise TypeError(f"strict must be True or False, not {self.strict!r}")
