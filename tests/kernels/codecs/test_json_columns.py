"""JSON objects as typed columns, compared with another parser."""

from __future__ import annotations

import base64
import json
import math
import re

import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidegate.kernels.codecs.json_columns import JsonDecoder

pytestmark = pytest.mark.fast

WEATHER = pa.struct([("gust", pa.float64()), ("at", pa.struct([pa.field("place", pa.string(), nullable=False)]))])
SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        pa.field("small", pa.int16(), nullable=False),
        ("half", pa.float32()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("weather", WEATHER),
        ("any", pa.large_string()),
    ]
)
DECODER = JsonDecoder(SCHEMA)


def decoded(*texts, decoder=DECODER):
    """The rows of the values, each with the reason why it was refused; None: it was not."""
    values = [text if isinstance(text, bytes) else text.encode() for text in texts]
    data = np.frombuffer(b"".join(values), np.uint8)
    length = np.array([len(value) for value in values], np.int64)
    start = np.concatenate([[0], np.cumsum(length)[:-1]]).astype(np.int64) if len(values) else length
    found = decoder.columns(data, start, length)
    rows = pa.table(found.columns, schema=decoder.schema).to_pylist()
    return [(row, None if code == 0 else found.reasons[code - 1]) for row, code in zip(rows, found.code, strict=True)]


NOTHING = dict.fromkeys(SCHEMA.names)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"small": 1}', {"small": 1}),
        ('{"small": 1, "n": 9223372036854775807}', {"small": 1, "n": 2**63 - 1}),
        ('{"small": 1, "n": null, "text": null, "weather": null}', {"small": 1}),
        ('{"small": 2, "small": 1}', {"small": 1}),
        (' {"text" : "a\\u00e9\\n\\ud83d\\ude00" , "small": -32768 } ', {"text": "aé\n😀", "small": -32768}),
        ('{"half": 0.1, "small": 0}', {"half": float(np.float32(0.1)), "small": 0}),
        ('{"half": "-Infinity", "small": 0}', {"half": -math.inf, "small": 0}),
        (
            '{"weather": {"gust": "I\\u006efinity"}, "small": 0}',
            {"weather": {"gust": math.inf, "at": None}, "small": 0},
        ),
        ('{"flag": false, "small": 0}', {"flag": False, "small": 0}),
        ('{"weather": {"gust": 1e3}, "small": 0}', {"weather": {"gust": 1000.0, "at": None}, "small": 0}),
        (
            '{"weather": {"gust": 1, "at": {"place": "JFK"}}, "small": 0}',
            {"weather": {"gust": 1.0, "at": {"place": "JFK"}}, "small": 0},
        ),
        ('{"weather": {"gust": 1}, "weather": {}, "small": 0}', {"weather": {"gust": None, "at": None}, "small": 0}),
        ('{"any": [1, {"n": 5}], "small": 0}', {"any": '[1, {"n": 5}]', "small": 0}),
        ('{"x": {"n": 5, "small": 4}, "small": 3, "y": [{"small": 2}]}', {"small": 3}),
        ('{"sm\\u0061ll": 7}', {"small": 7}),
    ],
)
def test_a_field_has_the_value_of_its_type(text, expected):
    assert decoded(text) == [(NOTHING | expected, None)]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "value: not JSON"),
        ("", "value: not JSON"),
        (b'{"small": 1, "text": "\xff"}', "value: not JSON"),
        ("[1]", "value: not a JSON object"),
        ("{}", "value: small is missing"),
        ('{"small": null}', "value: small is missing"),
        ('{"small": 32768}', "value: small is no int16"),
        ('{"small": 1.0}', "value: small is no int16"),
        ('{"small": "1"}', "value: small is no int16"),
        ('{"small": 1, "n": 9223372036854775808}', "value: n is no int64"),
        ('{"small": 1, "n": true}', "value: n is no int64"),
        ('{"small": 1, "half": 1e300}', "value: half is no float"),
        ('{"small": 1, "half": "1"}', "value: half is no float"),
        ('{"small": 1, "half": "nan"}', "value: half is no float"),
        ('{"small": 1, "half": "+Infinity"}', "value: half is no float"),
        ('{"small": 1, "half": "NaN "}', "value: half is no float"),
        ('{"small": 1, "half": NaN}', "value: not JSON"),
        ('{"small": 1, "n": "NaN"}', "value: n is no int64"),
        ('{"small": 1, "text": 5}', "value: text is no string"),
        ('{"small": 1, "text": "\\ud800"}', "value: text is no string"),
        ('{"small": 1, "flag": 1}', "value: flag is no bool"),
        ('{"small": 1, "weather": 7}', "value: weather is no JSON object"),
        ('{"small": 1, "weather": {"at": {}}}', "value: weather.at.place is missing"),
        ('{"small": 1, "weather": {"gust": []}}', "value: weather.gust is no double"),
    ],
)
def test_a_value_that_does_not_fit_the_schema_is_refused_with_the_first_reason(text, reason):
    assert decoded(text, '{"small": 5}') == [(NOTHING, reason), (NOTHING | {"small": 5}, None)]


