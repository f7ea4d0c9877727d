"""Event timestamps from JSON values."""

from __future__ import annotations

import pytest

from tests.operators.suppression.partitions import opened, records
from tidegate.contracts.config import TimestampField
from tidegate.operators.json_values.event_timestamps import REASONS, event_timestamps

pytestmark = pytest.mark.fast


@pytest.mark.parametrize(
    ("value", "unit", "timestamp"),
    [
        ('{"at": 1700000000123}', "ms", 1_700_000_000_123),
        ('{"at": 1700000000}', "s", 1_700_000_000_000),
        ('{"at": 1700000000.123}', "s", 1_700_000_000_123),
        ('{"at": 1999}', "us", 1),
        ('{"at": -1}', "us", -1),
    ],
)
def test_a_timestamp_is_read_in_its_unit(value: str, unit: str, timestamp: int) -> None:
    field = TimestampField.model_validate({"field": "at", "unit": unit})
    timestamps, codes = event_timestamps(records(("A", value, 5)), field)
    assert (timestamps.tolist(), codes.tolist()) == ([timestamp], [0])


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "null value"),
        ("{", "not a JSON object"),
        (b"\xff", "not a JSON object"),
        ("[1]", "not a JSON object"),
        ("{}", "field is missing"),
        ('{"at": "1"}', "field is not a number"),
        ('{"at": true}', "field is not a number"),
        ('{"at": 1e300}', "out of range"),
        ('{"at": 9223372036854775808}', "out of range"),
    ],
)
def test_a_record_without_a_timestamp_is_rejected_with_the_reason_and_its_own_timestamp(
    value: str | bytes | None, reason: str
) -> None:
    state = opened(until={"time_limit": "1h"}, timestamp={"field": "at"})
    [row] = state.step(records(("A", value, 77)), 0).rejected.to_pylist()
    assert row["cause"] in REASONS
    assert row["cause"].endswith(reason)
    assert row["timestamp"] == 77


def test_the_field_decides_what_is_due_and_what_is_shown() -> None:
    state = opened(until={"time_limit": "5s"}, timestamp={"field": "at", "unit": "s"})
    result = state.step(records(("A", '{"at": 10}', 0), ("B", '{"at": 15}', 0), ("C", '{"at": -3}', 0)), 0)
    assert [(row["key"], row["timestamp"]) for row in result.emissions.to_pylist()] == [(b"A", 10_000)]
    assert result.stream_time == 15_000
    assert result.rejected["cause"].to_pylist() == ["negative timestamp"]
