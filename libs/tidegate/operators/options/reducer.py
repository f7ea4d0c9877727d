"""Merges values into one, by a function of the user's own.

`merge(left, right)` gets two record batches with the fields of the values. Row i of the batch that it returns is what
row i of both is merged into. Batches end and sessions merge anywhere, so which values are merged first is not defined:
the function must be associative and commutative.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidegate.contracts.errors import UserError
from tidegate.contracts.operator import Array
from tidegate.expressions.layers import objects_of
from tidegate.kernels.codecs.json_columns import JsonDecoder
from tidegate.kernels.codecs.port import Decoded
from tidegate.kernels.columns import binary_parts
from tidegate.operators.options import user_functions
from tidegate.operators.options.user_functions import checked_batch

_WHAT = "function of reduce"


class Reducer:
    """A function that merges, with the fields of the values. `name`: of the function, for messages."""

    def __init__(self, name: str, merge: Callable[[pa.RecordBatch, pa.RecordBatch], Any], fields: pa.Schema) -> None:
        self._name, self._merge, self._fields = name, merge, fields
        self._decoder = JsonDecoder(fields)

    @classmethod
    def loaded(cls, name: str, fields: pa.Schema) -> Reducer:
        """Return the function of that name. Raise UserError if it cannot be loaded."""
        return cls(name, user_functions.load(name, _WHAT), fields)

    def read(self, data: Array, start: Array, length: Array) -> Decoded:
        """Return the fields of the values `data[start : start + length]` (length -1: null)."""
        return self._decoder.columns(data, start, length)

    def texts(self, read: Decoded, places: Array, offsets: Array) -> pa.Array:
        """Return what each list of values is merged into, as JSON.

        Those of list i are the values that were read at `places[offsets[i] : offsets[i + 1]]`, one at least. Raise
        UserError if the function fails, or returns anything else than it must.
        """
        rows = pa.record_batch(read.columns, self._fields).take(pa.array(places))
        return self._written(self.merged(rows, np.diff(offsets)))

    def reread(self, merged: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows as they are read again once they were written as JSON. Raise UserError as `texts` does."""
        read = self.read(*binary_parts(self._written(merged)))
        return pa.record_batch(read.columns, self._fields)

    def _written(self, merged: pa.RecordBatch) -> pa.Array:
        written = objects_of(merged)
        if written.failed.any():
            raise self._wrong("returns a number that JSON does not have")
        return written.values[0]

    def merged(self, rows: pa.RecordBatch, counts: Array) -> pa.RecordBatch:
        """Merge so many consecutive rows, one at least, into one each.

        Neighbors are merged, then what they were merged into, and so on: the function is called once per doubling of
        the largest count.
        """
        while counts.max(initial=1) > 1:
            first = np.repeat(np.cumsum(counts) - counts, counts)
            place = np.arange(rows.num_rows) - first
            begins = place % 2 == 0
            paired = begins & (place + 1 < np.repeat(counts, counts))
            left = np.flatnonzero(paired)
            source = np.arange(rows.num_rows)
            source[left] = rows.num_rows + np.arange(len(left))
            merged = self.pair(rows.take(pa.array(left)), rows.take(pa.array(left + 1)))
            rows = pa.concat_batches([rows, merged]).take(pa.array(source[begins]))
            counts = (counts + 1) // 2
        return rows

    def pair(self, left: pa.RecordBatch, right: pa.RecordBatch) -> pa.RecordBatch:
        """Merge row i of both. Raise UserError as `texts` does."""
        try:
            found = self._merge(left, right)
        except Exception as error:
            raise self._wrong(f"fails: {type(error).__name__}: {error}") from error
        merged = checked_batch(found, self._fields, self._wrong)
        if merged.num_rows != left.num_rows:
            raise self._wrong(f"returns {merged.num_rows} rows for {left.num_rows}")
        return merged

    def _wrong(self, fault: str) -> UserError:
        return user_functions.wrong(self._name, _WHAT, fault)
