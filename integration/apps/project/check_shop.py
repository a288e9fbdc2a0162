"""Tests of the shop itself; pytest is given this file by name."""

from __future__ import annotations

import shop


def test_no_operation_fails() -> None:
    """All mongoses seem to be well."""
    assert shop.load()[1] == 0
