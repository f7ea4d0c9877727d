"""The arena: blocks of any length that never overlap, and packing that loses nothing."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.records import Records, Row
from tidegate.kernels import payloads
from tidegate.kernels.memory import arena, slots
from tidegate.kernels.memory.arena import (
    LIVE,
    NUMBERS,
    USED,
    WORD,
    Arena,
)
from tidegate.kernels.payloads import Payloads, flat_records

pytestmark = pytest.mark.fast

lengths = st.one_of(st.integers(0, 100), st.sampled_from([64, 65, 128, 129, 1_000]))


def empty(words: int) -> Arena:
    data = np.zeros(words * WORD, np.uint8)
    return Arena(data, data.view(np.int64), np.zeros(NUMBERS, np.int64))


@given(length=st.integers(0, 2**31 - 1))
def test_a_block_is_long_enough_and_at_most_a_quarter_longer(length: int) -> None:
    size = arena.class_words(arena.size_class(length)) * WORD
    assert length <= size <= max(WORD, 1.25 * (length + WORD))


@given(length=st.integers(1, 2**20))
def test_size_classes_grow_with_the_length(length: int) -> None:
    assert arena.size_class(length - 1) <= arena.size_class(length) < arena.CLASSES
    words = arena.class_words(arena.size_class(length))
    assert arena.size_class(words * WORD) == arena.size_class(length)


@given(steps=st.lists(st.tuples(lengths, st.booleans()), max_size=60))
def test_blocks_in_use_never_overlap(steps: list[tuple[int, bool]]) -> None:
    blocks, taken = empty(1_000), {}
    for length, give_back in steps:
        if give_back and taken:
            position = min(taken)
            arena.release(blocks, position, taken.pop(position))
        elif position := arena.allocate(blocks, length):
            taken[position] = length
        spans = sorted((at, at + arena.class_words(arena.size_class(size)) * WORD) for at, size in taken.items())
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
        assert all(start >= WORD and end <= len(blocks.data) for start, end in spans)
        assert blocks.numbers[LIVE] * WORD == sum(end - start for start, end in spans)


def test_a_released_block_is_allocated_again() -> None:
    blocks = empty(100)
    first = arena.allocate(blocks, 30)
    arena.release(blocks, first, 30)
    assert arena.allocate(blocks, 29) == first


def test_position_0_means_no_room() -> None:
    assert arena.allocate(empty(4), 3 * WORD) == WORD
    assert arena.allocate(empty(4), 4 * WORD) == 0


@given(sizes=st.lists(lengths, min_size=1, max_size=20), dropped=st.sets(st.integers(0, 19)))
def test_packing_keeps_every_payload_and_frees_the_rest(sizes: list[int], dropped: set[int]) -> None:
    rows = [Row(b"k" * (size // 3), b"%d" % at * (size // 2), at, at) for at, size in enumerate(sizes)]
    batch = flat_records(Records.from_rows(rows))
    stored = Payloads(
        empty(5_000),
        np.zeros(20, np.int32),
        *(np.zeros(20, np.int32) for _ in range(3)),
        *(np.zeros(20, np.int64) for _ in range(3)),
    )
    for at in range(len(rows)):
        assert payloads.store(stored, at, batch, at)
    for at in dropped & set(range(len(rows))):
        payloads.drop(stored, at)
    live = int(stored.arena.numbers[LIVE])
    payloads.repack(stored, len(rows), np.zeros(live + 1, np.int64))
    assert stored.arena.numbers[USED] == live + 1
    for at, row in enumerate(rows):
        if at not in dropped:
            start = payloads.start_of(stored, at)
            assert stored.arena.data[start : start + len(row.key) + len(row.value)].tobytes() == row.key + row.value


def test_released_slots_are_reused_before_new_ones() -> None:
    pool = slots.SlotPool(np.zeros(slots.NUMBERS, np.int64), np.zeros(3, np.int64))
    assert [slots.take(pool) for _ in range(3)] == [0, 1, 2]
    assert not slots.has_slot(pool)
    slots.give_back(pool, 1)
    slots.give_back(pool, 0)
    assert [slots.take(pool), slots.take(pool)] == [0, 1]
