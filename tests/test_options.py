"""Options are checked where they are given."""

from __future__ import annotations

from typing import Any

import pytest

import pymongo_deprio
from pymongo_deprio._options import Options


@pytest.mark.parametrize("value", [1, "print", object(), []])
def test_on_event_must_be_callable(value: Any) -> None:
    """The error says which argument, its value and what would be right; nothing is enabled."""
    with pytest.raises(TypeError, match="on_event must be a callable") as caught:
        pymongo_deprio.enable(on_event=value)
    assert repr(value) in str(caught.value)
    assert not pymongo_deprio.is_enabled()


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_strict_must_be_a_bool(value: Any) -> None:
    """The error says which argument, its value and what would be right; nothing is enabled."""
    with pytest.raises(TypeError, match="strict must be True or False") as caught:
        pymongo_deprio.enable(strict=value)
    assert repr(value) in str(caught.value)
    assert not pymongo_deprio.is_enabled()


def test_options_are_frozen() -> None:
    """Options do not change once they are made."""
    with pytest.raises(AttributeError):
        Options().strict = True  # type: ignore[misc]
