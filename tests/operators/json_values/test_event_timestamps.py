"""Event timestamps from JSON values."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.operators.suppression.partitions import opened, records
from tidegate.contracts.config.rules import TimestampField
from tidegate.contracts.event_time import MAX_TIME
from tidegate.operators.json_values.event_timestamps import OUT_OF_RANGE, REASONS, event_timestamps

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


DIGITS = st.one_of(st.integers(0, 2**64), st.integers(2**60, 2**62), st.integers(0, 10_000))
FRACTIONS = st.one_of(st.just(""), st.text("0123456789", min_size=1, max_size=12).map(lambda digits: f".{digits}"))
PER_MS = {"ms": Fraction(1), "s": Fraction(1_000), "us": Fraction(1, 1_000)}


@given(sign=st.sampled_from(["", "-"]), digits=DIGITS, fraction=FRACTIONS, unit=st.sampled_from(sorted(PER_MS)))
@example(sign="-", digits=0, fraction=".0001", unit="s")
@example(sign="-", digits=2**63 - 1, fraction=".5", unit="ms")
@example(sign="-", digits=2**63, fraction="", unit="ms")
@example(sign="", digits=2**61, fraction=".9", unit="ms")
@example(sign="", digits=2**61 // 1_000, fraction=".693953", unit="s")
@example(sign="", digits=2**61 // 1_000, fraction=".6930", unit="s")
def test_a_decimal_number_is_read_exactly_and_rounded_down(sign: str, digits: int, fraction: str, unit: str) -> None:
    text = f"{sign}{digits}{fraction}"
    expected = math.floor(Fraction(Decimal(text)) * PER_MS[unit])
    field = TimestampField.model_validate({"field": "at", "unit": unit})
    [timestamp], [code] = event_timestamps(records(("A", f'{{"at": {text}}}', 5)), field)
    assert (timestamp, code) == ((expected, 0) if abs(expected) <= MAX_TIME else (5, OUT_OF_RANGE))
