"""The arrays behind suppression: collisions, growth in the middle of a batch, reuse of space, consistency."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.collisions import SEED, keys_with_equal_fingerprints
from tests.operators.suppression.partitions import config, records
from tidegate.contracts.records import Records, Row
from tidegate.kernels import hash_index, time_buffer
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.suppression import Suppression, state
from tidegate.operators.suppression.strategies import suppression_configs
from tidegate.operators.testing import strategies
from tidegate.operators.testing.laws import Partition, batches, small

pytestmark = pytest.mark.fast


def assert_consistent(arrays: Any) -> None:
    """Heap, index, slots and arena tell the same, as between batches."""
    arrays = by_name(arrays)
    held = int(arrays["time_numbers"][time_buffer.HELD])
    heap, place, arrival = (arrays[name] for name in ("heap", "place", "arrival"))
    in_heap = heap[:held].tolist()
    used = int(arrays["pool_numbers"][slots.USED])
    for node, slot in enumerate(in_heap):
        above = max(0, (node - 1) // time_buffer.WAYS)
        assert (place[above], arrival[in_heap[above]]) <= (place[node], arrival[slot])
        assert arrays["position"][slot] == node
    assert arrays["size"][in_heap].sum() == arrays["time_numbers"][time_buffer.HELD_BYTES]
    assert not arrays["row"].any()
    assert {slot for slot in range(used) if arrays["block"][slot]} == set(in_heap)
    assert sorted(arrays["index"][arrays["index"] > 0] - 1) == sorted(in_heap)
    assert_index_finds(arrays, in_heap)
    assert_blocks_are_apart(arrays, in_heap)


def by_name(arrays: Any) -> dict[str, Any]:
    """The arrays, and what a slot has side by side as arrays of their own."""
    finding, record = arrays["finding"].view(state._FINDING), arrays["record"].view(state._RECORD)
    fields = {name: part[name] for part in (finding, record) for name in part.dtype.names}
    return {**arrays, **fields}


def assert_index_finds(arrays: Any, in_heap: list[int]) -> None:
    """Probing from a slot's fingerprint comes to the slot before an empty place."""
    index = hash_index.Index(arrays["index"], arrays["seed"])
    for slot in in_heap:
        at = hash_index.home(index, arrays["fingerprint"][slot])
        while arrays["index"][at] != slot + 1:
            assert arrays["index"][at] != 0
            at = hash_index.next_place(index, at)


def assert_blocks_are_apart(arrays: Any, in_heap: list[int]) -> None:
    """No two payloads share a word, and the arena counts its live words."""
    spans = []
    for slot in in_heap:
        length = int(arrays["key_length"][slot] + max(0, arrays["value_length"][slot]) + arrays["headers_length"][slot])
        words = arena.class_words(arena.size_class(length))
        spans.append((int(arrays["block"][slot]), words))
    taken = [word for first, words in spans for word in range(first, first + words)]
    assert len(taken) == len(set(taken)) == arrays["arena_numbers"][arena.LIVE]
    assert 0 not in taken


@given(config=suppression_configs(), history=strategies.histories(max_size=40), cuts=strategies.cuts)
def test_the_arrays_are_consistent_after_every_batch(config: Any, history: Any, cuts: set[int]) -> None:
    partition = Partition(Suppression(config), 12)
    for step in batches(history, cuts):
        stopped = partition.play(step).stopped_at
        assert_consistent(partition.storage.arrays())
        if stopped is not None:
            break


def test_keys_of_equal_fingerprints_are_distinguished_by_their_bytes() -> None:
    keys = keys_with_equal_fingerprints()
    operator = Suppression(config(until={"time_limit": "10ms"}))
    state = operator.open(MemoryStorage(operator.layout, SEED))
    state.step(Records.from_rows(Row(key, b"%d" % at, at, at) for at, key in enumerate(keys[:6])), 0)
    batch = [Row(key, b"new", 9, 10 + at) for at, key in enumerate(keys)]
    result = state.step(Records.from_rows(batch), 0)
    assert (result.counts.superseded, result.counts.applied, result.counts.held) == (6, 2, 8)
    result = state.step(Records.from_rows([Row(b"other", b"", 12, 30)]), 0)
    assert result.emissions["key"].to_pylist() == keys[:3]
    assert [row["key"] for row in state.snapshot().to_pylist()] == [*keys[3:], b"other"]


def test_a_batch_continues_at_the_same_record_after_the_state_has_grown() -> None:
    rows = [Row(b"%d" % (n % 3_000), b"v" * (n % 50), n // 2, n) for n in range(9_000)]
    operator = Suppression(config(until={"time_limit": "2s"}))
    partitions = [Partition(operator, 0, layout) for layout in (small(operator.layout), operator.layout)]
    small_one, other = (partition.play_all(rows, set()) for partition in partitions)
    assert partitions[0].storage.capacity()["slots"] == 4_096
    assert small_one == other
    assert_consistent(partitions[0].storage.arrays())


@given(data=st.data())
def test_released_space_is_reused_for_any_lengths(data: st.DataObject) -> None:
    partition = Partition(Suppression(config()), 0)
    peak = 0
    for round_ in range(data.draw(st.integers(1, 8))):
        sizes = data.draw(st.lists(st.integers(0, 300), min_size=1, max_size=20))
        rows = [Row(b"%d" % at, b"v" * size, 0, 100 * round_ + at) for at, size in enumerate(sizes)]
        before = partition.trace.held_bytes
        partition.play(rows)
        peak = max(peak, before + sum(sizes))
        assert_consistent(partition.storage.arrays())
    assert len(partition.storage.arrays()["arena"]) <= 64 + 4 * (peak + 20 * 16)


def test_a_value_of_a_million_bytes_is_kept_and_its_space_released() -> None:
    state_storage = MemoryStorage(Suppression(config()).layout)
    state = Suppression(config()).open(state_storage)
    for n in range(20):
        state.step(records(("A", b"%d" % n * 500_000, n), first=n), 0)
    assert state.snapshot()["value"].to_pylist() == [b"19" * 500_000]
    assert len(state_storage.arrays()["arena"]) <= 2**23


def test_growth_needs_no_more_than_doubling() -> None:
    storage = MemoryStorage(Suppression(config()).layout)
    state = Suppression(config()).open(storage)
    state.step(Records.from_rows(Row(b"%d" % n, b"", 0, n) for n in range(1_025)), 0)
    assert storage.capacity()["slots"] == 2_048
    assert np.count_nonzero(storage.arrays()["index"]) == 1_025
