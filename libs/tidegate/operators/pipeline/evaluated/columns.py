"""Reads the typed columns of rows: from their keys, values, times and windows, and only those that are wanted."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.kernels.codecs.avro.decoder import AvroDecoder
from tidegate.kernels.codecs.json_columns import JsonDecoder
from tidegate.kernels.codecs.port import CODE, Decoded, Decoder
from tidegate.kernels.codecs.primitives import PrimitiveDecoder
from tidegate.kernels.columns import binary_column, in_one
from tidegate.operators.pipeline.evaluated.schema_sources import source_of
from tidegate.operators.pipeline.rules.places import WINDOW, Place

_NO_BYTES = np.zeros(0, np.uint8)


class Read(NamedTuple):
    """The columns of rows, and which rows have a key or a value that cannot be read. Their columns are null."""

    columns: pa.RecordBatch
    key: Decoded
    value: Decoded


class ColumnReader:
    """Reads the wanted columns at a place of a pipeline. `of_value`, `of_key`: the wanted columns that each gives."""

    def __init__(self, place: Place, wanted: Collection[str]) -> None:
        self._place = place
        fields = place.values.schema
        self._schema = pa.schema(
            [field for field in place.columns if field.name in wanted or field.name == "timestamp"]
        )
        self.of_value = frozenset(name for name in self._schema.names if name in fields.names)
        self.of_key = frozenset({"key"} & set(self._schema.names)) - self.of_value
        chosen = [field for field in fields if field.name in self.of_value]
        self._values_decoder = _decoder_of(place, chosen)
        self._key_decoder = PrimitiveDecoder(place.key, "key")

    def read(self, rows: Records) -> Read:
        """Read the columns of the rows."""
        columns, value = self._values(rows)
        key = _nothing_refused(len(rows))
        if self.of_key:
            key = self._key_decoder.columns(rows.data, rows.key_start, rows.key_length)
            [columns["key"]] = key.columns
        if self._place.windowed and not self._place.is_input:
            assert rows.window is not None, "rows behind windows have windows"
            columns = dict(zip(WINDOW, map(pa.array, rows.window), strict=True)) | columns
        columns = {"timestamp": pa.array(rows.timestamp)} | columns
        found = [columns[name] for name in self._schema.names]
        return Read(pa.record_batch(found, self._schema), key, value)

    def _values(self, rows: Records) -> tuple[dict[str, pa.Array], Decoded]:
        if not self.of_value:
            return {}, _nothing_refused(len(rows))
        decoded = self._values_decoder.columns(*self._objects(rows))
        columns = dict(zip(self._values_decoder.schema.names, decoded.columns, strict=True))
        if self._place.values.form == "joined":
            columns = _flat(columns, self._place.values.schema.names[-1])
        return columns, decoded

    def _objects(self, rows: Records) -> tuple[Array, Array, Array]:
        """Return the values as JSON objects; a bare value becomes the only field of one."""
        if self._place.values.form != "single":
            return rows.data, rows.value_start, rows.value_length
        [name] = self._place.values.schema.names
        begin, end = (pa.scalar(text, pa.binary()) for text in (f'{{"{name}":'.encode(), b"}"))
        objects = pc.binary_join_element_wise(begin, _bytes(rows, "value"), end, pa.scalar(b"", pa.binary()))
        data = np.frombuffer(objects.buffers()[2] or b"", np.uint8)
        ends = np.frombuffer(objects.buffers()[1], np.int32, len(rows) + 1, objects.offset * 4).astype(np.int64)
        return data, ends[:-1], np.where(rows.value_length < 0, -1, np.diff(ends))


def _decoder_of(place: Place, chosen: list[pa.Field]) -> Decoder:
    """Return the decoder of these fields of the values."""
    form = place.values.form
    if form == "avro":
        assert place.values.avro is not None
        schema, schemas = place.values.avro
        return AvroDecoder(schema, [field.name for field in chosen], source_of(schemas))
    if form == "object" or form == "single" or form == "joined":
        return JsonDecoder(_decoded_schema(place, chosen))
    return PrimitiveDecoder(form, "value")


def _decoded_schema(place: Place, chosen: list[pa.Field]) -> pa.Schema:
    """Return the fields that are decoded. Values of a join have those of both sides in an object each."""
    if place.values.form != "joined":
        return pa.schema(chosen)
    table = place.values.schema.names[-1]
    sides = {
        "stream": pa.struct([field for field in chosen if field.name != table]),
        "table": next((field.type for field in chosen if field.name == table), None),
    }
    return pa.schema([pa.field(side, type) for side, type in sides.items() if type is not None and len(type)])


def _flat(columns: dict[str, pa.Array], table: str) -> dict[str, pa.Array]:
    """Return the fields of the stream's value as columns, and the table's value by the table's name."""
    stream = columns.get("stream")
    names = [] if stream is None else [field.name for field in stream.type]
    found = {} if stream is None else dict(zip(names, stream.flatten(), strict=True))
    return found | ({table: columns["table"]} if "table" in columns else {})


def _nothing_refused(count: int) -> Decoded:
    return Decoded([], np.zeros(count, CODE), ())


def _bytes(rows: Records, part: str) -> pa.Array:
    start, length = getattr(rows, f"{part}_start"), getattr(rows, f"{part}_length")
    return in_one(binary_column(rows.data, _NO_BYTES, start, length))
