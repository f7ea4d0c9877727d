"""The arrays behind the join: growth in the middle of a batch, reuse of space, deletes found at once."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.operators.stream_table_join.partitions import config, opened, records, table_of
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.stream_table_join import StreamTableJoin
from tidegate.operators.testing.laws import small

pytestmark = pytest.mark.fast


def test_a_batch_continues_at_the_same_record_after_the_state_has_grown() -> None:
    rows = [Row(b"%d" % (n % 3_000), b"v" * (n % 50), n // 2, n) for n in range(9_000)]
    table = table_of(("7", "1", 0))
    storages = [MemoryStorage(layout) for layout in (small(StreamTableJoin.layout), StreamTableJoin.layout)]
    small_one, other = (opened(table, storage, grace="2s") for storage in storages)
    first, second = (state.step(Records.from_rows(rows), 0) for state in (small_one, other))
    assert storages[0].capacity()["slots"] == 4_096
    assert (first.emissions, first.changes, first.counts) == (second.emissions, second.changes, second.counts)
    assert StreamTableJoin(config()).damage(storages[0]) is None


@given(data=st.data())
def test_released_space_is_reused_for_any_lengths(data: st.DataObject) -> None:
    storage = MemoryStorage(small(StreamTableJoin.layout))
    state = opened(table_of(), storage, grace="1ms")
    peak = held = 0
    for turn in range(data.draw(st.integers(1, 8))):
        sizes = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=20))
        rows = [Row(b"%d" % at, b"v" * size, 10 * turn, 100 * turn + at) for at, size in enumerate(sizes)]
        peak = max(peak, held + sum(sizes))
        held = state.step(Records.from_rows(rows), 0).counts.held_bytes
        assert StreamTableJoin(config()).damage(storage) is None
    assert len(storage.arrays()["arena"]) <= 64 + 4 * (peak + 40 * 16)
    assert storage.capacity()["slots"] <= 64


def test_deletes_are_found_by_offset_in_whatever_order_and_portions_they_come() -> None:
    source = opened(table_of(), grace="1h")
    puts = source.step(Records.from_rows(Row(b"k", b"v", n % 7, n) for n in range(20_000)), 5).changes
    deletes = source.flush().changes
    shuffled = deletes.take(random.Random(1).sample(range(20_000), 19_999))
    state = opened(table_of(), grace="1h")
    state.restore(pa.concat_tables([puts.slice(0, 7_000), shuffled.slice(0, 9_000)]), 6)
    state.restore(pa.concat_tables([puts.slice(7_000), shuffled]), 6)
    [left] = set(range(20_000)) - set(shuffled["offset"].to_pylist())
    assert state.snapshot()["offset"].to_pylist() == [left]


def test_a_put_replaces_what_its_slot_held_before() -> None:
    storage = MemoryStorage(small(StreamTableJoin.layout))
    state = opened(table_of(), storage, grace="1h")
    put = state.step(records(("k", "old", 5)), 1).changes
    newer = put.set_column(put.column_names.index("value"), "value", pa.array([b"newer"]))
    state.restore(newer, 5)
    assert state.snapshot()["value"].to_pylist() == [b"newer"]
    assert StreamTableJoin(config()).damage(storage) is None


def test_a_restored_state_continues_as_if_it_had_never_stopped() -> None:
    table = table_of(("k", "1", 0))
    source, restored = opened(table, grace="5ms"), opened(table, grace="5ms")
    first = source.step(records(("k", "a", 10), ("k", "b", 12)), 0)
    restored.restore(first.changes, source.stream_time)
    batch = records(("k", "c", 16), ("k", "d", 11), first=2)
    ours, theirs = source.step(batch, 0), restored.step(batch, 0)
    assert (ours.emissions, ours.changes) == (theirs.emissions, theirs.changes)
    later = source.step(records(("k", "e", 40), first=4), 0)
    restored.restore(later.changes, source.stream_time)
    assert restored.snapshot() == source.snapshot()
