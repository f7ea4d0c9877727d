"""The speed of codecs on one core: bytes of 200,000 values to typed columns, and columns to bytes.

Avro has four fields, all of them wanted: a string of 4 bytes, a double, a long that may be null, a string of 40 bytes.
Protobuf has the same fields, of which the long is optional. JSON has 120 bytes and six members, three of them wanted.
Times are CPU seconds, because all work is in one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
from google.protobuf.message_factory import GetMessageClass

from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.avro.encoder import AvroEncoder
from tidegate.kernels.codecs.json_columns import JsonDecoder
from tidegate.kernels.codecs.primitives import PrimitiveDecoder, PrimitiveEncoder
from tidegate.kernels.codecs.protobuf.decoder import ProtobufDecoder
from tidegate.kernels.codecs.protobuf.encoder import ProtobufEncoder
from tidegate.kernels.codecs.protobuf.schemas import message_of, read_schema
from tidegate.kernels.columns import binary_parts

RECORDS = 200_000
SCHEMA = {
    "type": "record",
    "name": "Payment",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "count", "type": ["null", "long"]},
        {"name": "note", "type": "string"},
    ],
}
PROTO = """
syntax = "proto3";
message Payment { string user = 1; double amount = 2; optional int64 count = 3; string note = 4; }
"""
TEXT = orjson.dumps(SCHEMA).decode()
COLUMNS = pa.schema({"user": pa.string(), "amount": pa.float64(), "count": pa.int64(), "note": pa.string()})


class _Known:
    """One schema, under every number."""

    def __init__(self, text: str) -> None:
        self._text = text

    def schema(self, number: int) -> str | None:
        """Return the schema's text."""
        return self._text

    def imports(self, number: int) -> dict[str, str]:
        """Return nothing: the schema imports no other."""
        return {}


def measure(say: Any) -> dict[str, float]:
    """Return records per second, medians of 5 runs after one warm-up run."""
    rows = _rows()
    writer, numbers = AvroEncoder(COLUMNS, TEXT, 17), PrimitiveEncoder("int64")
    counts = pa.record_batch([rows.column("count").fill_null(0)], ["value"])
    avro, longs = binary_parts(writer.encode(rows).values), binary_parts(numbers.encode(counts).values)
    reader, long_reader = AvroDecoder(TEXT, COLUMNS, _Known(TEXT)), PrimitiveDecoder("int64", "value")
    messages = ProtobufDecoder(PROTO, "Payment", COLUMNS, _Known(PROTO))
    message_writer = ProtobufEncoder(COLUMNS, PROTO, "Payment", 17)
    made = _protobuf(rows)
    protobuf = binary_parts(made)
    json_reader, json = JsonDecoder(COLUMNS.remove(3)), binary_parts(_json(rows))
    assert messages.columns(*protobuf).columns == reader.columns(*avro).columns == rows.columns
    assert message_writer.encode(rows).values == made
    assert not reader.columns(*avro).code.any() and not json_reader.columns(*json).code.any()
    return {
        "avro_read_per_s": _speed(lambda: reader.columns(*avro)),
        "avro_written_per_s": _speed(lambda: writer.encode(rows)),
        "protobuf_read_per_s": _speed(lambda: messages.columns(*protobuf)),
        "protobuf_written_per_s": _speed(lambda: message_writer.encode(rows)),
        "json_read_per_s": _speed(lambda: json_reader.columns(*json)),
        "int64_read_per_s": _speed(lambda: long_reader.columns(*longs)),
        "int64_written_per_s": _speed(lambda: numbers.encode(counts)),
    }


def _rows() -> pa.RecordBatch:
    places = np.arange(RECORDS)
    return pa.record_batch(
        [
            pa.array([f"u{place:03}" for place in (places % 1_000).tolist()], pa.string()),
            pa.array(places * 0.25),
            pa.array(places % 7, mask=places % 7 == 0),
            pa.array(["x" * 40] * RECORDS, pa.string()),
        ],
        COLUMNS,
    )


def _protobuf(rows: pa.RecordBatch) -> pa.Array:
    made = GetMessageClass(message_of(read_schema(PROTO), "Payment"))
    values = [b"\0\0\0\0\x11\0" + made(**row).SerializeToString() for row in rows.to_pylist()]
    return pa.array(values, pa.binary())


def _json(rows: pa.RecordBatch) -> pa.Array:
    values = [orjson.dumps(row | {"tags": [1, 2], "source": "gate-12"}) for row in rows.to_pylist()]
    return pa.array(values, pa.binary())


def _speed(work: Callable[[], object]) -> float:
    times: list[float] = []
    for _ in range(6):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return RECORDS / median(times[1:])
