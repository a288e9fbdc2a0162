"""Options and URIs from hypothesis: what people write is understood or refused in one line."""

from __future__ import annotations

import contextlib
import io
import os
import re
from typing import Any, Callable, Iterator
from unittest import mock

import pymongo
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pymongo_deprio import Cooldown, _environment, _plugin_options, _survey, cli
from pymongo_deprio._options import cooldown_from

MANY_DIGITS = "9" * 5000

settings_of_cooldown = st.builds(
    "{}={}".format,
    st.sampled_from(["base", "maximum", " jitter "]),
    st.sampled_from(["-1", "0", "0.5", "2", "nan", "inf", "1e308", "1e999", MANY_DIGITS]),
)
words = st.sampled_from(["true", "Off", "1", "0", "=", ",", "\n", "%s", "{", "\udc80", MANY_DIGITS])
texts = st.one_of(
    st.lists(settings_of_cooldown, max_size=3).map(",".join),
    st.lists(words | settings_of_cooldown | st.text(max_size=3), max_size=4).map("".join),
)


def is_plain(cooldown: Cooldown | None) -> bool:
    """Tell a cooldown whose values are finite, or none."""
    return cooldown is None or 0 < cooldown.base <= cooldown.maximum < float("inf")


def outcome(function: Callable[[], Any], *errors: type[Exception]) -> tuple[Any, str]:
    """Return what a function returns, or the message of its error; an error has one line."""
    try:
        return function(), ""
    except errors as error:
        message = str(error)
    assert "\n" not in message
    return None, message


@given(texts)
def test_a_cooldown_is_understood_or_refused(text: str) -> None:
    """With a message of one line that shows the text."""
    cooldown, message = outcome(lambda: cooldown_from(text), ValueError)
    assert is_plain(cooldown)
    assert not message or repr(text) in message


@given(values=st.lists(texts.filter(lambda text: "\0" not in text), min_size=3, max_size=3))
def test_the_environment_is_understood_or_refused(values: list[str]) -> None:
    """With a message of one line that names the variable."""
    names = (_environment.ENABLED, _environment.COOLDOWN, _environment.STRICT)
    with mock.patch.dict(os.environ, dict(zip(names, values))):
        read, message = outcome(_environment.read, ValueError)
    if read is None:
        assert message.startswith(names)
    else:
        assert is_plain(read.cooldown)
        assert {read.enabled, read.strict} <= {True, False}


LETTERS = "qzxjvk"
"""No four of these follow one another in anything that is printed."""

letters = st.text(LETTERS, min_size=4, max_size=8)
marks = st.sampled_from("@/?:") | st.sampled_from(
    ["%", "&", "=", "#", "[", "]", "+", ",", ";", " ", "\\", '"', "%40", "%2F", "%zz", "é", "\n"]
)
secrets = st.lists(st.tuples(letters | st.just(""), marks), min_size=1, max_size=3).map(
    lambda pieces: "".join(map("".join, pieces))
)
secrets = st.builds("{}{}".format, secrets, letters) | secrets | letters
ends = st.sampled_from(
    [
        "@127.0.0.1:1",
        "@127.0.0.1:1/",
        "@127.0.0.1:1/test?authSource=admin",
        "@127.0.0.1:1,127.0.0.1:2/?retryWrites=maybe",
        "@127.0.0.1:seventeen/",
        "@127.0.0.1:1/?w=&nonesuch=1&authMechanism=NONE",
        "@/",
        "@127.0.0.1:1?replicaSet=",
        "@[::1/",
        "@%2Ftmp%2Fno.sock",
    ]
)
starts = st.sampled_from(["mongodb://ali:", "mongodb://:", "mongodb://a%40b:", "mongodb://a:b:"])
of_options = st.builds(
    "mongodb://127.0.0.1:1/?{}={}".format,
    st.sampled_from(
        ["tlsCertificateKeyFilePassword", "authMechanismProperties", "ssl_pem_passphrase"]
    ),
    # An & would begin another option.
    st.builds("{}{}{}".format, letters, st.sampled_from(["", "%40", "%2F", ":", "+"]), letters),
)
uris = st.builds("{}{}{}".format, starts, secrets, ends) | of_options


