"""The numbers that aggregates read from JSON values, beside Python's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidegate.contracts.records import Records, Row
from tidegate.operators.json_values.numbers import REASONS, read_numbers

pytestmark = pytest.mark.fast

WHOLE = st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(-(2**70), 2**70).map(str)
PLAIN = st.decimals(allow_nan=False, allow_infinity=False, places=3).map(lambda number: f"{number:f}")
SCALED = st.builds(
    "{}{}{}{}".format, WHOLE, st.sampled_from(["", ".5", ".25000"]), st.sampled_from("eE"), st.integers(-400, 400)
)
TEXTS = WHOLE | PLAIN | SCALED | st.floats(allow_nan=False, allow_infinity=False).map(repr)


def read(*values: bytes):
    rows = [Row(offset=at, timestamp=at, key=b"k", value=value, headers=None) for at, value in enumerate(values)]
    return read_numbers(Records.from_rows(rows), (("amount",),))


def python_s(text: str) -> tuple[int, float, bool] | None:
    """(whole, double, is double) of the number; None if it is infinite as a double."""
    if text.lstrip("-").isdigit() and -(2**63) <= int(text) < 2**63:
        return int(text), 0.0, False
    return None if math.isinf(float(text)) else (0, float(text), True)


@given(st.lists(TEXTS, min_size=1, max_size=20))
def test_a_number_is_the_int64_that_it_is_written_as_or_the_nearest_double(texts):
    found = read(*(b'{"amount": %s}' % text.encode() for text in texts))
    for row, text in enumerate(texts):
        if (expected := python_s(text)) is None:
            assert REASONS[found.code[row] - 1] == "no number: field is not a number"
            expected = (0, 0.0, False)
        else:
            assert found.code[row] == 0
        assert (found.whole[0, row], found.double[0, row], bool(found.is_double[0, row])) == expected


def test_what_is_no_number_has_a_reason_and_is_zero():
    found = read(b'{"amount": "1.5"}', b'{"amount": null}', b'{"other": 1.5}', b"[1.5]", b"{", b'{"amount": 1.5}')
    assert [REASONS[code - 1] if code else "" for code in found.code] == [
        "no number: field is not a number",
        "no number: field is not a number",
        "no number: field is missing",
        "no number: value is not a JSON object",
        "no number: value is not JSON",
        "",
    ]
    assert found.double[0].tolist() == [0, 0, 0, 0, 0, 1.5]
