"""A versioned table of its own, in process memory (KIP-889).

table = VersionedTable("rates", history_retention_ms=86_400_000) table.put(b"EUR", b"1.09", 1_000)
PutResult(accepted=True, valid_to=None) table.put(b"EUR", b"1.07", 400) PutResult(accepted=True, valid_to=1000)
table.get(b"EUR", as_of=999) Version(value=b"1.07", valid_from=400, valid_to=1000)
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
    """Whether a write was within the retention; and until when its version is valid, None: for good."""

    accepted: bool
    valid_to: int | None


class VersionedTable:
    """Every version of every key, by the time from which it was valid, ms.

    Stream time T is the largest timestamp of an accepted write of any key; a write with a timestamp < T -
    history_retention_ms is not accepted. A null value is a tombstone. Of two writes of a key with the same timestamp
    the later one counts. It is the operator `table_history`, without a topic.
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
        """T; -1 before the first accepted write."""
        return self._state.stream_time

    def put(self, key: bytes, value: bytes | None, timestamp: int) -> PutResult:
        """The key has that value from the timestamp on, until its next version; unless the write came too late."""
        row = Row(_key(key), value, _timestamp(timestamp), self._writes)
        self._writes += 1
        if not self._state.put(row):
            return PutResult(accepted=False, valid_to=None)
        return PutResult(accepted=True, valid_to=next_after(self._state.versions, key, timestamp))

    def delete(self, key: bytes, timestamp: int) -> Version | None:
        """The key has no value from the timestamp on, until its next version; returned: what was valid at that time.

        None when nothing was, or when the write came too late.
        """
        before = self._state.get(_key(key), _timestamp(timestamp))
        return before if self.put(key, None, timestamp).accepted else None

    def get(self, key: bytes, as_of: int | None = None) -> Version | None:
        """The version that was valid at that time, or without a time the newest one; None: nothing, or a tombstone.

        Before T - history_retention_ms only the newest version is there, and only if it was valid then already.
        """
        return self._state.get(_key(key), as_of)

    def get_range(
        self, key: bytes, from_ms: int | None = None, to_ms: int | None = None, ascending: bool = False
    ) -> list[Version]:
        """The versions that were valid at some instant of [from, to], both included, the newest first unless ascending.

        A bound left out is none. When `to` lies before what is kept, the rule of `get` as of `to` holds.
        """
        return self._state.get_range(_key(key), from_ms, to_ms, ascending)


def _problems(name: str, retention_ms: int) -> list[Problem]:
    found = []
    if not name:
        found.append(Problem(where="name", value=name, cause="no name", remedy="give the table one"))
    if not 0 <= retention_ms <= MAX_TIMESTAMP:
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
