"""Damage to suppression's arrays is found, or it changes nothing that comes out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.laws.cases import CASES
from tidegate.contracts.records import Row
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression.state import LAYOUT
from tidegate.testing import strategies
from tidegate.testing.laws import Partition, batches

pytestmark = pytest.mark.fast

CASE, CLOCK_MS = CASES["suppression"], 12
NAMES = [spec.name for spec in LAYOUT.arrays]


def held_by(data: st.DataObject) -> Partition:
    """A partition after some batches, and what comes out of its state."""
    partition = Partition(operator_for(data.draw(CASE.configs)), CLOCK_MS)
    for step in batches(data.draw(CASE.histories), data.draw(strategies.cuts)):
        if partition.play(step).stopped_at is not None:
            break
    return partition


def outcome(partition: Partition, more: list[Any]) -> list[Any]:
    """What the partition does with more input."""
    partition.reopen(partition.storage)
    return [partition.play(step) for step in batches(more, {2, 3, 5})] + [partition.state.snapshot()]


def damage_of(partition: Partition) -> str | None:
    """What recovery would say of the state."""
    damage = partition.operator.damage(partition.storage)
    if damage is None:
        state = partition.operator.open(partition.storage.copy())
        return None if state.stream_time == partition.trace.stream_time else "its stream time is not the log's"
    return damage


@many
@given(data=st.data())
def test_a_state_between_two_batches_has_no_damage(data: st.DataObject) -> None:
    assert damage_of(held_by(data)) is None


@many
@given(data=st.data())
def test_a_flipped_byte_is_found_or_changes_nothing(data: st.DataObject) -> None:
    partition, more = held_by(data), data.draw(CASE.histories)
    damaged = Partition(partition.operator, CLOCK_MS)
    damaged.trace.stream_time = partition.trace.stream_time
    damaged.storage = partition.storage.copy()
    flip(damaged, data)
    if damage_of(damaged) is None:
        assert outcome(damaged, more) == outcome(partition, more)


def flip(partition: Partition, data: st.DataObject) -> None:
    """One byte of one array is another, mostly near the front, where the few things held are."""
    content = partition.storage.arrays()[data.draw(st.sampled_from(NAMES))].view(np.uint8)
    last = len(content) - 1
    at = data.draw(st.integers(0, min(last, 400)) | st.integers(0, last))
    content[at] ^= data.draw(st.integers(1, 255))


@many
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.001, 0.1, 1.0]))
def test_any_amount_of_damage_is_looked_at_without_harm(data: st.DataObject, seed: int, share: float) -> None:
    partition, random = held_by(data), np.random.default_rng(seed)
    assume(partition.state.snapshot().num_rows)
    for name in data.draw(st.sets(st.sampled_from(NAMES), min_size=1)):
        content = partition.storage.arrays()[name].view(np.uint8)
        hit = random.random(len(content)) < share
        content[hit] = random.integers(0, 256, int(hit.sum()), np.uint8)
    partition.operator.damage(partition.storage)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pool_numbers"])
def test_damage_to_each_array_of_a_state_is_found(name: str) -> None:
    partition = Partition(operator_for(CASE.holding), CLOCK_MS)
    partition.play([])
    partition.play([Row(b"key-%d" % at, b"v" * 20, at, at) for at in range(30)])
    content = partition.storage.arrays()[name].view(np.uint8)
    content[np.flatnonzero(content)[-1]] ^= 1
    assert damage_of(partition) is not None
