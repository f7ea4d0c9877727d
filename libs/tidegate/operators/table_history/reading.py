"""Looks up a table's versions one key at a time, for interactive use and tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.records import NULL_LENGTH
from tidegate.kernels import version_chains
from tidegate.kernels.version_chains import NONE, READABLE_FROM, Versions


class Version(NamedTuple):
    """A key's value and its validity [valid_from, valid_to), event time in ms; `valid_to` None: it is still valid."""

    value: bytes
    valid_from: int
    valid_to: int | None


def get(versions: Versions, key: bytes, as_of: int | None) -> Version | None:
    """Return the version valid at `as_of` (None: the newest); None if there is none or it is a tombstone."""
    slot = _find(versions, key)
    if slot == NONE:
        return None
    newest = int(versions.length[slot]) - 1
    at = newest if as_of is None else int(version_chains.entry_as_of(versions, slot, as_of))
    return None if at == NONE else _version(versions, slot, at)


def get_range(versions: Versions, key: bytes, from_ms: int | None, to_ms: int | None, ascending: bool) -> list[Version]:
    """Return the versions that were valid at some instant of [from, to], both included, without tombstones.

    A bound that is None is open. If `to` is before the first readable time, only the newest version can be in the
    result, as with `get`.
    """
    first, last = 0 if from_ms is None else from_ms, MAX_TIMESTAMP if to_ms is None else to_ms
    slot = _find(versions, key)
    if slot == NONE or first > last:
        return []
    if last < versions.numbers[READABLE_FROM]:
        found = [get(versions, key, last)]
    else:
        begin = max(int(version_chains.entries_until(versions, slot, first)) - 1, 0)
        end = int(version_chains.entries_until(versions, slot, last))
        found = [_version(versions, slot, at) for at in range(begin, end)]
    there = [version for version in found if version is not None]
    return there if ascending else there[::-1]


def next_after(versions: Versions, key: bytes, timestamp: int) -> int | None:
    """Return the valid_from of the key's first version after the timestamp, tombstones included; None without one."""
    slot = _find(versions, key)
    at = 0 if slot == NONE else int(version_chains.entries_until(versions, slot, timestamp))
    return _time(versions, slot, at) if slot != NONE and at < versions.length[slot] else None


def _find(versions: Versions, key: bytes) -> int:
    return int(version_chains.find(versions, np.frombuffer(key, np.uint8), 0, len(key)))


def _time(versions: Versions, slot: int, at: int) -> int:
    return int(version_chains.time_at(versions, slot, at))


def _version(versions: Versions, slot: int, at: int) -> Version | None:
    """Return the version of the entry; None for a tombstone."""
    version = int(version_chains.version_at(versions, slot, at))
    length = int(versions.payloads.value_length[version])
    if length == NULL_LENGTH:
        return None
    start = int(version_chains.value_start(versions, version))
    value = versions.payloads.arena.data[start : start + length].tobytes()
    until = _time(versions, slot, at + 1) if at + 1 < versions.length[slot] else None
    return Version(value, _time(versions, slot, at), until)
