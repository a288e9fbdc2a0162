"""A Celery worker that uses the shop; ``python -m tasks`` gives it work."""

from __future__ import annotations

import json
import os

import shop
from celery import Celery

FOLDER = os.environ["QUEUE_FOLDER"]

app = Celery(broker="filesystem://", backend=f"file://{FOLDER}")
app.conf.broker_transport_options = {
    "data_folder_in": FOLDER,
    "data_folder_out": FOLDER,
    "control_folder": FOLDER,
    "polling_interval": 0.05,
}
app.conf.worker_prefetch_multiplier = 1

load = app.task(shop.load, name="load")


if __name__ == "__main__":
    sent = [load.delay() for _ in range(4)]
    print(json.dumps([one.get(timeout=30, interval=0.05) for one in sent]))
