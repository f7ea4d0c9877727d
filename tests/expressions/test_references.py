"""Expressions that name a field are told from those that compute something."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tidegate.expressions.checking import check
from tidegate.expressions.references import reference_of

pytestmark = pytest.mark.fast

INSIDE = pa.struct({"gust": pa.float64(), "a.b": pa.int64()})
SCHEMA = pa.schema({"delay": pa.int64(), 'q"q': pa.int64(), "a.b": pa.int64(), "é": pa.int64(), "weather": INSIDE})


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("delay", ("delay",)),
        (' "Delay" ', ("delay",)),
        ('"q""q"', ('q"q',)),
        ('"a.b"', ("a.b",)),
        ("é", ("é",)),
        ("weather", ("weather",)),
        ("weather.GUST", ("weather", "gust")),
        ('"weather" . "a.b"', ("weather", "a.b")),
    ],
)
def test_the_name_of_a_field_has_its_values(text, path):
    assert reference_of(check(text, SCHEMA)) == path


@pytest.mark.parametrize(
    "text", ["delay + 0", "-delay", "true", "'delay'", "abs(delay)", "1", "delay = delay", "delay::int"]
)
def test_everything_else_computes(text):
    assert reference_of(check(text, SCHEMA)) is None
