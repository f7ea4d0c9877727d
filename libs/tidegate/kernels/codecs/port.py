"""What every codec of values does: it reads bytes into typed Arrow columns, and writes columns as bytes.

A decoder is made for the columns that somebody reads, and an encoder for the columns that are there: what depends on
the schema alone is done once, not per batch. Neither raises for what is in a row: a code per row says why it has no
result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidegate.contracts.operator import Array

CODE = np.int16
"""The type of codes: a schema may have thousands of fields, each with reasons of its own."""


class Decoded(NamedTuple):
    """The columns of the schema, and a code per row: 0, or 1 + the index in `reasons` of why it cannot be read.

    A row with another code than 0 has no value in any column.
    """

    columns: list[pa.Array]
    code: Array
    reasons: Sequence[str]

    def causes(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return why these rows cannot be read."""
        return [self.reasons[code - 1] for code in self.code[rows]]


class Encoded(NamedTuple):
    """The bytes of each row, null where the row is null, and a code per row, as in Decoded."""

    values: pa.Array
    code: Array
    reasons: Sequence[str]

    @classmethod
    def of(cls, out: Array, bounds: Array, code: Array, reasons: Sequence[str]) -> Encoded:
        """Return rows that stand one behind the other: row i is `out[bounds[i] : bounds[i + 1]]`, null if refused."""
        good = pa.py_buffer(np.packbits(code == 0, bitorder="little"))
        buffers = [good, pa.py_buffer(bounds.astype(np.int32)), pa.py_buffer(out)]
        return cls(pa.Array.from_buffers(pa.binary(), len(code), buffers), code, reasons)

    def causes(self, rows: npt.NDArray[np.int64]) -> list[str]:
        """Return why these rows cannot be written."""
        return [self.reasons[code - 1] for code in self.code[rows]]


class Decoder(Protocol):
    """Reads the columns of `schema`."""

    schema: pa.Schema

    def columns(self, data: Array, start: Array, length: Array) -> Decoded:
        """Read the values `data[start : start + length]` (length -1: null)."""
        ...


class Encoder(Protocol):
    """Writes columns."""

    def encode(self, columns: pa.RecordBatch) -> Encoded:
        """Write each row of the columns, which have the types for which the encoder was made."""
        ...
