"""The rules of the `failCommand` fail point, as a MongoDB 6.0 server follows them."""

from __future__ import annotations

import math
import random
import threading
from typing import AbstractSet, Any, Callable, Mapping, NamedTuple, Tuple

from pymongo_deprio.cluster._codes import NOT_TRANSIENT, RETRYABLE, TRANSIENT, UNRESUMABLE
from pymongo_deprio.cluster._command import CommandError

_TYPE_NAMES = {str: "string", dict: "object", list: "array", type(None): "null"}
_INT32_MAX = 2**31 - 1
MOST_SECONDS = 365 * 24 * 3600.0
"""For ever: what is much longer cannot be slept."""
_ALIASES = {
    "buildinfo": "buildInfo",
    "collstats": "collStats",
    "dbstats": "dbStats",
    "deleteIndexes": "dropIndexes",
    "findandmodify": "findAndModify",
    "ismaster": "isMaster",
    "mapreduce": "mapReduce",
}


class Caller(NamedTuple):
    """What the rules look at in a command and its connection."""

    command: str
    app_name: str | None = None
    has_txn_number: bool = False
    in_transaction: bool = False

    @property
    def ends_transaction(self) -> bool:
        """Whether this is the commit or the abort of a transaction."""
        return self.in_transaction and self.command in ("commitTransaction", "abortTransaction")


def canonical_name(command: str) -> str:
    """Give the name under which the server registers a command that has several."""
    return _ALIASES.get(command, command)


_Mode = Tuple[str, float]
_OFF: _Mode = ("off", 0)


class FailCommand:
    """One server's `failCommand` fail point. Threads may share it."""

    def __init__(self) -> None:
        """Begin switched off."""
        self._lock = threading.Lock()
        self._mode = _OFF
        self._data: Mapping[str, Any] = {}
        self._hits = 0

    def configure(self, command: Mapping[str, Any]) -> int:
        """Set mode and data; give how often the fail point was hit since the server started.

        Raises `CommandError` for what a server does not accept, and then changes nothing.
        """
        name = command["configureFailPoint"]
        if name != "failCommand":
            raise CommandError(266, f"{name if isinstance(name, str) else ''} not found")
        mode, data = _parse_mode(command), _parse_data(command)
        with self._lock:
            self._mode, self._data = mode, data
            return self._hits

    def before(self, caller: Caller) -> Mapping[str, Any] | None:
        """Give the data if this command is to be failed or held before it is executed."""
        return self._hit(caller, _acts_before)

    def after(self, caller: Caller) -> Mapping[str, Any] | None:
        """Give the data if a write concern error is to be added to this command's reply."""
        return self._hit(caller, _acts_after)

    def _hit(
        self, caller: Caller, acts: Callable[[Mapping[str, Any]], bool]
    ) -> Mapping[str, Any] | None:
        if self._mode is _OFF:  # as nearly always: no need to wait for the lock
            return None
        with self._lock:
            if not (acts(self._data) and _concerns(self._data, caller) and self._take_turn()):
                return None
            self._hits += 1
            return self._data

    def _take_turn(self) -> bool:
        kind, number = self._mode
        if kind == "times":
            self._mode = (kind, number - 1) if number > 1 else _OFF
        elif kind == "skip" and number > 0:
            self._mode = (kind, number - 1)
            return False
        elif kind == "activationProbability":
            return random.random() < number  # noqa: S311 - chance for tests, not for secrets
        return kind != "off"


def error_code(data: Mapping[str, Any]) -> int | None:
    """Give the error code of a fail point's data; as the server, ignore what is no integer."""
    return _whole_number(data.get("errorCode"))


def write_concern_code(data: Mapping[str, Any]) -> int | None:
    """Give the error code of the write concern error that is to be added."""
    error = data["writeConcernError"]
    return _whole_number(error.get("code")) if isinstance(error, Mapping) else None


def closes(data: Mapping[str, Any]) -> bool:
    """Whether the connection is to be closed instead of a reply."""
    return data.get("closeConnection") is True


def block_seconds(data: Mapping[str, Any]) -> float:
    """Give for how long the command is to be held; raises `CommandError` if that is missing."""
    if not _blocks(data):
        return 0.0
    milliseconds = data.get("blockTimeMS")
    if isinstance(milliseconds, bool) or not isinstance(milliseconds, (int, float)):
        raise CommandError(72, "must specify 'blockTimeMS' when 'blockConnection' is true")
    return min(max(0.0, milliseconds / 1000), MOST_SECONDS)


