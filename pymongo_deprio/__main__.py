"""``python -m pymongo_deprio`` is ``pymongo-deprio``."""

from __future__ import annotations

import sys

from pymongo_deprio.cli import main

sys.exit(main())
