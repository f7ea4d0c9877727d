"""A million damaged values for each codec: each is read as its oracle reads it, or refused, and nothing fails."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.codecs import avro_strategies as avro
from tests.kernels.codecs import protobuf_strategies as protobuf
from tests.kernels.codecs import test_json_columns as of_json
from tests.kernels.codecs.damage import damaged
from tests.kernels.codecs.test_avro import reading
from tidegate.kernels.codecs.json_columns import JsonDecoder

pytestmark = [pytest.mark.long, pytest.mark.timeout(3_600)]

SCHEMAS, VALUES = 500, 2_000
"""How many schemas are drawn, and how many damaged values of each."""


def play(draw_values: Callable[[st.DataObject], tuple[Any, Sequence[bytes]]], judged: Any) -> None:
    """Damage values of SCHEMAS schemas, and have them judged: `judged(schema, values)` tells which were read."""
    seen: Counter[str] = Counter()

    @settings(max_examples=SCHEMAS, database=None)
    @given(st.data(), st.integers(0, 2**64))
    def of_a_schema(data: st.DataObject, seed: int) -> None:
        schema, values = draw_values(data)
        dice = random.Random(seed)
        given_values = [damaged(dice.choice(values), dice) for _ in range(VALUES)]
        seen.update(values=VALUES, read=sum(judged(schema, given_values)))

    of_a_schema()
    assert seen["values"] >= SCHEMAS * VALUES
    assert seen["values"] // 100 < seen["read"] < seen["values"]


def test_damaged_avro_is_read_as_by_fastavro_or_refused() -> None:
    def judged(schema: Any, values: list[bytes]) -> list[bool]:
        found = avro.decoded(reading(schema, {17: schema}), list(values))
        for value, row in zip(values, found, strict=True):
            if isinstance(row, dict):
                expected = avro.in_columns(schema, avro.read_by_oracle(value, schema))
                assert repr(row) == repr({name: expected[name] for name in row})  # nan is not itself
            else:
                assert row.startswith("value: ")
        return [isinstance(row, dict) for row in found]

    play(_avro_values, judged)


def _avro_values(data: st.DataObject) -> tuple[Any, Sequence[bytes]]:
    schema = data.draw(avro.schemas(times=False))
    return schema, [avro.written(schema, data.draw(avro.values(schema))) for _ in range(3)]


def test_damaged_protobuf_is_read_as_by_google_s_library_or_refused() -> None:
    def judged(schema: str, values: list[bytes]) -> list[bool]:
        found = protobuf.decoded(protobuf.reading(schema), [protobuf.in_wire_format(each) for each in values])
        for value, row in zip(values, found, strict=True):
            assert str(row).startswith("value: ") or repr(row) == repr(protobuf.read_by_oracle(schema, value))
        return [isinstance(row, dict) for row in found]

    play(_protobuf_values, judged)


def _protobuf_values(data: st.DataObject) -> tuple[Any, Sequence[bytes]]:
    schema = data.draw(protobuf.schemas())
    return schema, [data.draw(protobuf.bodies(schema)) for _ in range(3)]


def test_damaged_json_is_read_as_by_another_parser_or_refused() -> None:
    def judged(schema: pa.Schema, values: list[bytes]) -> list[bool]:
        found = of_json.decoded(*values, decoder=JsonDecoder(schema))
        for value, (row, reason) in zip(values, found, strict=True):
            expected = _read_by_another_parser(value, schema)
            if reason is None or b"\\u" not in value:  # half of a surrogate pair is refused where it is read
                assert (row if reason is None else None) == expected, value
        return [reason is None for _, reason in found]

    play(_json_values, judged)


def _json_values(data: st.DataObject) -> tuple[Any, Sequence[bytes]]:
    schema = data.draw(of_json.SCHEMAS)
    ascii_only = data.draw(st.booleans())
    return schema, [json.dumps(data.draw(of_json.objects(schema)), ensure_ascii=ascii_only).encode() for _ in range(3)]


def _read_by_another_parser(value: bytes, schema: pa.Schema) -> dict[str, Any] | None:
    """The row; None if the value is no JSON object, or has a field that does not fit."""
    try:
        found = json.loads(value.decode(), parse_constant=int)  # no constant is a number in JSON
        if not isinstance(found, dict):
            return None
        fields = {field.name: of_json.fits(found.get(field.name), field) for field in schema}
    except (ValueError, OverflowError):
        return None
    return {name: got for name, (_, got) in fields.items()} if all(fit for fit, _ in fields.values()) else None
