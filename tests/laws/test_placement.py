"""Where keys, offsets and numbers go when the number of partitions changes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.event_time import NO_STREAM_TIME
from tidegate.contracts.operator import OffsetColumns
from tidegate.kernels.record_format.partitioner import partitions_of
from tidegate.kernels.row_checksums import sum_of_checksums
from tidegate.state.upkeep.rescaling import numbered_together, offsets_in, renumbered, sources_of, stream_time_of_all

pytestmark = pytest.mark.fast

KAFKAS_OWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""Keys and hashes of the tests of Kafka's own clients (UtilsTest.testMurmur2)."""

NUMBERS = st.lists(st.lists(st.integers(0, 30), unique=True).map(sorted), max_size=4)


def column(*keys: bytes | None) -> pa.ChunkedArray:
    return pa.chunked_array([pa.array(keys, pa.binary())])


@pytest.mark.parametrize("partitions", [1, 4, 12, 2**31 - 1])
def test_keys_are_placed_as_kafkas_clients_do(partitions: int) -> None:
    expected = [(found & 0x7FFFFFFF) % partitions for found in KAFKAS_OWN.values()]
    assert partitions_of(column(*KAFKAS_OWN), partitions).tolist() == expected
    assert partitions_of(column(None, b"").slice(0, 1), partitions).tolist() == [-1]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=9))), st.integers(0, 3))
def test_parts_of_a_column_are_placed_like_the_whole(keys, cut) -> None:
    whole = column(*keys)
    assert partitions_of(whole.slice(cut), 7).tolist() == partitions_of(whole, 7).tolist()[cut:]


@pytest.mark.parametrize(
    ("before", "after", "sources"),
    [
        (4, 12, {0: [0], 3: [3], 4: [0], 11: [3]}),
        (12, 4, {0: [0, 4, 8], 3: [3, 7, 11]}),
        (4, 6, {0: [0, 2], 5: [1, 3]}),
        (3, 5, {4: [0, 1, 2]}),
    ],
)
def test_the_sources_of_a_partition_are_all_whose_keys_may_belong_to_it(before, after, sources) -> None:
    assert {partition: list(sources_of(partition, before, after)) for partition in sources} == sources
    for found in range(10_000):
        assert found % before in sources_of(found % after, before, after)


def test_a_partition_has_the_latest_stream_time_of_its_sources() -> None:
    assert stream_time_of_all([5, NO_STREAM_TIME, 7]) == 7
    assert stream_time_of_all([]) == NO_STREAM_TIME


def test_equal_offsets_of_several_sources_are_moved_up_and_order_stays() -> None:
    new = numbered_together([np.array([1, 2, 9]), np.array([2, 3]), np.array([2])])
    assert [each.tolist() for each in new] == [[1, 2, 9], [3, 5], [4]]


@given(NUMBERS)
def test_new_offsets_are_unique_not_smaller_and_in_the_same_order(offsets) -> None:
    new = numbered_together([np.array(each, np.int64) for each in offsets])
    pairs = sorted(
        (old, source, int(now))
        for source, (was, found) in enumerate(zip(offsets, new, strict=True))
        for old, now in zip(was, found, strict=True)
    )
    numbers = [now for _old, _source, now in pairs]
    assert numbers == sorted(set(numbers))
    assert all(now >= old for old, _source, now in pairs)
    if len(offsets) == 1:
        assert numbers == offsets[0]


def test_all_columns_that_hold_offsets_are_renumbered_and_other_values_stay() -> None:
    rows = pa.table({"offset": [3, 5], "arrival": [-1, 5], "opened": [None, 3], "closed": [~5, 3], "timestamp": [3, 5]})
    columns = OffsetColumns(plain=("arrival", "opened"), complemented=("closed",))
    before = offsets_in(rows, columns)
    assert before.tolist() == [3, 5]
    assert renumbered(rows, columns, before, np.array([4, 70])).to_pydict() == {
        "offset": [4, 70],
        "arrival": [-1, 70],
        "opened": [None, 4],
        "closed": [~70, 4],
        "timestamp": [3, 5],
    }


CELLS = st.tuples(st.one_of(st.none(), st.binary(max_size=5)), st.one_of(st.none(), st.integers(-5, 5)))


@given(st.lists(CELLS), st.randoms(use_true_random=False), CELLS)
def test_the_sum_of_checksums_depends_on_every_cell_but_not_on_the_order(rows, chance, other) -> None:
    def table(cells):
        return pa.table(
            {"a": pa.array([a for a, _b in cells], pa.binary()), "b": pa.array([b for _a, b in cells], pa.int64())}
        )

    mixed = list(rows)
    chance.shuffle(mixed)
    assert sum_of_checksums(table(mixed)) == sum_of_checksums(table(rows))
    if rows and rows[0] != other:
        assert sum_of_checksums(table([other, *rows[1:]])) != sum_of_checksums(table(rows))
