"""Administrative commands, fail point documents, and undoing."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from pymongo_deprio.cluster import (
    ClusterError,
    CommandFailedError,
    LocalCluster,
    ServerUnreachableError,
)
from pymongo_deprio.cluster._admin import Restore, fail_command_document, run_command


def test_a_command_is_answered(servers: LocalCluster) -> None:
    """By the server at this address, on the database that is asked for."""
    reply = run_command(servers.mongos[0].address, {"dbStats": 1}, database="test")
    assert reply["db"] == "test"


def test_an_error_reply_raises_with_its_details(servers: LocalCluster) -> None:
    """The message says which command, which server, and what it answered."""
    with pytest.raises(CommandFailedError, match=r"nonsense on .*code 59") as caught:
        run_command(servers.mongos[0].address, {"nonsense": 1})
    assert caught.value.code == caught.value.details["code"] == 59


def test_no_server_raises() -> None:
    """A refused connection is not an error of the socket module."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with pytest.raises(ServerUnreachableError, match="refused"):
            run_command(unused.getsockname(), {"ping": 1})


def test_a_silent_server_raises_in_time() -> None:
    """It is waited for no longer than asked."""
    raises = pytest.raises(ServerUnreachableError, match="timed out")
    with socket.create_server(("127.0.0.1", 0)) as silent, raises:
        run_command(silent.getsockname(), {"ping": 1}, timeout=0.05)


@pytest.mark.parametrize(
    ("options", "mode", "data"),
    [
        ({"error_code": 6}, "alwaysOn", {"errorCode": 6}),
        ({"error_code": 6, "times": 2}, {"times": 2}, {"errorCode": 6}),
        ({"error_code": 6, "skip": 2}, {"skip": 2}, {"errorCode": 6}),
        ({"mode": "off"}, "off", {}),
        ({"error_code": 6, "error_labels": []}, "alwaysOn", {"errorCode": 6, "errorLabels": []}),
        ({"close_connection": True}, "alwaysOn", {"closeConnection": True}),
        ({"block_time_ms": 5}, "alwaysOn", {"blockConnection": True, "blockTimeMS": 5}),
        ({"error_code": 6, "app_name": "a"}, "alwaysOn", {"errorCode": 6, "appName": "a"}),
        (
            {"write_concern_error": {"code": 91}},
            "alwaysOn",
            {"writeConcernError": {"code": 91}},
        ),
    ],
)
def test_documents(options: dict[str, Any], mode: Any, data: dict[str, Any]) -> None:
    """Each option becomes its field, and what is not given is left out."""
    assert fail_command_document("find", **options) == {
        "configureFailPoint": "failCommand",
        "mode": mode,
        "data": {"failCommands": ["find"], **data},
    }


def test_one_mode_at_most() -> None:
    """Two would contradict each other."""
    with pytest.raises(ValueError, match="one of mode, times and skip"):
        fail_command_document(["find"], times=1, skip=1, error_code=6)


def test_no_command() -> None:
    """A fail point for no command would never be hit."""
    with pytest.raises(ValueError, match=r"commands must name a command to fail, not \[\]"):
        fail_command_document([], error_code=6)


@pytest.mark.parametrize("options", [{}, {"times": 1}, {"error_labels": ["x"]}, {"app_name": "a"}])
def test_nothing_to_do(options: dict[str, Any]) -> None:
    """A fail point that does nothing would let a test pass for nothing."""
    with pytest.raises(ValueError, match="nothing would be done to 'find': give an error_code"):
        fail_command_document("find", **options)


def fail() -> None:
    """Fail to undo."""
    raise ClusterError("undoing failed")


def test_undone_once() -> None:
    """At the end of the block, or before when called."""
    calls: list[int] = []
    with Restore(lambda: calls.append(1)) as restore:
        assert calls == []
        restore()
    assert calls == [1]


def test_an_error_in_the_block_is_not_replaced() -> None:
    """The test that failed is what one wants to read about."""
    with pytest.raises(ZeroDivisionError), Restore(fail):
        raise ZeroDivisionError


def test_an_error_of_undoing_is_raised_after_a_block_without_one() -> None:
    """It would go unnoticed otherwise."""
    with pytest.raises(ClusterError, match="undoing failed"), Restore(fail):
        pass
