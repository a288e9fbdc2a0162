"""What the pytest plugin is asked for: on the command line, in the ini file, by the marker."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from pymongo_deprio import Cooldown
from pymongo_deprio._options import cooldown_from

MARKER = (
    "deprio(mongos=N, cooldown=True): ask the deprio fixtures for a cluster of N mongoses, and for"
    " this cooldown"
)

_FLAGS = {
    "deprio": "enable pymongo_deprio for the whole run",
    "deprio_require": "fail the tests that need a cluster when none can be had, instead of skipping"
    " them",
}
_VALUES = {
    "deprio_cluster": (
        "local|docker|mongodb://...",
        "the cluster of the fixtures (default: local if there is a mongod, else docker)",
    ),
    "deprio_mongos": ("N", "how many mongoses the cluster has (default: 2)"),
    "deprio_mongod": ("PATH", "the mongod of the local cluster"),
    "deprio_cooldown": (
        "true|false|base=1,maximum=30",
        "the cooldown wherever pymongo_deprio is enabled for a test (default: false)",
    ),
}


@dataclass(frozen=True)
class Settings:
    """The settings of a run, validated."""

    whole_run: bool
    require: bool
    # It may hold a password: a traceback that shows values must not show it.
    cluster: str = field(repr=False)
    """``local``, ``docker``, a URI, or empty: what there is."""
    mongos: int
    mongod: str
    cooldown: Cooldown | None


def add_to(parser: pytest.Parser) -> None:
    """Declare the options and the settings of the same names in the ini file."""
    group = parser.getgroup("pymongo_deprio")
    for name, text in _FLAGS.items():
        option = _option(name)
        group.addoption(option, action="store_true", default=None, dest=name, help=text)
        group.addoption(
            f"--no-{option[2:]}",
            action="store_false",
            default=None,
            dest=name,
            help=f"the opposite of {option}",
        )
        parser.addini(name, text, type="bool", default=False)
    for name, (metavar, text) in _VALUES.items():
        group.addoption(_option(name), metavar=metavar, help=text)
        parser.addini(name, text, default="")


def read(config: pytest.Config) -> Settings:
    """Return the settings of a run.

    Raises :class:`pytest.UsageError` if one of them is wrong.
    """
    return Settings(
        whole_run=_value(config, "deprio"),
        require=_value(config, "deprio_require"),
        cluster=_cluster(_value(config, "deprio_cluster")),
        mongos=_mongos(_value(config, "deprio_mongos") or "2"),
        mongod=_value(config, "deprio_mongod"),
        cooldown=_cooldown(_value(config, "deprio_cooldown") or "false"),
    )


def _value(config: pytest.Config, name: str) -> Any:
    given = config.getoption(name)
    if given is not None:
        return given
    try:
        return config.getini(name)
    except (TypeError, ValueError) as error:
        raise pytest.UsageError(f"{name} in the ini file: {error}") from None


def _cluster(given: str) -> str:
    if given in {"", "local", "docker"} or re.match(r"mongodb(\+srv)?://[^/?]", given):
        return given
    shown = re.sub(r"[:@/].*", "…", given, flags=re.DOTALL)  # there may be a password in it
    raise _wrong("deprio_cluster", f"must be local, docker or mongodb://host:port, not {shown!r}")


def _mongos(given: str) -> int:
    # Python itself refuses numbers of thousands of digits, in words of its own.
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", given):
        raise _wrong("deprio_mongos", f"must be a whole number from 1 on, not {given!r}")
    return int(given.lstrip("0"))


def _cooldown(given: str) -> Cooldown | None:
    try:
        return cooldown_from(given)
    except ValueError as error:
        raise _wrong("deprio_cooldown", str(error)) from None


def _wrong(name: str, what: str) -> pytest.UsageError:
    return pytest.UsageError(f"{_option(name)} (in the ini file: {name}) {what}")


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def marked(node: Any) -> dict[str, Any]:
    """Return the arguments of the markers of a test; the closest one that has an argument counts.

    Raises ValueError if there is a marker that cannot be understood.
    """
    arguments: dict[str, Any] = {}
    for mark in reversed(list(node.iter_markers("deprio"))):
        _check(mark)
        arguments.update(mark.kwargs)
    return arguments


def _check(mark: pytest.Mark) -> None:
    if mark.args or not mark.kwargs or not {"mongos", "cooldown"}.issuperset(mark.kwargs):
        arguments = [repr(value) for value in mark.args]
        arguments += [f"{name}={value!r}" for name, value in mark.kwargs.items()]
        raise ValueError(
            f"@pytest.mark.deprio takes mongos=N and cooldown=…, not ({', '.join(arguments)}). To"
            " enable pymongo_deprio for a test, use the fixture deprio"
        )
    mongos = mark.kwargs.get("mongos", 1)
    if isinstance(mongos, bool) or not isinstance(mongos, int) or mongos < 1:
        raise ValueError(
            f"@pytest.mark.deprio(mongos=…) must be a whole number from 1 on, not {mongos!r}"
        )
    cooldown = mark.kwargs.get("cooldown", False)
    if not isinstance(cooldown, (bool, Cooldown)):
        raise ValueError(  # noqa: TRY004 - as for mongos
            f"@pytest.mark.deprio(cooldown=…) must be True, False or a Cooldown, not {cooldown!r}"
        )
