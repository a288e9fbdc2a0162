"""The doctor's report: of the PyMongo of this run, and of clusters."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pymongo
import pytest
import wrapt

import pymongo_deprio
from pymongo_deprio import _activation, _doctor, _seams, _survey

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster

SEAMS = [
    (seam.owner, seam.name, f"{seam.owner.__module__}.{seam.owner.__name__}.{seam.name}")
    for seam in _seams.find(_activation._state)
]


def survey(*members: _survey.Member, topology: str = "Sharded", **changes: Any) -> _survey.Survey:
    """Return a survey of these servers."""
    options: dict[str, Any] = {"retry_reads": True, "retry_writes": True, "warnings": []}
    options["socket_timeout_ms"] = 20_000
    return _survey.Survey(topology, list(members), 15, **{**options, **changes})


def mongos(address: str, milliseconds: float = 1.0, *, outside: bool = False) -> _survey.Member:
    """Return a mongos that answers."""
    return _survey.Member(address, "Mongos", milliseconds, outside, None)


A, B = mongos("a:1"), mongos("b:2")
SILENT = _survey.Member("c:3", "Unknown", None, False, "connection refused")


def examine(monkeypatch: pytest.MonkeyPatch, found: _survey.Survey) -> _doctor.Report:
    """Return the report of a cluster."""
    monkeypatch.setattr(_survey, "take", lambda uri: found)
    return _doctor.examine("mongodb://a:1,b:2/")


def test_a_pymongo_that_is_fine() -> None:
    """Each seam is named and patched; the versions are told; afterwards nothing is patched."""
    report = _doctor.examine(None)
    assert report.exit_code == 0
    assert report.seams == [{"name": name, "state": "patched", "others": []} for *_, name in SEAMS]
    assert report.versions["PyMongo"].startswith(f"{pymongo.version}, ")
    assert report.versions["wrapt"].startswith(f"{wrapt.__version__}, ")  # type: ignore[attr-defined]
    assert report.cluster is None
    assert str(report).endswith("\nFine")
    assert not pymongo_deprio.is_enabled()


def test_what_is_enabled_stays_so(enabled: None) -> None:
    """Where the patch is on, the seams are looked at without it, and it is on again after that."""
    report = _doctor.examine(None)
    assert all(seam["others"] == [] for seam in report.seams)
    assert pymongo_deprio.is_enabled()


def test_a_missing_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others are there and not patched; it is to be mended; the faults stay."""
    owner, name, label = SEAMS[0]
    monkeypatch.delattr(owner, name)
    report = _doctor.examine(None)
    assert report.exit_code == 1
    states = {seam["name"]: seam["state"] for seam in report.seams}
    assert states.pop(label) == "missing"
    assert set(states.values()) == {"there"}
    (message,) = report.to_mend
    assert label in message
    faults = {fault["name"]: fault["enabled"] for fault in report.faults}
    assert faults["P10"] == "stays"
    assert f"  missing  {label}\n" in str(report)
    assert str(report).endswith("\nSomething is to be mended")


def test_wrappers_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that lie on a seam are named, from the outside, whatever they are made of."""
    owner, name, label = SEAMS[0]

    def plain(*arguments: Any, **options: Any) -> Any:
        """Stand for PyMongo's method."""

    plain.__wrapped__ = vars(owner)[name]  # type: ignore[attr-defined]
    plain.address = None  # type: ignore[attr-defined]
    wrapper = wrapt.FunctionWrapper(plain, lambda wrapped, *_: wrapped())
    monkeypatch.setattr(owner, name, wrapper)
    report = _doctor.examine(None)
    (others,) = (seam["others"] for seam in report.seams if seam["name"] == label)
    assert others == [f"{type(wrapper).__module__}.FunctionWrapper", f"{__name__}.plain"]
    assert any(label in hint and "plain" in hint for hint in report.hints)


def test_a_newer_pymongo(monkeypatch: pytest.MonkeyPatch) -> None:
    """That nobody has tried it is a hint, and nothing to mend."""
    monkeypatch.setattr(_doctor, "NEWEST_KNOWN", (3, 8))
    report = _doctor.examine(None)
    assert report.exit_code == 0
    (hint,) = report.hints
    assert hint.startswith(f"PyMongo {pymongo.version} is newer than 3.8")


def test_as_json() -> None:
    """It is the whole report, and the exit code."""
    report = _doctor.examine(None)
    document = json.loads(json.dumps(report.document()))
    assert document["exit_code"] == 0
    assert document["seams"] == report.seams
    assert [fault["name"] for fault in document["faults"]] == [f"P{n}" for n in range(1, 12)]
    assert set(document["faults"][0]) == {"name", "text", "is_there", "enabled"}


def test_a_real_cluster(cluster: LocalCluster) -> None:
    """Two mongoses that answer are fine."""
    report = _doctor.examine(cluster.uri)
    assert report.exit_code == 0, str(report)
    assert report.cluster is not None
    assert report.cluster["topology"] == "Sharded"
    for member in report.cluster["members"]:
        assert f"  {member['address']:30}  Mongos " in str(report)


@pytest.mark.parametrize(
    ("found", "exit_code", "words"),
    [
        (survey(A, B), 0, "\nFine"),
        (survey(A), 1, "one mongos: nothing to retry on"),
        (survey(A, B, retry_writes=False), 1, "retryWrites=false"),
        (survey(A, B, retry_reads=False), 1, "retryReads=false"),
        (survey(A, B, SILENT), 1, "c:3 does not answer: connection refused"),
        (survey(SILENT, topology="Unknown"), 2, "no server can be used: c:3: connection refused"),
        (survey(A, mongos("d:4", 80, outside=True)), 0, "d:4 is outside the latency window of 15"),
        (survey(A, B, warnings=["Unknown option"]), 0, "Unknown option"),
        (survey(A, B, socket_timeout_ms=None), 0, "no socketTimeoutMS"),
        (survey(topology="ReplicaSetNoPrimary"), 2, "not what its replicaSet asks for"),
        (
            survey(_survey.Member("p:1", "RSPrimary", 1, False, None), topology="ReplicaSet"),
            0,
            "ReplicaSet is no sharded cluster: there is nothing to change",
        ),
        (
            survey(
                _survey.Member("l:1", "LoadBalancer", None, False, None), topology="LoadBalanced"
            ),
            2,
            "behind a load balancer no server is asked before an operation",
        ),
    ],
)
def test_clusters(
    found: _survey.Survey, exit_code: int, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows from what was found is told, and is the exit code."""
    report = examine(monkeypatch, found)
    assert report.exit_code == exit_code, str(report)
    assert words in str(report)
    assert [member["address"] for member in report.document()["cluster"]["members"]] == [
        member.address for member in found.members
    ]
