"""What a WSGI server is given: the application, on a PyMongo that retries on another mongos."""

from __future__ import annotations

import pymongo_deprio
from orders.web import app

pymongo_deprio.enable(cooldown=True)

__all__ = ["app"]
