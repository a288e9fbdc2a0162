"""The fixtures of the tests."""

from fixtures import (  # noqa: F401
    asked,
    cluster,
    connect,
    enabled,
    pymongo_is_as_before,
    retries,
    short_heartbeats,
    three,
    waits_of,
)
