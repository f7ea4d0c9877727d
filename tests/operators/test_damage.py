"""Damage to an operator's arrays is detected, or it does not change the output."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tidegate.contracts.operator import SEED, Operator
from tidegate.contracts.records import Row
from tidegate.operators.registry import operator_for
from tidegate.operators.suppression.state import WINDOWED
from tidegate.operators.testing import strategies
from tidegate.operators.testing.cases import Case, cases
from tidegate.operators.testing.laws import Partition, batches
from tidegate.operators.windowed_aggregation.config import Unlimited

pytestmark = pytest.mark.fast

CLOCK_MS = 12

VALUE = b'{"n": 10, "most": 2}'
"""One that every operator takes, also those that read JSON."""

NOT_FOUND = {("suppression", "pool_numbers"), ("pipeline", "held.pool_numbers")}
"""Flips that make a slot out of memory that was never used: such a slot is free, as are those after it."""


@pytest.fixture(scope="module", params=cases())
def case(request: pytest.FixtureRequest) -> Case:
    """What is known of the operator."""
    return cases()[request.param]


def arrays_of(operator: Operator) -> list[str]:
    """The names of the operator's arrays."""
    return [spec.name for spec in operator.layout.arrays]


def held_by(case: Case, data: st.DataObject) -> Partition:
    """A partition after some batches, and what comes out of its state."""
    partition = Partition(operator_for(data.draw(case.configs)), CLOCK_MS)
    for step in batches(data.draw(case.histories), data.draw(strategies.cuts)):
        if partition.play(step).stopped_at is not None:
            break
    return partition


def outcome(partition: Partition, more: list[Any]) -> list[Any]:
    """What the partition does with more input."""
    partition.reopen(partition.storage)
    return [partition.play(step) for step in batches(more, {2, 3, 5})] + [partition.state.snapshot()]


def twin(partition: Partition) -> Partition:
    """Return a partition that would do the same."""
    other = Partition(partition.operator, partition.clock_ms)
    other.trace.stream_time, other.trace.floor = partition.trace.stream_time, partition.trace.floor
    other.needs = partition.needs
    other.read_tables(partition.tables)
    other.storage = partition.storage.copy()
    return other


def seed_of(partition: Partition) -> bytes | None:
    """The seed of the hash of keys, where there is one."""
    seed = partition.storage.arrays().get(SEED.name)
    return None if seed is None else seed.tobytes()


def damage_of(partition: Partition, seed: bytes | None) -> str | None:
    """What recovery would say of the state, which knows the seed."""
    if seed_of(partition) != seed:
        return "its seed is another"
    damage = partition.operator.damage(partition.storage)
    if damage is None:
        state = partition.operator.open(partition.storage.copy())
        return None if state.stream_time == partition.trace.stream_time else "its stream time is not the log's"
    return damage


@many
@given(data=st.data())
def test_a_state_between_two_batches_has_no_damage(case: Case, data: st.DataObject) -> None:
    partition = held_by(case, data)
    assert damage_of(partition, seed_of(partition)) is None


@many
@given(data=st.data())
def test_a_state_restored_from_the_log_has_no_damage(case: Case, data: st.DataObject) -> None:
    partition = held_by(case, data)
    rows = partition.state.snapshot()
    partition.rebuild(rows.take(np.array(data.draw(st.permutations(range(rows.num_rows))), np.int64)))
    assert damage_of(partition, seed_of(partition)) is None


def test_windows_that_never_end_are_in_order_after_a_restore() -> None:
    """b opened after a, and has not changed since; it is restored first"""
    unlimited = cases()["windowed_aggregation"].holding.model_copy(update={"window": Unlimited(unlimited=True)})
    partition = Partition(operator_for(unlimited.model_copy(update={"emit": "updates"})), CLOCK_MS)
    partition.play([Row(key, b"x", 0, offset) for offset, key in enumerate([b"a", b"b", b"a"])])
    partition.rebuild(partition.state.snapshot().take([1, 0]))
    assert damage_of(partition, seed_of(partition)) is None


