"""The front door."""

from __future__ import annotations

from importlib.metadata import version

import pymongo_deprio


def test_public_names() -> None:
    """Each public name is there and says what it is for."""
    for name in pymongo_deprio.__all__:
        assert getattr(pymongo_deprio, name) is not None
    assert "enable" in pymongo_deprio.__all__


def test_version() -> None:
    """The version comes from the installed package."""
    assert pymongo_deprio.__version__ == version("pymongo_deprio")