def is_told(text: str) -> bool:
    """Tell whether a piece of a password stands in a text."""
    return bool(re.search(f"[{LETTERS}]{{4}}", text))


WORDS = [
    "demo",
    "run",
    "doctor",
    "cluster",
    "--",
    "-",
    "-h",
    "--help",
    "--version",
    "--ops",
    "--mongos",
]
WORDS += [
    "--hang",
    "--json",
    "--cooldown",
    "--strict",
    "--docker",
    "--cooldown=base=1",
    "--mongos=3",
]
WORDS += [
    "--m",
    "--c=",
    "-1",
    "3",
    "python",
    "mongodb://127.0.0.1:1/",
    "a b",
    "%s",
    "%(prog)s",
    "x\ny",
]
lines = st.lists(st.sampled_from(WORDS) | texts | uris, max_size=5)


def parse(arguments: list[str]) -> tuple[Any, str, str]:
    """Return the options or the exit code, and what was printed."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            return cli._parser().parse_args(arguments), out.getvalue(), err.getvalue()
        except SystemExit as error:
            return error.code, out.getvalue(), err.getvalue()


@given(lines)
def test_a_command_line_is_understood_or_refused(arguments: list[str]) -> None:
    """Refused with code 2 and one line on standard error, unless it asks for help."""
    result, out, err = parse(arguments)
    if result == 2:
        assert re.fullmatch(r"pymongo-deprio[^\n]*\. See pymongo-deprio[^\n]* --help\n", err)
        assert not is_told(err)
        assert out == ""
    elif result == 0:
        assert out.startswith(("usage: ", "pymongo-deprio "))
        assert err == ""
    else:
        assert (out, err) == ("", "")
        assert callable(result.run)
        assert result.command in {"demo", "run", "doctor", "cluster"}
        assert getattr(result, "mongos", 2) >= 1


class Config:
    """What pytest hands over: what stands on its command line, and what in the ini file."""

    def __init__(self, given: dict[str, Any], ini: dict[str, Any]) -> None:
        self.getoption = given.get
        self.getini = ini.__getitem__


NAMES = ("deprio_cluster", "deprio_mongos", "deprio_mongod", "deprio_cooldown")
settings_of_pytest = st.fixed_dictionaries(
    {
        name: texts | st.sampled_from(["", "local", "mongodb://h", "3", MANY_DIGITS])
        for name in NAMES
    }
)


@given(
    given_=st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, texts)),
    ini=settings_of_pytest,
)
def test_settings_of_pytest_are_understood_or_refused(
    given_: dict[str, Any], ini: dict[str, Any]
) -> None:
    """With a usage error that names the option."""
    config: Any = Config(given_, {"deprio": True, "deprio_require": False, **ini})
    settings, message = outcome(lambda: _plugin_options.read(config), pytest.UsageError)
    if settings is None:
        assert message.startswith("--deprio-")
    else:
        assert settings.mongos >= 1
        assert is_plain(settings.cooldown)


class Silent(pymongo.MongoClient):  # type: ignore[type-arg]
    """A client that connects to nobody."""

    def __init__(self, uri: str, **options: Any) -> None:
        super().__init__(uri, connect=False, **options)


@pytest.fixture(scope="module", autouse=True)
def nobody_is_asked() -> Iterator[None]:
    """Let a survey look at what a client makes of its URI, and connect to nobody."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_survey, "MongoClient", Silent)
        patch.setattr(_survey, "_settled", lambda client: client._topology.description)
        yield


@given(uris)
def test_no_piece_of_a_password_is_told(uri: str) -> None:
    """Neither by what is found nor by the error, however it is written."""
    survey, message = outcome(lambda: _survey.take(uri), _survey.SurveyError)
    assert not is_told(f"{survey}{message}")
