"""Options from the environment."""

from __future__ import annotations

import pytest

from pymongo_deprio import Cooldown, _environment


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin without any."""
    for name in "ENABLED", "COOLDOWN", "STRICT":
        monkeypatch.delenv(f"PYMONGO_DEPRIO_{name}", raising=False)


def test_nothing_is_set() -> None:
    """Then the patch is wanted, without cooldown, and an unknown PyMongo stays as it is."""
    assert _environment.read() == (True, None, False)


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("ENABLED", "0", (False, None, False)),
        ("ENABLED", "off", (False, None, False)),
        ("ENABLED", " FALSE ", (False, None, False)),
        ("ENABLED", "1", (True, None, False)),
        ("ENABLED", "", (True, None, False)),
        ("STRICT", "yes", (True, None, True)),
        ("STRICT", "no", (True, None, False)),
        ("COOLDOWN", "true", (True, Cooldown(), False)),
        ("COOLDOWN", "0", (True, None, False)),
        ("COOLDOWN", "", (True, None, False)),
        ("COOLDOWN", "base=2,maximum=8", (True, Cooldown(2, 8), False)),
    ],
)
def test_one_is_set(name: str, text: str, wanted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each variable means what its words say, in capitals or not; empty is as not set."""
    monkeypatch.setenv(f"PYMONGO_DEPRIO_{name}", text)
    assert _environment.read() == wanted


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("ENABLED", "2", "must be 1 or 0, not '2'"),
        ("STRICT", "maybe", "must be 1 or 0, not 'maybe'"),
        ("COOLDOWN", "long", "must be true, false or such as base=1,maximum=30"),
        ("COOLDOWN", "base=-1", "base must be a number of seconds above 0, not -1.0"),
    ],
)
def test_wrong_values(name: str, text: str, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says which variable, its value and what would be right."""
    monkeypatch.setenv(f"PYMONGO_DEPRIO_{name}", text)
    with pytest.raises(ValueError, match=f"^PYMONGO_DEPRIO_{name} must be") as caught:
        _environment.read()
    assert words in str(caught.value)
    assert repr(text) in str(caught.value)