@pytest.mark.parametrize("number", ["1e400", "1" + "0" * 400, "123456789012345678901234567890e300"])
def test_a_number_that_is_too_large_is_refused_before_what_is_wrong_behind_it(number):
    texts = [f'{{"half": {number}, "small": 1, "text": 5}}', f'{{"n": "x", "half": {number}, "small": 1}}']
    decoder = JsonDecoder(pa.schema([SCHEMA.field(name) for name in ("n", "small", "half", "text")]))
    reasons = [reason for _, reason in decoded(*texts, decoder=decoder)]
    assert reasons == ["value: half is no float", "value: n is no int64"]


@pytest.mark.parametrize(
    ("text", "content"),
    [("", b""), ("AA==", b"\0"), ("+/8=", b"\xfb\xff"), ("\\u0041\\/8\\u003d", b"\x03\xff"), ("AAAA" * 20, bytes(60))],
)
def test_base64_is_bytes_however_it_is_escaped(text, content):
    decoder = JsonDecoder(pa.schema([("b", pa.binary())]))
    assert decoded(f'{{"b": "{text}"}}', decoder=decoder) == [({"b": content}, None)]


@pytest.mark.parametrize("text", ["A", "AA=", "A===", "====", "AA==AAAA", "AAA-", "AA A", "AAAÄ", "=AAA", "A=AA"])
def test_what_is_no_padded_base64_is_refused(text):
    decoder = JsonDecoder(pa.schema([("b", pa.binary())]))
    assert decoded(f'{{"b": "{text}"}}', decoder=decoder) == [({"b": None}, "value: b is no binary")]


def test_no_values_are_no_rows():
    assert decoded() == []


def test_a_type_that_json_is_not_read_into_is_a_mistake_of_the_caller():
    with pytest.raises(TypeError, match="not read into decimal256"):
        decoded("{}", decoder=JsonDecoder(pa.schema([("x", pa.decimal256(40, 2))])))


NOT_FINITE = ["NaN", "Infinity", "-Infinity"]
NUMBERS = st.integers(-(2**65), 2**65) | st.floats(allow_nan=False, allow_infinity=False) | st.integers(-300, 300)
ANY = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["n", "text", "at", "x"]), inner, max_size=3)
    ),
    max_leaves=6,
)
TYPES = st.recursive(
    st.sampled_from(
        [pa.bool_(), pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary()]
    ),
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["n", "text", "at", "x", "ä"]), inner, st.booleans()),
        min_size=1,
        max_size=3,
        unique_by=lambda f: f[0],
    ).map(lambda fields: pa.struct([pa.field(*field) for field in fields])),
    max_leaves=5,
)
SCHEMAS = st.lists(
    st.tuples(st.sampled_from(["n", "text", "weather", "at"]), TYPES, st.booleans()),
    min_size=1,
    max_size=4,
    unique_by=lambda f: f[0],
).map(lambda fields: pa.schema([pa.field(*field) for field in fields]))


BASE64 = re.compile("(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")


