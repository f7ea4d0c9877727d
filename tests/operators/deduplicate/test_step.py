"""Which records are emitted, remembered and forgotten, with many batches and keys."""

from __future__ import annotations

from typing import Any

import pytest

from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.deduplicate import Deduplicate, DeduplicateRules

pytestmark = pytest.mark.fast


def state(**rules: Any) -> Any:
    """A new state under these rules."""
    operator = Deduplicate(DeduplicateRules(**rules))
    return operator.open(MemoryStorage(operator.layout))


def batch(*records: tuple[bytes, int], first: int = 0) -> Records:
    """Records of these keys and timestamps, with offsets from `first` on."""
    return Records.from_rows([Row(key, b"v", timestamp, first + at) for at, (key, timestamp) in enumerate(records)])


def changes(result: Any) -> list[tuple[str, bytes, int]]:
    """The changelog of a batch: operation, key and timestamp."""
    return [(row["op"], row["key"], row["timestamp"]) for row in result.changes.to_pylist()]


def test_the_changelog_has_the_remembered_and_the_forgotten_keys() -> None:
    tested = state(within="10ms", grace="5ms")
    assert changes(tested.step(batch((b"a", 0), (b"a", 3)), 0)) == [("put", b"a", 0)]
    assert changes(tested.step(batch((b"b", 15), first=2), 0)) == [("put", b"b", 15), ("delete", b"a", 0)]


def test_a_key_remembered_and_forgotten_in_one_batch_is_not_in_the_changelog() -> None:
    tested = state(within="10ms", grace="5ms")
    result = tested.step(batch((b"a", 0), (b"b", 15)), 0)
    assert (result.emissions.num_rows, changes(result)) == (2, [("put", b"b", 15)])


def test_an_idle_advance_forgets_and_emits_nothing() -> None:
    tested = state(within="10ms", grace="5ms")
    tested.step(batch((b"a", 0)), 0)
    result = tested.advance(15)
    assert (result.emissions.num_rows, changes(result), result.counts.held) == (0, [("delete", b"a", 0)], 0)


def test_a_flush_emits_nothing_and_forgets_nothing() -> None:
    tested = state(within="forever")
    tested.step(batch((b"a", 0)), 0)
    result = tested.flush()
    assert (result.emissions.num_rows, changes(result), result.counts.held) == (0, [], 1)


def test_many_keys_are_remembered_and_their_space_is_reused() -> None:
    tested = state(within="1s", grace=0)
    count = 50_000
    for turn in range(3):
        records = batch(*((b"a long key %06d" % key, turn * 10_000) for key in range(count)), first=turn * count)
        result = tested.step(records, 0)
        assert (result.counts.applied, result.counts.held) == (count, count)
        assert tested.step(records, 0).counts.superseded == count
    assert result.measures["expired"] == count
