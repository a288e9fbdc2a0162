"""Looks whether retries can move to another mongos: at PyMongo, and at a cluster."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FunctionType
from typing import Any, Iterator

import pymongo

import pymongo_deprio
from pymongo_deprio import _activation, _faults, _patching, _seams, _survey

NEWEST_KNOWN = (4, 20)
"""The newest line of PyMongo that pymongo_deprio was tried on."""


@dataclass
class Report:
    """What was found."""

    versions: dict[str, str]
    seams: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    cluster: dict[str, Any] | None = None
    to_mend: list[str] = field(default_factory=list)
    cannot_tell: list[str] = field(default_factory=list)
    hints: list[str] = field(default_factory=list)

    @property
    def exit_code(self) -> int:
        """0 fine, 1 something to mend, 2 cannot tell."""
        if self.to_mend:
            return 1
        return 2 if self.cannot_tell else 0

    def document(self) -> dict[str, Any]:
        """Return all of it, to be written as JSON."""
        return {**asdict(self), "exit_code": self.exit_code}

    def __str__(self) -> str:
        """Return all of it, to be read."""
        return "\n".join(_lines(self))


def examine(uri: str | None) -> Report:
    """Look at the installed PyMongo and, if there is a URI, at its cluster.

    :raises SurveyError: if the URI cannot be used.
    """
    report = Report(
        {
            "pymongo_deprio": pymongo_deprio.__version__,
            "PyMongo": f"{pymongo.version}, {Path(pymongo.__file__).parent}",
            "Python": f"{platform.python_version()}, {sys.executable}",
            "wrapt": _patching.about_wrapt(),
        }
    )
    with _activation.preserved():
        pymongo_deprio.disable()
        _look_at_pymongo(report)
    if uri is not None:
        _look_at_cluster(report, _survey.take(uri))
    return report


def _look_at_pymongo(report: Report) -> None:
    seams, missing = _seams.look(_activation.observer())
    originals = [vars(seam.owner)[seam.name] for seam in seams]
    try:
        pymongo_deprio.enable(strict=True)
    except pymongo_deprio.UnsupportedPyMongoError as error:
        report.to_mend.append(str(error))
    for seam, original in zip(seams, originals):
        name = f"{seam.owner.__module__}.{seam.owner.__name__}.{seam.name}"
        is_patched = vars(seam.owner)[seam.name] is not original
        others = list(_others(original))
        report.seams.append(
            {"name": name, "state": "patched" if is_patched else "there", "others": others}
        )
        if others:
            report.hints.append(f"{name} is wrapped by {', '.join(others)} as well")
    report.seams += [{"name": name, "state": "missing", "others": []} for name in missing]
    for fault in _faults.of_this_pymongo():
        enabled = fault.enabled if not missing else "stays"
        report.faults.append(
            {**fault._asdict(), "enabled": enabled if fault.is_there else "does not happen"}
        )
    if tuple(pymongo.version_tuple[:2]) > NEWEST_KNOWN:
        newest = ".".join(map(str, NEWEST_KNOWN))
        report.hints.append(
            f"PyMongo {pymongo.version} is newer than {newest}, the newest that pymongo_deprio "
            f"{pymongo_deprio.__version__} was tried on; the faults are judged by what it has in "
            "common with older ones"
        )


def _others(attribute: Any) -> Iterator[str]:
    """Name the wrappers of others that lie on an attribute, from the outside."""
    while attribute is not None:
        if type(attribute) is not FunctionType:  # wrapt's wrappers are instances of it as well
            yield f"{type(attribute).__module__}.{type(attribute).__qualname__}"
        elif attribute.__globals__["__name__"].partition(".")[0] != "pymongo":
            yield f"{attribute.__globals__['__name__']}.{attribute.__code__.co_name}"
        attribute = getattr(attribute, "__wrapped__", None)


def _look_at_cluster(report: Report, survey: _survey.Survey) -> None:
    report.cluster = asdict(survey)
    report.hints += survey.warnings
    for name, is_on in (("retryReads", survey.retry_reads), ("retryWrites", survey.retry_writes)):
        if not is_on:
            report.to_mend.append(f"{name}=false: these operations are never retried")
    answering = [member for member in survey.members if member.round_trip_ms is not None]
    silent = [member for member in survey.members if member.kind == "Unknown"]
    if survey.topology == "LoadBalanced":
        report.cannot_tell.append("behind a load balancer no server is asked before an operation")
    elif not answering:
        told = "; ".join(f"{member.address}: {member.error}" for member in silent)
        reason = told or "those of the URI are not what its replicaSet asks for"
        report.cannot_tell.append(f"no server can be used: {reason}")
        return
    report.to_mend += [f"{member.address} does not answer: {member.error}" for member in silent]
    mongoses = [member for member in answering if member.kind == "Mongos"]
    if not mongoses:
        report.hints.append(f"{survey.topology} is no sharded cluster: there is nothing to change")
    elif len(survey.members) == 1:
        report.to_mend.append(
            "one mongos: nothing to retry on. Name more in the URI, without directConnection"
        )
    if mongoses and survey.socket_timeout_ms is None:
        report.hints.append(
            "no socketTimeoutMS: an operation on a mongos that hangs waits without end, and is not "
            "retried"
        )
    report.hints += [
        f"{member.address} is outside the latency window of {survey.local_threshold_ms} ms: only "
        "retries go there"
        for member in mongoses
        if member.outside_window
    ]


def _lines(report: Report) -> Iterator[str]:
    width = max(map(len, report.versions))
    yield from (f"{name:{width}}  {version}" for name, version in report.versions.items())
    yield "\nWhere PyMongo is patched"
    yield from (f"  {seam['state']:7}  {seam['name']}" for seam in report.seams)
    yield f"\n{'What a retry of this PyMongo does alone':65}  enabled"
    yield from map(_line_of_fault, report.faults)
    if report.cluster is not None:
        yield f"\nCluster: {report.cluster['topology']}"
        yield from map(_line_of_member, report.cluster["members"])
    for title, found in (
        ("To mend", report.to_mend),
        ("Cannot tell", report.cannot_tell),
        ("Hints", report.hints),
    ):
        if found:
            yield f"\n{title}"
            yield from (f"  {line}" for line in found)
    yield "\n" + ("Fine", "Something is to be mended", "Cannot tell")[report.exit_code]


def _line_of_fault(fault: dict[str, Any]) -> str:
    return f"  {fault['name']:3}  {fault['text']:58}  {fault['enabled']}"


def _line_of_member(member: dict[str, Any]) -> str:
    time = member["round_trip_ms"]
    found = member["error"] or "unknown" if time is None else f"{time:7.1f} ms"
    outside = "  outside the latency window" if member["outside_window"] else ""
    return f"  {member['address']:30}  {member['kind']:10}  {found}{outside}"
