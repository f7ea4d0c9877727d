"""Durations and sizes as people write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.event_time import MAX_TIME, format_duration_ms, parse_duration_ms, parse_size_bytes

pytestmark = pytest.mark.fast


@given(st.integers(0, MAX_TIME))
def test_a_formatted_duration_is_read_back_as_the_same_number(duration_ms):
    assert parse_duration_ms(format_duration_ms(duration_ms)) == duration_ms


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("200ms", 200),
        ("30s", 30_000),
        ("5m", 300_000),
        ("2h", 7_200_000),
        ("30d", 2_592_000_000),
        ("PT5M", 300_000),
        ("P1DT2H", 93_600_000),
        ("PT0.5S", 500),
        ("PT1.25S", 1_250),
        ("0", 0),
    ],
)
def test_durations_are_read_in_short_and_in_iso_form(text, expected_ms):
    assert parse_duration_ms(text) == expected_ms


@pytest.mark.parametrize("text", ["", "5", "5 m", "-5s", "P", "PT", "1y", "1.5h", "5M", "٣s", "9999999999999999d"])
def test_anything_else_is_refused_with_a_remedy(text):
    with pytest.raises(ValueError, match="write"):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    ("text", "expected"), [("500B", 500), ("64KiB", 65_536), ("64MiB", 67_108_864), ("1GiB", 2**30)]
)
def test_sizes_are_read_with_binary_units(text, expected):
    assert parse_size_bytes(text) == expected


@pytest.mark.parametrize("text", ["64", "64MB", "-1B", "1.5GiB"])
def test_a_size_without_a_binary_unit_is_refused(text):
    with pytest.raises(ValueError, match="write"):
        parse_size_bytes(text)
