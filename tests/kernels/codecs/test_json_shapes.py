"""JSON values of one shape, which are read by their scalars alone: each is read as it is read alone."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.codecs.damage import damaged
from tests.kernels.codecs.test_json_columns import ANY, NUMBERS, SCHEMAS, decoded, objects
from tidegate.kernels.codecs.json_columns import JsonDecoder
from tidegate.kernels.codecs.json_spans import SCALARS

pytestmark = pytest.mark.fast

SCALAR = st.none() | st.booleans() | NUMBERS | st.text(max_size=12)
WORDS = st.sampled_from(
    ['"a"', '"\\n"', '"\\ud83d\\ude00"', '"\\ud800"', "-", "01", "1e400", "5e-324", "[", "", " 1", "tru"]
)


@st.composite
def alike(draw: st.DrawFn, value: Any) -> Any:
    """The value with other scalars, most of them of the same type."""
    if isinstance(value, dict):
        return {name: draw(alike(each)) for name, each in value.items()}
    if isinstance(value, list):
        return [draw(alike(each)) for each in value]
    if draw(st.integers(0, 4)) == 0:
        return draw(SCALAR)
    return draw(st.text(max_size=12)) if isinstance(value, str) else draw(NUMBERS)


@st.composite
def texts(draw: st.DrawFn, schema: pa.Schema) -> list[bytes]:
    """Values of a few shapes in any order, in any layout, some with duplicate keys, some damaged."""
    shapes = [draw(objects(schema)) | draw(st.dictionaries(st.text(max_size=3), ANY, max_size=2)) for _ in range(2)]
    layouts = [{"ensure_ascii": draw(st.booleans()), "indent": draw(st.sampled_from([None, 1]))} for _ in shapes]
    found, dice = list[bytes](), draw(st.randoms())
    for _ in range(draw(st.integers(1, 8))):
        at = draw(st.sampled_from([0, 0, 0, 1]))
        text = json.dumps(draw(alike(shapes[at])), **layouts[at]).encode("utf-8", "surrogatepass")
        if at == 1 and len(shapes[0]):
            text = text.replace(b"{", json.dumps(shapes[0]).encode()[:-1] + b", " if shapes[1] else b"{", 1)
        match draw(st.sampled_from(["whole", "whole", "whole", "damaged", "word"])):
            case "damaged":
                text = damaged(text, dice)
            case "word":
                text = text.replace(b"1", draw(WORDS).encode(), 1)
        found.append(text)
    return found


@given(data=st.data(), schema=SCHEMAS)
def test_values_are_read_alike_alone_and_behind_others(data: st.DataObject, schema: pa.Schema) -> None:
    values = data.draw(texts(schema))
    for each in (schema, pa.schema([pa.field(field.name, pa.large_string()) for field in schema])):
        decoder = JsonDecoder(each)
        alone = [found for value in values for found in decoded(value, decoder=decoder)]
        assert repr(decoded(*values, decoder=decoder)) == repr(alone)


@pytest.mark.parametrize("count", [0, 1, SCALARS - 2, SCALARS - 1, SCALARS, SCALARS + 5])
def test_a_value_may_have_any_number_of_scalars(count: int) -> None:
    def value(number: int, last: int) -> bytes:
        return json.dumps({"n": number, "list": [7] * count, "inside": {"last": last}, "end": number}).encode()

    decoder = JsonDecoder(
        pa.schema(
            {"n": pa.int64(), "end": pa.int64(), "inside": pa.struct({"last": pa.int64()}), "list": pa.large_string()}
        )
    )
    values = [(1, 1), (22, 1), (22, 333), (4, 4), (4, 4)]
    rows = [row for row, _ in decoded(*(value(*each) for each in values), decoder=decoder)]
    assert rows == [{"n": n, "end": n, "inside": {"last": last}, "list": json.dumps([7] * count)} for n, last in values]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param('{"n": 2, "x": 0}', 2, id="the same shape"),
        pytest.param('{"n": "2", "x": [0]}', None, id="an array for a number"),
        pytest.param('{"n": 2, "x": 0} ', 2, id="white space behind it"),
        pytest.param('{"n":  2, "x": 0}', 2, id="white space before a scalar"),
        pytest.param('{"n": 2, "x": 0}}', None, id="a sign too many"),
        pytest.param('{"n": 2, "x": 0', None, id="a sign too few"),
        pytest.param('{"n": 2, "n": 3}', 3, id="a duplicate key"),
        pytest.param('{"x": 2, "n": 3}', 3, id="another order"),
        pytest.param('{"\\u006e": 2, "x": 0}', 2, id="an escaped key"),
        pytest.param('{"n": 2, "x": }', None, id="no scalar"),
        pytest.param('{"n": 02, "x": 0}', None, id="no JSON number"),
        pytest.param("", None, id="nothing"),
        pytest.param("null", None, id="a scalar alone"),
    ],
)
def test_a_value_behind_one_of_another_shape_is_what_it_is_alone(text: str, expected: int | None) -> None:
    first, decoder = '{"n": 1, "x": 5}', JsonDecoder(pa.schema({"n": pa.int64()}))
    rows = [row["n"] for row, _ in decoded(first, text, first, text, text, decoder=decoder)]
    assert rows == [1, expected, 1, expected, expected]
