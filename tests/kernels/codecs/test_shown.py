"""Typed columns of views: they have what the decoders read, in types that Spark has, and null where that is nothing."""

from __future__ import annotations

import json
import struct
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from tests.kernels.codecs.avro_strategies import written
from tests.kernels.codecs.protobuf_strategies import in_wire_format, message_class
from tidegate.contracts.config.option_types import ShownAs
from tidegate.contracts.values import Avro, AvroOutput, Protobuf
from tidegate.kernels.codecs.avro.encoder import AvroEncoder
from tidegate.kernels.codecs.shown import shown

pytestmark = pytest.mark.fast

INNER = {"type": "record", "name": "Inner", "fields": [{"name": "x", "type": "int"}]}
RECORD: dict[str, Any] = {
    "type": "record",
    "name": "Event",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {"name": "inner", "type": ["null", INNER]},
    ],
}
PROTO = 'syntax = "proto3"; message Counts { uint64 all = 1; uint32 few = 2; optional string name = 3; }'


@pytest.mark.parametrize(
    ("form", "packed", "value"),
    [("int16", ">h", -2), ("int32", ">i", -3), ("int64", ">q", -4), ("float32", ">f", 0.5), ("float64", ">d", 0.1)],
)
def test_numbers_are_numbers_and_what_is_none_is_null(form: ShownAs, packed: str, value: float) -> None:
    found = shown(form).column(pa.array([struct.pack(packed, value), b"12345", b"", None]))
    assert found.to_pylist() == [value, None, None, None]


def test_records_of_avro_have_their_fields_whichever_schema_wrote_them(tmp_path: Path) -> None:
    older = {**RECORD, "fields": RECORD["fields"][:2]}
    newer = {**RECORD, "fields": [*RECORD["fields"][:2], {**RECORD["fields"][2], "default": None}]}
    for number, schema in {1: older, 2: newer}.items():
        (tmp_path / f"{number}.avsc").write_text(json.dumps(schema))
    event = {"at": datetime(2013, 1, 1, tzinfo=UTC), "tags": ["a"]}
    values = [written(older, event, 1), written(newer, {**event, "inner": {"x": 5}}, 2), b"\0\0\0\0\x01\x05", None]
    column = shown(Avro(json.dumps(newer), str(tmp_path)))
    of_both = {"at": datetime(2013, 1, 1), "tags": '["a"]'}
    expected = [{**of_both, "inner": None}, {**of_both, "inner": {"x": 5}}, None, None]
    assert column.column(pa.array(values)).to_pylist() == expected
    assert from_arrow_schema(pa.schema({"v": column.type}), prefer_timestamp_ntz=True)["v"].dataType.simpleString() == (
        "struct<at:timestamp_ntz,tags:string,inner:struct<x:int>>"
    )


def test_results_in_avro_need_no_registry(tmp_path: Path) -> None:
    schema = json.dumps({"type": "record", "name": "N", "fields": [{"name": "n", "type": "long"}]})
    rows = pa.record_batch({"n": [7, 8]})
    values = AvroEncoder(rows.schema, schema, 42).encode(rows).values
    assert shown(AvroOutput(schema, 42)).column(values).to_pylist() == [{"n": 7}, {"n": 8}]
    assert shown(AvroOutput(schema, 43)).column(values).to_pylist() == [None, None]


def test_unsigned_numbers_of_protobuf_have_types_of_spark(tmp_path: Path) -> None:
    (tmp_path / "5.proto").write_text(PROTO)
    most = message_class(PROTO, "Counts")(all=2**64 - 1, few=2**32 - 1).SerializeToString()
    column = shown(Protobuf(PROTO, "Counts", str(tmp_path)))
    found = column.column(pa.array([in_wire_format(most, 5, b"\0"), b"{}"]))
    assert found.to_pylist() == [{"all": Decimal(2**64 - 1), "few": 2**32 - 1, "name": None}, None]
    assert [field.type for field in column.type] == [pa.decimal128(20), pa.int64(), pa.string()]
