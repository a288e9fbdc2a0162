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
from hypothesis import HealthCheck, settings
from projects import (  # noqa: F401
    broken_mongod,
    logging_mongod,
    nothing_installed,
    run,
    run_here,
)

# A slow machine is no failure. For the second one: pytest --hypothesis-profile=fuzz
settings.register_profile(
    "tests",
    deadline=None,
    max_examples=120,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "fuzz", settings.get_profile("tests"), max_examples=3000, derandomize=False
)
settings.load_profile("tests")
