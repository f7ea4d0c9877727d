"""Reads the typed columns of rows: from keys, headers, values, times and windows, and only what is wanted of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.contracts.values import Path, part_of
from tidegate.kernels.codecs.port import Decoded, Decoder
from tidegate.kernels.columns import binary_column, in_one
from tidegate.operators.pipeline.evaluated.decoders import HeadersDecoder, decoder_of, key_decoder_of
from tidegate.operators.pipeline.rules.places import HEADERS, WINDOW, Place

_NUMBERS = pa.schema([("row_number", pa.int64())])
"""The only column where nothing is wanted: without one, DuckDB would not know how many rows there are."""
_NO_BYTES = np.zeros(0, np.uint8)


class Read(NamedTuple):
    """The columns of rows, and what was decoded of each part that they are read from, by part, in this order.

    Rows of which a part cannot be read have no values in its columns.
    """

    columns: pa.RecordBatch
    parts: Mapping[str, Decoded]


class ColumnReader:
    """Reads the wanted fields of the columns at a place of a pipeline.

    `parts`: the parts of rows that are decoded for that, `key`, `headers` or `value`, each with the columns that it
    gives.
    """

    def __init__(self, place: Place, wanted: Collection[Path]) -> None:
        self._place = place
        self._schema = part_of(place.columns, wanted) if wanted else _NUMBERS
        of_value = set(place.values.schema.names)
        given = {"key": {"key"} - of_value, HEADERS: {HEADERS} - of_value, "value": of_value}
        chosen = {part: [field for field in self._schema if field.name in names] for part, names in given.items()}
        self.parts = {part: frozenset(field.name for field in fields) for part, fields in chosen.items() if fields}
        self._decoders = {part: _decoder(place, part, chosen[part]) for part in self.parts}

    def read(self, rows: Records) -> Read:
        """Read the columns of the rows."""
        if self._schema is _NUMBERS:
            return Read(pa.record_batch([pa.array(np.arange(len(rows)))], _NUMBERS), {})
        parts = {part: decoder.columns(*self._bytes_of(rows, part)) for part, decoder in self._decoders.items()}
        columns: dict[str, pa.Array] = {}
        for part, decoded in parts.items():
            columns |= zip(self._decoders[part].schema.names, decoded.columns, strict=True)
        if self._place.windowed and not self._place.is_input:
            assert rows.window is not None, "rows behind windows have windows"
            columns = dict(zip(WINDOW, map(pa.array, rows.window), strict=True)) | columns
        columns = {"timestamp": pa.array(rows.timestamp)} | columns
        found = [columns[name] for name in self._schema.names]
        return Read(pa.record_batch(found, self._schema), parts)

    def _bytes_of(self, rows: Records, part: str) -> tuple[Array, Array, Array]:
        """Return where the bytes of the rows' part begin, and how long they are (-1: a null)."""
        if part == "value":
            return self._objects(rows)
        return rows.data, getattr(rows, f"{part}_start"), getattr(rows, f"{part}_length")

    def _objects(self, rows: Records) -> tuple[Array, Array, Array]:
        """Return the values as JSON objects; a bare value becomes the only field of one."""
        if self._place.values.form != "single":
            return rows.data, rows.value_start, rows.value_length
        [name] = self._place.values.schema.names
        begin, end = (pa.scalar(text, pa.binary()) for text in (f'{{"{name}":'.encode(), b"}"))
        values = in_one(binary_column(rows.data, _NO_BYTES, rows.value_start, rows.value_length))
        objects = pc.binary_join_element_wise(begin, values, end, pa.scalar(b"", pa.binary()))
        data = np.frombuffer(objects.buffers()[2] or b"", np.uint8)
        ends = np.frombuffer(objects.buffers()[1], np.int32, len(rows) + 1, objects.offset * 4).astype(np.int64)
        return data, ends[:-1], np.where(rows.value_length < 0, -1, np.diff(ends))


def _decoder(place: Place, part: str, chosen: Sequence[pa.Field]) -> Decoder:
    if part == "value":
        return decoder_of(place.values, chosen)
    return key_decoder_of(place.key, chosen) if part == "key" else HeadersDecoder(place.headers, chosen)
