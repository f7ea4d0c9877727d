"""A versioned table in process memory (KIP-889), without a topic.

Example:

    table = VersionedTable("rates", history_retention_ms=86_400_000)
    table.put(b"EUR", b"1.09", 1_000)  # PutResult(accepted=True, valid_to=None)
    table.put(b"EUR", b"1.07", 400)  # PutResult(accepted=True, valid_to=1000)
    table.get(b"EUR", as_of=999)  # Version(value=b"1.07", valid_from=400, valid_to=1000)
"""

from __future__ import annotations

from typing import NamedTuple

from tidegate.contracts.errors import ConfigurationError, Problem, UserError
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.table_history import TableHistory, TableHistoryRules
from tidegate.operators.table_history.reading import Version, next_after


class PutResult(NamedTuple):
    """Whether a write was accepted, and when the validity of its version ends (None: it does not end)."""

    accepted: bool
    valid_to: int | None


class VersionedTable:
    """The versions of each key, by the time in ms from which they are valid.

    Stream time T is the largest timestamp of an accepted write of any key. A write with a timestamp < T -
    history_retention_ms is not accepted. A null value is a tombstone. Of two writes of a key with the same timestamp
    the later one counts. The rules are those of the operator `table_history`.
    """

    def __init__(self, name: str, *, history_retention_ms: int) -> None:
        if problems := _problems(name, history_retention_ms):
            raise ConfigurationError(problems)
        self.name = name
        operator = TableHistory(TableHistoryRules(history_retention=f"{history_retention_ms}ms"))
        self._state = operator.open(MemoryStorage(operator.layout))
        self._writes = 0

    @property
    def stream_time(self) -> int:
        """Return T; -1 before the first accepted write."""
        return self._state.stream_time

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> PutResult:
        """Set the key's value from the timestamp until its next version, unless the write is too late."""
        row = Row(_key(key), value, _timestamp(timestamp), self._writes)
        self._writes += 1
        if not self._state.put(row):
            return PutResult(accepted=False, valid_to=None)
        return PutResult(accepted=True, valid_to=next_after(self._state.versions, key, timestamp))

    def delete(self, key: bytes, timestamp: int) -> Version | None:
        """Delete the key's value from the timestamp until its next version, and return what was valid then.

        Returns None if no value was valid at the timestamp, or if the write is too late.
        """
        before = self._state.get(_key(key), _timestamp(timestamp))
        return before if self.put(key, None, timestamp).accepted else None

    def get(self, key: bytes, as_of: int | None = None) -> Version | None:
        """Return the version that was valid at that time, or the newest one if no time is given.

        Returns None if there is none, or if it is a tombstone. For a time before T - history_retention_ms, only the
        newest version can be found, if it was already valid then.
        """
        return self._state.get(_key(key), as_of)

    def get_range(
        self, key: bytes, from_ms: int | None = None, to_ms: int | None = None, ascending: bool = False
    ) -> list[Version]:
        """Return the versions that were valid at any time in [from, to], newest first unless `ascending`.

        Both ends are included; None sets no bound. If `to` is before the retained history, the rule of `get` as of `to`
        holds.
        """
        return self._state.get_range(_key(key), from_ms, to_ms, ascending)


def _problems(name: str, retention_ms: int) -> list[Problem]:
    found = []
    if not name:
        found.append(Problem(where="name", value=name, cause="no name", remedy="give the table one"))
    if not isinstance(retention_ms, int) or not 0 <= retention_ms <= MAX_TIMESTAMP:
        remedy = "give a number of ms from 0 on"
        found.append(Problem(where="history_retention_ms", value=retention_ms, cause="not a duration", remedy=remedy))
    return found


def _key(key: bytes) -> bytes:
    if not isinstance(key, bytes):
        raise UserError("a key is bytes, not null", value=key, remedy="give bytes, such as b'key'")
    return key


def _timestamp(timestamp: int) -> int:
    if not 0 <= timestamp <= MAX_TIMESTAMP:
        raise UserError("a timestamp is not negative", value=timestamp, remedy="give ms since the epoch")
    return timestamp
