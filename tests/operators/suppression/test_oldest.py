"""The bound of what a suppression holds: never after the oldest record, and found without a look at all of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.hypothesis_profile import many
from tests.operators.suppression.partitions import config
from tidegate.contracts.event_time import MAX_TIMESTAMP
from tidegate.contracts.records import Records, Row
from tidegate.kernels.memory.storage import MemoryStorage
from tidegate.operators.suppression import Suppression, oldest
from tidegate.operators.suppression.strategies import suppression_configs
from tidegate.operators.testing import strategies
from tidegate.operators.testing.laws import Partition, batches

pytestmark = pytest.mark.fast


def true_oldest(partition: Partition) -> int:
    """The timestamp of the oldest record that is held, after a look at each."""
    held = partition.state.snapshot()
    open_ones = held.filter(np.array([arrival >= 0 for arrival in held["arrival"].to_pylist()], bool))
    return min(open_ones["timestamp"].to_pylist(), default=MAX_TIMESTAMP)


@many
@given(config=suppression_configs(), history=strategies.histories(max_size=40), cuts=strategies.cuts)
def test_a_round_within_one_look_finds_the_oldest_record(config: Any, history: Any, cuts: set[int]) -> None:
    partition = Partition(Suppression(config), 12)
    for step in batches(history, cuts):
        stopped = partition.play(step).stopped_at
        assert partition.state.oldest() == true_oldest(partition)
        partition.reopen(partition.storage)
        if stopped is not None:
            break


@pytest.fixture(scope="class")
def slow() -> Iterator[None]:
    """A round looks at one slot at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(oldest, "PACE", 0)
        patch.setattr(oldest, "LEAST", 1)
        yield


@many
@given(config=suppression_configs(), history=strategies.histories(max_size=40), looks=st.sets(st.integers(0, 39)))
def test_no_record_is_older_than_the_bound_however_slow_the_round_is(
    slow: None, config: Any, history: Any, looks: set[int]
) -> None:
    partition = Partition(Suppression(config), 12)
    for at, step in enumerate(batches(history, set(range(len(history))))):
        if partition.play(step).stopped_at is not None:
            break
        if at in looks:
            assert partition.state.oldest() <= true_oldest(partition)


def test_what_stays_is_covered_round_after_round(slow: None) -> None:
    #   slots   5 3 9    a round is three looks, one slot each
    #           5 8 4    the seventh look was the first of a round: two more end it, and 3 is gone
    operator = Suppression(config())
    state = operator.open(MemoryStorage(operator.layout))
    state.step(Records.from_rows([Row(b"a", b"", 5, 0), Row(b"b", b"", 3, 1), Row(b"c", b"", 9, 2)]), 0)
    assert [state.oldest() for _ in range(7)] == [3] * 7
    state.step(Records.from_rows([Row(b"b", b"", 8, 3), Row(b"c", b"", 4, 4)]), 0)
    assert [state.oldest() for _ in range(6)] == [3, 4, 4, 4, 4, 4]


def test_a_look_reads_as_much_as_has_changed_however_much_is_held() -> None:
    read = []
    for held in (20_000, 80_000):
        operator = Suppression(config())
        storage = MemoryStorage(operator.layout)
        state = operator.open(storage)
        state.step(Records.from_rows(Row(b"%d" % n, b"", n, n) for n in range(held)), 0)
        state.oldest()
        state.step(Records.from_rows(Row(b"%d" % n, b"", n, held + n) for n in range(10)), 0)
        before = int(storage.arrays()["oldest"][oldest.HAND])
        state.oldest()
        read.append(int(storage.arrays()["oldest"][oldest.HAND]) - before)
    assert read == 2 * [10 * oldest.PACE + oldest.LEAST]


def test_the_bound_follows_the_records_that_leave() -> None:
    operator = Suppression(config(until={"time_limit": "5s"}))
    state = operator.open(MemoryStorage(operator.layout))
    bounds = []
    for at in range(40):
        state.step(Records.from_rows(Row(b"%d" % n, b"", n, n) for n in range(at * 1_000, at * 1_000 + 1_000)), 0)
        bounds.append(state.oldest())
    now = 39_999
    assert now - 5_000 - 2_000 <= bounds[-1] <= now - 4_999
