"""Errors and warnings."""

from __future__ import annotations


class UnsupportedPyMongoError(RuntimeError):
    """The installed PyMongo lacks a place that has to be patched; nothing was patched.

    Raised by ``enable(strict=True)``. The message names the version of PyMongo, the missing seam
    and what to do.
    """


class UnsupportedPyMongoWarning(RuntimeWarning):
    """As :class:`UnsupportedPyMongoError`, but the application runs on, unpatched."""
