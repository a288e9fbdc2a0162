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
from projects import (  # noqa: F401
    broken_mongod,
    logging_mongod,
    nothing_installed,
    run,
    run_here,
)
