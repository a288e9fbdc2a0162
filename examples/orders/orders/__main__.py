"""Serve on this machine: python -m orders PORT."""

from __future__ import annotations

import sys
from wsgiref.simple_server import make_server

from orders.wsgi import app

with make_server("127.0.0.1", int(sys.argv[1]), app) as server:
    server.serve_forever()