@many
@given(data=st.data())
def test_a_flipped_byte_is_detected_or_changes_nothing(case: Case, data: st.DataObject) -> None:
    partition, more = held_by(case, data), data.draw(case.histories)
    damaged = twin(partition)
    flip(damaged, arrays_of(partition.operator), data)
    if damage_of(damaged, seed_of(partition)) is None:
        assert outcome(damaged, more) == outcome(partition, more)


def flip(partition: Partition, names: list[str], data: st.DataObject) -> None:
    """One byte of one array is another, mostly near the front, where the few things held are."""
    content = partition.storage.arrays()[data.draw(st.sampled_from(names))].view(np.uint8)
    last = len(content) - 1
    at = data.draw(st.integers(0, min(last, 400)) | st.integers(0, last))
    content[at] ^= data.draw(st.integers(1, 255))


@many
@given(data=st.data())
def test_a_changed_word_is_detected_or_changes_nothing(case: Case, data: st.DataObject) -> None:
    partition, more = held_by(case, data), data.draw(case.histories)
    damaged = twin(partition)
    overwrite_word(damaged, arrays_of(partition.operator), data)
    if damage_of(damaged, seed_of(partition)) is None:
        assert outcome(damaged, more) == outcome(partition, more)


def overwrite_word(partition: Partition, names: list[str], data: st.DataObject) -> None:
    """Turn all bits of a word of one array, or overwrite it: mostly near the front."""
    name = data.draw(st.sampled_from(names))
    content = partition.storage.arrays()[name]
    words = content.view(np.int64) if content.nbytes % 8 == 0 else content
    at = data.draw(st.integers(0, min(len(words) - 1, 60)))
    way = data.draw(st.sampled_from(["turned", "zero", "ones", "other"]))
    other = data.draw(st.integers(-(2**31), 2**31 - 1)) if words.dtype.itemsize >= 4 else 7
    words[at] = {"turned": ~words[at], "zero": 0, "ones": ~np.zeros(1, words.dtype)[0], "other": other}[way]


def test_a_suppression_state_with_a_flipped_window_flag_is_rebuilt() -> None:
    operator = operator_for(cases()["suppression"].holding)
    partition = Partition(operator, CLOCK_MS)
    partition.play([Row(b"a", b"x", 0, 0)])
    numbers = partition.storage.arrays()["numbers"]
    numbers[WINDOWED] = 1 - numbers[WINDOWED]
    assert operator.damage(partition.storage) == "its numbers are impossible"


def test_a_value_with_inverted_bits_is_detected(case: Case) -> None:
    partition = Partition(operator_for(case.holding), CLOCK_MS)
    partition.play([Row(b"k" * 8, VALUE.ljust(64), 1, 0)])
    [arena] = [name for name in arrays_of(partition.operator) if name.rpartition(".")[2] == "arena"]
    content = partition.storage.arrays()[arena].view(np.int64)
    used = np.flatnonzero(content == int.from_bytes(b"k" * 8, "little"))
    content[used] = ~content[used]
    assert partition.operator.damage(partition.storage) is not None


@many
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.001, 0.1, 1.0]))
def test_checking_any_damage_is_safe(case: Case, data: st.DataObject, seed: int, share: float) -> None:
    partition, random = held_by(case, data), np.random.default_rng(seed)
    for name in data.draw(st.sets(st.sampled_from(arrays_of(partition.operator)), min_size=1)):
        content = partition.storage.arrays()[name].view(np.uint8)
        hit = random.random(len(content)) < share
        content[hit] = random.integers(0, 256, int(hit.sum()), np.uint8)
    partition.operator.damage(partition.storage)


ARRAYS = [(kind, name) for kind in cases() for name in arrays_of(operator_for(cases()[kind].holding))]


@pytest.mark.parametrize(("kind", "name"), [named for named in ARRAYS if named not in NOT_FOUND])
def test_damage_to_each_array_of_a_state_is_found(kind: str, name: str) -> None:
    partition = Partition(operator_for(cases()[kind].holding), CLOCK_MS)
    partition.play([])
    partition.play([Row(b"key-%d" % (at % 20), VALUE, at, at) for at in range(30)])
    seed = seed_of(partition)
    content = partition.storage.arrays()[name].view(np.uint8)
    content[np.flatnonzero(content)[-1]] ^= 1
    assert damage_of(partition, seed) is not None