def given_labels(data: Mapping[str, Any]) -> list[str] | None:
    """Give the labels that replace the automatic ones; None if the data leaves it to those."""
    labels = data.get("errorLabels")
    return [str(label) for label in labels] if isinstance(labels, list) else None


def automatic_labels(
    caller: Caller, code: int | None = None, write_concern_code: int | None = None
) -> list[str]:
    """Give the labels that the server itself puts on an error with these codes."""
    labels = []
    if code in _transient_codes(caller):
        labels.append("TransientTransactionError")
    may_retry = caller.ends_transaction or (caller.has_txn_number and not caller.in_transaction)
    if may_retry and not RETRYABLE.isdisjoint({code, write_concern_code}):
        labels.append("RetryableWriteError")
    if code in UNRESUMABLE:
        labels.append("NonResumableChangeStreamError")
    return labels


def _whole_number(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    is_whole = math.isfinite(value) and value == int(value) and -(2**63) <= value < 2**63
    return int(value) if is_whole else None


def _transient_codes(caller: Caller) -> AbstractSet[int]:
    if not caller.in_transaction:
        return frozenset()
    return TRANSIENT if caller.ends_transaction else TRANSIENT | (RETRYABLE - NOT_TRANSIENT)


def _blocks(data: Mapping[str, Any]) -> bool:
    return data.get("blockConnection") is True


def _acts_before(data: Mapping[str, Any]) -> bool:
    return closes(data) or _blocks(data) or error_code(data) is not None


def _acts_after(data: Mapping[str, Any]) -> bool:
    return "writeConcernError" in data


def _concerns(data: Mapping[str, Any], caller: Caller) -> bool:
    if caller.command == "configureFailPoint" or "threadName" in data:
        return False
    if "appName" in data and data["appName"] != caller.app_name:
        return False
    if data.get("failAllCommands") is True:
        return True
    named = data.get("failCommands")
    return isinstance(named, list) and canonical_name(caller.command) in {
        canonical_name(name) for name in named if isinstance(name, str)
    }


def _parse_mode(command: Mapping[str, Any]) -> _Mode:
    if "mode" not in command:
        raise CommandError(20, "When setting a failpoint, you must supply a 'mode'")
    mode = command["mode"]
    if isinstance(mode, str):
        if mode not in ("off", "alwaysOn"):
            raise CommandError(2, f"unknown mode: {mode}")
        return _OFF if mode == "off" else (mode, 0)
    if not isinstance(mode, Mapping):
        raise CommandError(14, "'mode' must be a string or JSON object")
    for option, parse in _MODE_OPTIONS.items():
        if option in mode:
            return (option, parse(option, mode[option]))
    raise CommandError(
        2,
        "'mode' must be one of 'off', 'alwaysOn', '{times:n}', '{skip:n}'"
        " or '{activationProbability:p}'",
    )


def _parse_count(option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        found = _TYPE_NAMES.get(type(value), type(value).__name__)
        raise CommandError(14, f'Expected field "{option}" to have numeric type, but found {found}')
    if _whole_number(value) is None:
        raise CommandError(
            2,
            f'Expected field "{option}" to have a value exactly representable as a 64-bit integer,'
            f" but found {option}: {value}",
        )
    if value < 0:
        raise CommandError(2, f"'{option}' option to 'mode' must be positive")
    if value > _INT32_MAX:
        raise CommandError(2, f"'{option}' option to 'mode' is too large")
    return int(value)


def _parse_probability(option: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise CommandError(14, f"the '{option}' option to 'mode' must be a double between 0 and 1")
    if not 0 <= value <= 1:
        raise CommandError(2, f"{option} must be between 0.0 and 1.0; found {value}")
    return value


_MODE_OPTIONS: dict[str, Callable[[str, Any], float]] = {
    "times": _parse_count,
    "skip": _parse_count,
    "activationProbability": _parse_probability,
}


def _parse_data(command: Mapping[str, Any]) -> Mapping[str, Any]:
    data = command.get("data", {})
    if not isinstance(data, Mapping):
        raise CommandError(14, "the 'data' option must be a JSON object")
    return data
