"""Records as JSON lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.devkit.record_lines import (
    BadLine,
    Record,
    format_line,
    parse_line,
)

pytestmark = pytest.mark.fast

content = st.one_of(st.none(), st.binary(max_size=20), st.text(max_size=20).map(str.encode))
numbers = st.one_of(st.none(), st.integers(0, (1 << 63) - 1))
headers = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=3).map(tuple)
records = st.builds(Record, key=content, value=content, timestamp=numbers, partition=numbers, headers=headers)


@given(records)
def test_produce_reads_what_consume_writes(record: Record) -> None:
    assert parse_line(format_line(record)) == record


def test_text_stays_readable_and_other_bytes_become_base64() -> None:
    line = format_line(Record(key="Zürich".encode(), value=b"\xff", timestamp=7, partition=1, offset=5))
    assert line == '{"partition":1,"offset":5,"timestamp":7,"key":"Zürich","value_base64":"/w==","headers":[]}'


def test_a_null_value_is_kafka_s_null_and_an_empty_string_is_not() -> None:
    record = parse_line('{"key": "", "value": null}')
    assert (record.key, record.value) == (b"", None)


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("{", "not JSON"),
        ("[]", "not a JSON object"),
        ('{"kye": "a"}', "unknown: kye"),
        ('{"value": {"x": 1}}', "value is neither a string nor null"),
        ('{"key": "a", "key_base64": "YQ=="}', "both key and key_base64 are given"),
        ('{"value_base64": "?"}', "value_base64 is not base64"),
        ('{"value_base64": 1}', "value_base64 is not base64"),
        ('{"timestamp": "1"}', "timestamp is not a whole number"),
        ('{"timestamp": true}', "timestamp is not a whole number"),
        ('{"partition": -1}', "partition is not a whole number"),
        ('{"headers": {}}', "headers is not a list"),
        ('{"headers": [{"value": "a"}]}', "a header is not an object with a key"),
        ('{"headers": [{"key": "a"}]}', "a header has no value"),
    ],
)
def test_a_line_that_is_not_a_record_is_reported_with_the_reason(line: str, cause: str) -> None:
    with pytest.raises(BadLine, match=cause):
        parse_line(line)
