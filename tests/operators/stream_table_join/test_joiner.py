"""A user's joiner: its arguments and its results."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.operators.stream_table_join import test_joiner as here
from tests.operators.stream_table_join.partitions import opened, records, table_of
from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import StepResult
from tidegate.contracts.records import Records, Row

pytestmark = pytest.mark.fast

TABLE = (("k", "one", 3), ("k", "two", 7))
seen: list[tuple[pa.RecordBatch, pa.RecordBatch]] = []


def joined_by(function: str, *rows: Row) -> StepResult:
    """What comes of the rows, or of two of our own, under a joiner of this module."""
    state = opened(table_of(*TABLE), joiner=f"{here.__name__}:{function}")
    return state.step(Records.from_rows(rows) if rows else records(("k", "a", 9), ("other", "b", 9)), 0)


def noting(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    seen.append((stream, table))
    return table["value"]


def text(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    return pa.array(["é"] * len(stream))


def failing(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    raise ValueError("no such field")


def short(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    return stream["value"][1:]


def numbers(stream: pa.RecordBatch, table: pa.RecordBatch) -> pa.Array:
    return stream["timestamp"]


def listed(stream: pa.RecordBatch, table: pa.RecordBatch) -> Any:
    return stream["value"].to_pylist()


NO_FUNCTION = 7


def test_a_joiner_receives_the_records_and_their_versions_row_by_row() -> None:
    seen.clear()
    rows = [
        Row(b"k", b"a", 9, 0, b"\x02\x02h\x02v"),
        Row(b"other", b"b", 9, 1),
        Row(None, b"c", 8, 2),
        Row(b"k", b"d", 5, 3),
    ]
    result = joined_by("noting", *rows)
    [(stream, table)] = seen
    assert stream.to_pydict() == {
        "key": [b"k", b"other", None, b"k"],
        "value": [b"a", b"b", b"c", b"d"],
        "headers": [b"\x02\x02h\x02v", None, None, None],
        "timestamp": [9, 9, 8, 5],
    }
    assert table.to_pydict() == {"value": [b"two", None, None, b"one"], "valid_from": [7, None, None, 3]}
    assert result.emissions["value"].to_pylist() == [b"two", None, None, b"one"]
    assert result.emissions["cause"].to_pylist() == ["matched", "unmatched", "unmatched", "matched"]


def test_a_joiner_may_return_strings() -> None:
    assert joined_by("text").emissions["value"].to_pylist() == ["é".encode()] * 2


def test_an_inner_join_requests_only_matching_records() -> None:
    seen.clear()
    state = opened(table_of(*TABLE), join="inner", joiner=f"{here.__name__}:noting")
    state.step(records(("k", "a", 9), ("other", "b", 9)), 0)
    state.step(records(("other", "b", 9), first=2), 0)
    assert [len(stream) for stream, _ in seen if len(stream)] == [1]


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        ("failing", "the joiner fails: ValueError: no such field"),
        ("short", "the joiner gives 1 values for 2 rows"),
        ("numbers", "the joiner gives an array of int64, not an Arrow array of binary or string"),
        ("listed", "the joiner gives list, not an Arrow array of binary or string"),
    ],
)
def test_an_invalid_result_is_an_error_that_names_the_joiner(function: str, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as refused:
        joined_by(function)
    assert refused.value.value == f"{here.__name__}:{function}"


@pytest.mark.parametrize(
    "joiner", [f"{here.__name__}:nothing", "no_such_module:function", f"{here.__name__}:NO_FUNCTION"]
)
def test_a_missing_joiner_is_refused_when_the_state_is_opened(joiner: str) -> None:
    with pytest.raises(UserError, match="the joiner") as refused:
        opened(table_of(), joiner=joiner)
    assert refused.value.value == joiner
