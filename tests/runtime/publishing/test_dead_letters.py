"""Late and rejected rows as they are written to Kafka: their order, reasons, and valid timestamps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.operators.json_values.event_timestamps import REASONS
from tidegate.runtime.publishing.dead_letters import as_dead_letters, written_timestamps

pytestmark = pytest.mark.fast

SCHEMA = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.binary(),
        "timestamp": pa.int64(),
        "offset": pa.int64(),
        "cause": pa.dictionary(pa.int8(), pa.string()),
        "lateness": pa.int64(),
    }
)
UNREADABLE = st.sampled_from(REASONS)
READABLE = st.sampled_from(["null key", "too far ahead", "negative timestamp"])


def refused(causes: st.SearchStrategy[str], offsets: st.SearchStrategy[int]) -> st.SearchStrategy[pa.Table]:
    payload = st.none() | st.binary(max_size=3)
    row = st.fixed_dictionaries(
        {"key": payload, "value": payload, "headers": payload, "timestamp": st.none() | st.integers(-9, 2**63 - 1)}
        | {"offset": offsets, "cause": causes, "lateness": st.none()}
    )
    rows = st.lists(row, max_size=6, unique_by=lambda one: one["offset"])
    return rows.map(lambda found: pa.Table.from_pylist(sorted(found, key=lambda one: one["offset"]), SCHEMA))


def row_at(offset: int, *tables: pa.Table) -> dict[str, Any]:
    [found] = [row for table in tables for row in table.to_pylist() if row["offset"] == offset]
    return found


@given(
    refused(st.just("too late"), st.integers(0, 40).map(lambda n: 2 * n)),
    refused(READABLE, st.integers(0, 40).map(lambda n: 2 * n + 1)),
)
def test_late_and_rejected_rows_are_one_sequence_by_offset_with_unchanged_bytes(
    late: pa.Table, rejected: pa.Table
) -> None:
    letters = as_dead_letters(late, rejected, times_in_values=False).to_pylist()
    offsets = late["offset"].to_pylist() + rejected["offset"].to_pylist()
    assert [letter["offset"] for letter in letters] == sorted(offsets)
    for letter in letters:
        row = row_at(letter["offset"], late, rejected)
        assert [letter[name] for name in ("key", "value", "headers")] == [
            row[name] for name in ("key", "value", "headers")
        ]
        assert letter["cause"] == row["cause"]
        assert letter["reason"] == f"{'rejected' if letter['offset'] % 2 else 'late'}: {row['cause']}"


@given(refused(READABLE | UNREADABLE, st.integers(0, 99)))
def test_rejected_records_keep_their_kafka_timestamps(rejected: pa.Table) -> None:
    expected = [max(-1 if found is None else found, -1) for found in rejected["timestamp"].to_pylist()]
    assert written_timestamps(rejected, times_in_values=False).to_pylist() == expected


@given(refused(READABLE | UNREADABLE, st.integers(0, 99)))
def test_dead_letters_of_rejected_records_have_no_time_read_from_the_value(rejected: pa.Table) -> None:
    own = written_timestamps(rejected, times_in_values=False).to_pylist()
    expected = [
        found if cause in REASONS else -1 for found, cause in zip(own, rejected["cause"].to_pylist(), strict=True)
    ]
    assert written_timestamps(rejected, times_in_values=True).to_pylist() == expected
