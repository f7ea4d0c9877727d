"""Reads the typed columns of rows: from their keys, values, times and windows, and only what is wanted of them."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidegate.contracts.operator import Array
from tidegate.contracts.records import Records
from tidegate.contracts.values import Path, part_of
from tidegate.kernels.codecs.port import CODE, Decoded
from tidegate.kernels.columns import binary_column, in_one
from tidegate.operators.pipeline.evaluated.decoders import decoder_of, key_decoder_of
from tidegate.operators.pipeline.rules.places import WINDOW, Place

_NO_BYTES = np.zeros(0, np.uint8)


class Read(NamedTuple):
    """The columns of rows, and which rows have a key or a value that cannot be read. Their columns are null."""

    columns: pa.RecordBatch
    key: Decoded
    value: Decoded


class ColumnReader:
    """Reads the wanted fields of the columns at a place of a pipeline.

    `of_value`, `of_key`: the columns with wanted fields that each gives.
    """

    def __init__(self, place: Place, wanted: Collection[Path]) -> None:
        self._place = place
        self._schema = part_of(place.columns, [*wanted, ("timestamp",)])
        self.of_value = frozenset(self._schema.names) & frozenset(place.values.schema.names)
        self.of_key = frozenset({"key"} & set(self._schema.names)) - self.of_value
        chosen = [field for field in self._schema if field.name in self.of_value]
        self._values_decoder = decoder_of(place.values, chosen)
        self._key_decoder = key_decoder_of(place.key, [field for field in self._schema if field.name in self.of_key])

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


def _nothing_refused(count: int) -> Decoded:
    return Decoded([], np.zeros(count, CODE), ())


def _bytes(rows: Records, part: str) -> pa.Array:
    start, length = getattr(rows, f"{part}_start"), getattr(rows, f"{part}_length")
    return in_one(binary_column(rows.data, _NO_BYTES, start, length))