def fits(value, field):
    """What the field is for another parser: whether it fits, and its value."""
    if value is None:
        return field.nullable, None
    if pa.types.is_struct(field.type):
        if not isinstance(value, dict):
            return False, None
        inside = [field.type.field(place) for place in range(field.type.num_fields)]
        found = {each.name: fits(value.get(each.name), each) for each in inside}
        return all(good for good, _ in found.values()), {name: got for name, (_, got) in found.items()}
    if pa.types.is_boolean(field.type):
        return isinstance(value, bool), value
    if pa.types.is_string(field.type):
        return isinstance(value, str), value
    if pa.types.is_binary(field.type):
        good = isinstance(value, str) and BASE64.fullmatch(value) is not None
        return good, base64.b64decode(value) if good else None
    if pa.types.is_floating(field.type) and isinstance(value, str) and value in NOT_FINITE:
        return True, float(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False, None
    if pa.types.is_integer(field.type):
        limits = np.iinfo(field.type.to_pandas_dtype())
        return isinstance(value, int) and limits.min <= value <= limits.max, value
    with np.errstate(over="ignore"):
        narrow = float(np.dtype(field.type.to_pandas_dtype()).type(float(value)))
    return math.isfinite(narrow), narrow


@st.composite
def objects(draw, schema):
    """An object with most of the schema's fields, most of them of the right type."""

    def of(field):
        if draw(st.integers(0, 9)) == 0:
            return draw(ANY)
        if pa.types.is_struct(field.type):
            inside = [field.type.field(place) for place in range(field.type.num_fields)]
            return {each.name: of(each) for each in inside if draw(st.integers(0, 9)) > 0}
        if pa.types.is_boolean(field.type):
            return draw(st.booleans())
        if pa.types.is_binary(field.type):
            return base64.b64encode(draw(st.binary(max_size=8))).decode()
        if pa.types.is_floating(field.type) and draw(st.integers(0, 9)) == 0:
            return draw(st.sampled_from(NOT_FINITE))
        return draw(st.text(max_size=5)) if pa.types.is_string(field.type) else draw(NUMBERS)

    made = {field.name: of(field) for field in schema if draw(st.integers(0, 9)) > 0}
    return made | draw(st.dictionaries(st.text(max_size=3), ANY, max_size=2))


@given(data=st.data(), schema=SCHEMAS, ascii_only=st.booleans(), indent=st.sampled_from([None, 1]))
def test_columns_are_what_another_parser_reads(data, schema, ascii_only, indent):
    values = data.draw(st.lists(objects(schema), max_size=4))
    texts = [json.dumps(value, ensure_ascii=ascii_only, indent=indent) for value in values]
    decoder = JsonDecoder(schema)
    for text, value, (row, reason) in zip(texts, values, decoded(*texts, decoder=decoder), strict=True):
        expected = {field.name: fits(value.get(field.name), field) for field in schema}
        good = all(fitting for fitting, _ in expected.values())
        assert (reason is None) == good, (text, reason)
        read = {name: got for name, (_, got) in expected.items()} if good else dict.fromkeys(schema.names)
        assert repr(row) == repr(read)  # nan is not itself


@given(text=st.from_regex(r"-?(0|[1-9][0-9]{0,24})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,3})?", fullmatch=True))
@example("-0")
@example("9007199254740993")
@example("0.30000000000000004")
@example("123456789012345.6789")
@example("5e-324")
def test_a_float_is_the_nearest_one(text):
    [(row, reason)] = decoded(f'{{"x": {text}}}', decoder=JsonDecoder(pa.schema([("x", pa.float64())])))
    expected = float(text)
    if math.isinf(expected):
        assert reason == "value: x is no double"
    else:
        assert (row["x"], math.copysign(1, row["x"])) == (expected, math.copysign(1, expected))


@given(st.binary(max_size=40) | st.text(max_size=30).map(lambda text: ('{"n":' + text).encode("utf-8", "ignore")))
def test_bytes_are_json_when_another_parser_reads_them_and_nothing_fails(raw):
    [(_, reason)] = decoded(raw, decoder=JsonDecoder(pa.schema([("n", pa.large_string())])))
    try:
        expected = isinstance(orjson.loads(raw), dict)
    except orjson.JSONDecodeError:
        return  # it refuses some numbers and surrogates that the grammar allows
    assert (reason is None) == expected


def test_a_schema_may_have_any_number_of_fields_each_with_its_own_reasons():
    decoder = JsonDecoder(pa.schema([(f"f{at}", pa.int8()) for at in range(200)]))
    [(_, reason)] = decoded('{"f199": 1000}', decoder=decoder)
    assert reason == "value: f199 is no int8"
