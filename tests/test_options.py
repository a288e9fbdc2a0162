"""Options are checked where they are given."""

from __future__ import annotations

from typing import Any

import pytest

import pymongo_deprio
from pymongo_deprio._options import Cooldown, Options, cooldown_from, cooldown_of


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


@pytest.mark.parametrize("value", [5, "yes", 0, object(), {"base": 1}])
def test_cooldown_must_be_one(value: Any) -> None:
    """The error says which argument, its value and what would be right; nothing is enabled."""
    with pytest.raises(ValueError, match="cooldown must be True, False or a Cooldown") as caught:
        pymongo_deprio.enable(cooldown=value)
    assert repr(value) in str(caught.value)
    assert not pymongo_deprio.is_enabled()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("base", 0),
        ("base", -1.5),
        ("base", float("nan")),
        ("base", float("inf")),
        ("base", "1"),
        ("base", True),
        ("base", None),
        ("maximum", 0.5),
        ("maximum", float("inf")),
        ("maximum", float("nan")),
        ("jitter", -0.1),
        ("jitter", 1),
        ("jitter", float("nan")),
    ],
)
def test_values_of_a_cooldown(name: str, value: Any) -> None:
    """The error says which value is wrong, and what would be right."""
    with pytest.raises(ValueError, match=f"{name} must be a ") as caught:
        pymongo_deprio.Cooldown(**{name: value})
    assert repr(value) in str(caught.value)


def test_what_cooldown_means() -> None:
    """True is the default cooldown; False and None are none."""
    assert cooldown_of(True) == Cooldown(base=1.0, maximum=30.0, jitter=0.15)
    assert cooldown_of(False) is None
    assert cooldown_of(None) is None
    assert cooldown_of(Cooldown(base=2)) == Cooldown(base=2)


@pytest.mark.parametrize(
    ("text", "cooldown"),
    [
        ("true", Cooldown()),
        ("1", Cooldown()),
        ("On", Cooldown()),
        ("false", None),
        ("0", None),
        ("no", None),
        ("base=2", Cooldown(base=2)),
        (" base = 2 , jitter=0", Cooldown(base=2, jitter=0)),
        ("base=1,maximum=10,jitter=0.5", Cooldown(1, 10, 0.5)),
    ],
)
def test_cooldown_as_a_text(text: str, cooldown: Cooldown | None) -> None:
    """A text means what the same words would mean as arguments."""
    assert cooldown_from(text) == cooldown


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("maybe", "'maybe' is none of base, maximum, jitter"),
        ("base", "could not convert string to float: ''"),
        ("base=one", "could not convert string to float: 'one'"),
        ("base=1,", "'' is none of base"),
        ("bass=1", "'bass' is none of base, maximum, jitter"),
        ("base=1,2", "'2' is none of base"),
        ("base=nan", "base must be a number of seconds above 0, not nan"),
        ("base=9,maximum=1", "maximum must be a number of seconds from base"),
        ("", "'' is none of base"),
    ],
)
def test_cooldown_as_a_wrong_text(text: str, words: str) -> None:
    """The error says what would be right, the text, and what is wrong with it."""
    with pytest.raises(ValueError, match="must be true, false or such as base=1") as caught:
        cooldown_from(text)
    assert repr(text) in str(caught.value)
    assert words in str(caught.value)
