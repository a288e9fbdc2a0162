"""The faults of PyMongo's own retries, and which of them the installed PyMongo has.

What is there decides, not the version, as in ``_seams``.
"""

from __future__ import annotations

from typing import NamedTuple

from pymongo.client_options import ClientOptions
from pymongo.mongo_client import MongoClient
from pymongo.topology_description import TopologyDescription

from pymongo_deprio._inside import Parameters
from pymongo_deprio._seams import bulk_that_fetches_ahead


class Fault(NamedTuple):
    """A fault of PyMongo's."""

    name: str
    text: str
    is_there: bool
    """In the installed PyMongo, alone."""
    enabled: str = "repaired"
    """What the patch does about it. Of P10 it needs the cooldown to repair the rest."""


def of_this_pymongo() -> list[Fault]:
    """Return all faults, each with whether the installed PyMongo has it by itself."""
    # Up to 3.10 a server that failed is forgotten until it answers again, so nobody goes back.
    forgets = not hasattr(MongoClient, "_retry_internal")
    apply_selector = getattr(TopologyDescription, "apply_selector", None)
    before_window = "deprioritized_servers" in Parameters(apply_selector).names
    on_overload = hasattr(ClientOptions, "enable_overload_retargeting")
    package = MongoClient.__module__.rpartition(".")[0]
    fetches_ahead = bulk_that_fetches_ahead(package, "_Bulk") is not None
    goes_back = not forgets and not before_window
    return [
        Fault("P1", "goes back to the mongos that failed if others are far away", goes_back),
        Fault("P2", "goes back to a mongos that left the cluster and came back", goes_back),
        Fault("P3", "goes back to the mongos that a server_selector prefers", goes_back),
        Fault("P4", "forgets who failed while it waits for a server", before_window),
        Fault("P5", "hides the mongos that failed from other threads", before_window),
        Fault("P6", "leaves the primary of a replica set", before_window and not on_overload),
        Fault("P7", "takes an overloaded write out of its transaction", on_overload),
        Fault("P8", "goes back to the mongos that failed in a long bulk write", not forgets),
        Fault("P9", "selects no server on a stale description", before_window),
        Fault("P10", "remembers nothing between operations", True, "repaired in part"),
        Fault("P11", "does only the first batch of a bulk write that is retried", fetches_ahead),
    ]
