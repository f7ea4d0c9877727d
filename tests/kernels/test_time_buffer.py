"""The time-ordered buffer against a sorted list."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.kernels import time_buffer
from tidegate.kernels.time_buffer import HELD, HELD_BYTES, NOT_HELD, TimeBuffer

pytestmark = pytest.mark.fast

SLOTS = 30
changes = st.lists(st.tuples(st.integers(0, SLOTS - 1), st.integers(0, 5), st.booleans()), max_size=90)


def empty() -> TimeBuffer:
    int32s, int64s = (lambda: np.zeros(SLOTS, np.int32)), (lambda: np.zeros(SLOTS, np.int64))
    buffer = TimeBuffer(np.zeros(2, np.int64), int32s(), int64s(), int32s(), int64s(), int32s())
    buffer.position[:] = NOT_HELD
    return buffer


def filled(changes: list[tuple[int, int, bool]]) -> tuple[TimeBuffer, dict[int, tuple[int, int]]]:
    """A buffer after pushes, moves (`again`) and removals, and what it must hold: (place, arrival) by slot."""
    buffer, held = empty(), {}
    for arrival, (slot, place, again) in enumerate(changes):
        if slot not in held:
            time_buffer.push(buffer, slot, place, arrival, 10 + slot)
            held[slot] = (place, arrival)
        elif again:
            time_buffer.move(buffer, slot, place)
            held[slot] = (place, held[slot][1])
        else:
            time_buffer.remove(buffer, slot)
            del held[slot]
    return buffer, held


@given(changes=changes)
def test_slots_are_emitted_by_place_then_arrival(changes: list[tuple[int, int, bool]]) -> None:
    buffer, held = filled(changes)
    left = []
    while buffer.numbers[HELD]:
        left.append(int(buffer.heap[0]))
        time_buffer.remove(buffer, left[-1])
    assert left == sorted(held, key=held.__getitem__)
    assert buffer.numbers[HELD_BYTES] == 0


@given(changes=changes)
def test_the_buffer_counts_its_records_and_bytes(changes: list[tuple[int, int, bool]]) -> None:
    buffer, held = filled(changes)
    assert {slot for slot in range(SLOTS) if time_buffer.is_held(buffer, slot)} == set(held)
    assert buffer.numbers[HELD] == len(held)
    assert {slot: time_buffer.place_of(buffer, slot) for slot in held} == {slot: held[slot][0] for slot in held}
    assert buffer.numbers[HELD_BYTES] == sum(10 + slot for slot in held)
    for slot in held:
        time_buffer.resize(buffer, slot, slot)
    assert buffer.numbers[HELD_BYTES] == sum(held)


@given(changes=changes, due=st.integers(-1, 6))
def test_a_walk_below_due_nodes_visits_every_due_slot_and_few_others(
    changes: list[tuple[int, int, bool]], due: int
) -> None:
    buffer, held = filled(changes)
    seen, others, node, walking = set(), 0, 0, bool(held)
    while walking:
        inside = node < buffer.numbers[HELD]
        is_due = inside and buffer.place[node] <= due
        if is_due:
            seen.add(int(buffer.heap[node]))
        others += inside and not is_due
        node = time_buffer.next_node(node, bool(is_due))
        walking = node > 0
    assert seen == {slot for slot, (place, _) in held.items() if place <= due}
    assert others <= (time_buffer.WAYS - 1) * len(seen) + 1
