"""The rules of failCommand, and that they are those of the real server."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from bson.binary import Binary
from bson.int64 import Int64

from pymongo_deprio.cluster import CommandFailedError
from pymongo_deprio.cluster._admin import run_command
from pymongo_deprio.cluster._command import CommandError
from pymongo_deprio.cluster._failpoint import MOST_SECONDS, Caller, FailCommand, block_seconds

if TYPE_CHECKING:
    from pymongo_deprio.cluster import LocalCluster
    from pymongo_deprio.cluster._admin import Address

FIND = Caller("find")


def fail_command(mode: Any, **data: Any) -> FailCommand:
    """Make a fail point that fails `find`, unless the data says otherwise."""
    point = FailCommand()
    data = {"failCommands": ["find"], "errorCode": 6, **data}
    point.configure({"configureFailPoint": "failCommand", "mode": mode, "data": data})
    return point


def turns(point: FailCommand, number: int = 5) -> list[bool]:
    """Tell which of so many finds are failed."""
    return [point.before(FIND) is not None for _ in range(number)]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("off", "....."),
        ("alwaysOn", "xxxxx"),
        ({"times": 2}, "xx..."),
        ({"times": 1}, "x...."),
        ({"skip": 3}, "...xx"),
        ({"skip": 0}, "xxxxx"),
        ({"activationProbability": 0}, "....."),
        ({"activationProbability": 1}, "xxxxx"),
    ],
)
def test_modes(mode: Any, expected: str) -> None:
    """Each mode fails these commands of a row, and no others."""
    assert turns(fail_command(mode)) == [turn == "x" for turn in expected]


def test_only_matching_commands_use_up_the_turns() -> None:
    """A command that is not named passes and counts for nothing."""
    point = fail_command({"times": 1})
    assert point.before(Caller("insert")) is None
    assert point.before(FIND) is not None


def test_configure_gives_the_hits_since_the_start() -> None:
    """The count is not reset by switching the fail point off or on."""
    point = fail_command({"times": 2})
    turns(point)
    off = {"configureFailPoint": "failCommand", "mode": "off"}
    assert point.configure(off) == 2
    assert point.configure(off) == 2


@pytest.mark.parametrize(
    ("named", "command", "hit"),
    [
        ("isMaster", "ismaster", True),
        ("ismaster", "isMaster", True),
        ("isMaster", "hello", False),
        ("hello", "isMaster", False),
        ("Find", "find", False),
        ("findandmodify", "findAndModify", True),
        ("configureFailPoint", "configureFailPoint", False),
    ],
)
def test_names_match_as_the_server_has_them(named: str, command: str, *, hit: bool) -> None:
    """Case counts, aliases are one command, and configureFailPoint is never failed."""
    point = fail_command("alwaysOn", failCommands=[named])
    assert (point.before(Caller(command)) is not None) == hit


def test_app_name_restricts_it_to_one_application() -> None:
    """Other clients, and those without a name, are left alone."""
    point = fail_command("alwaysOn", appName="a")
    assert point.before(Caller("find", "b")) is None
    assert point.before(Caller("find")) is None
    assert point.before(Caller("find", "a")) is not None


@pytest.mark.parametrize(
    ("milliseconds", "seconds"),
    [(5, 0.005), (-1, 0), (float("nan"), 0), (1e300, MOST_SECONDS), (float("inf"), MOST_SECONDS)],
)
def test_a_command_is_held_as_long_as_can_be_slept(milliseconds: float, seconds: float) -> None:
    """Numbers that nobody can sleep for do not end the thread that is to."""
    assert block_seconds({"blockConnection": True, "blockTimeMS": milliseconds}) == seconds


def test_a_write_concern_error_acts_after_and_not_before() -> None:
    """With nothing else in the data the command is executed, and takes one turn."""
    point = FailCommand()
    data = {"failCommands": ["find"], "writeConcernError": {"code": 91}}
    point.configure({"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": data})
    assert point.before(FIND) is None
    assert point.after(FIND) is not None
    assert point.after(FIND) is None


def test_a_refused_document_changes_nothing() -> None:
    """What was set before stays set."""
    point = fail_command("alwaysOn")
    with pytest.raises(CommandError):
        point.configure({"configureFailPoint": "failCommand", "mode": "sometimes"})
    assert turns(point, 1) == [True]


# What follows is run on the real mongod and on the emulated mongos, and compared.

PING = ["ping"]
DOCUMENTS: list[dict[str, Any]] = [
    {},
    {"mode": "sometimes"},
    {"mode": 5},
    {"mode": {}},
    {"mode": {"times": -1}},
    {"mode": {"times": 2**40}},
    {"mode": {"times": 1.5}},
    {"mode": {"times": "1"}},
    {"mode": {"skip": -1}},
    {"mode": {"activationProbability": 3}},
    {"mode": {"activationProbability": "a"}},
    {"mode": "off", "data": 5},
    {"configureFailPoint": "noSuchFailPoint", "mode": "off"},
    {"configureFailPoint": 5, "mode": "off"},
    {"mode": {"times": 0}, "data": {"failCommands": ["ping"], "errorCode": 3}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 3}},
    {"mode": {"times": 1}, "data": {"failCommands": "ping", "errorCode": 3}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 3.0}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 3.5}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": "3"}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 0}},
    *(
        {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": number}}
        for number in (1e300, float("nan"), float("inf"))
    ),
    {"mode": {"times": 2**62}},
    {
        "mode": {"times": 1},
        "data": {"failCommands": ["ping"], "errorCode": 6, "closeConnection": 1},
    },
    {"mode": {"times": 1}, "data": {"failCommands": PING, "blockConnection": True}},
    {
        "mode": {"times": 1},
        "data": {"failCommands": ["ping"], "errorCode": 6, "errorLabels": ["a"]},
    },
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 6, "errorLabels": "a"}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 6, "threadName": "x"}},
    {"mode": {"times": 1}, "data": {"failCommands": PING, "errorCode": 6, "appName": "x"}},
    {"mode": {"times": 1}, "data": {"failAllCommands": True, "errorCode": 6}},
    {"mode": {"times": 1, "skip": 1}, "data": {"failCommands": ["ping"], "errorCode": 6}},
    {"mode": "off", "data": {"unknown": 1}, "unknown": 1},
]


OF_ONE_SERVER = {
    "$clusterTime",
    "count",
    "electionId",
    "opTime",
    "operationTime",
    "recoveryToken",
    "topologyVersion",
}


def answers(address: Address, document: dict[str, Any]) -> list[dict[str, Any]]:
    """Set a fail point, ping twice and switch it off; give the four replies."""
    on = {"configureFailPoint": "failCommand", **document}
    off = {"configureFailPoint": "failCommand", "mode": "off"}
    return [reply(address, command) for command in (on, {"ping": 1}, {"ping": 1}, off)]


def reply(address: Address, command: dict[str, Any]) -> dict[str, Any]:
    """Run a command and give what is the same on every server in its reply."""
    try:
        document = run_command(address, command)
    except CommandFailedError as error:
        document = error.details
    return {name: value for name, value in document.items() if name not in OF_ONE_SERVER}


@pytest.mark.parametrize("document", DOCUMENTS, ids=str)
def test_documents_are_taken_as_by_the_real_server(
    servers: LocalCluster, document: dict[str, Any]
) -> None:
    """Same replies to the fail point, and to the commands after it, as from the mongod."""
    assert answers(servers.mongos[0].address, document) == answers(servers.mongod_address, document)


CODES = [1, 6, 7, 11, 24, 43, 50, 59, 89, 91, 112, 134, 189, 246, 251, 262, 280, 286, 317, 358]
CODES += [9001, 10107, 11602, 13435, 13436]


@pytest.mark.parametrize("code", CODES)
def test_errors_have_the_real_servers_names_and_labels(servers: LocalCluster, code: int) -> None:
    """For a retryable write, a transaction's statement, a commit, and a write without a session."""
    reply(servers.mongod_address, {"create": "labels"})
    emulated = labels_of(servers.mongos[0].address, code)
    assert emulated == labels_of(servers.mongod_address, code)


def labels_of(address: Address, code: int) -> list[dict[str, Any]]:
    """Fail four commands with this code, and one with it as a write concern error."""
    lsid = {"id": Binary(bytes(range(16)), 4)}
    write = {"insert": "labels", "documents": [{}], "lsid": lsid}
    commands: list[dict[str, Any]] = [
        {**write, "txnNumber": Int64(1)},
        {**write, "txnNumber": Int64(1), "startTransaction": True, "autocommit": False},
        {"commitTransaction": 1, "lsid": lsid, "txnNumber": Int64(1), "autocommit": False},
        {"insert": "labels", "documents": [{}]},
    ]
    names = ["insert", "commitTransaction"]
    point = {"configureFailPoint": "failCommand", "mode": "alwaysOn"}
    off = {"configureFailPoint": "failCommand", "mode": "off"}
    try:
        run_command(address, {**point, "data": {"failCommands": names, "errorCode": code}})
        replies = [reply(address, command) for command in commands]
        run_command(
            address, {**point, "data": {"failCommands": names, "writeConcernError": {"code": code}}}
        )
        replies.append(reply(address, commands[3]))
    finally:
        run_command(address, off)
    return replies
