"""Rows of a Spark batch, divided by partition and converted to records."""

from __future__ import annotations

from itertools import groupby

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.errors import ConfigurationError
from tidegate.contracts.event_time import NO_TIMESTAMP
from tidegate.contracts.records import Row
from tidegate.operators.suppression import SuppressionConfig, SuppressionRules
from tidegate.runtime.stream.task import StreamPort, by_partition, records_from
from tidegate.spark import start

pytestmark = pytest.mark.fast

BYTES = st.none() | st.binary(max_size=5)
ROWS = st.lists(st.tuples(st.integers(0, 3), BYTES, BYTES, st.none() | st.integers(-5, 2**40)), max_size=30)
SCHEMA = pa.schema([("partition", pa.int32()), ("key", pa.binary()), ("value", pa.binary()), ("timestamp", pa.int64())])


def arrow(rows: list[tuple[int, bytes | None, bytes | None, int | None]]) -> pa.Table:
    """The rows as Spark brings them."""
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in rows], SCHEMA)


@given(rows=ROWS, size=st.integers(1, 7), first=st.integers(0, 2**40))
def test_every_row_becomes_a_record_of_its_partition_in_order(rows, size, first):
    rows.sort(key=lambda row: row[0])
    expected = {
        partition: [
            Row(key, value, NO_TIMESTAMP if timestamp is None else timestamp, first + place)
            for place, (_, key, value, timestamp) in enumerate(group)
        ]
        for partition, group in groupby(rows, key=lambda row: row[0])
    }
    batches = arrow(rows).to_batches(max_chunksize=size)
    assert {p: records_from(found, first).rows() for p, found in by_partition(batches)} == expected


@given(rows=ROWS, done=st.integers(0, 30))
def test_records_committed_by_an_earlier_attempt_are_skipped(rows, done):
    class Plan:
        partition, start = 0, 100 + min(done, len(rows))

    whole = records_from(arrow(rows), 100)
    fetched = StreamPort(rows=arrow(rows), begin=100).read(Plan())
    assert fetched.records.rows() == whole.rows()[min(done, len(rows)) :]
    assert fetched.next_offset == 100 + len(rows)


def refused(rules=SuppressionRules(until={"time_limit": "1s"}), **named):  # noqa: B008 -- frozen
    """The problems of a start that comes to nothing."""
    columns = {"key": "k", "value": "v", "timestamp": "t", "order_by": "n"}
    with pytest.raises(ConfigurationError) as error:
        start(None, rules, lake="lake", **columns, **named)
    return {problem.where: problem for problem in error.value.problems}


def test_every_problem_of_a_start_is_reported_at_once():
    problems = refused(name="Not a name", partitions=0, keep_output="30")
    assert set(problems) == {"name", "partitions", "keep_output"}
    assert all(problem.remedy for problem in problems.values())


def test_an_operator_with_topics_is_refused_with_the_remedy():
    config = SuppressionConfig(input="departures", until={"time_limit": "1s"})
    assert "SuppressionRules" in refused(config)["rules"].remedy


def test_a_second_timestamp_is_refused():
    rules = SuppressionRules(until={"time_limit": "1s"}, timestamp={"field": "at"})
    assert "remove `timestamp`" in refused(rules)["rules"].remedy
