"""What a client finds out of a cluster, over real sockets."""

from __future__ import annotations

import socket
import warnings
from typing import TYPE_CHECKING

import pytest
from support import VERSION

from pymongo_deprio import _survey

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster

NOBODY = "127.0.0.1:1"


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait no longer than a test needs."""
    monkeypatch.setattr(_survey, "SECONDS", 1)
    monkeypatch.setattr(_survey, "SECONDS_OF_HEARTBEATS", 0)


def test_a_sharded_cluster(cluster: LocalCluster) -> None:
    """All mongoses are found, with round-trip times; without options of the URI retries are on."""
    survey = _survey.take(cluster.uri)
    assert survey.topology == "Sharded"
    assert {member.address for member in survey.members} == {
        "{}:{}".format(*mongos.address) for mongos in cluster.mongos
    }
    for member in survey.members:
        assert member.kind == "Mongos"
        assert member.round_trip_ms is not None
        assert member.round_trip_ms > 0
        assert member.error is None
    assert survey.retry_reads
    assert survey.retry_writes
    assert survey.warnings == []


def test_the_latency_window(cluster: LocalCluster) -> None:
    """The mongos is marked that is farther away than the fastest one by the threshold."""
    near, far = cluster.mongos
    with far.delay_hello(200):
        survey = _survey.take(cluster.uri + "?localThresholdMS=30")
    assert survey.local_threshold_ms == 30
    outside = {member.address: member.outside_window for member in survey.members}
    assert outside == {
        "{}:{}".format(*near.address): False,
        "{}:{}".format(*far.address): True,
    }


def test_options_of_the_uri(cluster: LocalCluster) -> None:
    """They are the application's."""
    survey = _survey.take(cluster.uri + "?retryReads=false&retryWrites=false")
    assert (survey.retry_reads, survey.retry_writes) == (False, False)


def test_nobody_logs_in(cluster: LocalCluster) -> None:
    """Servers are listened to, whatever the URI says of connections; a wrong password is none."""
    for mongos in cluster.mongos:
        mongos.commands(reset=True)
    uri = cluster.uri.replace("mongodb://", "mongodb://me:wrong@")
    survey = _survey.take(f"{uri}?minPoolSize=9&connect=false")
    assert [member.kind for member in survey.members] == ["Mongos"] * 2
    for mongos in cluster.mongos:
        assert not {"saslStart", "authenticate"} & set(mongos.commands())


def test_what_pymongo_warns_of(cluster: LocalCluster) -> None:
    """It is told, not printed."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        survey = _survey.take(cluster.uri + "?retryWritez=false")
    (warning,) = survey.warnings
    assert "nknown option" in warning


def test_a_server_that_does_not_answer(cluster: LocalCluster) -> None:
    """It is there without a round-trip time, and with the reason; the others are as they are."""
    survey = _survey.take(cluster.uri.rstrip("/") + f",{NOBODY}/")
    (silent,) = (member for member in survey.members if member.address == NOBODY)
    assert (silent.kind, silent.round_trip_ms, silent.outside_window) == ("Unknown", None, False)
    assert silent.error is not None
    assert "refused" in silent.error
    assert not silent.error.startswith(NOBODY)
    assert sum(member.kind == "Mongos" for member in survey.members) == 2


def test_a_server_that_hangs(cluster: LocalCluster) -> None:
    """What accepts connections and says nothing is told to do so."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        silent = "{}:{}".format(*hanging.getsockname())
        survey = _survey.take(cluster.uri.rstrip("/") + f",{silent}/")
    (member,) = (member for member in survey.members if member.address == silent)
    assert member.error is not None
    assert member.error.startswith("no answer in 1 seconds: it hangs")


def test_the_timeout_of_sockets(cluster: LocalCluster) -> None:
    """It is the URI's, in milliseconds, or none."""
    assert _survey.take(cluster.uri).socket_timeout_ms is None
    assert _survey.take(cluster.uri + "?socketTimeoutMS=500").socket_timeout_ms == 500


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("mongodb://", ""),
        ("http://example", ""),
        ("mongodb://127.0.0.1:seventeen/", "ort"),
        ("mongodb://127.0.0.1/?tls=true&tlsCAFile=/nonesuch", ""),
    ],
)
def test_a_uri_that_cannot_be_used(uri: str, words: str) -> None:
    """The error says so, and why."""
    with pytest.raises(_survey.SurveyError, match=r"^the URI cannot be used: .+") as caught:
        _survey.take(uri)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


PASSWORDS = [
    "sesame",
    "open/sesame",
    "open@sesame",
    "open?sesame",
    "open:sesame",
    "open%sesame",
    "12@34/sesame",
    "1?sesame",
    "%73esame",
]


@pytest.mark.parametrize(
    "end",
    [f"@{NOBODY}/", f"@{NOBODY}/?authSource=admin", "@nonesuch:xy/", "", "%40a.example/", "#a/"],
)
@pytest.mark.parametrize("password", PASSWORDS)
def test_passwords_are_not_shown(password: str, end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """However it is written in the URI, no piece of it is in what is found, or in the error."""
    if "@" in password and "@" not in end:
        pytest.skip("its second half is the host, whatever was meant")
    monkeypatch.setattr(_survey, "SECONDS", 0.1)
    uri = f"mongodb://ali:{password}{end}"
    try:
        told = str(_survey.take(uri))
    except _survey.SurveyError as error:
        told = str(error)
    assert "sesa" not in told
    assert "open" not in told
    assert "12" not in told.replace(NOBODY, "")


@pytest.mark.skipif(VERSION < (3, 11), reason="it does not know this option")
def test_passwords_of_options_are_not_shown() -> None:
    """The password of a key file is none the less one."""
    uri = f"mongodb://{NOBODY}/?tls=true&tlsCertificateKeyFile=/no&tlsCertificateKeyFilePassword=sesame"
    with pytest.raises(_survey.SurveyError) as caught:
        _survey.take(uri)
    assert "sesa" not in str(caught.value)
